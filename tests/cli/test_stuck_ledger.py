"""A ledger that cannot be written: `--max-wait` and SIGTERM hold all the same, and a sentence says what is waited for."""

from __future__ import annotations

import contextlib
import fcntl
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.support.origin import Origin, Thing, stamped
from tests.support.program import command, environment, eventually, execute, started

pytestmark = pytest.mark.slow

NET = ("--allow-net", "127.0.0.0/8")


@contextlib.contextmanager
def held(depot: Path, how: str) -> Iterator[None]:
    """Hold the ledger as another program does: by a transaction, or by the lock of the turns."""
    if how == "turn":
        with (depot / "ledger.db.lock").open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        return
    connection = apsw.Connection(str(depot / "ledger.db"))
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


@pytest.mark.parametrize("how", ["transaction", "turn"])
@pytest.mark.parametrize("verb", ["get", "run"])
def test_a_ledger_that_is_held_is_not_waited_for_longer_than_allowed(tmp_path: Path, verb: str, how: str) -> None:
    depot = tmp_path / "d"
    with Origin() as origin:
        url = origin.add("/a", Thing(stamped(1, 3000)))
        execute("add", "-", "--depot", depot, stdin=f"{origin.add('/b', Thing(stamped(2, 3000)))}\n".encode()).ok()
        with held(depot, how):
            began = time.monotonic()
            words = (verb, url) if verb == "get" else (verb,)
            ran = execute(*words, "--max-wait", "4", "--depot", depot, *NET, timeout_s=60)
            took = time.monotonic() - began
        assert ran.code == 4, ran.stderr
        assert took < 12, ran.stderr
        assert "gave up after 4 s" in ran.stderr
        assert "another p" in ran.stderr
        assert origin.count("/a") == 0
        execute(*words, "--max-wait", "20", "--depot", depot, *NET).ok()


def test_a_held_ledger_is_named_while_it_is_waited_for(tmp_path: Path) -> None:
    depot = tmp_path / "d"
    with Origin() as origin:
        url = origin.add("/a", Thing(stamped(1, 3000)))
        execute("add", "-", "--depot", depot, stdin=b"").ok()
        with started(tmp_path / "out", "get", url, "--depot", depot, *NET) as running:
            with held(depot, "transaction"):
                eventually(
                    lambda: "is waited for" in running.stderr or running.process.poll() is not None, "a sentence"
                )
            assert "is waited for" in running.wait().ok().stderr


@pytest.mark.parametrize("stopped", [False, True], ids=["max-wait", "SIGTERM"])
def test_endings_that_cannot_be_written_end_the_run_in_time(tmp_path: Path, *, stopped: bool) -> None:
    depot, count = tmp_path / "d", 160
    with Origin() as origin:
        urls = [origin.add(f"/{number}", Thing(stamped(number + 1, 200_000))) for number in range(count)]
        (tmp_path / "list").write_text("\n".join(urls))
        words = command("get", "--depot", depot, *NET, "-i", tmp_path / "list", "--max-wait", 600 if stopped else 5)
        script = "ulimit -f 400 && exec " + " ".join(f"'{word}'" for word in words)
        with (tmp_path / "stderr").open("wb") as err:
            running = subprocess.Popen(["bash", "-c", script], env=environment(), stderr=err, stdout=err)
        try:
            if stopped:
                eventually(lambda: b"cannot be written" in (tmp_path / "stderr").read_bytes(), "the ledger's limit")
                running.send_signal(signal.SIGTERM)
            code = running.wait(20)
        finally:
            running.kill()
        told = (tmp_path / "stderr").read_text()
        assert code == (143 if stopped else 4), told
        assert "disk I/O error" in told
        assert all(origin.count(f"/{number}") <= 2 for number in range(count))
        execute("get", "--depot", depot, *NET, "-i", tmp_path / "list", timeout_s=40).ok()
