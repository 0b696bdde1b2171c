"""A ledger whose database is busy, full, crowded or quarrelsome: it waits or says so, and nothing is half done."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import longshore
from longshore.checker import check
from longshore.checker.check import LocalFiles
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from longshore.domain.model import Scope
from longshore.errors import LongshoreError
from longshore.ledger import Ledger
from longshore.ledger.transaction import Tx
from tests.support.disks import filled, small_disk
from tests.support.ledgers import build_template
from tests.support.origin import Origin, Thing, stamped
from tests.support.postgres import Cluster
from tests.support.postgres import postgres_cluster as postgres_cluster  # noqa: PLC0414 - the fixture

SCOPE = Scope()
SETTINGS: dict[str, Any] = {"network": {"allow": ["127.0.0.0/8"]}, "quota": {"free_bytes_min": 0}}


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        yield server


def urls_of(origin: Origin, count: int = 5) -> list[str]:
    return [origin.add(f"/{n}", Thing(stamped(1, 900 + n))) for n in range(count)]


def requests(first: int, count: int = 20) -> list[Any]:
    return [download_request(f"https://example.org/{first + n}") for n in range(count)]


def test_somebody_else_holds_the_write_lock(tmp_path: Path, origin: Origin) -> None:
    """A foreign program (a backup, a shell) has a transaction open: we wait for it and go on."""
    with longshore.open(tmp_path / "depot", **SETTINGS) as depot:
        foreign = apsw.Connection(str(tmp_path / "depot" / "ledger.db"))
        foreign.execute("BEGIN IMMEDIATE")
        release = threading.Timer(1.0, lambda: foreign.execute("ROLLBACK"))
        release.start()
        got = depot.get(urls_of(origin))
        release.join()
        foreign.close()
        assert all(one.ok for one in got)
    assert check(str(tmp_path / "depot" / "ledger.db"), LocalFiles(tmp_path / "depot" / "store")).findings == []


def test_a_reader_that_stays_blocks_nobody(tmp_path: Path, origin: Origin) -> None:
    """The log cannot be reset while somebody reads an old moment: it grows, and shrinks when the reader goes."""
    with longshore.open(tmp_path / "depot", **SETTINGS) as depot:
        reader = apsw.Connection(str(tmp_path / "depot" / "ledger.db"), flags=apsw.SQLITE_OPEN_READONLY)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM jobs").get == 0
        for first in range(0, 400, 20):
            depot.ledger.plan(SCOPE, requests(first))
        assert all(one.ok for one in depot.get(urls_of(origin)))
        assert reader.execute("SELECT count(*) FROM jobs").get == 0
        reader.close()
    assert check(str(tmp_path / "depot" / "ledger.db"), LocalFiles(tmp_path / "depot" / "store")).damage == []


def test_no_room_for_the_ledger_and_then_room_again(tmp_path: Path) -> None:
    """SQLITE_FULL is said, what was acknowledged stays, and with room everything goes on."""
    with small_disk("4m") as disk, Ledger.open(disk / "ledger.db", create=True) as ledger:
        before = ledger.plan(SCOPE, requests(0))
        with filled(disk / "ledger.db"), pytest.raises(LongshoreError, match=r"full|room|disk"):
            for first in range(1_000, 100_000, 200):
                ledger.plan(SCOPE, requests(first, 200))
        assert [one.job_id for one in ledger.plan(SCOPE, requests(0))] == [one.job_id for one in before]
        assert ledger.plan(SCOPE, requests(200_000))[0].created
        assert check(str(disk / "ledger.db"), None).findings == []


@pytest.mark.torture
def test_the_lock_file_is_deleted_under_two_workers(tmp_path: Path, origin: Origin) -> None:
    """Then processes queue at SQLite's own lock: slower, and right."""
    depot = tmp_path / "depot"
    urls = urls_of(origin, 200)
    with longshore.open(depot, **SETTINGS) as planned:
        planned.add(urls)
    env = {**os.environ, "LONGSHORE_NETWORK__ALLOW": '["127.0.0.0/8"]'}
    command = [sys.executable, "-m", "tests.worker.child", str(depot)]
    workers = []
    for _ in range(2):
        workers.append(subprocess.Popen(command, env=env, stderr=subprocess.PIPE))
        for lock in depot.glob("*.lock"):
            lock.unlink()
    for worker in workers:
        _, err = worker.communicate(timeout=120)
        assert worker.returncode == 0, err.decode()
    with longshore.open(depot, **SETTINGS) as held:
        assert held.ledger.counts(SCOPE)[Status.COMPLETED] == 200
    assert check(str(depot / "ledger.db"), LocalFiles(depot / "store")).findings == []


def test_two_transactions_that_wait_for_each_other(postgres_cluster: Cluster) -> None:
    """PostgreSQL ends one of them; it is run again, and both are done once."""
    with (
        postgres_cluster.database(postgres_cluster.template("quarrel", build_template)) as dsn,
        Ledger.open(dsn) as ledger,
    ):
        ids = [one.job_id for one in ledger.plan(SCOPE, requests(0, 2))]
        meeting = threading.Barrier(2)
        tried: list[str] = []

        def touch(tx: Tx, first: str, second: str) -> None:
            tx.enter(SCOPE.tenant_id)
            tried.append(first)
            for place, job_id in enumerate((first, second)):
                tx.execute("UPDATE jobs SET priority = priority + 1 WHERE job_id = %(job_id)s", {"job_id": job_id})
                if place == 0 and len(tried) <= 2:
                    meeting.wait(60)

        threads = [threading.Thread(target=ledger.write, args=(touch, *pair)) for pair in (ids, ids[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert [ledger.job(SCOPE, job_id).priority for job_id in ids] == [2, 2]
        assert len(tried) > 2, "one of them was run again"


@pytest.mark.torture
def test_a_server_without_a_free_connection(tmp_path: Path) -> None:
    """Every connection is taken: the ledger waits for one."""
    cluster = Cluster(max_connections="12", superuser_reserved_connections="0")
    try:
        dsn = cluster.dsn("postgres")
        Ledger.open(dsn, create=True).close()
        import psycopg

        taken = [psycopg.connect(dsn) for _ in range(11)]
        with Ledger.open(dsn) as ledger:
            others = [threading.Thread(target=ledger.plan, args=(SCOPE, requests(n * 100))) for n in range(4)]
            for thread in others:
                thread.start()
            time.sleep(0.5)  # the time in which they find no connection
            for connection in taken:
                connection.close()
            for thread in others:
                thread.join(120)
            assert ledger.counts(SCOPE)[Status.PENDING] == 80
    finally:
        cluster.close()


@pytest.mark.torture
def test_fifty_processes_and_one_job(tmp_path: Path) -> None:
    """Each grant has its own epoch; the job is completed once."""
    where = str(tmp_path / "ledger.db")
    with Ledger.open(where, create=True) as ledger:
        (planned,) = ledger.plan(SCOPE, requests(0, 1))
    command = [sys.executable, "-m", "tests.ledger.worker", where]
    running = [subprocess.Popen([*command, f"w{n}", "1"], stdout=subprocess.PIPE, text=True) for n in range(50)]
    said = [process.communicate(timeout=240)[0] for process in running]
    assert sum(text.count("done 1") for text in said) == 1
    with Ledger.open(where) as ledger:
        assert ledger.job(SCOPE, planned.job_id).lease_epoch == 1
