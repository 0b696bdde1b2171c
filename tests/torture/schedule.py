"""What goes wrong in a soak, and when: a pure function of its seed and size. The same seed gives the same faults for ever."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

# Failpoints on the way of a download, of its recovery and of what a worker does beside it.
POINTS = (
    "claim.before", "claim.after", "work.begin", "work.end", "flow.begin", "flow.received", "flow.published",
    "stream.received", "stream.judged", "stream.adopted", "publish.begin", "publish.staged", "publish.intents",
    "publish.linked", "publish.clean", "settle.before", "settle.after", "ledger.begin", "ledger.commit",
    "ledger.committed", "stage.write", "stage.barrier", "link.mkdir", "link.link", "link.dirsync", "clean.unlink",
    "part.create", "part.open", "part.write", "part.fsync", "part.facts", "part.rename", "part.dirsync", "part.adopt",
    "adopt.recovered", "adopt.begun", "heartbeat.before", "heartbeat.after", "reconcile.begin", "reconcile.part",
    "reconcile.quarantined", "reconcile.marked", "reconcile.end",
)  # fmt: skip
RAISED = ("5", "28", "24", "30")  # EIO, ENOSPC, EMFILE, EROFS
FAULTY = (
    "503", "429", "cut", "reset", "hang", "drip", "chunked", "no_end", "no_ranges", "range_start", "range_total",
    "range_garbage", "range_short", "range_etag", "partial", "416", "empty", "garbage", "overlong", "redirect",
)  # fmt: skip
FAULTS = (
    "kill",
    "stop",
    "point_kill",
    "point_raise",
    "point_delay",
    "point_stop",
    "full",
    "clock",
    "cancel",
    "gc",
    "server",
)


@dataclass(frozen=True)
class Body:
    """One object: how its server misbehaves before it is honest, and what it is."""

    number: int
    size: int
    faults: tuple[str, ...]
    versions: int  # the object changes so many times
    gone: bool  # 404, for good


@dataclass(frozen=True)
class Fault:
    """One thing that happens to one worker (or to the disk) once the servers have been asked so many times in its round."""

    kind: str
    after: int
    point: str = ""
    argument: str = ""
    hit: int = 1


@dataclass(frozen=True)
class Size:
    """How large a soak is."""

    files: int
    rounds: int
    workers: int


SHORT = Size(files=60, rounds=4, workers=3)
LONG = Size(files=1_200, rounds=30, workers=6)


@dataclass(frozen=True)
class Schedule:
    """The whole plan: every object, and for every round one fault per worker."""

    seed: int
    size: Size
    bodies: tuple[Body, ...]
    rounds: tuple[tuple[Fault, ...], ...]

    def told(self) -> str:
        """Write the faults down, a line for each round."""
        lines = [f"seed {self.seed}: {self.size}"]
        for number, faults in enumerate(self.rounds):
            said = (
                f"{fault.kind} {fault.point}{'=' + fault.argument if fault.argument else ''}".strip()
                for fault in faults
            )
            named = (f"{text} after {fault.after}" for text, fault in zip(said, faults, strict=True))
            lines.append(f"round {number}: " + "; ".join(named))
        return "\n".join(lines)


def schedule(seed: int, size: Size = SHORT) -> Schedule:
    """Draw everything from one seed. Each kind of fault comes once before any comes twice."""
    draw = random.Random(f"longshore soak {seed}")
    bodies = tuple(_body(draw, number) for number in range(size.files))
    kinds: list[str] = []
    rounds = []
    for _ in range(size.rounds):
        faults = []
        for _ in range(size.workers):
            if not kinds:
                kinds = draw.sample(FAULTS, len(FAULTS))
            faults.append(_fault(draw, kinds.pop()))
        rounds.append(tuple(faults))
    return Schedule(seed, size, bodies, tuple(rounds))


def _body(draw: random.Random, number: int) -> Body:
    large = draw.random() < 0.1
    size = draw.randrange(300_000, 900_000) if large else draw.randrange(1, 40_000)
    faults = [draw.choice(FAULTY) for _ in range(draw.choice((0, 0, 1, 1, 2, 4)))]
    while faults.count("partial") > 1:  # a second part instead of the whole is final, and the body has to complete
        faults.remove("partial")
    twin = number > 10 and draw.random() < 0.1  # the same bytes as an earlier one
    body = Body(number, size, tuple(faults), draw.choice((0, 0, 0, 1, 2)), draw.random() < 0.05)
    return replace(body, size=1_000 + number % 10, versions=0, gone=False) if twin else body


def _fault(draw: random.Random, kind: str) -> Fault:
    fault = Fault(kind, draw.randrange(0, 12), draw.choice(POINTS), hit=draw.choice((1, 1, 2, 3, 5)))
    if kind == "point_raise":
        return replace(fault, argument=draw.choice(RAISED))
    if kind == "point_delay":
        return replace(fault, argument=f"{draw.uniform(0.1, 1.5):.2f}")
    if kind == "clock":
        jump = draw.choice((3_600, -3_600, 300, -300, 31_536_000, -31_536_000))
        return replace(fault, point="", argument=str(jump))
    return fault if kind.startswith("point_") else replace(fault, point="")
