"""Answers that contradict themselves, or each other: a part under status 200, digests that do not fit the bytes."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace

import pytest

from longshore.depot import Depot
from longshore.domain.kinds import Status
from tests.support.origin import (
    LAST_MODIFIED,
    Behaviour,
    Origin,
    Request,
    Thing,
    Wire,
    cut,
    honest,
    partial,
    stamped,
)
from tests.worker.conftest import MakeDepot

SIZE, CUT = 700_000, 400_000
FIRST, OTHER = Thing(stamped(1, SIZE)), Thing(stamped(2, SIZE))
KINDS = {
    "strong": FIRST,
    "date": replace(FIRST, etag=None, last_modified=LAST_MODIFIED),
    "weak": replace(FIRST, etag='W/"v1"'),
    "none": replace(FIRST, etag=None),
}


def declared(field: str, body: bytes, algorithm: str = "sha-256") -> dict[str, str]:
    """Return a digest field of these bytes."""
    raw = base64.b64encode(hashlib.new(algorithm.replace("-", ""), body).digest()).decode()
    return {field: f"{algorithm}={raw}" if field == "Digest" else f"{algorithm}=:{raw}:"}


# --- a part under status 200


def rest_as_200(thing: Thing, **changes: str | None) -> Behaviour:
    """Answer a Range with the right bytes and status 200, as a script does that forgets to set 206."""

    def behave(request: Request, wire: Wire) -> None:
        span = thing.span(request)
        if span is None:
            thing(request, wire)
            return
        headers = {**partial(thing, *span), **{name.replace("_", "-"): value for name, value in changes.items()}}
        wire.answer(200, headers, thing.body[span[0] :])
        wire.hangup()

    return behave


@pytest.mark.parametrize("without_validators", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"Content_Range": None},
        {"Content_Range": None, "ETag": None, "Last_Modified": None},
        {"Content_Range": None, "ETag": '"per-answer"', "Last_Modified": None},
        {"Content_Range": None, "Content_Length": None},
        {"Content_Range": "bytes ?"},
        {"Content_Range": f"bytes {CUT}-{SIZE - 1}/*"},
        {"Content_Range": f"bytes */{SIZE}"},
    ],
)
def test_the_rest_under_status_200_is_not_the_object(
    make_depot: MakeDepot, origin: Origin, kind: str, changes: dict[str, str | None], without_validators: bool
) -> None:
    thing = KINDS[kind]
    depot = make_depot(resume={"allow_without_validators": without_validators, "prefix_check_bytes": 10_000})
    got = depot.get([origin.add("/object", cut(thing, CUT), rest_as_200(thing, **changes))])[0]
    assert got.status is Status.COMPLETED and got.path is not None
    assert got.path.read_bytes() == thing.body
    assert origin.count("/object") <= 3


@pytest.mark.parametrize(
    ("span", "length"),
    [("bytes 0-4/9", "5"), ("bytes 0-4/*", "5"), ("bytes 0-8/9", "5"), ("items 0-4/9", "5"), ("", "5")],
)
def test_a_part_that_nobody_asked_for_under_status_200(depot: Depot, origin: Origin, span: str, length: str) -> None:
    def behave(_request: Request, wire: Wire) -> None:
        wire.answer(200, {"Content-Range": span, "Content-Length": length}, b"12345")

    got = depot.get([origin.add("/object", behave)])[0]
    assert (got.status, got.reason) == (Status.FAILED, "bad_range")
    assert origin.count("/object") <= 2


def test_a_200_whose_range_is_the_whole_object_is_taken(depot: Depot, origin: Origin) -> None:
    def behave(_request: Request, wire: Wire) -> None:
        wire.answer(200, {"Content-Range": "bytes 0-8/9", "Content-Length": "9"}, b"123456789")

    assert depot.get([origin.add("/object", behave)])[0].ok


def test_a_200_without_length_is_compared_with_its_range(depot: Depot, origin: Origin) -> None:
    def behave(_request: Request, wire: Wire) -> None:
        wire.answer(200, {"Content-Range": "bytes 0-8/9", "Connection": "close"}, b"12345")
        wire.hangup()

    got = depot.get([origin.add("/object", behave)])[0]
    assert (got.status, got.reason) == (Status.FAILED, "truncated")


# --- digests of the whole object


LARGE = Thing(stamped(1, 4 << 20))
ONCE = {"max_attempts": 1, "base_s": 0.01, "cap_s": 0.05}  # progress does not count


def divided(origin: Origin, first: Thing, pieces: Behaviour) -> Behaviour:
    """Send the first stream slowly, until others ask; then each piece as the other thing has it."""

    def behave(request: Request, wire: Wire) -> None:
        if "range" in request.headers:
            pieces(request, wire)
            return
        code, headers, content = honest(first, request)
        wire.answer(code, headers, content[:65_536])
        while origin.count(request.path) < 2:
            wire.wait(0.005)
        for at in range(65_536, len(content), 65_536):
            wire.send(content[at : at + 65_536])
            wire.wait(0.02)

    return behave


@pytest.mark.parametrize("algorithm", ["sha-256", "sha-512"])
def test_what_a_piece_declares_of_the_object_holds_for_the_whole(
    make_depot: MakeDepot, origin: Origin, algorithm: str
) -> None:
    other = Thing(stamped(2, 4 << 20), extra=declared("Repr-Digest", stamped(2, 4 << 20), algorithm))
    url = origin.add("/object", divided(origin, LARGE, other))
    depot = make_depot(transfer={"segments": 3}, hosts={"concurrency": 4}, retry=ONCE)
    got = depot.get([url])[0]
    assert origin.count("/object") > 2, "pieces were asked for"
    assert (got.status, got.reason) == (Status.FAILED, "digest_mismatch")
    assert origin.count("/object") <= 60


def test_pieces_that_declare_the_right_digest_are_joined(make_depot: MakeDepot, origin: Origin) -> None:
    right = replace(LARGE, extra=declared("Repr-Digest", LARGE.body))
    url = origin.add("/object", divided(origin, LARGE, right))
    got = make_depot(transfer={"segments": 3}, hosts={"concurrency": 4}).get([url])[0]
    assert got.ok and got.path is not None and got.path.read_bytes() == LARGE.body


@pytest.mark.parametrize(
    "two",
    [
        declared("Repr-Digest", FIRST.body) | declared("Digest", OTHER.body),
        declared("Repr-Digest", OTHER.body) | declared("Digest", FIRST.body),
        declared("Repr-Digest", FIRST.body) | declared("Content-Digest", OTHER.body),
        declared("Content-Digest", OTHER.body),
        declared("Content-Digest", OTHER.body, "sha-512"),
    ],
)
def test_each_digest_that_an_answer_declares_is_compared(depot: Depot, origin: Origin, two: dict[str, str]) -> None:
    got = depot.get([origin.add("/object", replace(FIRST, extra=two))])[0]
    assert (got.status, got.reason) == (Status.FAILED, "digest_mismatch")


@pytest.mark.parametrize("second", [declared("Repr-Digest", FIRST.body), {}])
def test_a_digest_of_an_earlier_answer_is_not_forgotten(
    make_depot: MakeDepot, origin: Origin, second: dict[str, str]
) -> None:
    """Of another algorithm than the resumed answer's, so that the two do not meet."""
    wrong = replace(FIRST, extra=declared("Repr-Digest", OTHER.body, "sha-512"))
    depot = make_depot(retry=ONCE)
    got = depot.get([origin.add("/object", cut(wrong, CUT), replace(FIRST, extra=second))])[0]
    assert (got.status, got.reason) == (Status.FAILED, "digest_mismatch")


