"""Several processes on one depot: what a forked worker has of its own, and how all of them end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import click
import pytest

from longshore.cli.multiprocess.assign_jobs import Distributor
from longshore.cli.multiprocess.processes import WorkerProcess
from longshore.cli.multiprocess.supervisor import Supervisor
from tests.cli.conftest import Box
from tests.support.origin import Gate, Origin, Thing, status
from tests.support.program import (
    PATIENCE_S,
    Ran,
    Started,
    alive,
    children,
    command,
    environment,
    eventually,
    started,
)

pytestmark = pytest.mark.slow

MANY = 600  # more than one worker is used for
FAST = {"LONGSHORE_HOSTS__CONCURRENCY": "64", "LONGSHORE_TRANSFER__CONCURRENCY": "4"}


@pytest.fixture
def box(box: Box) -> Box:
    box.env |= FAST
    return box


def asked(box: Box, *urls: str) -> Path:
    return box.write("list.txt", "\n".join(urls))


def things(origin: Origin, many: int = MANY, behaviour: Callable[[int], Any] | None = None) -> list[str]:
    make = behaviour or (lambda n: Thing(b"body %d" % n))
    return [origin.add(f"/{n}", make(n)) for n in range(many)]


def rows(box: Box, question: str) -> list[tuple[Any, ...]]:
    """Ask the ledger itself."""
    connection = apsw.Connection(str(box.depot / "ledger.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(60_000)
    try:
        return list(connection.execute(question))
    finally:
        connection.close()


def owners(box: Box) -> list[str]:
    """Who holds leases now."""
    if not (box.depot / "ledger.db").exists():
        return []
    try:
        return [row[0] for row in rows(box, "SELECT DISTINCT lease_owner FROM jobs WHERE lease_owner IS NOT NULL")]
    except apsw.Error:  # it is just being made
        return []


def everything_once(box: Box, many: int = MANY) -> None:
    """One completed job, one artifact and one completion in the history for each."""
    assert box.counts() == {"completed": many}
    assert rows(box, "SELECT count(*), count(DISTINCT artifact_id) FROM artifacts") == [(many, many)]
    assert rows(box, "SELECT count(*) FROM job_claims WHERE outcome = 'completed'") == [(many,)]
    assert rows(box, "SELECT count(*) FROM job_claims WHERE ended_at IS NULL") == [(0,)]
    box("verify").ok()
    box("reconcile", "--dry-run").ok()


def gated(origin: Origin, many: int = MANY) -> tuple[list[str], Gate]:
    """Bodies that all stop in the middle until the gate opens."""
    gate = Gate(Thing(b"x" * 2_000), 1_000)
    return things(origin, many, lambda n: _different(gate, n)), gate


def _different(gate: Gate, n: int) -> Gate:
    one = Gate(Thing(b"%06d" % n + gate.thing.body), gate.after)
    one.opened = gate.opened
    return one


def at_work(box: Box, running: Started) -> list[int]:
    """Wait until both workers hold leases; give their processes."""
    eventually(lambda: len(owners(box)) == 2, "both workers hold leases")
    return children(running.process.pid)


# ── run ──


def test_forked_workers_are_two(box: Box, origin: Origin, tmp_path: Path) -> None:
    """They are forks of one process and still two owners, in sessions of their own, with nobody else's pipes."""
    urls, gate = gated(origin, 300)
    box("add", asked(box, *urls)).ok()

    with started(tmp_path / "run", "run", "--workers", "2", "--json", env=box.env) as running:
        workers = at_work(box, running)
        words = [Path(f"/proc/{pid}/cmdline").read_text() for pid in (running.process.pid, *workers)]
        holders = owners(box)
        sessions = {os.getsid(pid) for pid in workers}
        pipes = [pipes_of(pid) for pid in workers]
        gate.open()
        ran = running.wait().ok()

    assert len(set(words)) == 1, "forked, not started"
    assert {int(owner.split(".")[-2]) for owner in holders} == set(workers) == sessions
    assert pipes[0].isdisjoint(pipes[1])
    assert len(ran.of("completed")) == 300
    everything_once(box, 300)


