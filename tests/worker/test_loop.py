"""The worker: who waits for whom, how it stops, and what it does when the disk is full or somebody says stop."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from longshore import compat
from longshore.depot import Depot
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from longshore.domain.model import Lease
from longshore.domain.outcomes import Outcome
from longshore.domain.run_events import RunEvent
from longshore.domain.transfer import content_checks
from longshore.errors import LongshoreError, OverBudget
from longshore.ledger.operations.leasing import claim
from longshore.ledger.operations.make_claimable import release_dead
from longshore.ledger.records import Settled
from longshore.ledger.transaction import Tx
from longshore.worker.run_types import RunResult
from longshore.worker.settler import Settler
from tests.support.disks import small_disk
from tests.support.origin import Gate, Origin, Thing, check_stamps, chunked, stamped, status
from tests.worker.conftest import MakeDepot

PATIENCE_S = 60.0


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition, long enough for any machine."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "waited for nothing"
        time.sleep(0.01)


class Running:
    """A run in a thread of its own."""

    def __init__(self, depot: Depot, **options: Any) -> None:
        self.notes: list[RunEvent] = []
        self.result: RunResult | None = None
        self._depot = depot
        self._thread = threading.Thread(target=self._run, kwargs=options)
        self._thread.start()

    def _run(self, **options: Any) -> None:
        self.result = self._depot.run(on_note=self.notes.append, **options)

    def of(self, kind: str) -> list[RunEvent]:
        return [note for note in list(self.notes) if note.kind == kind]

    def join(self) -> RunResult:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert self.result is not None
        return self.result


@contextmanager
def running(depot: Depot, **options: Any) -> Iterator[Running]:
    run = Running(depot, **options)
    try:
        yield run
    finally:
        depot.aio.drain()
        run.join()


def test_slow_and_refusing_hosts_hold_up_nobody(make_depot: MakeDepot) -> None:
    depot = make_depot(transfer={"concurrency": 8}, hosts={"concurrency": 2})
    with ExitStack() as stack:
        slow, rude, *healthy = (stack.enter_context(Origin(f"127.0.0.{n}")) for n in range(2, 9))
        gates = [Gate(Thing(stamped(1, 9_000)), 10) for _ in range(6)]
        for gate in gates:
            stack.callback(gate.open)
        waiting = [slow.add(f"/{n}", gate) for n, gate in enumerate(gates)]
        refused = [rude.add(f"/{n}", status(429, Retry_After="3600")) for n in range(6)]
        good = [host.add(f"/{n}", Thing(stamped(n + 1, 500 + n))) for host in healthy for n in range(12)]
        depot.add([*waiting, *refused, *good])
        with running(depot) as run:
            until(lambda: len(run.of("completed")) == len(good))
            assert {note.url for note in run.of("completed")} == set(good)
            assert max(slow.count(f"/{n}") for n in range(6)) == 1
            assert sum(slow.count(f"/{n}") for n in range(6)) <= 2  # the host's own limit
            assert sum(rude.count(f"/{n}") for n in range(6)) <= 2  # then the whole host rests
            for gate in gates:
                gate.open()
            until(lambda: len(run.of("completed")) == len(good) + len(waiting))


def test_a_host_never_sees_more_at_once_than_it_allows(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(transfer={"concurrency": 16}, hosts={"concurrency": 3})
    busy, most, lock = [0], [0], threading.Lock()

    def counted(thing: Thing) -> Callable[..., None]:
        def behave(request: object, wire: object) -> None:
            with lock:
                busy[0] += 1
                most[0] = max(most[0], busy[0])
            time.sleep(0.005)
            with lock:
                busy[0] -= 1
            thing(request, wire)  # type: ignore[arg-type]

        return behave

    urls = [origin.add(f"/{n}", counted(Thing(stamped(n + 1, 700)))) for n in range(60)]
    depot.add(urls)
    assert depot.run().completed == 60
    assert most[0] <= 3


def test_a_drain_ends_what_runs_and_gives_back_the_rest(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(transfer={"concurrency": 1, "drain_s": 60})
    gate = Gate(Thing(stamped(1, 5_000)), 10)
    first = origin.add("/first", gate)
    rest = [origin.add(f"/{n}", Thing(stamped(2, 600 + n))) for n in range(5)]
    depot.add([download_request(first, priority=9), *rest])
    with running(depot) as run:
        until(lambda: origin.count("/first"))
        depot.aio.drain()
        gate.open()
        result = run.join()
    assert result.completed == 1
    assert result.stopped_by
    counts = depot.ledger.counts(depot.scope)
    assert (counts[Status.COMPLETED], counts[Status.PENDING]) == (1, 5)
    assert depot.run().completed == 5


def test_a_large_body_that_a_drain_cuts_short_goes_on_where_it_stopped(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(transfer={"drain_s": 0.1})
    thing = Thing(stamped(1, 2_000_000))
    gate = Gate(thing, 1_500_000)
    url = origin.add("/large", gate, thing)
    depot.add([url])
    with running(depot) as run:
        until(lambda: any((note.facts.get("bytes_done") or 0) >= 1_000_000 for note in run.of("progress")))
        depot.aio.drain()
        assert run.join().completed == 0
    gate.open()
    notes: list[RunEvent] = []
    got = depot.get([url], on_note=notes.append)[0]
    assert got.path is not None
    assert check_stamps(got.path.read_bytes()) == 1
    assert next(note.facts for note in notes if note.kind == "completed")["resumed_from_bytes"] > 0
    assert got.attempts == 1  # an interruption is no failure


def test_a_running_job_can_be_canceled(depot: Depot, origin: Origin) -> None:
    gate = Gate(Thing(stamped(1, 9_000)), 10)
    url = origin.add("/a", gate)
    depot.add([url])
    with running(depot) as run:
        until(lambda: origin.count("/a"))
        job_id = depot.ledger.plan(depot.scope, [download_request(url)])[0].job_id
        depot.ledger.cancel(depot.scope, [job_id])
        result = run.join()
    gate.open()
    assert result.canceled == 1
    assert depot.ledger.job(depot.scope, job_id).status is Status.CANCELED


def test_max_wait_ends_a_run_that_can_only_wait(depot: Depot, origin: Origin) -> None:
    depot.add([origin.add("/a", status(503, Retry_After="3600")), origin.add("/b", Thing())])
    result = depot.run(max_wait_s=0.2)
    assert (result.completed, result.left) == (1, True)


def test_a_run_waits_for_leases_of_others_and_for_retries(depot: Depot, origin: Origin) -> None:
    depot.add([origin.add("/a", status(503), Thing())])
    foreign = depot.ledger.claim("somebody else", limit=1, ttl_s=0.5)
    assert len(foreign) == 1
    result = depot.run()
    assert (result.completed, result.retried) == (1, 1)


def steal(tx: Tx, owner: str) -> list[Lease]:
    """Give back what an owner holds and take it, before anybody else can."""
    release_dead(tx, [owner])
    return claim(tx, "thief", limit=1, ttl_s=600)


def test_a_lease_that_somebody_else_got_stops_the_transfer(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(lease={"ttl_s": 60, "renew_s": 0.2})
    gate = Gate(Thing(stamped(1, 9_000)), 10)
    url = origin.add("/a", gate, Thing(stamped(1, 9_000)))
    depot.add([url])
    with running(depot) as run:
        until(lambda: origin.count("/a"))
        owner = depot.aio.runtime.liveness.owner
        stolen = depot.ledger.write(steal, owner)  # as if we were dead: the epoch moves on
        assert len(stolen) == 1
        until(lambda: depot.aio.runner.result.lost == 1)
        compat.release_lease(depot.ledger, stolen[0])
        result = run.join()
    gate.open()
    assert (result.completed, result.lost) == (1, 1)


def test_a_full_disk_pauses_and_goes_on_by_itself(make_depot: MakeDepot, origin: Origin) -> None:
    with small_disk("6m") as disk:
        depot = make_depot(store=str(disk / "store"), quota={"free_bytes_min": 0})
        filler = disk / "filler"
        filler.write_bytes(b"x" * 4_500_000)
        thing = Thing(stamped(1, 3_000_000))
        depot.add([origin.add("/large", thing), *(origin.add(f"/{n}", Thing(stamped(2, 900 + n))) for n in range(3))])
        with running(depot) as run:
            until(lambda: any(note.facts["reason"] == "disk_full" for note in run.of("retry")))
            assert not any(note.url and note.url.endswith("/large") for note in run.of("completed"))
            filler.unlink()
            result = run.join()
        assert result.completed == 4
        assert depot.verify().findings == []
        depot.close()


@pytest.mark.parametrize("gone", [".staging/parts", ".staging"])
def test_staging_deleted_under_a_run_is_mended_within_the_run(depot: Depot, origin: Origin, gone: str) -> None:
    gate = Gate(Thing(stamped(1, 3_000_000)), 1_500_000)
    urls = [origin.add("/large", gate, Thing(stamped(1, 3_000_000)))]
    urls += [origin.add(f"/{n}", Thing(stamped(n, 2_000_000))) for n in range(3)]
    depot.add(urls)
    with running(depot) as run:
        until(lambda: len(run.of("completed")) == 3)
        while (where := Path(depot.settings.store) / gone).exists():
            shutil.rmtree(where, ignore_errors=True)  # the store cleans up there at the same time
        gate.open()
        result = run.join()
    assert (result.completed, result.failed) == (4, 0)
    assert origin.count("/large") <= 3
    assert depot.verify().findings == []


def test_low_room_stops_before_the_stream_and_leaves_no_part(
    make_depot: MakeDepot, origin: Origin, tmp_path: Path
) -> None:
    depot = make_depot(quota={"free_bytes_min": 1 << 60})
    depot.add([origin.add("/large", Thing(stamped(1, 3_000_000)))])
    result = depot.run(max_wait_s=0.3)
    assert (result.completed, result.left) == (0, True)
    assert list(depot.store.parts()) == []


def test_a_tenants_budget_is_kept(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(quota={"tenant_bytes": 1_000_000})
    got = depot.get([origin.add("/large", Thing(stamped(1, 3_000_000)))])[0]
    assert (got.status, got.reason) == (Status.FAILED, "quota_exceeded")


@pytest.mark.parametrize("size", [300_000, 3_000_000])
def test_a_body_that_does_not_say_how_long_it_is_keeps_the_budget(
    make_depot: MakeDepot, origin: Origin, size: int
) -> None:
    depot = make_depot(quota={"tenant_bytes": 290_000})
    got = depot.get([origin.add("/endless", chunked(Thing(stamped(1, size)), 50_000))])[0]
    assert (got.status, got.reason) == (Status.FAILED, "quota_exceeded")
    assert list(depot.store.parts()) == []
    assert list(depot.store.walk()) == []


@pytest.mark.parametrize("large", [False, True])
def test_what_nobody_foresaw_ends_one_attempt_only(
    depot: Depot, origin: Origin, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """A mistake of ours is a reason like others: counted, retried, and it spoils nothing else."""
    real, raised = content_checks.content_type, list[bool]()

    def mistaken(first: bytes, declared: str | None, *, sniffed: str | None = None) -> str:
        if not raised:
            raised.append(True)
            raise ZeroDivisionError
        return real(first, declared, sniffed=sniffed)

    monkeypatch.setattr(content_checks, "content_type", mistaken)
    got = depot.get([origin.add("/a", Thing(stamped(1, 900_000 if large else 900)))])[0]
    assert (got.status, got.attempts) == (Status.COMPLETED, 2)


def test_a_batch_that_nobody_foresaw_fails_all_of_it(
    make_depot: MakeDepot, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for a batch hears of its end, whatever that is: otherwise its leases are renewed for ever."""
    depot = make_depot(retry={"base_s": 0.01, "cap_s": 0.05, "max_attempts": 2})

    def broken(_items: object) -> None:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(depot.store, "stage", broken)
    url = origin.add("/a", Thing(stamped(1, 5_000)))
    (planned,) = depot.ledger.plan(depot.scope, [download_request(url)])
    assert depot.run().failed == 1
    assert depot.ledger.job(depot.scope, planned.job_id).reason == "internal_error"


