"""`run`: work until nothing is left, and say what it came to."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Box
from tests.support.origin import Gate, Origin, Thing, check_stamps, cut, stamped, status
from tests.support.program import PATIENCE_S, command, environment, eventually, started

pytestmark = pytest.mark.slow


def plan(box: Box, *urls: str) -> None:
    box("add", "-", stdin="\n".join(urls).encode()).ok()


def test_run_works_until_nothing_is_left(box: Box, origin: Origin) -> None:
    thing = Thing(b"x" * 5000)
    plan(box, origin.add("/good", thing), origin.add("/flaky", status(503), cut(thing, 100), thing))

    ran = box("run", "--json").ok()

    assert len(ran.of("completed")) == 2
    assert {line["reason"] for line in ran.of("retry")} == {"http_503", "truncated"}
    (summary,) = ran.of("summary")
    assert (summary["completed"], summary["failed"], summary["pending"]) == (2, 0, 0)
    assert summary["jobs"]["completed"] == 2


def test_run_again_has_nothing_to_do(box: Box, origin: Origin) -> None:
    plan(box, origin.add("/x", Thing()))
    box("run").ok()

    ran = box("run").ok()

    assert ran.stdout == ""
    assert origin.count("/x") == 1


def test_failed_for_good_is_exit_3(box: Box, origin: Origin) -> None:
    plan(box, origin.add("/gone", status(410)), origin.add("/good", Thing()))

    ran = box("run")

    assert ran.code == 3
    assert "http_410" in ran.stderr
    assert box.counts() == {"completed": 1, "failed": 1}


def test_work_left_is_exit_4(box: Box, origin: Origin) -> None:
    plan(box, origin.add("/x", status(503, b"", **{"Retry-After": "3600"})))

    assert box("run", "--max-wait", "0.2").code == 4


def test_quiet_is_quiet(box: Box, origin: Origin) -> None:
    plan(box, origin.add("/x", Thing()))

    ran = box("run", "-q").ok()

    assert (ran.stdout, ran.stderr) == ("", "")


def test_the_first_signal_drains_and_running_again_finishes(box: Box, origin: Origin, tmp_path: Path) -> None:
    gate = Gate(Thing(b"x" * 400_000), 100_000)
    plan(box, origin.add("/slow", gate, Thing(b"x" * 400_000)))

    with started(tmp_path / "run", "run", "--json", env=box.env) as running:
        eventually(lambda: origin.count("/slow"), "the transfer began")
        running.signal(signal.SIGINT)
        gate.open()
        ran = running.wait()

    assert ran.code == 130
    box("run").ok()
    assert box.counts() == {"completed": 1}


def test_the_second_signal_aborts_and_running_again_finishes(box: Box, origin: Origin, tmp_path: Path) -> None:
    gate = Gate(Thing(b"x" * 400_000), 100_000)
    plan(box, origin.add("/slow", gate, Thing(b"x" * 400_000)))

    with started(tmp_path / "run", "run", env=box.env) as running:
        eventually(lambda: origin.count("/slow"), "the transfer began")
        # Two signals in a row may be one for the system: send until it has ended.
        eventually(lambda: running.signal(signal.SIGINT) or running.process.poll() is not None, "it ended")  # type: ignore[func-returns-value]
        ran = running.wait()

    assert ran.code in {130, -signal.SIGINT}  # a third one may come when nobody handles it any more
    assert "Traceback" not in ran.stderr
    assert box.counts() == {"pending": 1}
    gate.open()
    box("run").ok()
    assert box.counts() == {"completed": 1}


def test_sigterm_is_143(box: Box, origin: Origin, tmp_path: Path) -> None:
    gate = Gate(Thing(b"x" * 400_000), 100_000)
    plan(box, origin.add("/slow", gate))

    with started(tmp_path / "run", "run", env=box.env) as running:
        eventually(lambda: origin.count("/slow"), "the transfer began")
        running.signal(signal.SIGTERM)
        gate.open()
        ran = running.wait()

    assert ran.code == 143
    assert "SIGTERM: finishing" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_after_kill_9_nothing_is_lost(box: Box, origin: Origin, tmp_path: Path) -> None:
    gate = Gate(Thing(b"x" * 400_000), 100_000)
    plan(
        box,
        origin.add("/slow", gate, Thing(b"x" * 400_000)),
        *(origin.add(f"/{n}", Thing(b"%d" % n)) for n in range(20)),
    )

    with started(tmp_path / "run", "run", env=box.env) as running:
        eventually(lambda: origin.count("/slow"), "the transfer began")
        running.kill()
    gate.open()
    box("run").ok()

    assert box.counts() == {"completed": 21}
    box("verify").ok()
    box("reconcile", "--dry-run").ok()


def test_several_workers_share_one_depot(box: Box, origin: Origin) -> None:
    urls = [origin.add(f"/{n}", Thing(b"body %d" % n)) for n in range(40)] + [origin.add("/gone", status(404))]
    plan(box, *urls)

    ran = box.process("run", "--workers", "3", "--json")

    assert ran.code == 3, ran.stderr
    assert sorted(line["url"] for line in ran.of("completed")) == sorted(urls[:-1])
    assert [line["reason"] for line in ran.of("failed")] == ["http_404"]
    (summary,) = ran.of("summary")
    assert (summary["completed"], summary["failed"], summary["jobs"]["completed"]) == (40, 1, 40)
    assert all(origin.count(f"/{n}") == 1 for n in range(40))


def test_workers_that_only_count_tell_a_person_the_same_sum(box: Box, origin: Origin) -> None:
    urls = [origin.add(f"/{n}", Thing(b"body %02d" % n)) for n in range(40)] + [origin.add("/gone", status(404))]
    large = origin.add("/large", Thing(b"x" * 400_000))  # leaves memory: its way is shown, and its end is a note
    plan(box, *urls, large)

    ran = box.process("run", "--workers", "2")

    assert ran.code == 3, ran.stderr
    assert "41 completed, 1 failed" in ran.stderr
    assert "http_404" in ran.stderr


def test_a_signal_reaches_every_worker_once(box: Box, origin: Origin, tmp_path: Path) -> None:
    gates = [Gate(Thing(b"x" * 400_000), 100_000) for _ in range(4)]
    plan(box, *(origin.add(f"/slow{n}", gate) for n, gate in enumerate(gates)))

    with started(tmp_path / "run", "run", "--workers", "2", env=box.env) as running:
        eventually(lambda: sum(origin.count(f"/slow{n}") for n in range(4)), "a transfer began")
        running.signal(signal.SIGINT)
        for gate in gates:
            gate.open()
        ran = running.wait()

    assert ran.code == 130
    assert "Traceback" not in ran.stderr


def test_a_drain_puts_down_a_long_body_and_the_next_run_goes_on_with_it(
    box: Box, origin: Origin, tmp_path: Path
) -> None:
    """A person who presses Ctrl-C waits for seconds, however long the body is; its bytes are kept."""
    body = stamped(1, 3_000_000)
    gate = Gate(Thing(body), 2_000_000)  # never opened before the end: the body would last for ever
    url = origin.add("/long", gate, Thing(body))
    plan(box, url)
    env = box.env | {"LONGSHORE_TRANSFER__DRAIN_S": "0.2"}

    with started(tmp_path / "run", "run", "--json", env=env) as running:
        eventually(lambda: _done_bytes(running.stdout) > 1_000_000, "most of it came")
        running.signal(signal.SIGINT)
        ran = running.wait()

    assert ran.code == 130
    assert {line["type"] for line in ran.lines} == {"started", "progress", "summary"}
    assert box.counts() == {"pending": 1}
    gate.open()
    (completed,) = box("run", "--json").ok().of("completed")
    assert completed["resumed_from_bytes"] > 0
    assert completed["attempts"] == 1
    assert check_stamps(Path(completed["path"]).read_bytes()) == 1


def _done_bytes(text: str) -> int:
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return max((line.get("bytes_done") or 0 for line in lines if line["type"] == "progress"), default=0)


def test_a_running_job_that_is_canceled_is_told(box: Box, origin: Origin, tmp_path: Path) -> None:
    gate = Gate(Thing(b"x" * 400_000), 100_000)
    plan(box, origin.add("/slow", gate))

    with started(tmp_path / "run", "run", "--json", env=box.env) as running:
        eventually(lambda: origin.count("/slow"), "the transfer began")
        box("cancel", "--all").ok()
        ran = running.wait()
    gate.open()

    assert ran.code == 0, ran.stderr
    assert [line["reason"] for line in ran.of("canceled")] == ["canceled"]
    assert box.counts() == {"canceled": 1}


def test_a_limit_ends_the_run_with_work_left(box: Box, origin: Origin) -> None:
    plan(box, *(origin.add(f"/{n}", Thing(b"%d" % n)) for n in range(10)))

    ran = box("run", "--limit", "4", "--json")

    assert ran.code == 4
    assert len(ran.of("completed")) == 4
    assert box.counts() == {"completed": 4, "pending": 6}
    box("run", "--limit", "6").ok()
    assert box.counts() == {"completed": 10}


@pytest.mark.parametrize("how", [["run", "--json"], ["run", "-v"], ["run", "--json", "--workers", "2"]])
def test_a_reader_that_goes_away_costs_no_job_anything(box: Box, origin: Origin, how: list[str]) -> None:
    """`longshore run --json | head`: the pipe is closed, the run ends in good order, no attempt is lost."""
    plan(box, *(origin.add(f"/{n}", Thing(b"%d" % n)) for n in range(60)))

    running = subprocess.Popen(
        command(*how),
        env=environment(box.env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert running.stdout is not None
    running.stdout.close()
    _, stderr = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 141, stderr
    assert b"Traceback" not in stderr
    box("run").ok()
    assert box.counts() == {"completed": 60}
    assert all(job["attempts"] == 1 for job in box("jobs", "--json").ok().lines)