def pipes_of(pid: int) -> set[str]:
    """The pipes and sockets of a process, without stderr, which all of them share."""
    folder = Path(f"/proc/{pid}/fd")
    ends = {os.readlink(folder / name) for name in os.listdir(folder) if name in {"0", "1"} or int(name) > 2}
    return {end for end in ends if end.startswith(("pipe:", "socket:"))}


def test_a_failpoint_counts_in_each_worker_from_its_start(box: Box, origin: Origin) -> None:
    box("add", asked(box, *things(origin, 40))).ok()
    box.env |= {"LONGSHORE_FAILPOINTS": "work.begin=kill@1"}

    ran = box.process("run", "--workers", "2")

    assert ran.code == 1, "both were killed, the parent was not"
    del box.env["LONGSHORE_FAILPOINTS"]
    box("run").ok()
    assert box.counts() == {"completed": 40}


def test_a_closed_stdin_is_in_nobodys_way(box: Box, origin: Origin) -> None:
    box("add", asked(box, *things(origin, 40))).ok()
    words = ["sh", "-c", 'exec "$@" <&-', "sh", *command("run", "--workers", "2", "-q")]

    subprocess.run(words, env=environment(box.env), check=True, timeout=PATIENCE_S)

    everything_once(box, 40)


# ── get ──


def test_get_with_workers_says_what_one_process_says(box: Box, origin: Origin, tmp_path: Path) -> None:
    """Duplicates, things that are held, lost or gone: line for line the same, but for ids, times and order."""
    gone = [origin.add(f"/gone{n}", status(404)) for n in range(3)]
    urls = things(origin)
    listed = asked(box, *urls, *gone, *urls[:50], *gone, urls[0])
    alone, shared = (Box(tmp_path, box.env | {"LONGSHORE_DEPOT": str(tmp_path / name)}) for name in ("one", "two"))
    for one in (alone, shared):
        held = {line["url"]: line["path"] for line in one("get", *urls[:20], "--json").ok().of("completed")}
        Path(held[urls[7]]).unlink()

    first = alone.process("get", "-i", listed, "--json")
    second = shared.process("get", "-i", listed, "--json", "--workers", "2")

    assert (first.code, second.code) == (3, 3), second.stderr
    assert (essence(first) - essence(second), essence(second) - essence(first)) == (Counter(), Counter())
    assert Counter(line["url"] for line in second.of("completed")) == Counter([urls[7], *urls[20:]])
    assert len(second.of("failed")) == 3
    assert [origin.count(f"/gone{n}") for n in range(3)] == [2, 2, 2], "once by each"


def essence(ran: Ran) -> Counter[str]:
    """The lines of a run without what differs between any two."""
    varies = {"ts", "job_id", "artifact_id", "path", "elapsed_s", "fsync_s", "bytes_done", "message"}
    lines = [line for line in ran.lines if line["type"] != "progress"]
    return Counter(str({name: value for name, value in line.items() if name not in varies}) for line in lines)


def test_words_for_a_person_are_the_same(box: Box, origin: Origin) -> None:
    urls = things(origin)

    ran = box.process("get", "-i", asked(box, *urls), "--workers", "3").ok()

    assert "600 completed, " in ran.stderr
    assert sorted(line.split()[3] for line in ran.stdout.splitlines()) == sorted(urls)
    everything_once(box)


def test_quiet_with_workers_is_quiet(box: Box, origin: Origin) -> None:
    ran = box.process("get", "-i", asked(box, *things(origin)), "--workers", "2", "-q").ok()

    assert (ran.stdout, ran.stderr) == ("", "")
    everything_once(box)