# --- digests of one message


def sealed(thing: Thing, right: bool = False) -> Behaviour:
    """Answer a range with a Content-Digest: of these bytes, or of others."""

    def behave(request: Request, wire: Wire) -> None:
        code, headers, content = honest(thing, request)
        if code == 206:
            headers |= declared("Content-Digest", content if right else content[::-1])
        wire.answer(code, headers, content)

    return behave


def test_a_resumed_part_must_fit_its_own_digest(depot: Depot, origin: Origin) -> None:
    bad = Thing(stamped(2, SIZE), etag=FIRST.etag)
    got = depot.get([origin.add("/object", cut(FIRST, CUT), sealed(bad), FIRST)])[0]
    assert got.ok and got.path is not None and got.path.read_bytes() == FIRST.body
    assert origin.count("/object") == 3
    right = depot.get([origin.add("/right", cut(FIRST, CUT), sealed(FIRST, right=True))])[0]
    assert right.ok and right.path is not None and right.path.read_bytes() == FIRST.body
    assert origin.count("/right") == 2


def test_a_piece_must_fit_its_own_digest(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(transfer={"segments": 3}, hosts={"concurrency": 4}, retry=ONCE)
    bad = Thing(stamped(2, 4 << 20), etag=LARGE.etag)
    url = origin.add("/object", divided(origin, LARGE, sealed(bad)))
    got = depot.get([url])[0]
    assert (got.status, got.reason) == (Status.FAILED, "digest_mismatch")
    right = origin.add("/right", divided(origin, LARGE, sealed(LARGE, right=True)))
    good = depot.get([right])[0]
    assert good.ok and good.path is not None and good.path.read_bytes() == LARGE.body


# --- 304


@pytest.mark.parametrize(
    "claim",
    [
        declared("Repr-Digest", OTHER.body),
        declared("Digest", OTHER.body),
        declared("Repr-Digest", OTHER.body, "sha-512"),
        {"Content-Length": str(SIZE - 1)},
    ],
)
def test_a_304_that_contradicts_the_stored_bytes_is_not_believed(
    depot: Depot, origin: Origin, claim: dict[str, str]
) -> None:
    def liar(request: Request, wire: Wire) -> None:
        if "if-none-match" in request.headers:
            wire.answer(304, {"ETag": '"v1"', **claim})
        else:
            OTHER(request, wire)

    url = origin.add("/object", FIRST, liar)
    depot.get([url])
    got = depot.get([url], refresh=True)[0]
    assert got.path is not None and got.path.read_bytes() == OTHER.body
    assert origin.count("/object") == 3


@pytest.mark.parametrize(
    "claim",
    [
        {},
        {"Content-Length": "0"},  # what many servers say of the 304 itself
        {"Content-Length": str(SIZE)},
        declared("Repr-Digest", FIRST.body) | declared("Digest", FIRST.body, "sha-512"),
    ],
)
def test_a_304_that_agrees_is_believed(depot: Depot, origin: Origin, claim: dict[str, str]) -> None:
    url = origin.add("/object", FIRST, lambda _request, wire: wire.answer(304, {"ETag": '"v1"', **claim}))
    depot.get([url])
    assert depot.get([url], refresh=True)[0].ok
    assert origin.count("/object") == 2
