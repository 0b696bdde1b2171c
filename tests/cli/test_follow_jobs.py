"""`get` follows its jobs while other processes end them: the bar moves, and their results are told."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from longshore.cli.get.follow_jobs import FollowedJobs
from longshore.cli.output.progress import ProgressCounts, plain_line, rate_text
from longshore.depot import Depot
from longshore.domain.run_events import RunEvent
from tests.cli.conftest import Box
from tests.support.origin import Gate, Origin, Request, Thing, Wire, status
from tests.support.program import Started, eventually
from tests.support.terminal import on_terminal, unexplained

MANY = ("--set", "hosts.concurrency=32")


class Held:
    """Eleven URLs whose requests are held until the test lets them go; a `run` works on all of them."""

    def __init__(self, box: Box, origin: Origin) -> None:
        self._gates = [Gate(Thing(b"x%d" % n), 1) for n in range(11)]
        self._gone = threading.Event()
        self.urls = [origin.add(f"/{n}", gate) for n, gate in enumerate(self._gates)]
        self.urls.append(origin.add("/gone", self._answer_404))
        box("add", "-", stdin="\n".join(self.urls).encode()).ok()
        self.run = Started(box.home / "run", "run", *MANY, "-q", env=box.env)
        assert all(gate.reached.wait(60) for gate in self._gates)
        eventually(lambda: origin.count("/gone") == 1, "the last request")

    def _answer_404(self, request: Request, wire: Wire) -> None:
        while not self._gone.wait(0.02):
            wire.wait(0)
        status(404)(request, wire)

    def let_go(self, *, all_of_them: bool) -> None:
        """Answer all requests but the first, or all."""
        self._gone.set()
        for gate in self._gates if all_of_them else self._gates[1:]:
            gate.open()


@pytest.fixture
def held(box: Box, origin: Origin) -> Iterator[Held]:
    held = Held(box, origin)
    yield held
    held.run.process.kill()
    held.run.process.wait()


@pytest.mark.slow
def test_the_bar_moves_when_another_process_ends_jobs(box: Box, held: Held) -> None:
    with on_terminal("get", *held.urls, *MANY, env=box.env) as terminal:
        eventually(lambda: "12 jobs for other workers: leased" in terminal.frames[-1], "what it waits for")
        assert "0/12 items" in terminal.frames[-1]

        held.let_go(all_of_them=False)
        eventually(lambda: "11/12 items" in terminal.frames[-1], "eleven done on the bar")
        assert "11 of them by other workers" in terminal.frames[-1]

        held.let_go(all_of_them=True)
        assert terminal.wait() == 3
    assert "11 completed, 1 failed" in terminal.text
    assert "http_404" in terminal.text
    assert unexplained(terminal.frames) == []


@pytest.mark.slow
def test_results_of_other_processes_are_told_once_each(box: Box, held: Held) -> None:
    getting = Started(box.home / "get", "get", *held.urls, *MANY, "--json", "-d", box.home / "out", env=box.env)
    try:
        eventually(lambda: '"leased"' in getting.stdout, "what it waits for")
        held.let_go(all_of_them=True)
        ran = getting.wait()
    finally:
        getting.process.kill()

    assert ran.code == 3
    assert sorted(line["url"] for line in ran.of("completed")) == sorted(held.urls[:-1])
    assert [line["url"] for line in ran.of("failed")] == held.urls[-1:]
    assert len(list((box.home / "out").iterdir())) == 11
    (summary,) = ran.of("summary")
    assert (summary["completed"], summary["failed"]) == (11, 1)


def test_an_event_after_its_row_was_read_counts_once(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing(b"a"))
    with Depot(box.depot, network={"allow": ["127.0.0.0/8"]}) as depot:
        score, notes = ProgressCounts(total=1), list[RunEvent]()
        followed = FollowedJobs(depot, score)
        hear = followed.listener(score.take)
        depot.add([url], on_note=notes.append)
        for note in notes:
            hear(note)
        followed.look()
        assert (score.elsewhere, score.ended) == (0, 0)

        depot.run(on_note=notes.append)
        followed.look()
        assert (score.elsewhere, score.ended) == (1, 1)
        for note in notes:
            if note.kind == "completed":
                hear(note)
        assert (score.elsewhere, score.ended) == (0, 1)
        followed.look()
        assert (score.elsewhere, score.ended) == (0, 1)


def test_no_bytes_are_explained() -> None:
    score = ProgressCounts(total=2)
    now = score.started_at
    assert rate_text(score, now) == "0 B/s (nothing requested)"
    score.take(RunEvent("started", 0, job_id="a", url="http://a.example/a"))
    assert rate_text(score, now) == "0 B/s (1 requested, no bytes yet)"
    score.take(RunEvent("retry", 0, job_id="a", url="http://a.example/a", facts={"reason": "connect"}))
    assert rate_text(score, now) == "0 B/s (connect: asked again later)"
    facts = {"host": "a.example", "reason": "connect", "until": None, "jobs": 2}
    score.take(RunEvent("waiting", 0, facts=facts))
    assert rate_text(score, now) == "0 B/s"
    assert unexplained([plain_line(score, now)]) == []
    assert unexplained(["0/2 done, 0 B, 0 B/s"]) != []
