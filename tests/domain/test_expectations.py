"""Which job answers which request: every pair of expectations, compared exhaustively."""

from __future__ import annotations

from itertools import product

import pytest

from longshore.domain.identity.expectations import Result, contradiction, is_answer, own_key, request_key
from longshore.domain.identity.keys import job_key
from longshore.domain.model import Expect, Status

A, B = "a" * 64, "b" * 64
ALL = [
    Expect(sha256, size, kind, digests)
    for sha256, size, kind, digests in product(
        (None, A, B), (None, 1, 2), (None, "text/plain"), ((), (("md5", "0" * 32),), (("md5", "1" * 32),))
    )
]
RESULTS = [None, Result(A, 1, "text/plain"), Result(B, 2, "application/pdf")]


def _allows(expect: Expect, result: Result, digests: dict[str, str]) -> bool:
    """Tell whether bytes are what an expectation says: the specification."""
    return (
        expect.sha256 in (None, result.sha256)
        and expect.size_bytes in (None, result.size_bytes)
        and expect.media_type in (None, result.media_type)
        and all(digests[name] == value for name, value in expect.digests)
    )


@pytest.mark.parametrize("status", [status.value for status in Status])
def test_the_whole_table(status: str) -> None:
    """A job that may end with other bytes, or for another reason, than the request asks for is never its answer."""
    for wanted, given, result in product(ALL, ALL, RESULTS):
        answers = is_answer(wanted, given, status, result)
        if wanted == given:
            assert answers
        elif status not in ("completed", "skipped"):
            assert not answers, "its end is not known yet, or was decided by other expectations"
        elif answers and result is not None:
            for md5 in ("0" * 32, "1" * 32):  # whatever the bytes' own digest is, if the job could complete with them
                if _allows(given, result, {"md5": md5}):
                    assert _allows(wanted, result, {"md5": md5})


def test_a_completed_job_answers_whoever_expects_nothing() -> None:
    assert all(is_answer(Expect(), given, "completed", result) for given, result in product(ALL, RESULTS))


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        (Expect(A), Expect(B), "sha256"),
        (Expect(A), Expect(A, 5), None),
        (Expect(size_bytes=1), Expect(size_bytes=2), "size_bytes"),
        (Expect(media_type="a/b"), Expect(media_type="c/d"), "media_type"),
        (Expect(digests=(("md5", "0"),)), Expect(digests=(("md5", "1"),)), "md5"),
        (Expect(digests=(("md5", "0"),)), Expect(digests=(("sha1", "1"),)), None),
        (Expect(), Expect(A), None),
    ],
)
def test_contradictions(one: Expect, other: Expect, name: str | None) -> None:
    assert contradiction(one, other) == contradiction(other, one) == name


def test_keys() -> None:
    url = "http://a.example/"
    plain = job_key(url, url, url)
    assert request_key(url, url, url, ()) == plain, "the v1 key, byte for byte"
    alice, bob = (request_key(url, url, url, (("Authorization", name),)) for name in ("alice", "bob"))
    assert len({plain, alice, bob}) == 3
    own = {own_key(plain, expect) for expect in ALL}
    assert len(own) == len(ALL)
    assert not own & {plain, alice, bob}
