"""What was acknowledged stays acknowledged: planners at work while the server crashes, again and again, or is replaced.

Every acknowledged job is counted from outside, by a connection of its own.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from longshore import failpoints
from longshore.domain.model import JobRequest, Lease, Scope
from longshore.domain.outcomes import Completed
from longshore.errors import LeaseLost, Unavailable
from longshore.ledger import Ledger
from longshore.ledger.backends.postgres.backend import Postgres, RetryBudget
from longshore.ledger.backends.postgres.connections import InDoubt, Session, cut
from longshore.ledger.records import Settled
from tests.support.ledgers import build_template
from tests.support.postgres import REPLICATED, Cluster, Standby

pytestmark = pytest.mark.servers

A = Scope("a", "p")
WAIT_S = 60.0


def ids_in(dsn: str, where: str = "true") -> set[str]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return {row[0] for row in connection.execute(f"SELECT job_id FROM jobs WHERE {where}".encode())}


def test_a_transaction_id_that_is_handed_out_again_proves_nothing(
    own_postgres_cluster: Cluster, tmp_path: Path
) -> None:
    """A planner waits before its COMMIT; the server crashes and commits others' transactions under the same ids."""
    cluster = own_postgres_cluster
    with cluster.database(cluster.template("ledger", build_template)) as dsn, Ledger.open(dsn) as ledger:
        ledger.plan(A, [JobRequest("own", "before")])
        failpoints.arm(f"ledger.commit=pause:{tmp_path}")
        try:
            answer = ledger.backend.submit(lambda tx: _plan(tx, "doubtful"))
            _until((tmp_path / "ledger.commit.here").exists)
            cluster.restart(immediate=True)
            with psycopg.connect(dsn, autocommit=True) as other:
                for _ in range(20):  # each commits under a new transaction id
                    other.execute("INSERT INTO hosts (host, updated_at) VALUES (gen_random_uuid()::text, 0)")
            (tmp_path / "ledger.commit.go").touch()
            planned = answer.result(WAIT_S)
        finally:
            failpoints.arm("")
        assert planned in ids_in(dsn)


def _plan(tx: object, key: str) -> str:
    from longshore.ledger.operations.planning import plan

    return plan(tx, A, [JobRequest("own", key)])[0].job_id  # type: ignore[arg-type]


def _until(true: object) -> None:
    end = time.monotonic() + WAIT_S
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def test_a_commit_that_the_server_reads_late_fails_once_it_was_asked_about(own_postgres_cluster: Cluster) -> None:
    """A backend that stands still has not read the COMMIT when we ask; it must not commit when it goes on."""
    cluster = own_postgres_cluster
    with cluster.database(cluster.template("ledger", build_template)) as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            session = Session(connection)
            pid = connection.info.backend_pid
            try:
                with pytest.raises(InDoubt), session.transaction("BEGIN", lambda: None) as pipeline:
                    connection.execute("INSERT INTO hosts (host, updated_at) VALUES ('late.example', 0)")
                    pipeline.sync()
                    os.kill(pid, signal.SIGSTOP)
                    threading.Timer(0.5, lambda: cut(connection)).start()
                committed = session.is_committed(lambda: psycopg.connect(dsn, autocommit=True), RetryBudget(20))
            finally:
                os.kill(pid, signal.SIGCONT)
        assert not committed
        _until(lambda: not _alive(cluster, pid))
        with psycopg.connect(dsn, autocommit=True) as look:
            assert look.execute("SELECT count(*) FROM hosts WHERE host = 'late.example'").fetchone() == (0,)


