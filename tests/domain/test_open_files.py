"""How a limit of open files is divided."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from longshore.domain.policy.open_files import BASE, share, wanted


@given(st.integers(0, 1 << 20), st.integers(1, 4096), st.integers(1, 512))
def test_there_is_always_one_of_each_and_never_more_than_asked(limit: int, concurrency: int, items: int) -> None:
    got = share(limit, concurrency=concurrency, batch_items=items)
    assert 1 <= got.transfers <= concurrency and 1 <= got.batch_items <= items and got.connections >= got.transfers
    if limit >= wanted(concurrency):
        assert got.transfers == concurrency and got.batch_items == items


@given(st.integers(BASE + 16, 511), st.integers(1, 4096))
def test_a_small_limit_is_kept(limit: int, concurrency: int) -> None:
    got = share(limit, concurrency=concurrency, batch_items=512)
    assert BASE + got.transfers + got.connections + 2 * got.batch_items <= limit


def test_the_usual_limit_changes_nothing() -> None:
    got = share(1024, concurrency=32, batch_items=512)
    assert (got.transfers, got.connections, got.batch_items) == (32, 64, 512)
