"""One request of a scenario, done by a process of its own that may be killed at a failpoint.

Processes come from a fork server that has everything imported: some ten milliseconds each instead of half a second.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

LIMIT_S = 30.0  # without an end by then, a request hangs
SETTINGS: dict[str, Any] = {
    "network": {"allow": ["127.0.0.0/8"]},
    "retry": {"base_s": 0.01, "cap_s": 0.05, "max_attempts": 4},
    "transfer": {"stall_s": 0.5, "connect_s": 2.0},
    "hosts": {"breaker_cooldown_s": 0.1},
    "lease": {"ttl_s": 4.0, "renew_s": 1.0},
    "reconcile": {"stale_part_s": 3600.0},
    "quota": {"free_bytes_min": 0},
}


@dataclass
class Told:
    """What the process said at its end."""

    status: str = ""
    reason: str | None = None
    message: str | None = None
    sha256: str | None = None
    body: bytes | None = None  # as it was placed
    refused: str | None = None  # why it was not placed
    unverified: bool = False
    killed: bool = False
    hung: bool = False
    fault: str | None = None
    notes: list[str] = field(default_factory=list)


_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["tests.torture.liars.client", "longshore.depot.async_depot", "longshore.worker.kinds.download.receive"]
)


@dataclass
class Running:
    """A process at work."""

    process: Any
    answer: Connection

    def wait(self) -> Told:
        """Wait for its end; one that does not come to an end is killed."""
        try:
            if self.answer.poll(LIMIT_S):
                told: Told = self.answer.recv()
            else:
                told = Told(hung=True)
        except EOFError:
            told = Told(killed=True)
        if told.hung:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.answer.close()
        return told


def start(depot: Path, items: list[dict[str, Any]], how: dict[str, Any]) -> Running:
    """Begin to do one request in a process of its own; `how`: kind, mode, segments, kill, ca_file."""
    ours, theirs = _context.Pipe(duplex=False)
    process = _context.Process(target=_work, args=(theirs, depot, items, how))
    process.start()
    theirs.close()
    return Running(process, ours)


def _work(answer: Connection, depot: Path, items: list[dict[str, Any]], how: dict[str, Any]) -> None:
    import longshore
    from longshore import failpoints

    failpoints.arm(f"{how['kill']}=kill" if how["kill"] else "")
    settings = {
        **SETTINGS,
        "transfer": {**SETTINGS["transfer"], "segments": how["segments"]},
        "network": {**SETTINGS["network"], "ca_file": how["ca_file"]},
    }
    try:
        with longshore.open(depot, **settings) as open_depot:
            told = _add(open_depot, items) if how["kind"] == "add" else _get(open_depot, items, how["mode"], depot)
    except Exception as error:
        told = Told(fault=f"{type(error).__name__}: {error}")
    answer.send(told)


def _add(depot: Any, items: list[dict[str, Any]]) -> Told:
    depot.add(items)
    return Told("added")


def _get(depot: Any, items: list[dict[str, Any]], mode: str, home: Path) -> Told:
    from longshore.errors import LongshoreError

    notes: list[Any] = []
    (got,) = depot.get(items, refresh=mode == "refresh", force=mode == "force", on_note=notes.append)
    told = Told(got.status.value, got.reason, got.message, notes=[_line(note) for note in notes])
    if got.artifact is None:
        return told
    told.sha256 = got.artifact.sha256
    shown = depot.show(got.job_id)
    told.unverified = any("unverified_length" in str(event) for event in getattr(shown, "events", [shown]))
    target = home.parent / f"placed-{os.getpid()}"
    try:
        depot.place(got.artifact, target)
        told.body = target.read_bytes()
        target.unlink()
    except LongshoreError as error:
        told.refused = str(error)
    return told


def _line(note: Any) -> str:
    facts = {
        name: note.facts[name] for name in ("reason", "message", "why", "resumed_from_bytes") if name in note.facts
    }
    return f"{note.kind} {facts}"