def test_a_tenants_budget_is_kept_by_uploads_too(make_depot: MakeDepot, tmp_path: Path) -> None:
    depot = make_depot(quota={"tenant_bytes": 10_000})
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(stamped(1, 20_000))
    small.write_bytes(stamped(1, 5_000))
    with pytest.raises(OverBudget):
        depot.put(large)
    with pytest.raises(OverBudget), large.open("rb") as stream:  # whose length nobody knows before
        depot.put(stream)
    assert list(depot.store.parts()) == []
    assert depot.put(small).artifact is not None


def test_further_jobs_are_named_while_it_runs(depot: Depot, origin: Origin) -> None:
    """It works on what it is handed and on nothing else, waits while more may come, and ends when told that none will."""
    first, second, never = (
        one.job_id
        for one in depot.ledger.plan(
            depot.scope, [download_request(origin.add(f"/{n}", Thing(stamped(1, 9_000)))) for n in range(3)]
        )
    )
    handed: list[list[str] | None] = [[first]]

    with running(depot, scope=depot.scope, job_ids=(), more=lambda: handed.pop(0) if handed else []) as run:
        until(lambda: run.of("completed"))
        handed.append([second])
        depot.aio.notify()
        until(lambda: len(run.of("completed")) == 2)
        assert run.result is None
        handed.append(None)
        depot.aio.notify()
        result = run.join()

    assert (result.completed, result.left) == (2, False)
    assert depot.ledger.job(depot.scope, never).status is Status.PENDING


