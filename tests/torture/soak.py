"""The soak: many workers, hostile servers, faults of every kind from one seed, then honesty. `python -m tests.torture.soak SEED`.

Everything that goes wrong comes from the schedule (a pure function of the seed). Nothing is asserted about *when* things
happen: only that whatever happened, honest servers and one more run bring everything to its end, and that an outside
witness finds nothing wrong. All the time a reader looks at every file under a final name.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import longshore
from longshore.checker import check
from longshore.checker.check import LocalFiles
from longshore.domain.kinds import Status
from longshore.domain.model import Scope
from longshore.errors import Locked
from longshore.ledger import Ledger
from longshore.ledger.backends.sqlite.backend import lock_path
from longshore.ledger.backends.sqlite.writer_lock import holder_of
from tests.support import origin as lies
from tests.support.disks import filled, small_disk
from tests.support.origin import Behaviour, Origin, Thing, check_stamps, stamped
from tests.support.postgres import Cluster
from tests.torture.schedule import LONG, SHORT, Body, Fault, Schedule, schedule

ROOT = Path(__file__).resolve().parents[2]
ROUND_S = 12.0  # the longest that a round waits for its faults; not a property
PATIENCE_S = 120.0
SETTINGS = {
    "LONGSHORE_NETWORK__ALLOW": '["127.0.0.0/8"]',
    "LONGSHORE_RETRY__BASE_S": "0.01",
    "LONGSHORE_RETRY__CAP_S": "0.05",
    "LONGSHORE_RETRY__MAX_ATTEMPTS": "1000",
    "LONGSHORE_RETRY__MAX_CLAIMS": "100000",
    "LONGSHORE_HOSTS__BREAKER_COOLDOWN_S": "0.1",
    "LONGSHORE_TRANSFER__STALL_S": "1",
    "LONGSHORE_TRANSFER__CONCURRENCY": "8",
    "LONGSHORE_LEASE__TTL_S": "2",
    "LONGSHORE_LEASE__RENEW_S": "0.5",
    "LONGSHORE_RECONCILE__STALE_PART_S": "0",
    "LONGSHORE_RECONCILE__INTERVAL_S": "1",
    "LONGSHORE_QUOTA__FREE_BYTES_MIN": "0",
}


# --- hostile servers


def things(body: Body) -> list[Thing]:
    """Give every version of an object, the last one for good."""
    return [
        Thing(stamped(version + 1, body.size + version), etag=f'"{body.number}-{version}"')
        for version in range(body.versions + 1)
    ]


def failure(kind: str, thing: Thing, elsewhere: str) -> Behaviour:
    """Give what a server does instead of being honest."""
    half = len(thing.body) // 2
    made: dict[str, Callable[[], Behaviour]] = {
        "503": lambda: lies.status(503),
        "429": lambda: lies.status(429, Retry_After="0"),
        "cut": lambda: lies.cut(thing, half),
        "reset": lambda: lies.cut(thing, half, "reset"),
        "hang": lambda: lies.cut(thing, half, "hang"),
        "drip": lambda: lies.drip(thing, max(1, len(thing.body) // 20), 0.02),
        "chunked": lambda: lies.chunked(thing),
        "no_end": lambda: lies.chunked(thing, end=b""),
        "no_ranges": lambda: lies.cut(Thing(thing.body, thing.etag, ranges=False), half),
        "partial": lambda: lies.partial_to_plain(thing, 0, max(0, half - 1)),
        "416": lambda: lies.unsatisfiable(thing, half),
        "empty": lambda: lies.raw(b""),
        "garbage": lambda: lies.raw(b"\0\1\2 this is not HTTP\r\n\r\n"),
        "overlong": lambda: lies.overlong(thing, b"and more"),
        "redirect": lambda: lies.redirect(elsewhere),
    }
    if kind.startswith("range_"):
        return lies.bad_range(thing, kind.removeprefix("range_"))
    return made[kind]()


def script(body: Body, origin: Origin) -> str:
    """Let the origin misbehave as the schedule says; after every lie stands a cut, so that ranges are asked for."""
    path = f"/{body.number}"
    versions = things(body)
    if body.gone:
        return origin.add(path, lies.status(404))
    origin.add(f"/honest{path}", versions[-1])
    played: list[Behaviour] = []
    for place, kind in enumerate(body.faults):
        thing = versions[min(place, len(versions) - 1)]
        if kind.startswith("range_") or kind == "416":
            played.append(lies.cut(thing, len(thing.body) * 2 // 3))
        played.append(failure(kind, thing, origin.url(f"/honest{path}")))
    return origin.add(path, *played, versions[-1])


def be_honest(bodies: tuple[Body, ...], origin: Origin) -> None:
    """From now on every server says the truth at once."""
    for body in bodies:
        origin.add(f"/{body.number}", lies.status(404) if body.gone else things(body)[-1])


# --- the soak


class Reader(threading.Thread):
    """Looks at every file under a final name, again and again, as any program on the machine might."""

    def __init__(self, store: Path) -> None:
        super().__init__(daemon=True)
        self.wrong: list[str] = []
        self.looks = 0
        self._files, self._over = LocalFiles(store), threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.05):
            for pointer, _, _ in self._files.entries():
                found = self._files.digest(pointer)  # None: quarantined in between
                if found is not None and not pointer.rsplit("/", 1)[-1].startswith(found[0]):
                    self.wrong.append(pointer)
            self.looks += 1

    def end(self) -> None:
        self._over.set()
        self.join(PATIENCE_S)


class Soak:
    """One run of a schedule in a directory."""

    def __init__(
        self, plan: Schedule, home: Path, store: Path, cluster: Cluster | None, say: Callable[[str], None]
    ) -> None:
        self.plan, self.depot, self.store, self.cluster, self.say = plan, home / "depot", store, cluster, say
        self.home = home
        self.origin = Origin()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("LONGSHORE_")},
            **SETTINGS,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "LONGSHORE_STORE": str(store),
        }
        self.ledger = str(self.depot / "ledger.db")
        if cluster is not None:
            self.ledger = self.environment["LONGSHORE_LEDGER"] = cluster.dsn("postgres")
        self.job_ids: dict[str, str] = {}

    def run(self) -> dict[str, Any]:
        """Play the schedule and look at what came of it."""
        urls = [script(body, self.origin) for body in self.plan.bodies]
        portions = len(self.plan.rounds) + 1
        reader = Reader(self.store)
        reader.start()
        try:
            for number, faults in enumerate(self.plan.rounds):
                self._plan(urls[number::portions])  # something new to do in every round, and for the honest one
                self._round(number, faults)
            self._plan(urls[portions - 1 :: portions])
            be_honest(self.plan.bodies, self.origin)
            weights = self._honest()
        finally:
            reader.end()
            self.origin.close()
        assert reader.wrong == [], "a file under a final name had other bytes"
        assert reader.looks
        return {**self._verdict(urls), "weights": weights, "looks": reader.looks}

    def _open(self) -> longshore.Depot:
        settings: dict[str, Any] = {
            "network": {"allow": ["127.0.0.0/8"]},
            "reconcile": {"stale_part_s": 0},
            "quota": {"free_bytes_min": 0},
        }
        return longshore.open(self.depot, store=str(self.store), ledger=self._address, **settings)

    @property
    def _address(self) -> str | None:
        return self.ledger if self.cluster is not None else None

    def _plan(self, urls: list[str]) -> None:
        """Hand the work in; what was acknowledged is written down (I1)."""
        with self._open() as depot:
            assert depot.add(urls).new == len(urls)
            self.job_ids |= {str(job.request.url): job.job_id for job in depot.jobs() if job.retry_of is None}
        assert set(urls) <= set(self.job_ids)

    def _start(self, name: str, fault: Fault | None, *words: str) -> subprocess.Popen[bytes]:
        extra: dict[str, str] = {}
        if fault is not None and fault.kind.startswith("point_"):
            verb = fault.kind.removeprefix("point_")
            argument = f":{fault.argument}" if fault.argument else ""
            extra["LONGSHORE_FAILPOINTS"] = f"{fault.point}={verb}{argument}@{fault.hit}"
        if fault is not None and fault.kind == "clock" and self.cluster is None:
            extra["LONGSHORE_TEST_CLOCK"] = f"{fault.argument}:{fault.after * 5}"
        command = [sys.executable, "-m", "tests.torture.hand", str(self.depot), *words]
        with (self.home / f"{name}.out").open("wb") as out, (self.home / f"{name}.err").open("wb") as err:
            return subprocess.Popen(command, env={**self.environment, **extra}, cwd=ROOT, stdout=out, stderr=err)

    def _round(self, number: int, faults: tuple[Fault, ...]) -> None:
        """Start the workers, let each have its fault, and end them all."""
        begun, end = len(self.origin.requests), time.monotonic() + ROUND_S
        workers = [self._start(f"{number}-{place}", fault) for place, fault in enumerate(faults)]
        stopped: list[subprocess.Popen[bytes]] = []
        try:
            for worker, fault in sorted(zip(workers, faults, strict=True), key=lambda pair: pair[1].after):
                while len(self.origin.requests) - begun < fault.after and time.monotonic() < end:
                    if all(one.poll() is not None for one in workers):
                        break
                    time.sleep(0.005)
                self._strike(worker, fault, stopped)
            if stopped:  # nobody may keep a lease that ran out while its holder slept
                until = time.monotonic() + float(SETTINGS["LONGSHORE_LEASE__TTL_S"]) + 0.5
                while time.monotonic() < until and any(one.poll() is None for one in workers if one not in stopped):
                    time.sleep(0.02)
        finally:
            self._end(workers)
        self.say(
            f"round {number}: {len(self.origin.requests) - begun} requests, exits {[one.returncode for one in workers]}"
        )
        for place, fault in enumerate(faults):
            said = (self.home / f"{number}-{place}.err").read_text()
            assert fault.kind == "point_raise" or "Traceback" not in said, said

    def _strike(self, worker: subprocess.Popen[bytes], fault: Fault, stopped: list[subprocess.Popen[bytes]]) -> None:
        if fault.kind == "kill":
            worker.kill()
        elif fault.kind == "stop" and worker.poll() is None:
            worker.send_signal(signal.SIGSTOP)
            stopped.append(worker)
        elif fault.kind == "point_stop":
            stopped.append(worker)  # it stops by itself
        elif fault.kind == "full":
            with filled(self.store):
                seen, end = len(self.origin.requests), time.monotonic() + 1.5
                while len(self.origin.requests) < seen + 20 and time.monotonic() < end:
                    time.sleep(0.01)
        elif fault.kind == "cancel":
            self._beside_sleepers(lambda: self._cancel(fault), stopped)
        elif fault.kind == "gc":
            self._beside_sleepers(self._collect, stopped)
        elif fault.kind == "server" and self.cluster is not None:
            self.cluster.restart(immediate=True)

    def _cancel(self, fault: Fault) -> None:
        with self._open() as depot:
            waiting = sorted(self.job_ids.values())
            depot.cancel([waiting[fault.after * 7 % len(waiting)]])

    def _collect(self) -> None:
        with self._open() as depot, contextlib.suppress(Locked):
            depot.gc(grace_s=0.0)
            depot.verify(everything=True)
            depot.reconcile()

    def _beside_sleepers(self, act: Callable[[], None], stopped: list[subprocess.Popen[bytes]]) -> None:
        """Act on the depot; a worker that fell asleep inside a transaction is woken, as whoever reads our warning would."""
        with ThreadPoolExecutor(1) as thread:
            acting = thread.submit(act)
            while not wait([acting], timeout=0.2).done:
                for one in stopped:
                    if self.cluster is None and one.pid == ledger_holder(self.depot / "ledger.db"):
                        one.send_signal(signal.SIGCONT)
            acting.result()

    def _end(self, workers: list[subprocess.Popen[bytes]]) -> None:
        """Ask them to stop, as an operator would; who sleeps is woken. Who does not go then is a fault of ours."""
        for worker in workers:
            worker.send_signal(signal.SIGCONT)
            worker.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE_S
        try:
            while any(worker.poll() is None for worker in workers):
                for worker in workers:
                    worker.send_signal(signal.SIGCONT)  # a failpoint may stop one at any moment
                assert time.monotonic() < deadline, "a worker did not end"
                time.sleep(0.01)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()

    def _honest(self) -> list[dict[str, int]]:
        """One worker with everything in order brings everything to its end, and holds no more afterwards than before."""
        jumps = [int(f.argument) for faults in self.plan.rounds for f in faults if f.kind == "clock"]
        later = (
            max([*jumps, 0]) + 7_200 if self.cluster is None and jumps else 0
        )  # what was put off into a false future
        self.environment["LONGSHORE_TEST_CLOCK"] = f"{later}:0"
        worker = self._start("honest", None, "weigh")
        try:
            assert worker.wait(PATIENCE_S * 5) == 0, (self.home / "honest.err").read_text()
        finally:
            worker.kill()
        weights: list[dict[str, int]] = json.loads((self.home / "honest.out").read_text())
        return weights

    def _verdict(self, urls: list[str]) -> dict[str, Any]:
        """Everything is over, nothing is lost, twice, mixed or left behind."""
        damage = check(self.ledger, LocalFiles(self.store)).damage
        assert damage == []
        with self._open() as depot:
            jobs = {job.job_id: job for job in depot.jobs()}
            assert set(self.job_ids.values()) <= set(jobs), "an acknowledged job is gone"
            for body, url in zip(self.plan.bodies, urls, strict=True):
                self._judge(body, jobs[self.job_ids[url]].status, depot)
            depot.reconcile()
            depot.reconcile()  # the first one may have put a job's bytes back or planned them again
            assert depot.reconcile(dry_run=True).findings == []
            assert depot.verify(everything=True).findings == []
            counts = {status.value: n for status, n in depot.ledger.counts(Scope()).items() if n}
        report = check(self.ledger, LocalFiles(self.store))
        assert report.findings == []
        assert list(LocalFiles(self.store).parts()) == []
        return {"counts": counts, "files": report.files, "requests": len(self.origin.requests)}

    def _judge(self, body: Body, status: Status, depot: longshore.Depot) -> None:
        if status is Status.CANCELED:
            return
        job = depot.ledger.job(Scope(), self.job_ids[self.origin.url(f"/{body.number}")])
        assert status is (Status.FAILED if body.gone else Status.COMPLETED), (body, status, job.reason)
        if body.gone:
            return
        job_id = self.job_ids[self.origin.url(f"/{body.number}")]
        (artifact,) = depot.ledger.results(Scope(), job_id)
        with depot.store.open(Scope(), artifact.pointer) as file:
            data = file.read()
        assert hashlib.sha256(data).hexdigest() in {hashlib.sha256(thing.body).hexdigest() for thing in things(body)}
        if len(data) >= 64:
            check_stamps(data)


@contextlib.contextmanager
def _store(home: Path, megabytes: int) -> Iterator[Path]:
    """A small disk of its own for the store where mounts are allowed, so that full is full."""
    if os.geteuid() == 0:
        with small_disk(f"{megabytes}m") as disk:
            yield disk / "store"
    else:
        yield home / "store"


def ledger_holder(path: Path) -> int | None:
    """Name the process that is in a transaction of this ledger."""
    lock = os.open(lock_path(path), os.O_RDONLY)
    try:
        return holder_of(lock)
    finally:
        os.close(lock)


def soak(
    plan: Schedule, home: Path, *, postgres: bool = False, say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Run one schedule; give what it came to, or fail."""
    say(plan.told())
    with contextlib.ExitStack() as stack:
        cluster = None
        if postgres:
            cluster = Cluster()
            stack.callback(cluster.close)
            Ledger.open(cluster.dsn("postgres"), create=True).close()
        store = stack.enter_context(_store(home, 64 if plan.size.files < 200 else 512))
        verdict = Soak(plan, home, store, cluster, say).run()
    say(json.dumps(verdict))
    return verdict


def main() -> None:
    """Repeat one run's faults."""
    parser = argparse.ArgumentParser(description="soak with one seed: the same seed gives the same faults")
    parser.add_argument("seed", type=int)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--postgres", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="longshore-soak-") as home:
        soak(schedule(given.seed, LONG if given.long else SHORT), Path(home), postgres=given.postgres, say=print)


if __name__ == "__main__":
    main()
