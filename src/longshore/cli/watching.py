"""What a run tells while it goes on: JSON lines, a display on a terminal, or a plain line every 30 seconds."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from longshore.cli.output import duration, say, size
from longshore.domain.notes import Note

if TYPE_CHECKING:
    from longshore.cli.options import Call

PLAIN_EVERY_S: Final = 30.0
SPEED_OVER_S: Final = 10.0
ENDINGS: Final = frozenset({"completed", "held", "failed", "canceled"})
COUNTED: Final = frozenset({"completed", "held"})  # endings that need nobody's attention


@dataclass(slots=True)
class Active:
    """One transfer that is going on."""

    url: str
    size_bytes: int | None = None
    bytes: int = 0


@dataclass(slots=True)
class Score:
    """What has happened so far in one run, as the notes tell it."""

    total: int | None = None  # items, when somebody knows
    completed: int = 0
    held: int = 0
    failed: int = 0
    canceled: int = 0
    retries: int = 0
    bytes: int = 0
    last_failure: str = ""
    active: dict[str, Active] = field(default_factory=dict)
    started_at: float = field(default_factory=time.monotonic)
    _marks: list[tuple[float, int]] = field(default_factory=list)

    def take(self, note: Note) -> None:
        """Count one note."""
        job_id = note.job_id or ""
        if note.kind == "started":
            self.active[job_id] = Active(note.url or "", note.facts.get("size_bytes"))
        elif note.kind == "progress":
            self._progress(job_id, note)
        elif note.kind == "retry":
            self.active.pop(job_id, None)
            self.retries += 1
        elif note.kind in ENDINGS:
            self._ended(job_id, note)
        elif note.kind == "counts":
            self._add(note)

    def _add(self, note: Note) -> None:
        """Take the counts of another process."""
        for name in ("completed", "held", "bytes"):
            setattr(self, name, getattr(self, name) + int(note.facts.get(name, 0)))

    def _progress(self, job_id: str, note: Note) -> None:
        one = self.active.setdefault(job_id, Active(note.url or ""))
        one.bytes = int(note.facts.get("bytes_done", one.bytes))
        one.size_bytes = note.facts.get("bytes_total", one.size_bytes)

    def _ended(self, job_id: str, note: Note) -> None:
        self.active.pop(job_id, None)
        setattr(self, note.kind, getattr(self, note.kind) + 1)
        if note.kind == "completed":
            self.bytes += int(note.facts.get("size_bytes") or 0)
        elif note.kind == "failed":
            self.last_failure = f"{note.facts.get('reason')} {note.url or job_id}"

    @property
    def ended(self) -> int:
        """Items that are over."""
        return self.completed + self.held + self.failed + self.canceled

    @property
    def bytes_now(self) -> int:
        """Bytes that came, with those of transfers that are going on."""
        return self.bytes + sum(one.bytes for one in list(self.active.values()))

    def speed(self, now: float) -> float:
        """Bytes per second over the last seconds."""
        self._marks.append((now, self.bytes_now))
        while len(self._marks) > 2 and self._marks[0][0] < now - SPEED_OVER_S:
            self._marks.pop(0)
        (then, before), (_, have) = self._marks[0], self._marks[-1]
        return max(0.0, (have - before) / (now - then)) if now > then else 0.0

    def eta_s(self, now: float) -> float | None:
        """Seconds that are left if it goes on like this."""
        fetched = self.completed + self.failed
        if not self.total or not fetched or self.ended >= self.total:
            return None
        return (self.total - self.ended) * (now - self.started_at) / fetched


def plain_line(score: Score, now: float) -> str:
    """Say in one line how it stands."""
    total = f"/{score.total}" if score.total else ""
    parts = [f"{score.ended}{total} done", size(score.bytes_now), f"{size(score.speed(now))}/s"]
    parts += [
        f"{count} {word}"
        for word, count in (("held", score.held), ("failed", score.failed), ("tried again", score.retries))
        if count
    ]
    if score.active:
        parts.append(f"{len(score.active)} active")
    if (left := score.eta_s(now)) is not None:
        parts.append(f"ETA {duration(left)}")
    return ", ".join(parts)


def on_terminal() -> bool:
    """Tell whether a person looks at stderr and can see a display."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}


@contextmanager
def watching(call: Call, tell: Callable[[Note], None]) -> Iterator[tuple[Score, Callable[[Note], None]]]:
    """Give a listener that counts, shows and hands each note on to `tell`."""
    score = Score()
    if call.json or call.verbosity < 0:
        yield score, _both(score, tell)
    elif on_terminal():
        from longshore.cli.display import Display

        with Display(score):
            yield score, _both(score, tell)
    else:
        with every(PLAIN_EVERY_S, lambda: say(plain_line(score, time.monotonic()))):
            yield score, _both(score, tell)


def _both(score: Score, tell: Callable[[Note], None]) -> Callable[[Note], None]:
    def listen(note: Note) -> None:
        score.take(note)
        tell(note)

    return listen


@contextmanager
def every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Act again and again while the block lasts, also when nothing else happens."""
    over = threading.Event()

    def tick() -> None:
        while not over.wait(seconds):
            act()

    thread = threading.Thread(target=tick, name="longshore-plain", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
