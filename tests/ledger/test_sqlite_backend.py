"""The SQLite writer: verbs share a commit, never each other's fate; readers see whole transactions."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from longshore import failpoints
from longshore.domain.model import Status
from longshore.errors import BadInput, Damaged, Unavailable
from longshore.ledger import JobFilter, Ledger
from longshore.ledger.backends.sqlite import connection, writer_lock
from longshore.ledger.backends.sqlite.backend import lock_path
from longshore.ledger.operations.planning import plan as plan_verb
from longshore.ledger.queries.listing import jobs as jobs_verb
from longshore.ledger.transaction import Tx
from tests.ledger.acts import HOME, downloads, plan


@pytest.fixture
def ledger_file(tmp_path: Path) -> Path:
    Ledger.open(tmp_path / "ledger.db", create=True).close()
    return tmp_path / "ledger.db"


def held_up(ledger: Ledger, gate: threading.Event) -> None:
    """Keep the writer busy, so that what comes now is queued into one group."""
    started = threading.Event()

    def wait(tx: Tx) -> None:
        started.set()
        assert gate.wait(60)

    ledger.backend.submit(wait)
    assert started.wait(60)


def test_queued_verbs_share_one_commit_and_errors_stay_apart(ledger_file: Path) -> None:
    commits: list[float] = []
    with Ledger.open(ledger_file) as ledger:
        gate = threading.Event()
        held_up(ledger, gate)
        ledger.backend.commit_seconds = commits.append

        def breaks(tx: Tx) -> None:
            plan_verb(tx, HOME, downloads(1, start=100))
            raise BadInput("no")

        def offends(tx: Tx) -> None:
            plan_verb(tx, HOME, downloads(1, start=200))
            tx.many("job_artifact_insert", [("x", "y", "nope", "result", 0, "nope")])

        good = [ledger.backend.submit(lambda tx, n=n: plan_verb(tx, HOME, downloads(1, start=n))) for n in range(3)]  # type: ignore[misc]
        bad = [ledger.backend.submit(breaks), ledger.backend.submit(offends)]
        more = ledger.backend.submit(lambda tx: plan_verb(tx, HOME, downloads(1, start=3)))
        assert ledger.queue_length() == 6
        gate.set()
        assert all(future.result(60)[0].created for future in [*good, more])
        assert [type(future.exception(60)).__name__ for future in bad] == ["BadInput", "Conflict"]
        assert len(commits) == 2  # the one that was held up, and the group
        assert ledger.counts(HOME)[Status.PENDING] == 4


def test_a_commit_that_fails_fails_everybody_in_it_and_nobody_else(ledger_file: Path) -> None:
    with Ledger.open(ledger_file) as ledger:
        failpoints.arm("ledger.commit=raise")
        try:
            with pytest.raises(Unavailable):
                plan(ledger)
        finally:
            failpoints.arm("")
        assert ledger.counts(HOME)[Status.PENDING] == 0
        plan(ledger)
        assert ledger.counts(HOME)[Status.PENDING] == 1


def test_the_event_loop_is_never_blocked(ledger_file: Path) -> None:
    async def main() -> list[int]:
        with Ledger.open(ledger_file) as ledger:
            gate = threading.Event()
            held_up(ledger, gate)
            pending = [ledger.write_async(plan_verb, HOME, downloads(1, start=n)) for n in range(5)]
            assert not any(future.done() for future in pending)
            gate.set()
            planned = await asyncio.gather(*pending)
            claimed = await ledger.claim_async("w", limit=5, ttl_s=60)
            counts = await ledger.read_async(lambda tx: tx.all("counts", **HOME._asdict()))
            return [len(planned), len(claimed), len(counts)]

    assert asyncio.run(main()) == [5, 5, 2]


def test_a_reader_sees_one_moment(ledger_file: Path) -> None:
    with Ledger.open(ledger_file) as ledger:
        plan(ledger)

        def look_twice(tx: Tx) -> tuple[int, int]:
            first = tx.all("counts", **HOME._asdict())
            plan(ledger, 3, start=10)  # another connection commits in between
            return int(first[0][1]), int(tx.all("counts", **HOME._asdict())[0][1])

        assert ledger.read(look_twice) == (1, 1)
        assert ledger.counts(HOME)[Status.PENDING] == 4


def test_a_reader_cannot_write(ledger_file: Path) -> None:
    with Ledger.open(ledger_file) as ledger, pytest.raises(Unavailable, match="readonly"):
        ledger.read(plan_verb, HOME, downloads(1))


@pytest.fixture
def torn_text(ledger_file: Path) -> Path:
    """A ledger in which a bit of a text has flipped, so that it is not UTF-8 any more."""
    with Ledger.open(ledger_file) as ledger:
        plan(ledger)
    raw = apsw.Connection(str(ledger_file))
    raw.execute("UPDATE jobs SET url = CAST(X'e631' AS TEXT)")
    raw.close()
    return ledger_file


def test_a_text_that_is_not_utf_8_is_damage_to_a_reader(torn_text: Path) -> None:
    with Ledger.open(torn_text) as ledger:
        with pytest.raises(Damaged, match=r"ledger\.db: the ledger is damaged: a text in it is not UTF-8"):
            ledger.jobs(HOME, JobFilter())
        assert ledger.counts(HOME)[Status.PENDING] == 1


def test_a_text_that_is_not_utf_8_is_damage_to_the_writer_and_only_to_that_verb(torn_text: Path) -> None:
    with Ledger.open(torn_text) as ledger:
        with pytest.raises(Damaged, match="a text in it is not UTF-8"):
            ledger.backend.submit(lambda tx: jobs_verb(tx, HOME, JobFilter())).result(60)
        plan(ledger, 3, start=10)
        assert ledger.counts(HOME)[Status.PENDING] == 4


def test_a_closed_ledger_says_so(ledger_file: Path) -> None:
    ledger = Ledger.open(ledger_file)
    ledger.close()
    ledger.close()
    with pytest.raises(Unavailable, match="closed"):
        plan(ledger)


def test_no_statement_is_prepared_anew_at_each_bind(ledger_file: Path) -> None:
    """With partial indexes SQLite would look at bound values while planning, and plan again whenever they change."""
    with Ledger.open(ledger_file) as ledger:
        plan(ledger, 20)
    from longshore.ledger.backends.sqlite.connection import connect

    connection = connect(ledger_file)
    assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1
    connection.close()


def test_whoever_waits_long_for_another_process_is_told_which(
    ledger_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that stands still inside a transaction (Ctrl-Z) holds up all others: they say so, and then go on."""
    monkeypatch.setattr(writer_lock, "LONG_S", 0.05)
    told = threading.Event()
    monkeypatch.setattr(writer_lock, "log", Telling(writer_lock.log, told))
    child = (
        "import fcntl, sys; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX); print(1, flush=True); input()"
    )
    command = [sys.executable, "-c", child, str(lock_path(ledger_file))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"1\n"
        with Ledger.open(ledger_file) as ledger:
            planned = ledger.backend.submit(lambda tx: plan_verb(tx, HOME, downloads(1)))
            assert told.wait(60)
            assert not planned.done()
            other.communicate(b"\n")
            assert planned.result(60)[0].created
    assert f"process {other.pid}" in caplog.text
    assert f"kill -CONT {other.pid}" in caplog.text


class Telling:
    """The logger, and a flag that it was used."""

    def __init__(self, log: logging.Logger, told: threading.Event) -> None:
        self._log, self._told = log, told

    def warning(self, *words: object) -> None:
        self._log.warning(*words)
        self._told.set()


def test_bulk_writing_copies_the_log_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others would have put into the file long ago is still in the log, as durable, and read from there."""
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 16)
    grew = {}
    for bulk in (False, True):
        path = tmp_path / f"{bulk}.db"
        with Ledger.open(path, create=True, bulk=bulk) as ledger:
            before = path.stat().st_size
            for start in range(0, 500, 100):
                plan(ledger, 100, start=start)
            grew[bulk] = path.stat().st_size - before
            assert ledger.counts(HOME)[Status.PENDING] == 500
    assert grew[True] == 0 < grew[False]
