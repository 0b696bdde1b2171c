"""Bound every wait for PostgreSQL on the client's side: for an answer, for a connection, for a server to come back.

Problem: a server that stands still (SIGSTOP, a suspended machine, a proxy that drops all data) keeps its connections. Its
kernel acknowledges TCP keepalives, and its `statement_timeout` does not run. Only the client can end such a wait.

psycopg waits for a socket in steps of 0.1 s and resumes the operation's generator after each of them. `bounded` wraps that
generator: after `silence_s` without an answer, it shuts the socket down and raises the error of a lost connection in the
thread that waits. What a lost connection means is decided where it always is: a transaction before its COMMIT was not
written, and a COMMIT is in doubt and looked up (ADR 0018).

`give_up` shortens the limit to `HURRIED_S` for a while, for the waits that have begun, too, so that a process can end. Once
a wait was cut short, the next ones get one step each until the server answers: many calls in a row must not add up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

import psycopg
from psycopg.waiting import Ready

T = TypeVar("T")
log = logging.getLogger(__name__)
SILENCE_S: Final = 60.0  # a server that sends nothing for this long counts as lost; longer than its statement_timeout
HURRIED_S: Final = 1.0  # the same after `give_up`: a healthy server answers within this
HURRY_S: Final = 30.0  # how long `give_up` lasts
SAY_S: Final = 5.0  # a wait longer than this is reported
SAY_AGAIN_S: Final = 30.0


class Silence:
    """The waits of one process for one server, and their limit."""

    def __init__(self, silence_s: float | None = SILENCE_S) -> None:
        self._silence_s = silence_s  # None: the owner's statements may take hours
        self._hurried_until = 0.0
        self._hurry = threading.Event()
        self._silent_since: float | None = None  # of a server that was found silent after `give_up`
        self._waits: dict[int, float] = {}  # since when, by wait
        self._lock = threading.Lock()
        self._said_at = -SAY_AGAIN_S

    def give_up(self) -> None:
        """Stop waiting for a silent server, now and for a while."""
        self._hurried_until = time.monotonic() + HURRY_S
        self._hurry.set()

    @property
    def hurried(self) -> bool:
        """Return whether waits are cut short."""
        if self._hurry.is_set() and time.monotonic() >= self._hurried_until:
            self._hurry.clear()
            self._silent_since = None
        return self._hurry.is_set()

    def longest_s(self) -> float:
        """Return how long the oldest wait has lasted; 0 if the server answers."""
        waits = list(self._waits.values())
        return time.monotonic() - min(waits) if waits else 0.0

    def pause(self, wait: int, since: float, seconds: float, why: str) -> bool:
        """Sleep before the next attempt to reach a lost server; return False if there should be none."""
        self._note(wait, since, why)
        return not self.hurried and not self._hurry.wait(seconds)

    def ended(self, wait: int) -> None:
        """Forget a wait."""
        self._waits.pop(wait, None)

    def bounded(
        self, work: Generator[Any, Any, T], asks: Callable[[], bool], cut: Callable[[], None]
    ) -> Generator[Any, Any, T]:
        """Run an operation of psycopg and end it if the server is silent for too long while it is asked something."""
        wait, since = id(work), time.monotonic()
        try:
            state = next(work)
            while True:
                ready = yield state
                if ready:
                    if ready & Ready.R:
                        self._silent_since = None
                    since = time.monotonic()
                    self._waits.pop(wait, None)
                elif asks() and self._is_too_long(wait, since):
                    cut()
                    silent_s = time.monotonic() - (self._silent_since or since)
                    error = psycopg.OperationalError(f"it sent nothing for {silent_s:.0f} s")
                    state = work.throw(error)
                    continue
                state = work.send(ready)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            self._waits.pop(wait, None)

    def _is_too_long(self, wait: int, since: float) -> bool:
        waited = time.monotonic() - since
        self._note(wait, since, f"PostgreSQL has sent nothing for {waited:.0f} s")
        if self._silence_s is not None and waited >= self._silence_s:
            return True
        if self.hurried and (self._silent_since or waited >= HURRIED_S):
            self._silent_since = self._silent_since or since
            return True
        return False

    def _note(self, wait: int, since: float, why: str) -> None:
        """Count a wait, and report a long one; of many at once, one is reported."""
        self._waits[wait] = since
        now = time.monotonic()
        with self._lock:
            if now - since < SAY_S or now - self._said_at < SAY_AGAIN_S or self._hurry.is_set():
                return
            self._said_at = now
        log.warning("the ledger does not answer, and is waited for: %s", why)
