"""One worker that downloads a little of everything, struck at one step by one fault; and what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import longshore
from longshore.checker import check
from longshore.checker.check import HEALABLE, LocalFiles
from tests.support.disks import power_cut_disk
from tests.support.origin import Origin, Thing, check_stamps, cut, stamped, status
from tests.support.postgres import Cluster
from tests.worker import crashing

PATIENCE_S = 60.0
WENT_ON, CAME_AGAIN = "the same run ends well", "the next run ends well"
ZOMBIE = "another ends it well, the zombie changes nothing"
WAITED = "it slept inside a transaction: the others waited for it"
SETTINGS: dict[str, Any] = {
    "network": {"allow": ["127.0.0.0/8"]},
    "retry": {"base_s": 0.01, "cap_s": 0.05},
    "reconcile": {"stale_part_s": 0},
    "quota": {"free_bytes_min": 0},
}
SHORT_LEASE = {"LONGSHORE_LEASE__TTL_S": "2", "LONGSHORE_LEASE__RENEW_S": "0.5", "LONGSHORE_QUOTA__FREE_BYTES_MIN": "0"}


def serve(origin: Origin) -> list[str]:
    """Small, equal, flaky, large and cut bodies: together they pass every step of a download."""
    large = Thing(stamped(3, 700_000))
    return [
        origin.add("/one", Thing(stamped(1, 5_000))),
        origin.add("/two", Thing(stamped(1, 5_001))),
        origin.add("/same", Thing(stamped(1, 5_000))),
        origin.add("/flaky", status(503), Thing(stamped(2, 5_077))),
        origin.add("/cut", cut(large, 350_000), large),
    ]


class Struck:
    """A depot (on one engine, on one disk) and the faults that can be done to a worker on it."""

    def __init__(self, home: Path, origin: Origin, cluster: Cluster | None = None) -> None:
        self.home, self.depot, self.cluster = home, home / "depot", cluster
        self.urls = serve(origin)
        self.ledger = ""
        if cluster is not None:
            self.database = cluster.create(cluster.template("struck", _build))
            self.ledger = cluster.dsn(self.database)

    def start(self, spec: str) -> subprocess.Popen[str]:
        """Start a worker with a failpoint armed."""
        extra = {"LONGSHORE_LEDGER": self.ledger} if self.ledger else {}
        return crashing.start(self.depot, self.urls, LONGSHORE_FAILPOINTS=spec, **SHORT_LEASE, **extra)

    def run(self, spec: str) -> int:
        """Run one to its end."""
        with self.start(spec) as worker:
            worker.communicate(timeout=120)
        return worker.returncode

    # --- faults; each gives what became of the struck worker

    def killed(self, step: str) -> str:
        assert self.run(f"{step}=kill") == -signal.SIGKILL, "the step was not passed"
        return CAME_AGAIN

    def killed_twice(self, step: str) -> str:
        """Once at the step, once more at it (or at its later hit) while recovering."""
        assert self.run(f"{step}=kill") == -signal.SIGKILL, "the step was not passed"
        assert self.run(f"{step}=kill") in (-signal.SIGKILL, 0)
        return CAME_AGAIN

    def raised(self, step: str, errno: int) -> str:
        code = self.run(f"{step}=raise:{errno}")
        assert code >= 0, "it died"
        return WENT_ON if code == 0 and self.all_held() else CAME_AGAIN

    def stopped(self, step: str) -> str:
        """SIGSTOP past the lease; another ends the work; the zombie wakes up and changes nothing."""
        worker = self.start(f"{step}=stop")
        try:
            _until_stopped(worker)
            other = threading.Thread(target=self._end_the_work)
            other.start()
            other.join(4 * float(SHORT_LEASE["LONGSHORE_LEASE__TTL_S"]))
            waited = other.is_alive()  # whoever sleeps inside a transaction keeps the others waiting, and nothing else
            worker.send_signal(signal.SIGCONT)
            other.join(PATIENCE_S)
            assert not other.is_alive()
        finally:
            worker.send_signal(signal.SIGCONT)
            worker.communicate(timeout=120)
        return WAITED if waited else ZOMBIE

    def _end_the_work(self) -> None:
        """Wait for the leases to run out, and do what is left."""
        with self.open() as other:
            other.add(self.urls)
            other.run()

    def canceled(self, step: str) -> str:
        """Every job is canceled from outside while the worker stands at the step."""
        worker, pause = self.paused(step)
        with ThreadPoolExecutor(1) as other_thread:
            asked = other_thread.submit(self._cancel_all)
            # Whoever stands inside a transaction keeps the others waiting: then it must go on before they can.
            wait([asked], float(SHORT_LEASE["LONGSHORE_LEASE__TTL_S"]))
            (pause / f"{step}.go").touch()
            worker.communicate(timeout=120)
            asked.result(PATIENCE_S)
        with self.open() as other:
            assert {job.status.value for job in other.jobs()} <= {"canceled", "completed"}
            other.retry([job.job_id for job in other.jobs() if job.status.value == "canceled"])
        return "each job ends once: canceled or completed"

    def _cancel_all(self) -> None:
        with self.open() as other:
            other.cancel([job.job_id for job in other.jobs()])

    def backends_killed(self, step: str) -> str:
        """Every connection to PostgreSQL dies while the worker stands at the step."""
        assert self.cluster is not None
        worker, pause = self.paused(step)
        self.cluster.kill_backends(self.database)
        (pause / f"{step}.go").touch()
        worker.communicate(timeout=120)
        return WENT_ON if worker.returncode == 0 and self.all_held() else CAME_AGAIN

    def paused(self, step: str) -> tuple[subprocess.Popen[str], Path]:
        """Start a worker and wait until it stands at the step."""
        pause = self.home / "pause"
        pause.mkdir()
        worker = self.start(f"{step}=pause:{pause}")
        threading.Thread(target=worker.wait, daemon=True).start()
        end = time.monotonic() + PATIENCE_S
        while not (pause / f"{step}.here").exists():
            assert worker.returncode is None, "the step was not passed"
            assert time.monotonic() < end
            time.sleep(0.01)
        return worker, pause

    # --- afterwards

    def open(self) -> longshore.Depot:
        return longshore.open(self.depot, ledger=self.ledger or None, **SETTINGS)

    def all_held(self) -> bool:
        with self.open() as depot:
            jobs = depot.jobs()
        return len(jobs) == len(self.urls) and all(job.status.value == "completed" for job in jobs)

    def recovered(self) -> None:
        """One more run: everything is there, once, right; what a crash left behind, reconcile takes away."""
        with self.open() as again:
            again.add(self.urls)
            result = again.run()
            assert (result.failed, result.left) == (0, False)
        assert self.findings(healed=False) == []
        with self.open() as held:
            got = held.get(self.urls)
            assert [one.status.value for one in got] == ["completed"] * len(self.urls)
            assert all(one.path and check_stamps(one.path.read_bytes()) for one in got)
            held.reconcile()
            assert held.reconcile(dry_run=True).findings == []
        assert self.findings(healed=True) == []

    def findings(self, *, healed: bool) -> list[tuple[str, str]]:
        report = check(self.ledger or str(self.depot / "ledger.db"), LocalFiles(self.depot / "store"))
        return [(one.kind, one.detail) for one in report.findings if healed or one.kind not in HEALABLE]


@contextlib.contextmanager
def cut_at(step: str, home: Path, origin: Origin) -> Iterator[Struck]:
    """Run a worker on an ext4 of its own, copy the image while it stands at the step, and mount the copy."""
    with power_cut_disk(48) as disk:
        first = Struck(disk.root, origin)
        worker, _ = first.paused(step)
        worker.send_signal(signal.SIGSTOP)  # its other threads may not write while the image is copied
        _until_stopped(worker)
        copy = disk.cut()
        worker.kill()
        worker.communicate(timeout=120)
        with disk.after(copy) as where:
            after = Struck.__new__(Struck)
            after.home, after.depot, after.cluster, after.ledger, after.urls = (
                home,
                where / "depot",
                None,
                "",
                first.urls,
            )
            yield after


def _until_stopped(worker: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        state = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "T":
            return
        assert state != "Z", "the step was not passed"
        assert time.monotonic() < end
        time.sleep(0.01)


def _build(dsn: str) -> None:
    longshore.ledger.Ledger.open(dsn, create=True).close()


def record(engine: str, fault: str, step: str, outcome: str) -> None:
    """Write down what a fault at a step came to; `make torture` makes the table of the docs from it."""
    directory = os.environ.get("LONGSHORE_MATRIX")
    if directory:
        path = Path(directory, f"{os.getpid()}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"engine": engine, "fault": fault, "step": step, "outcome": outcome}) + "\n")
