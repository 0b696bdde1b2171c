"""An attempt that brings the body on is not a failure; one that does not, is. Both end."""

from __future__ import annotations

import itertools

import pytest

from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from tests.support.origin import Behaviour, Origin, Request, Thing, Wire, check_stamps, honest, stamped
from tests.worker.conftest import MakeDepot

PATIENCE_S = 60.0
SIZE = 2_000_000


def short(thing: Thing, piece: int, etag: bool = True) -> Behaviour:
    """Send at most `piece` bytes of what was asked for, then close, whatever the headers said."""

    def behave(request: Request, wire: Wire) -> None:
        code, headers, body = honest(thing, request)
        wire.answer(code, headers if etag else {**headers, "ETag": None}, body[:piece])
        wire.hangup()

    return behave


@pytest.mark.parametrize(("share", "most", "size"), [(10, 12, SIZE), (40, 44, SIZE), (10, 12, 50_000)])
def test_a_link_that_brings_a_little_each_time_completes(
    make_depot: MakeDepot, origin: Origin, share: int, most: int, size: int
) -> None:
    thing = Thing(stamped(7, size))
    depot = make_depot(retry={"base_s": 0.01, "cap_s": 0.05, "max_attempts": 3, "max_claims": 5})
    url = origin.add("/a", short(thing, size // share + 1))
    depot.add([download_request(url)])
    assert depot.run(max_wait_s=PATIENCE_S).completed == 1
    (job,) = depot.jobs()
    assert job.attempts == origin.count("/a")  # all of them are told, although most do not count
    assert job.claims <= 2
    assert origin.count("/a") <= most
    (got,) = depot.get([url])
    assert got.path is not None
    assert check_stamps(got.path.read_bytes()) == 7


def test_a_server_that_brings_less_and_less_ends(make_depot: MakeDepot, origin: Origin) -> None:
    thing = Thing(stamped(7, SIZE))
    depot = make_depot(retry={"base_s": 0.01, "cap_s": 0.05, "max_attempts": 4})
    pieces = [short(thing, size) for size in (200_000, 90_000, 30_000, 10_000, 4_000, 1_000)]
    url = origin.add("/a", *pieces)
    depot.add([download_request(url)])
    assert depot.run(max_wait_s=PATIENCE_S).failed == 1
    (job,) = depot.jobs()
    assert (job.status, job.reason, job.attempts) == (Status.FAILED, "truncated", 3 + 4)
    assert origin.count("/a") == 3 + 4


def test_without_a_validator_every_attempt_counts(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(retry={"base_s": 0.01, "cap_s": 0.05, "max_attempts": 4})
    url = origin.add("/a", short(Thing(stamped(7, SIZE), etag=None), SIZE // 2))
    depot.add([download_request(url)])
    assert depot.run(max_wait_s=PATIENCE_S).failed == 1
    (job,) = depot.jobs()
    assert (job.attempts, origin.count("/a")) == (4, 4)


def test_an_object_that_changes_each_time_counts(make_depot: MakeDepot, origin: Origin) -> None:
    """Every answer is another version, and each is cut: what was gained before is worth nothing, so this is no progress."""
    depot = make_depot(retry={"base_s": 0.01, "cap_s": 0.05, "max_attempts": 4})
    versions = [short(Thing(stamped(n, SIZE), etag=f'"v{n}"'), SIZE // 2) for n in range(40)]
    url = origin.add("/a", *versions)
    depot.add([download_request(url)])
    assert depot.run(max_wait_s=PATIENCE_S).failed == 1
    assert origin.count("/a") <= 10


@pytest.mark.parametrize("growth", [1.0115, 1.05])
def test_a_length_that_grows_with_each_answer_is_not_progress(
    make_depot: MakeDepot, origin: Origin, growth: float
) -> None:
    """One ETag, always a 200, each a little longer than the last and cut at its last byte: 977 requests in 90 s, once."""
    lengths = itertools.count(1)

    def longer(request: Request, wire: Wire) -> None:
        length = int(20_000 * growth ** next(lengths))
        wire.answer(200, {"ETag": '"e"', "Content-Length": str(length + 1)}, b"y" * length)
        wire.hangup()

    depot = make_depot(retry={"base_s": 0.01, "cap_s": 0.02, "max_attempts": 4})
    url = origin.add("/a", longer)
    depot.add([download_request(url)])
    assert depot.run(max_wait_s=PATIENCE_S).failed == 1
    (job,) = depot.jobs()
    assert (job.reason, job.attempts) == ("truncated", 1 + 4)
    assert origin.count("/a") <= 1 + 2 * 4  # each later attempt asks for the rest first, then from zero


def test_a_server_that_sends_the_whole_body_again_each_time_counts(make_depot: MakeDepot, origin: Origin) -> None:
    """It ignores ranges, so that each attempt costs all bytes so far once more."""
    thing, sent = Thing(stamped(7, SIZE), ranges=False), itertools.count(1)

    def further(request: Request, wire: Wire) -> None:
        code, headers, body = honest(thing, request)
        wire.answer(code, headers, body[: SIZE * next(sent) // 50])
        wire.hangup()

    depot = make_depot(retry={"base_s": 0.01, "cap_s": 0.02, "max_attempts": 4})
    depot.add([download_request(origin.add("/a", further))])
    assert depot.run(max_wait_s=PATIENCE_S).failed == 1
    assert origin.count("/a") == 1 + 4
