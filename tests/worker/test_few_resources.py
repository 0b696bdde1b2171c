"""Few threads, little memory: nothing counts against a job, and pools go on with the threads that there are."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from longshore.domain.reasons import Kind, reason_named
from longshore.worker.failures import failure_of
from tests.support.origin import Origin, Thing, stamped
from tests.support.program import Ran, command, environment


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("can't start new thread"), OSError(errno.ENOMEM, "Cannot allocate memory")]
)
def test_want_of_resources_does_not_count(error: Exception) -> None:
    failure = failure_of(error)
    assert failure.reason == "too_few_resources"
    assert reason_named(failure.reason).kind is Kind.INFRASTRUCTURE


def test_an_error_that_cpython_could_not_make_is_want_of_memory() -> None:
    assert failure_of(SystemError("error return without exception set")).reason == "too_few_resources"
    assert failure_of(SystemError("bad argument to internal function")).reason == "internal_error"


def test_another_runtime_error_is_a_mistake_of_ours() -> None:
    assert failure_of(RuntimeError("x")).reason == "internal_error"


_POOL = """
import resource, threading
from longshore.thread_pool import Threads
pool = Threads(64).begun()
resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))
threading.stack_size(128 << 20)
print(sum(one.result(30) for one in [pool.submit(int, 1) for _ in range(200)]), flush=True)
"""


def test_a_pool_goes_on_with_fewer_threads() -> None:
    done = subprocess.run([sys.executable, "-c", _POOL], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout == "200\n", done.stderr


# With less, CPython itself hangs in Thread.start or aborts: a thread that dies of MemoryError never reports its start.
@pytest.mark.parametrize("limits", ["ulimit -v 800000", "ulimit -v 1000000"])
def test_little_memory_fails_nothing_and_the_run_ends(tmp_path: Path, limits: str) -> None:
    with Origin() as origin:
        urls = [origin.add(f"/{number}", Thing(stamped(number + 1, 300_000))) for number in range(40)]
        (tmp_path / "list").write_text("\n".join(urls))
        words = command(
            "get", "--depot", tmp_path / "d", "--allow-net", "127.0.0.0/8", "-i", tmp_path / "list", "--json",
            "--max-wait", "5",
        )  # fmt: skip
        script = f"{limits} && exec " + " ".join(f"'{word}'" for word in words)
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment(), timeout=60)
    failed = Ran(done.returncode, done.stdout, "").of("failed")
    assert failed == [], done.stderr
    # 1: there was none left for the run itself. SIGABRT: CPython found no memory for its own errors, and ended itself.
    aborted = done.returncode == -signal.SIGABRT and "Fatal Python error" in done.stderr
    assert done.returncode in (0, 1, 4) or aborted, done.stderr
