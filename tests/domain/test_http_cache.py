"""What a cache of metadata may keep, and what it may answer with: RFC 9111 in tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.domain.transfer.http_cache import (
    CacheEntry,
    Use,
    age_s,
    answers_failure,
    confirmed,
    decide,
    directives,
    is_storable,
    lifetime_s,
)

DATE = "Tue, 07 Jan 2025 10:00:00 GMT"
AT = 1_736_244_000.0  # the same moment
HOUR_LATER = "Tue, 07 Jan 2025 11:00:00 GMT"
DAY_BEFORE = "Mon, 06 Jan 2025 10:00:00 GMT"
ETAG = {"etag": '"1"'}


def entry(**headers: str) -> CacheEntry:
    """Make an entry that was requested and received at the moment of its Date."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return CacheEntry(AT, AT, {"date": DATE, **fields})


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("", {}),
        ("max-age=60", {"max-age": "60"}),
        ("Max-Age=60, PRIVATE", {"max-age": "60", "private": None}),
        ('max-age="60"', {"max-age": "60"}),
        (",, max-age=1 ,,no-cache,", {"max-age": "1", "no-cache": None}),
        ("max-age=1, max-age=900", {"max-age": "1"}),
        ('private="a, no-store"', {"private": "a, no-store"}),
        ("max-age 60", None),
        ('private="a', None),
        ("=1", None),
    ],
)
def test_directives(value: str, found: dict[str, str | None] | None) -> None:
    assert directives(value) == found


@pytest.mark.parametrize(
    ("status", "headers", "storable"),
    [
        (200, {"cache-control": "max-age=60"}, True),
        (200, ETAG, True),
        (200, {"last-modified": DATE}, True),
        (200, {}, False),
        (200, {"cache-control": "max-age=0"}, False),
        (200, {"cache-control": "private, max-age=60"}, True),
        (200, ETAG | {"cache-control": "no-store"}, False),
        (200, ETAG | {"cache-control": 'no-store, private="'}, False),
        (200, ETAG | {"vary": "Accept, *"}, False),
        (200, ETAG | {"vary": "Accept"}, True),
        (206, {"cache-control": "max-age=60"}, False),
        (404, {"cache-control": "max-age=60"}, False),
    ],
)
def test_what_may_be_stored(status: int, headers: dict[str, str], storable: bool) -> None:
    assert is_storable(status, headers) is storable


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"cache-control": "max-age=60"}, 60),
        ({"cache-control": "max-age=60", "expires": HOUR_LATER, "date": DATE}, 60),
        ({"cache-control": "s-maxage=60"}, 0),
        ({"cache-control": "max-age=60, no-cache"}, 0),
        ({"cache-control": "max-age=-1"}, 0),
        ({"cache-control": "max-age=1e9"}, 0),
        ({"cache-control": "max-age=60 x"}, 0),
        ({"expires": HOUR_LATER, "date": DATE}, 3600),
        ({"expires": "0", "date": DATE}, 0),
        ({"expires": HOUR_LATER}, 0),
        ({"last-modified": DAY_BEFORE, "date": DATE}, 8640),
        ({"last-modified": "Mon, 06 Jan 2014 10:00:00 GMT", "date": DATE}, 86_400),
        ({"last-modified": HOUR_LATER, "date": DATE}, 0),
        ({"pragma": "no-cache", "last-modified": DAY_BEFORE, "date": DATE}, 0),
        ({}, 0),
    ],
)
def test_how_long_an_answer_is_fresh(headers: dict[str, str], seconds: float) -> None:
    assert lifetime_s(headers) == seconds


@pytest.mark.parametrize(
    ("given_entry", "now", "age"),
    [
        (entry(), AT, 0),
        (entry(), AT + 5, 5),
        (entry(age="30"), AT + 5, 35),
        (CacheEntry(AT + 10, AT + 12, {"age": "30"}), AT + 12, 32),
        (CacheEntry(AT + 10, AT + 12, {"date": DATE}), AT + 13, 13),
        (entry(age="x"), AT, float("inf")),
        (entry(), AT - 1, float("inf")),
    ],
)
def test_age(given_entry: CacheEntry, now: float, age: float) -> None:
    assert age_s(given_entry, now) == age


@pytest.mark.parametrize(
    ("stored", "later", "offline", "refresh", "use"),
    [
        (None, 0, False, False, Use.FETCH),
        (None, 0, True, False, Use.NOTHING),
        (entry(cache_control="max-age=60"), 59, False, False, Use.STORED),
        (entry(cache_control="max-age=60"), 60, False, False, Use.FETCH),
        (entry(cache_control="max-age=60", **ETAG), 60, False, False, Use.VALIDATE),
        (entry(cache_control="max-age=60", **ETAG), 1, False, True, Use.VALIDATE),
        (entry(cache_control="max-age=60", **ETAG), 1, True, True, Use.STORED),
        (entry(cache_control="no-cache", **ETAG), 0, False, False, Use.VALIDATE),
        (entry(cache_control="no-cache", **ETAG), 0, True, False, Use.NOTHING),
        (entry(cache_control="max-age=60, must-revalidate"), 30, True, False, Use.STORED),
        (entry(cache_control="max-age=60, must-revalidate"), 90, True, False, Use.NOTHING),
        (entry(cache_control="max-age=60"), 9_000, True, False, Use.STORED),
        (entry(cache_control="max-age=60", **ETAG), -5, False, False, Use.VALIDATE),
    ],
)
def test_what_answers(stored: CacheEntry | None, later: float, offline: bool, refresh: bool, use: Use) -> None:
    assert decide(stored, AT + later, offline=offline, refresh=refresh) is use


@pytest.mark.parametrize(
    ("control", "later", "answers"),
    [
        ("max-age=60, stale-if-error=100", 160, True),
        ("max-age=60, stale-if-error=100", 161, False),
        ("max-age=60", 61, False),
        ("max-age=60, stale-if-error=100, must-revalidate", 61, False),
        ("no-cache, stale-if-error=100", 1, False),
    ],
)
def test_what_answers_if_the_server_fails(control: str, later: float, answers: bool) -> None:
    assert answers_failure(entry(cache_control=control), AT + later) is answers


def test_a_304_makes_an_entry_young_again() -> None:
    old = entry(cache_control="max-age=60", age="50", **ETAG)
    new = CacheEntry(AT + 100, AT + 101, {"cache-control": "max-age=5", "etag": 'W/"1"', "date": DATE})
    joined = confirmed(old, new)
    assert joined is not None
    assert joined.received_at == AT + 101
    assert dict(joined.headers) == {"date": DATE, "cache-control": "max-age=5", "etag": 'W/"1"'}
    assert confirmed(old, CacheEntry(AT, AT, {"etag": '"2"'})) is None, "a 304 about another version"


@given(
    st.dictionaries(st.sampled_from(["cache-control", "expires", "date", "age", "last-modified"]), st.text(max_size=40))
)
def test_no_field_of_a_server_breaks_the_rules(headers: dict[str, str]) -> None:
    is_storable(200, headers)
    assert decide(CacheEntry(AT, AT, headers), AT + 1) in Use
    assert lifetime_s(headers) >= 0
