"""Plays a scenario and judges it: what a completed request gave must be one allowed version, whole, as expected.

The oracle knows which bytes each URL may give to whom at which time, and bounds requests per URL and time without an end.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from tests.torture.liars.client import Running, Told, start
from tests.torture.liars.world import CALLERS, Scenario, Step, World, body_of, expectation, origin_of, tls

REQUESTS = 40  # of one object in one step without segments: attempts, each with a second try from zero, and redirects
GAINS = 100  # further requests where each brings the body on a little: at least 1 % (domain.policy.retry.progressed)
PIECES = 400  # with segments
AGAIN = 3  # a step whose process was killed is done again without a kill: once would do
HONEST = frozenset({"ok", "bump", "chunked"})


class Broken(AssertionError):
    """The promise does not hold."""


def play(scenario: Scenario) -> None:
    """Play a scenario in a depot of its own; raise `Broken` with the whole story where the promise does not hold."""
    with tempfile.TemporaryDirectory(prefix="longshore-liars-") as home, World(scenario) as world:
        Played(world, Path(home, "depot")).all(scenario.steps)


class Played:
    """A scenario on its way."""

    def __init__(self, world: World, depot: Path) -> None:
        self.world, self.depot = world, depot
        self.unverified: set[str] = (
            set()
        )  # hashes of bodies that were marked: nothing but a closed connection ended them
        self.flipped = False
        self.story: list[str] = []

    def all(self, steps: tuple[Step, ...]) -> None:
        waiting: list[tuple[Step, Asked]] = []
        for step in steps:
            if step.kind == "change":
                self.world.change(step.thing)
            elif step.kind.startswith("flip"):
                self._flip(step)
            else:
                waiting.append((step, Asked(self, step)))
                if step.beside and step is not steps[-1]:
                    continue
            for _, asked in waiting:
                asked.finish()
            waiting.clear()
        for _, asked in waiting:
            asked.finish()
        if self.world.leaks:
            self.broken(f"credentials went astray: {self.world.leaks}")

    def _flip(self, step: Step) -> None:
        """Flip one bit in a stored blob or in a part on its way."""
        pattern = "store/.staging/parts/**/body" if step.kind == "flip_part" else "store/*/*/*/*"
        files = [path for path in sorted(self.depot.glob(pattern)) if path.is_file() and path.stat().st_size]
        for path in files:
            data = bytearray(path.read_bytes())
            data[int((len(data) - 1) * step.at)] ^= 1
            path.chmod(0o600)
            path.write_bytes(data)
            self.flipped = self.flipped or step.kind == "flip_blob"

    def broken(self, why: str) -> None:
        raise Broken("\n".join([why, *self.story, f"requests {dict(self.world.requests)}"]))


class Asked:
    """One request that is being done."""

    def __init__(self, played: Played, step: Step) -> None:
        self.played, self.step, self.world = played, step, played.world
        self.before = played.world.requests.copy()
        self.since = list(played.world.versions)
        self.now = body_of(step.thing, self.world.made[step.thing], self.since[step.thing], CALLERS[step.caller])
        self.expect = expectation(step.expect, self.now)
        self.running: Running = self._begin(step.kill)

    def _begin(self, kill: str) -> Running:
        step, world = self.step, self.world
        item: dict[str, Any] = {"url": world.url(step.thing), **self.expect}
        if step.mirrors:
            item["mirrors"] = [world.url(mirror) for mirror in step.mirrors]
        if step.caller:
            item["headers"] = [("Authorization", CALLERS[step.caller] + origin_of(world.made[step.thing]))]
        how = {"kind": step.kind, "mode": step.mode, "segments": step.segments, "kill": kill}
        return start(self.played.depot, [item], {**how, "ca_file": tls().ca_file})

    def finish(self) -> None:
        """Wait for the end, go on after a kill, and judge."""
        told = self.running.wait()
        rounds = 0
        while told.killed and rounds < AGAIN:
            self.played.story.append(f"{self.step} killed")
            rounds += 1
            told = self._begin("").wait()
        told_short = {name: value for name, value in vars(told).items() if name != "body" and value}
        self.played.story.append(f"{self.step} -> {told_short}")
        self._judge(told, rounds + 1)

    def _judge(self, told: Told, rounds: int) -> None:
        played = self.played
        if told.hung or told.killed:
            played.broken("it does not come to an end" if told.hung else "killed without a kill")
        if told.fault is not None:
            played.broken(f"the program failed: {told.fault}")
        if told.reason == "internal_error":
            played.broken("internal error")
        self._check_requests(rounds)
        if self.step.kind == "add":
            return
        if told.refused is not None and not played.flipped:
            played.broken("placing was refused without damage")
        if told.body is not None:
            self._check_body(told, told.body)
        elif told.refused is None:
            self._check_failure()

    def _check_requests(self, rounds: int) -> None:
        cut = any(act.kind == "cut" for thing in self.world.made for act in thing.acts)
        bound = (PIECES if self.step.segments > 1 else REQUESTS + GAINS * cut) * (rounds + self.step.beside)
        asked = self.world.requests - self.before
        if any(count > bound for count in asked.values()):
            self.played.broken(f"asked too often: {dict(asked)}")

    def _check_body(self, told: Told, body: bytes) -> None:
        played, world, step = self.played, self.world, self.step
        if hashlib.sha256(body).hexdigest() != told.sha256:
            played.broken("what was placed does not have the recorded hash")
        if told.unverified and told.sha256:
            played.unverified.add(told.sha256)
        allowed = [
            whole
            for index in world.reachable({step.thing, *step.mirrors})
            if not world.made[index].page
            for caller in self._callers_at(index)
            for whole in world.bodies(index, caller, self._oldest(index))
        ]
        marked = told.sha256 in played.unverified
        if not any(body == whole or (marked and whole.startswith(body)) for whole in allowed):
            played.broken(f"{len(body)} bytes that no server sent as one version to this caller: {body[:100]!r}")
        self._check_expectations(body)

    def _callers_at(self, index: int) -> set[str]:
        """Return as whom an object may be asked: a request's own headers go to its own origin only.

        What is reached by way of another origin, be it a mirror or a redirect, is asked without them.
        """
        step, made = self.step, self.world.made
        if made[index].over == "ftp":
            return {""}
        same = origin_of(made[index]) == origin_of(made[step.thing])
        origins = {origin_of(made[one]) for one in self.world.reachable({step.thing, *step.mirrors})}
        return ({CALLERS[step.caller]} if same else set()) | ({""} if len(origins) > 1 else set())

    def _oldest(self, index: int) -> int:
        """Return the oldest version that may be given: a request to look again gets nothing from before it."""
        asks = self.step.mode == "force" or (self.step.mode == "refresh" and index not in self.world.says_unchanged)
        return self.since[index] if asks else 0

    def _check_expectations(self, body: bytes) -> None:
        digests = dict(self.expect.get("digests", ()))
        wrong = (
            self.expect.get("sha256", told := hashlib.sha256(body).hexdigest()) != told
            or self.expect.get("size_bytes", len(body)) != len(body)
            or digests.get("md5", md5 := hashlib.md5(body, usedforsecurity=False).hexdigest()) != md5
        )
        if wrong:
            self.played.broken(f"completed with bytes that are not what was expected ({self.step.expect})")

    def _check_failure(self) -> None:
        """Where only honest answers were to be had and nothing wrong was expected, there is no reason to fail."""
        step, made = self.step, self.world.made[self.step.thing]
        honest = all(act.kind in HONEST and act.how in ("", "plain") for act in made.acts) and not made.page
        changing = any(act.kind == "bump" for act in made.acts) and step.expect
        if honest and not changing and not step.beside and not step.expect.startswith("wrong_") and not made.page:
            self.played.broken("failed although the server was honest and nothing wrong was expected")