def test_a_directory_is_filled(box: Box, origin: Origin) -> None:
    urls = things(origin)

    box.process("get", "-i", asked(box, *urls), "--workers", "2", "-d", box.home / "here", "-q").ok()

    assert {path.read_bytes() for path in (box.home / "here").iterdir()} == {b"body %d" % n for n in range(MANY)}


def test_where_threads_are_workers_are_started_afresh(box: Box, origin: Origin) -> None:
    """In this process the origin has threads: a fork would copy their locks."""
    urls = things(origin)

    ran = box("get", "-i", asked(box, *urls), "--workers", "2", "--json").ok()

    assert sorted(line["url"] for line in ran.of("completed")) == sorted(urls)
    everything_once(box)


def test_a_worker_that_is_killed_costs_nothing(box: Box, origin: Origin, tmp_path: Path) -> None:
    urls, gate = gated(origin)
    words = ("get", "-i", asked(box, *urls), "--workers", "2", "--json")

    with started(tmp_path / "get", *words, env=box.env) as running:
        victim, _ = at_work(box, running)
        os.kill(victim, signal.SIGKILL)
        gate.open()
        ran = running.wait().ok()

    assert Counter(line["url"] for line in ran.of("completed")) == Counter(urls)
    (summary,) = ran.of("summary")
    assert (summary["completed"], summary["failed"], summary["items"]) == (MANY, 0, MANY)
    everything_once(box)


def test_all_workers_killed_leave_the_work_to_their_parent(box: Box, origin: Origin, tmp_path: Path) -> None:
    urls, gate = gated(origin)

    with started(tmp_path / "get", "get", "-i", asked(box, *urls), "--workers", "2", env=box.env) as running:
        for victim in at_work(box, running):
            os.kill(victim, signal.SIGKILL)
        gate.open()
        ran = running.wait().ok()

    assert "600 completed" in ran.stderr
    assert "Traceback" not in ran.stderr
    everything_once(box)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_drains_everybody(box: Box, origin: Origin, tmp_path: Path, number: signal.Signals, code: int) -> None:
    urls, gate = gated(origin)
    listed = asked(box, *urls)

    with started(tmp_path / "get", "get", "-i", listed, "--workers", "2", "--json", env=box.env) as running:
        workers = at_work(box, running)
        running.signal(number)
        eventually(lambda: "finishing" in running.stderr, "the workers drain")
        gate.open()
        ran = running.wait()

    assert (ran.code, owners(box)) == (code, [])
    assert not any(alive(pid) for pid in workers)
    assert "Traceback" not in ran.stderr
    (summary,) = ran.of("summary")
    assert 0 < summary["completed"] < MANY
    box.process("get", "-i", listed, "--workers", "2").ok()
    everything_once(box)


def test_the_second_signal_aborts_everybody(box: Box, origin: Origin, tmp_path: Path) -> None:
    urls, gate = gated(origin)
    listed = asked(box, *urls)

    with started(tmp_path / "get", "get", "-i", listed, "--workers", "2", env=box.env) as running:
        at_work(box, running)
        eventually(lambda: running.signal(signal.SIGINT) or running.process.poll() is not None, "it ended")  # type: ignore[func-returns-value]
        ran = running.wait()

    assert ran.code in {130, -signal.SIGINT}
    assert "Traceback" not in ran.stderr
    assert owners(box) == []
    gate.open()
    box.process("get", "-i", listed).ok()
    everything_once(box)


def test_a_signal_after_the_workers_end_is_obeyed(box: Box, origin: Origin, tmp_path: Path) -> None:
    """Files are being placed: as with one process, that ends at once."""
    box.env |= {"LONGSHORE_FAILPOINTS": f"place.name=pause:{tmp_path}"}
    words = ("get", "-i", asked(box, *things(origin)), "--workers", "2", "-d", tmp_path / "here", "-q")

    with started(tmp_path / "get", *words, env=box.env) as running:
        eventually((tmp_path / "place.name.here").exists, "a file is placed")
        eventually(lambda: not children(running.process.pid), "the workers end")
        running.signal(signal.SIGTERM)
        ran = running.wait()

    assert ran.code == 143
    del box.env["LONGSHORE_FAILPOINTS"]
    everything_once(box)


