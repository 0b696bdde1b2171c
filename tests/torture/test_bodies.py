"""Large bodies killed all along, whole groups of processes killed, memory that runs out: the bytes come, once and right."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import longshore
from tests.support.origin import Origin, Thing, check_stamps, drip, stamped
from tests.support.program import alive, children, command, environment, eventually
from tests.torture.striking import SETTINGS
from tests.worker import crashing

MIB = 1 << 20


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        yield server


@pytest.mark.torture
@pytest.mark.timeout(900)
def test_a_body_killed_again_and_again_is_not_fetched_twice(tmp_path: Path, origin: Origin) -> None:
    """Killed at a write further on each time: every life goes on from the last checkpoint."""
    thing = Thing(stamped(1, 64 * MIB))
    url, depot, lives = origin.add("/large", thing), tmp_path / "depot", 0
    for hit in range(3, 60, 3):
        code, _, err = crashing.run(depot, [url], LONGSHORE_FAILPOINTS=f"part.write=kill@{hit}")
        lives += 1
        if code == 0:
            break
        assert code == -signal.SIGKILL, err
    with longshore.open(depot, **SETTINGS) as again:
        (got,) = again.get([url])
        assert got.path is not None
        assert check_stamps(got.path.read_bytes()) == 1
    asked = [request.headers.get("range", "bytes=0-") for request in origin.seen("/large")]
    starts = [int(value.removeprefix("bytes=").partition("-")[0]) for value in asked]
    assert starts == sorted(starts), "no life begins before the one before it"
    assert lives > 3


@pytest.mark.torture
def test_the_supervisor_and_all_its_workers_are_killed_together(tmp_path: Path, origin: Origin) -> None:
    depot = tmp_path / "depot"
    urls = [
        origin.add(f"/{n}", drip(Thing(stamped(1, 9_000 + n)), 1_000, 0.02), Thing(stamped(1, 9_000 + n)))
        for n in range(30)
    ]
    with longshore.open(depot, **SETTINGS) as planned:
        planned.add(urls)
    words = command("run", "--depot", depot, "--workers", "3", "--allow-net", "127.0.0.0/8")
    fleet = subprocess.Popen(
        words, env=environment(), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    eventually(lambda: len(origin.requests) > 5, "the fleet works")
    family = [fleet.pid, *children(fleet.pid)]
    assert len(family) >= 4
    for pid in family:
        os.kill(pid, signal.SIGKILL)
    fleet.wait()
    with longshore.open(depot, **SETTINGS) as again:
        result = again.run()
        assert (result.failed, result.left) == (0, False)
        assert all(one.ok for one in again.get(urls))
        again.reconcile()
    assert crashing.findings(depot, healed=True) == []


@pytest.mark.torture
def test_nobody_is_left_behind_when_the_supervisor_dies(tmp_path: Path, origin: Origin) -> None:
    """Workers of a dead supervisor see the end of their pipe, end in good order and leave no process, lock or lease."""
    depot = tmp_path / "depot"
    urls = [
        origin.add(f"/{n}", drip(Thing(stamped(1, 9_000 + n)), 1_000, 0.05), Thing(stamped(1, 9_000 + n)))
        for n in range(40)
    ]
    with longshore.open(depot, **SETTINGS) as planned:
        planned.add(urls)
    words = command("run", "--depot", depot, "--workers", "2", "--allow-net", "127.0.0.0/8")
    fleet = subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: len(origin.requests) > 5, "the fleet works")
    workers = children(fleet.pid)
    assert workers
    fleet.kill()
    fleet.wait()
    eventually(lambda: not any(alive(pid) for pid in workers), "its workers end", 120)
    with longshore.open(depot, **SETTINGS) as again:
        result = again.run(max_wait_s=60)
        assert (result.failed, result.left) == (0, False)
    assert crashing.findings(depot, healed=False) == []


@pytest.mark.torture
@pytest.mark.parametrize("megabytes", [160, 220, 300, 400])
def test_memory_runs_out(tmp_path: Path, origin: Origin, megabytes: int) -> None:
    """The system refuses memory somewhere on the way: a clear end or none, and the next run is right."""
    depot, url = tmp_path / "depot", origin.add("/large", Thing(stamped(1, 48 * MIB)))

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes * MIB, megabytes * MIB))

    words = command("get", url, "--depot", depot, "--allow-net", "127.0.0.0/8", "--max-wait", "5")
    subprocess.run(words, env=environment(), preexec_fn=limited, capture_output=True, timeout=120, check=False)
    with longshore.open(depot, **SETTINGS) as again:
        (got,) = again.get([url])
        assert got.path is not None
        assert check_stamps(got.path.read_bytes()) == 1
        again.reconcile()
    assert crashing.findings(depot, healed=True) == []


def test_a_process_that_is_gone_is_not_alive() -> None:
    """The helper of these tests can tell."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert not alive(gone.pid)
    assert alive(os.getpid())