def _alive(cluster: Cluster, pid: int) -> bool:
    return bool(cluster.execute(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"))


def test_a_server_that_answers_too_early_is_told_not_to(own_postgres_cluster: Cluster) -> None:
    cluster = own_postgres_cluster
    with cluster.database(cluster.template("ledger", build_template)) as dsn:
        name = dsn.split("/")[3].partition("?")[0]
        cluster.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        with Ledger.open(dsn) as ledger:
            assert ledger.read(_setting) == "on"


def _setting(tx: object) -> str:
    connection = tx._connection  # type: ignore[attr-defined]
    return str(connection.execute("SHOW synchronous_commit").fetchone()[0])


class Planners:
    """Threads that plan, claim and settle without a pause, and remember what they were told."""

    def __init__(self, url: str, threads: int = 3) -> None:
        self.planned: set[str] = set()
        self.settled: set[str] = set()
        self.refused = 0
        self.faults: list[BaseException] = []
        self._stop = threading.Event()
        self._ledgers = [Ledger(Postgres(url)) for _ in range(threads)]
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(threads)]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(2 * WAIT_S)
            for ledger in self._ledgers:
                ledger.close()
        assert not any(thread.is_alive() for thread in self._threads)

    def _work(self, number: int) -> None:
        ledger, turn = self._ledgers[number], 0
        while not self._stop.is_set():
            turn += 1
            try:
                requests = [JobRequest("own", f"{number}-{turn}-{n}") for n in range(2)]
                self.planned |= {one.job_id for one in ledger.plan(A, requests)}
                self._settle(ledger, ledger.claim(f"w{number}", limit=1, ttl_s=600))
            except Unavailable:
                self.refused += 1  # not acknowledged: whoever asked knows
            except BaseException as error:
                self.faults.append(error)
                return

    def _settle(self, ledger: Ledger, leases: list[Lease]) -> None:
        for lease, answer in zip(leases, ledger.settle([(lease, Completed(())) for lease in leases]), strict=True):
            if isinstance(answer, Settled):
                self.settled.add(lease.job_id)
            elif not isinstance(answer, LeaseLost):
                raise answer

    def wait_for(self, more: int) -> None:
        """Wait until so many more jobs were acknowledged."""
        goal = len(self.planned) + more
        _until(lambda: len(self.planned) >= goal or self.faults)

    def check(self, dsn: str) -> None:
        assert not self.faults, self.faults
        assert self.planned <= ids_in(dsn), "an acknowledged plan is gone"
        assert self.settled <= ids_in(dsn, "status = 'completed'"), "an acknowledged ending is gone"
        assert not ids_in(dsn, "status = 'completed'") - self.settled - self._in_doubt(dsn)

    def _in_doubt(self, dsn: str) -> set[str]:
        """Endings that were refused to the caller may have been written all the same."""
        return ids_in(dsn, "status = 'completed'") if self.refused else set()


@pytest.mark.parametrize("crashes", [4, pytest.param(40, marks=pytest.mark.torture)])
def test_crashes_while_planning_lose_nothing_that_was_acknowledged(crashes: int) -> None:
    cluster = Cluster(commit_delay="5000", commit_siblings="1")  # a COMMIT takes longer: more of them are cut
    try:
        dsn = cluster.dsn(cluster.template("ledger", build_template))
        planners = Planners(dsn)
        with planners.at_work():
            for _ in range(crashes):
                planners.wait_for(10)
                cluster.restart(immediate=True)
            planners.wait_for(10)
        planners.check(dsn)
    finally:
        cluster.close()


@pytest.mark.parametrize("broken_link", [False, True])
@pytest.mark.parametrize("failovers", [1, pytest.param(12, marks=pytest.mark.torture)])
def test_a_promoted_standby_has_everything_that_was_acknowledged(failovers: int, broken_link: bool) -> None:
    for _ in range(failovers):
        primary = Cluster(**REPLICATED)
        standby: Standby | None = None
        try:
            name = primary.template("ledger", build_template)
            standby = Standby(primary)
            primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.execute("SELECT pg_reload_conf()")
            planners = Planners(
                f"postgresql://postgres@/{name}?host={primary.base},{standby.base}&target_session_attrs=read-write"
            )
            with planners.at_work():
                planners.wait_for(30)
                if broken_link:
                    standby.freeze()
                    time.sleep(0.5)  # transactions that the standby does not see pile up
                primary.stop(immediate=True)
                standby.thaw()
                standby.promote()
                planners.wait_for(10)
            planners.check(standby.dsn(name))
        finally:
            if standby is not None:
                standby.close()
            primary.close()
