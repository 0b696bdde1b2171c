"""Progress of a run: JSON lines, a display on a terminal, or a plain line every 30 seconds."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from longshore.cli.output.event_output import waiting_text
from longshore.cli.output.writer import duration, on_terminal, say, size
from longshore.domain.run_events import RunEvent

if TYPE_CHECKING:
    from longshore.cli.options import Call

PLAIN_EVERY_S: Final = 30.0
SPEED_OVER_S: Final = 10.0
TOLD_AGAIN_S: Final = 40.0  # a worker repeats every 30 s what it waits for
JOIN_S: Final = 2.0  # a periodic call that waits for a ledger does not delay the end
ENDINGS: Final = frozenset({"completed", "held", "failed", "canceled"})
COUNTED: Final = frozenset({"completed", "held"})  # outcomes that need no attention


@dataclass(slots=True)
class Active:
    """One transfer in progress."""

    url: str
    size_bytes: int | None = None
    bytes: int = 0


@dataclass(slots=True)
class Wait:
    """What jobs wait for, as the run last told it."""

    facts: Mapping[str, Any]
    told_at: float = field(default_factory=time.monotonic)

    def is_over(self, now: float) -> bool:
        """Return whether its end has come; one without an end is told again as long as it lasts."""
        if self.facts["until"] is None:
            return now - self.told_at > TOLD_AGAIN_S
        return datetime.fromisoformat(self.facts["until"]).timestamp() <= time.time()


@dataclass(slots=True)
class ProgressCounts:
    """Counts of one run so far, updated from its notes."""

    total: int | None = None  # items, if known
    completed: int = 0
    held: int = 0
    failed: int = 0
    canceled: int = 0
    elsewhere: int = 0  # ended by other processes, as the ledger says; this run has no event of them
    retries: int = 0
    bytes: int = 0
    last_failure: str = ""
    last_retry: str = ""  # its reason
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)  # by reason and host
    refused: Mapping[str, Any] | None = None  # the refusals that stopped the run
    offline: int = 0  # jobs that wait because the run is offline
    waits: dict[str, Wait] = field(default_factory=dict)  # by host
    active: dict[str, Active] = field(default_factory=dict)
    started_at: float = field(default_factory=time.monotonic)
    _marks: list[tuple[float, int]] = field(default_factory=list)

    def take(self, note: RunEvent) -> None:
        """Count one note."""
        job_id = note.job_id or ""
        if self.waits and note.job_id and note.kind != "retry":  # it is asked again
            self.waits.pop(host_in(note.url), None)
            self.waits.pop("", None)
        if note.kind == "started":
            self.active[job_id] = Active(note.url or "", note.facts.get("size_bytes"))
        elif note.kind == "progress":
            self._progress(job_id, note)
        elif note.kind == "retry":
            self.active.pop(job_id, None)
            is_offline = note.facts.get("reason") == "offline"
            self.offline, self.retries = self.offline + is_offline, self.retries + (not is_offline)
            self.last_retry = str(note.facts.get("reason"))
        elif note.kind in ENDINGS:
            self._ended(job_id, note)
        elif note.kind == "counts":
            self._add(note)
        elif note.kind == "waiting":
            self.waits[str(note.facts.get("host") or "")] = Wait(note.facts)
        elif note.kind == "stopped":
            self.refused = note.facts

    def _add(self, note: RunEvent) -> None:
        """Add the counts of another process."""
        for name in ("completed", "held", "bytes"):
            setattr(self, name, getattr(self, name) + int(note.facts.get(name, 0)))

    def _progress(self, job_id: str, note: RunEvent) -> None:
        one = self.active.setdefault(job_id, Active(note.url or ""))
        one.bytes = int(note.facts.get("bytes_done", one.bytes))
        one.size_bytes = note.facts.get("bytes_total", one.size_bytes)

    def _ended(self, job_id: str, note: RunEvent) -> None:
        self.active.pop(job_id, None)
        setattr(self, note.kind, getattr(self, note.kind) + 1)
        if note.kind == "completed":
            self.bytes += int(note.facts.get("size_bytes") or 0)
        elif note.kind == "failed":
            self.failures[str(note.facts.get("reason")), host_in(note.url)] += 1
            self.last_failure = f"{note.facts.get('reason')} {note.url or job_id}"

    @property
    def ended(self) -> int:
        """Finished items."""
        return self.completed + self.held + self.failed + self.canceled + self.elsewhere

    @property
    def bytes_now(self) -> int:
        """Bytes received, including those of running transfers."""
        return self.bytes + sum(one.bytes for one in list(self.active.values()))

    def waiting(self, now: float, *, brief: bool = False) -> list[str]:
        """Return a line for each host that jobs wait for now."""
        waits = [wait for wait in list(self.waits.values()) if not wait.is_over(now)]
        return [waiting_text(wait.facts, brief=brief) for wait in waits]

    def bytes_left(self) -> int | None:
        """Return the bytes that are still to come, if all remaining items are running and their sizes are known."""
        running = list(self.active.values())
        if not self.total or not running or self.total - self.ended != len(running):
            return None
        if any(one.size_bytes is None for one in running):
            return None
        return sum(max(0, (one.size_bytes or 0) - one.bytes) for one in running)

    def speed(self, now: float) -> float:
        """Bytes per second over the last few seconds."""
        self._marks.append((now, self.bytes_now))
        while len(self._marks) > 2 and self._marks[0][0] < now - SPEED_OVER_S:
            self._marks.pop(0)
        (then, before), (_, have) = self._marks[0], self._marks[-1]
        return max(0.0, (have - before) / (now - then)) if now > then else 0.0

    def _depends_on_hosts(self, now: float) -> bool:
        """Return whether nothing is left but jobs of hosts that rest or do not answer."""
        waits = [wait for wait in list(self.waits.values()) if not wait.is_over(now)]
        if not waits or any(one.bytes for one in list(self.active.values())):
            return False
        return not self.active or sum(wait.facts["jobs"] for wait in waits) >= (self.total or 0) - self.ended

    def eta_s(self, now: float) -> float | None:
        """Estimated seconds left at the current rate."""
        if (left := self.bytes_left()) is not None:
            speed = self.speed(now)
            return left / speed if speed >= 1 else None
        fetched = self.completed + self.failed + self.elsewhere
        if not self.total or not fetched or self.ended >= self.total:
            return None
        if self._depends_on_hosts(now):
            return None
        return (self.total - self.ended) * (now - self.started_at) / fetched


def plain_line(score: ProgressCounts, now: float) -> str:
    """Return a one-line summary of the progress."""
    total = f"/{score.total}" if score.total else ""
    parts = [f"{score.ended}{total} done", size(score.bytes_now), rate_text(score, now)]
    parts += [
        f"{count} {word}"
        for word, count in (
            ("held", score.held),
            ("by other workers", score.elsewhere),
            ("failed", score.failed),
            ("tried again", score.retries),
        )
        if count
    ]
    if score.active:
        parts.append(f"{len(score.active)} active")
    if (left := score.eta_s(now)) is not None:
        parts.append(f"ETA {duration(left)}")
    return "\n".join([", ".join(parts), *score.waiting(now)])


def rate_text(score: ProgressCounts, now: float) -> str:
    """Return the rate. No bytes for a while is explained: by what follows (`waiting`), or here."""
    speed = score.speed(now)
    if speed >= 1 or score.waiting(now):
        return f"{size(speed)}/s"
    if score.active:
        return f"0 B/s ({len(score.active)} requested, no bytes yet)"
    if score.last_retry and not (score.total and score.ended >= score.total):
        return f"0 B/s ({score.last_retry}: asked again later)"
    return "0 B/s (nothing requested)"


def host_in(url: str | None) -> str:
    """Return the host of a URL as failures and waits name it; empty: none."""
    return (url or "").partition("://")[2].partition("/")[0].rpartition("@")[2]


@contextmanager
def show_progress(
    call: Call, tell: Callable[[RunEvent], None]
) -> Iterator[tuple[ProgressCounts, Callable[[RunEvent], None]]]:
    """Return a listener that counts, displays and forwards each note to `tell`."""
    score = ProgressCounts()
    if call.json or call.verbosity < 0:
        yield score, _both(score, tell)
    elif on_terminal():
        from longshore.cli.output.terminal_display import Display

        with Display(score):
            yield score, _both(score, tell)
    else:
        with every(PLAIN_EVERY_S, lambda: say(plain_line(score, time.monotonic()))):
            yield score, _both(score, tell)


def _both(score: ProgressCounts, tell: Callable[[RunEvent], None]) -> Callable[[RunEvent], None]:
    def listen(note: RunEvent) -> None:
        score.take(note)
        tell(note)

    return listen


@contextmanager
def every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Call a function periodically during the block."""
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
        thread.join(JOIN_S)
