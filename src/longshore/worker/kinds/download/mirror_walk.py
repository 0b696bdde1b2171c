"""Walk the candidates of one lease: which one is requested next, which host's slot it needs, and how it ended.

The decisions are made in `domain.transfer.mirrors`; this module executes them and records each host's answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from longshore import failpoints
from longshore.domain.identity.keys import host_of
from longshore.domain.model import Lease
from longshore.domain.outcomes import Blame
from longshore.domain.policy.host_limits import UNREACHABLE
from longshore.domain.policy.retry import RESTING, Gain
from longshore.domain.transfer import mirrors
from longshore.domain.transfer.mirrors import Trail
from longshore.domain.transfer.redirects import read_target
from longshore.errors import Reasoned

failpoints.declare("walk.moved")
SILENT: Final = frozenset({"dns", "connect", "too_slow", "deadline"})  # the host is silent, if no head came either
ANSWERED: Final = frozenset({"protocol_error"})  # something came, if nothing that can be used


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a walk without a body; attached to the exception for the retry decision."""

    trail: Trail | None
    blames: tuple[Blame, ...]
    final: bool = False
    gain: Gain | None = None


class MirrorWalk:
    """The walk of one lease. `take` takes a host's slot in the ledger, `rests` asks whether a host rests."""

    def __init__(
        self,
        lease: Lease,
        take: Callable[[str, str | None], Awaitable[bool]],
        rests: Callable[[str], Awaitable[bool]],
    ) -> None:
        request = lease.job.request
        self._take, self._rests = take, rests
        self.urls = (request.url or "", *request.mirrors)
        self.trail = mirrors.read(lease.job.trail)
        self._known = self.trail  # as the ledger has it
        self._slot = request.host
        self.chain: tuple[str, ...] = ()  # hosts of the candidate's redirects, its own first
        self.blames: list[Blame] = []
        self.gain: Gain | None = None

    @property
    def at(self) -> str:
        """The host that is being asked."""
        return self.chain[-1] if self.chain else self._slot

    def next(self) -> int | None:
        """Return the candidate to ask now; None: the walk is over."""
        return mirrors.next_of(len(self.urls), self.trail)

    async def enter(self, at: int) -> None:
        """Get the right to ask a candidate, or raise: the job then waits in the lane of that candidate's host."""
        host = host_of(self.urls[at]) or read_target(self.urls[at]).host  # raises: what has no host is not fetched
        self.chain = (host,)
        if mirrors.is_reserved(self.trail, self._slot, host, mirrored=len(self.urls) > 1):
            if await self._rests(host):
                raise self._busy(host, mirrors.sent_on(self.trail, (host,)))
        elif host != self._slot or self.trail != self._known:
            await self._move(host, self.trail)

    async def hop(self, host: str) -> bool:
        """Take the slot of the host that a redirect leads to, or raise: the job then waits in that host's lane."""
        self.chain = (*self.chain, host)
        if not mirrors.passes(self.trail, self._slot, host):
            await self._move(host, mirrors.sent_on(self.trail, self.chain))
        return True

    async def _move(self, host: str, if_busy: Trail) -> None:
        trail = self.trail.text() if self.trail != self._known else None
        taken = await self._take(host, trail)
        failpoints.hit("walk.moved")
        self._known = self.trail
        if not taken:
            raise self._busy(host, if_busy)
        self._slot = host

    def _busy(self, host: str, trail: Trail) -> Reasoned:
        busy = Reasoned("host_busy", f"{host} has no free slot or rests")
        busy.host = host
        busy.walk = Ended(trail, tuple(self.blames))
        return busy

    def failed(self, at: int, error: Reasoned, gain: Gain | None = None) -> None:
        """Record a candidate's failure. Re-raise a failure that is not the candidate's: the walk resumes later."""
        error.at = error.at or self.at
        if gain is not None and (self.gain is None or gain.kept > self.gain.kept):
            self.gain = gain
        if error.reason == "host_busy" and error.walk is not None:
            raise error
        self.blame(error)
        if len(self.urls) == 1:
            trail = replace(self.trail, rounds=0) if self.trail.rounds else None
            error.walk = Ended(trail, tuple(self.blames), error.final, self.gain)
            raise error
        if mirrors.ends_walk(error.reason):
            error.walk = Ended(self._changed(), tuple(self.blames), gain=self.gain)
            raise error
        definite = True if error.final else None
        self.trail = mirrors.answered(self.trail, at, error.reason, str(error), definite=definite)

    def blame(self, error: Reasoned) -> None:
        """Note what a failure says about the host that was asked."""
        if error.blameless:
            return
        heard = error.reason.startswith("http_") or error.reason in ANSWERED or "status" in error.facts
        if error.reason == "too_slow" and error.disowned:  # an FTP server that never sent its final reply
            heard = False
        silent = not heard and error.reason in SILENT
        rest = error.retry_after_s if error.reason in RESTING else None
        at, nameless = error.at or self.at, error.final and error.reason == "dns"
        waited_s = error.facts.get("elapsed_ms", 0.0) / 1000 if silent and error.reason == UNREACHABLE else 0.0
        self.blames.append(
            Blame(at, error.reason, silent=silent, heard=heard, rest_s=rest, nameless=nameless, waited_s=waited_s)
        )

    def over(self, last: Reasoned | None) -> Reasoned:
        """End the walk: return the failure that speaks for all candidates."""
        end = mirrors.over(len(self.urls), self.trail)
        spoken = self.trail.tried[end.at]
        error = Reasoned(spoken.reason, f"{spoken.message} (none of {len(self.urls)} candidates)")
        if last is not None:
            error.facts, error.at = last.facts, last.at
            error.retry_after_s = last.retry_after_s if last.reason == spoken.reason else None
        error.host = None if end.following is None else host_of(self.urls[end.following])
        error.walk = Ended(end.trail, tuple(self.blames), end.final, self.gain)
        return error

    def _changed(self) -> Trail | None:
        return self.trail if self.trail != self._known else None
