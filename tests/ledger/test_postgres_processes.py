"""Processes that lease from one PostgreSQL ledger while the server crashes and half of them are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from longshore.domain.model import JobRequest, Scope, Status
from longshore.ledger import Ledger
from tests.support.ledgers import build_template
from tests.support.postgres import Cluster

A = Scope("a", "p")
ROOT = Path(__file__).parents[2]
LONG_S = 240.0


class Workers:
    """Worker processes with their output in files; a killed one is replaced under another name."""

    def __init__(self, where: str, folder: Path, batch: int) -> None:
        self.where = where
        self.folder = folder
        self.batch = batch
        self.running: list[subprocess.Popen[bytes]] = []
        self.started = 0

    def start(self, count: int) -> None:
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        for _ in range(count):
            self.started += 1
            command = [
                sys.executable,
                "-m",
                "tests.support.leaser",
                self.where,
                f"w{self.started}",
                str(self.batch),
                "3",
            ]
            with (
                open(self.folder / f"{self.started}.out", "wb") as out,
                open(self.folder / f"{self.started}.err", "wb") as err,
            ):
                self.running.append(subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT, env=environment))

    def kill(self, count: int) -> None:
        for process in self.running[:count]:
            process.kill()
            process.wait()
        del self.running[:count]

    def finish(self) -> None:
        for process in self.running:
            assert process.wait(LONG_S) == 0, self.errors()

    def stop(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()

    def errors(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.err")))

    def done(self) -> Counter[str]:
        lines = [line for path in self.folder.glob("*.out") for line in path.read_text().splitlines()]
        return Counter(line for line in lines if len(line) == 36)


def wait_until(condition: Callable[[], bool], workers: Workers) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, workers.errors()
        time.sleep(0.02)


def run(cluster: Cluster, folder: Path, *, jobs: int, processes: int, batch: int) -> None:
    with cluster.database(cluster.template("ledger", build_template)) as dsn, Ledger.open(dsn) as ledger:
        planned = ledger.plan(A, [JobRequest("own", f"key-{number}") for number in range(jobs)])
        workers = Workers(dsn, folder, batch)

        def completed() -> int:
            return ledger.counts(A)[Status.COMPLETED]

        try:
            workers.start(processes)
            wait_until(lambda: completed() > jobs // 5, workers)
            cluster.restart(immediate=True)
            wait_until(lambda: completed() > jobs // 2, workers)
            workers.kill(processes // 2)
            workers.start(processes // 2)
            wait_until(lambda: completed() == jobs, workers)
            workers.finish()
        finally:
            workers.stop()
        assert set(workers.done()) <= {item.job_id for item in planned}
        assert max(workers.done().values()) == 1, "no job was accepted twice"
        check_rows(dsn, jobs)
        assert ledger.reconcile_jobs().wrong_counters == 0


def check_rows(dsn: str, jobs: int) -> None:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT count(*), count(DISTINCT job_id) FROM job_claims WHERE outcome = 'completed'"
        ).fetchone()
        assert row == (jobs, jobs), "each job was completed by one grant"
        row = connection.execute(
            "SELECT count(*), count(DISTINCT job_id) FROM events WHERE kind = 'completed'"
        ).fetchone()
        assert row == (jobs, jobs)
        row = connection.execute(
            "SELECT count(*) FROM jobs j WHERE j.lease_epoch <> (SELECT count(*) FROM job_claims c WHERE c.job_id = j.job_id)"
        ).fetchone()
        assert row == (0,), "every grant has its epoch"


def test_a_crash_of_the_server_and_killed_workers_lose_nothing(own_postgres_cluster: Cluster, tmp_path: Path) -> None:
    run(own_postgres_cluster, tmp_path, jobs=600, processes=4, batch=5)


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_eight_processes_five_thousand_jobs(own_postgres_cluster: Cluster, tmp_path: Path) -> None:
    run(own_postgres_cluster, tmp_path, jobs=5_000, processes=8, batch=10)
