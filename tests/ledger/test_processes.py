"""Real processes on one ledger: nothing is done twice, nobody starves, kill -9 loses nothing, a zombie changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from longshore import compat
from longshore.domain.model import Scope, Status
from longshore.errors import LeaseLost
from longshore.ledger import Ledger, Move, migrate
from longshore.ledger.transaction import Row, Tx
from tests.ledger.acts import HOME, downloads, held, lease, plan, settle

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
JOBS = 1_500
WAIT_S = 120.0


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, however loaded the machine is."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"waited {WAIT_S} s for {what}"
        time.sleep(0.01)


@contextmanager
def workers(where: str, names: list[str], *, batch: int = 20, **env: str) -> Iterator[list[subprocess.Popen[str]]]:
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.ledger.worker", where, name, str(batch)],
            env={**os.environ, **env},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.communicate()


def planned(where: str, count: int) -> None:
    with Ledger.open(where) as ledger:
        for number in range(5):
            ledger.plan(HOME, downloads(count // 5, host=f"host{number}.example"))


def completions(tx: Tx) -> list[Row]:
    tx.enter(HOME.tenant_id)
    return tx.all("claims_ended", outcome="completed")


def check_all_done_once(where: str, count: int) -> None:
    with Ledger.open(where) as ledger:
        assert ledger.counts(HOME)[Status.COMPLETED] == count
        healed = ledger.reconcile_jobs()
        assert (healed.forgotten_jobs, healed.forgotten_lanes, healed.wrong_counters) == (0, 0, 0)
        finished = ledger.read(completions)
    assert len(finished) == count
    assert len({row[0] for row in finished}) == count


def test_eight_processes_complete_each_job_once_and_none_starves(where: str) -> None:
    planned(where, JOBS)
    names = [f"w{number}" for number in range(8)]
    with workers(where, names) as running:
        counts = [process.communicate(timeout=WAIT_S)[0].count("done") for process in running]
        assert [process.returncode for process in running] == [0] * 8
    check_all_done_once(where, JOBS)
    assert sum(counts) >= JOBS // 20


def test_kill_9_of_half_of_them_loses_nothing(where: str) -> None:
    """Each victim dies at a commit of its own: before it, after it, between claim and settle."""
    planned(where, JOBS // 3)
    places = ["ledger.commit=kill@2", "ledger.committed=kill@3", "ledger.begin=kill@4", "ledger.committed=kill@7"]
    victims = [f"victim{number}" for number in range(4)]
    if where.startswith("postgresql"):
        kill_at_random(where, victims)
    else:
        for victim, place in zip(victims, places, strict=True):
            with workers(where, [victim], LONGSHORE_FAILPOINTS=place) as (process,):
                assert process.wait(timeout=WAIT_S) == -signal.SIGKILL
    with Ledger.open(where) as ledger:
        ledger.release_dead(victims)
    with workers(where, ["a", "b", "c", "d"]) as running:
        for process in running:
            process.communicate(timeout=WAIT_S)
            assert process.returncode == 0
    check_all_done_once(where, JOBS // 3)


def kill_at_random(where: str, victims: list[str]) -> None:
    """Kill each in the middle of its work: after it has settled something."""
    with workers(where, victims, batch=3) as running:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
            process.kill()
            process.wait(timeout=WAIT_S)


def test_a_zombie_that_wakes_up_changes_nothing(tmp_path: Path) -> None:
    """SIGSTOP between claim and settle, past the TTL, another one does the work, SIGCONT."""
    where = str(tmp_path / "ledger.db")
    with Ledger.open(where, create=True) as ledger:
        (job_id,) = plan(ledger)
        with workers(where, ["zombie"], LONGSHORE_FAILPOINTS="ledger.committed=stop@2") as (process,):
            # It claimed and advanced; the settle that follows comes too late.
            until(lambda: _state(process.pid) == "T", "the zombie to stop")
            assert compat.get_current_state(ledger, HOME, job_id) == "STREAMING"
            assert ledger.release_dead(["zombie"]) == 1  # as if its TTL were over
            heir = lease(ledger, "heir")
            settle(ledger, heir, held(3))
            after = ledger.job(HOME, job_id)
            os.kill(process.pid, signal.SIGCONT)
            output, _ = process.communicate(timeout=WAIT_S)
            assert output == "done 0\n"
            assert process.returncode == 0
        assert ledger.job(HOME, job_id) == after
        assert [artifact.sha256 for artifact in ledger.results(HOME, job_id)] == [f"{3:064x}"]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_processes_share_one_file_without_busy_errors(tmp_path: Path) -> None:
    """Two ledgers on one file in one process are two writers as well."""
    where = tmp_path / "ledger.db"
    with Ledger.open(where, create=True) as one, Ledger.open(where) as two:
        for number in range(50):
            plan(one, 1, start=number)
            plan(two, 1, start=number, scope=Scope("other", "p"))
        granted = lease(one)
        with pytest.raises(LeaseLost):
            compat.advance_state(
                two, type(granted)(granted.scope, granted.job_id, 9, "thief", granted.until, granted.job), "STREAMING"
            )
        assert two.advance([Move(granted, "STREAMING")]) == [
            None
        ]  # a lease is a value: any handle of its owner may use it


@pytest.mark.torture
def test_eight_processes_and_five_thousand_jobs(where: str) -> None:
    planned(where, 5_000)
    with workers(where, [f"w{number}" for number in range(8)], batch=20) as running:
        for process in running:
            process.communicate(timeout=600)
    check_all_done_once(where, 5_000)


def test_processes_that_open_a_new_ledger_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """The switch to WAL needs the file alone, and SQLite's own wait does not cover it."""
    code = "import sys; from longshore.ledger import Ledger; Ledger.open(sys.argv[1], create=True).close()"
    for turn in range(8):
        path = tmp_path / f"{turn}.db"
        migrate.create_sqlite(path)
        racing = [subprocess.Popen([sys.executable, "-c", code, path], stderr=subprocess.PIPE) for _ in range(4)]
        ends = [(process.communicate(timeout=60)[1], process.returncode) for process in racing]
        assert all(code == 0 for _, code in ends), ends