def test_workers_of_a_killed_parent_end_in_good_order(box: Box, origin: Origin, tmp_path: Path) -> None:
    urls, gate = gated(origin)
    listed = asked(box, *urls)

    with started(tmp_path / "get", "get", "-i", listed, "--workers", "2", env=box.env) as running:
        workers = at_work(box, running)
        running.kill()
        gate.open()
        eventually(lambda: not any(alive(pid) for pid in workers), "the workers end")

    assert owners(box) == []
    box.process("get", "-i", listed).ok()
    everything_once(box)


def test_failures_are_exit_3(box: Box, origin: Origin) -> None:
    urls = [*things(origin), origin.add("/gone", status(410))]

    ran = box.process("get", "-i", asked(box, *urls), "--workers", "2")

    assert ran.code == 3
    assert "http_410" in ran.stderr
    assert box.counts() == {"completed": MANY, "failed": 1}


def test_what_has_to_wait_is_left_after_one_wait(box: Box, origin: Origin) -> None:
    with Origin("127.0.0.2") as busy:  # a host of its own: its wish counts for all that it has
        urls = [*things(origin), busy.add("/busy", status(503, b"", **{"Retry-After": "3600"}))]
        ran = box.process("get", "-i", asked(box, *urls), "--workers", "2", "--max-wait", "5", "--json")

    assert ran.code == 4, ran.stderr
    (summary,) = ran.of("summary")
    assert (summary["completed"], summary["pending"]) == (MANY, 1)


def test_a_reader_that_goes_away_costs_no_job_anything(box: Box, origin: Origin) -> None:
    listed = asked(box, *things(origin))
    words = command("get", "-i", listed, "--workers", "2", "--json")
    with subprocess.Popen(words, env=environment(box.env), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.close()
        _, stderr = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 141, stderr
    assert b"Traceback" not in stderr
    box.process("get", "-i", listed).ok()
    everything_once(box)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_depot_that_cannot_be_opened_is_told_once(box: Box, origin: Origin, workers: int) -> None:
    box.write("depot", "no directory")

    ran = box.process("get", "-i", asked(box, *things(origin)), "--workers", workers)

    assert ran.code == 2
    assert ran.stderr.count("longshore: ") == 1
    assert ran.stdout == ""


# ── shares ──


class Told(WorkerProcess):
    """A worker that is no process and writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def tell(self, line: bytes) -> None:
        self.lines.append(json.loads(line))


def test_shares_go_to_whoever_has_least_and_the_end_is_told_once() -> None:
    workers = [Told(), Told(), Told()]
    shares = Distributor(Supervisor(workers))

    shares.take([str(n) for n in range(20)])
    first = [len(worker.lines) for worker in workers]
    shares.take(["a", "b", "c"])
    waiting = [len(worker.lines) for worker in workers]
    shares.wants(workers[1])
    shares.last()
    for worker in (workers[2], workers[2], workers[0]):
        shares.wants(worker)

    assert (first, waiting) == ([2, 2, 1], [2, 2, 2]), (
        "five shares of four; two of three wait until somebody wants them"
    )
    everything = [job for worker in workers for share in worker.lines if share for job in share]
    assert sorted(everything) == sorted([*(str(n) for n in range(20)), "a", "b", "c"])
    assert [worker.lines.count(None) for worker in workers] == [1, 1, 1]
    assert all(worker.lines[-1] is None for worker in workers)


def test_a_signal_ends_the_planning() -> None:
    fleet = Supervisor([])
    fleet.stopped_by = "SIGINT"

    with pytest.raises(click.exceptions.Exit) as stop:
        Distributor(fleet).take(["a"])

    assert stop.value.exit_code == 130
