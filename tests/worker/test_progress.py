"""An attempt that brings the body on is not a failure; one that does not, is. Both end."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from longshore.domain.model import Lease, Scope
from longshore.domain.settings import HostsSettings, LeaseSettings
from longshore.ledger import Ledger
from longshore.ledger.operations.leasing import renew
from longshore.ledger.operations.stages import report
from longshore.worker import heartbeat
from tests.support.origin import Behaviour, Gate, Origin, Request, Thing, Wire, check_stamps, honest, stamped
from tests.worker.conftest import MakeDepot

T = TypeVar("T")
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


@pytest.mark.parametrize("segments", [1, 4])
def test_a_running_download_stores_its_progress(
    make_depot: MakeDepot, origin: Origin, engine: str, where: str, segments: int
) -> None:
    """Another process sees how far a large body is; a small one that runs beside it writes nothing."""
    gate, small = Gate(Thing(stamped(3, SIZE)), SIZE // 2), Gate(Thing(stamped(4, 40_000)), 1_000)
    depot = make_depot(ledger=where, transfer={"segments": segments})
    planned = depot.ledger.plan(
        Scope(), [download_request(origin.add("/a", gate)), download_request(origin.add("/b", small))]
    )
    with ThreadPoolExecutor(1) as pool, Ledger.open(where) as other:
        running = pool.submit(depot.run, max_wait_s=PATIENCE_S)
        assert gate.reached.wait(PATIENCE_S)
        assert small.reached.wait(PATIENCE_S)
        seen = _until(lambda: other.job(Scope(), planned[0].job_id), lambda job: bool(job.bytes_done))
        beside = other.job(Scope(), planned[1].job_id)
        gate.open()
        small.open()
        running.result(PATIENCE_S)
        done = other.job(Scope(), planned[0].job_id)
    assert 0 < (seen.bytes_done or 0) <= SIZE // 2
    assert (seen.bytes_total, seen.progress) == (SIZE, (seen.bytes_done or 0) * 100 // SIZE)
    assert seen.status is Status.PROCESSING
    assert (beside.bytes_done, beside.bytes_total, beside.progress) == (None, None, None)
    assert (done.bytes_done, done.bytes_total, done.progress) == (SIZE, SIZE, 100)
    assert len(done.results) == 1


def test_progress_of_a_lost_lease_is_not_stored(engine: str, where: str) -> None:
    with Ledger.open(where) as ledger:
        ledger.plan(Scope(), [download_request("https://example.org/a")])
        (old,) = ledger.claim("one", limit=1, ttl_s=60)
        ledger.release_dead(["one"])
        (new,) = ledger.claim("two", limit=1, ttl_s=60)
        ledger.write(report, [(old, 10, 100)])
        assert ledger.job(Scope(), old.job_id).bytes_done is None
        renewed = ledger.write(renew, [new, old], 60, [(new, 20, 1 << 70)])
        assert renewed.lost == {(old.job_id, old.epoch)}
        job = ledger.job(Scope(), new.job_id)
        assert (job.bytes_done, job.bytes_total, job.progress) == (20, None, None)


def test_progress_is_stored_in_few_transactions(make_depot: MakeDepot, monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction per report, whatever the number of bodies; none while nothing moves."""
    monkeypatch.setattr(heartbeat, "PROGRESS_S", 0.001)
    ledger, moved = make_depot().ledger, asyncio.Event()
    ledger.plan(Scope(), [download_request(f"https://example.org/{n}") for n in range(50)])
    leases = ledger.claim("me", limit=50, ttl_s=60, defaults=HostsSettings(concurrency=50))
    written: list[int] = []
    done = [1]
    write = ledger.write_async

    def counting(verb: Any, *args: Any, **kw: Any) -> asyncio.Future[Any]:
        written.append(len(args[0]))
        moved.set()
        return write(verb, *args, **kw)

    monkeypatch.setattr(ledger, "write_async", counting)
    asked = 0

    def progress() -> list[tuple[Lease, int, int | None]]:
        nonlocal asked
        asked += 1
        return [(lease, done[0], 100) for lease in leases]

    beat = heartbeat.Heartbeat(ledger, LeaseSettings(), lambda: leases, lambda _: None, lambda _: None, progress)

    async def go() -> None:
        async with beat:
            for step in (1, 2):
                done[0] = step
                await asyncio.wait_for(moved.wait(), PATIENCE_S)
                moved.clear()
                before = asked
                while asked < before + 20:
                    await asyncio.sleep(0)

    asyncio.run(go())
    assert written == [50, 50]


def _until(look: Callable[[], T], good: Callable[[T], bool]) -> T:
    end = time.monotonic() + PATIENCE_S
    while not good(found := look()):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found