def test_names_that_have_to_wait_do_not_keep_others_waiting(make_depot: MakeDepot) -> None:
    depot = make_depot(transfer={"concurrency": 1})
    with Origin("127.0.0.2") as rude, Origin("127.0.0.3") as healthy:
        urls = [rude.add(f"/{n}", status(429, Retry_After="3600")) for n in range(40)]
        urls.append(healthy.add("/", Thing(stamped(1, 9_000))))
        ids = [one.job_id for one in depot.ledger.plan(depot.scope, [download_request(url) for url in urls])]
        handed: list[list[str] | None] = [ids[:-1], ids[-1:], None]

        result = depot.run(
            scope=depot.scope, job_ids=(), more=lambda: handed.pop(0) if handed else None, max_wait_s=0.2
        )

    assert (result.completed, result.left) == (1, True)


def test_an_end_that_is_being_written_keeps_nobody_from_coming(
    make_depot: MakeDepot, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more than the leases it may hold is fetched while not a single end is in the ledger yet."""
    depot = make_depot(transfer={"concurrency": 1})
    leases = depot.settings.transfer.concurrency + depot.aio.runtime.ahead.least
    urls = [origin.add(f"/{n}", Thing(stamped(n, 9_000))) for n in range(leases + 1)]
    depot.add(urls)
    written, write = threading.Event(), Settler._patiently

    async def later(self: Settler, ended: list[tuple[Lease, Outcome]]) -> list[Settled | LongshoreError]:
        while not written.is_set():
            await asyncio.sleep(0.01)
        return await write(self, ended)

    monkeypatch.setattr(Settler, "_patiently", later)
    with running(depot) as run:
        try:
            until(lambda: len(origin.requests) == len(urls))
            assert not run.of("completed")
        finally:
            written.set()
        result = run.join()

    assert result.completed == len(urls)


def test_a_short_queue_is_shared_by_the_workers(make_depot: MakeDepot, origin: Origin) -> None:
    """One of two processes leases half of it, not all that it could hold; what is left is there for the other."""
    gates = [Gate(Thing(b"x" * 100), 10) for _ in range(20)]
    depot = make_depot(hosts={"concurrency": 100}, transfer={"concurrency": 4, "max_rate_shares": 2})
    depot.add([origin.add(f"/{number}", gate) for number, gate in enumerate(gates)])
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(depot.run, scope=depot.scope, max_wait_s=60.0)
        started = threading.Event()
        while sum(gate.reached.is_set() for gate in gates) < 4:
            started.wait(0.01)
        leased = depot.status()["processing"]
        for gate in gates:
            gate.open()
        assert running.result(60.0).completed == 20
    assert leased == 10
