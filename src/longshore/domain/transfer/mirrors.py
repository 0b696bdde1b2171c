"""Walk a job's candidates (its URL, then its mirrors in order) so that no host topology can make the job go round for ever.

Theory of operation. A walk asks each open candidate once. A candidate whose answer is definite (404, a forbidden address, an
HTML page …) is closed for the life of the job; one that failed transiently is closed until the next walk. The answers form
the job's trail. The trail is durable: it is committed when the lease moves to another host and when the lease ends. So a job
that has to wait for a mirror's host gives its lease back, waits in that host's lane with no slot held anywhere, and goes on at
that very candidate when it is claimed there. A lease never waits for a second slot, so hold-and-wait and deadlock are
impossible; and each claim requests at least one candidate that is new in this walk, which excludes livelock.

Redirects are different: a redirect is not stored (signatures expire), so a job that waited for the slot of a redirect's target
has to ask the first host again. It holds the target's slot while it does so, and passes the hosts in between without one. If
the chain now leads to another busy host, that is one more round. Rounds are counted; from `MAX_ROUNDS` on the attempt counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from longshore.domain.reasons import REASONS, Kind, reason_named

MAX_ROUNDS: Final = 4  # waits for the target of a redirect within one attempt
MESSAGE: Final = 300  # characters of a candidate's message that the trail keeps
# Not the candidate's fault: another candidate would meet the same.
OF_THE_JOB: Final = frozenset({"quota_exceeded", "offline", "canceled", "interrupted", "lease_lost"})


@dataclass(frozen=True, slots=True)
class Tried:
    """The last answer of one candidate."""

    walk: int  # in which walk it was given
    reason: str
    message: str = ""
    definite: bool = False


@dataclass(frozen=True, slots=True)
class Trail:
    """The results of one job's walks over its candidates so far."""

    walk: int = 0
    tried: Mapping[int, Tried] = field(default_factory=dict)
    rounds: int = 0  # waits for redirect targets in this attempt
    via: tuple[str, ...] = ()  # hosts of the redirect chain that the job waits for; it is claimed at the last one
    best: int = 0  # the most bytes of the body that were ever durable
    gains: int = 0  # attempts that ended early but raised `best`: they do not count towards max_attempts

    def text(self) -> str:
        """Write the trail for the ledger; empty when there is nothing to remember."""
        body: dict[str, object] = {}
        if self.walk:
            body["walk"] = self.walk
        if self.tried:
            body["tried"] = [[at, t.walk, t.reason, t.message, int(t.definite)] for at, t in sorted(self.tried.items())]
        if self.rounds:
            body["rounds"] = self.rounds
        if self.via:
            body["via"] = list(self.via)
        if self.best:
            body["best"], body["gains"] = self.best, self.gains
        return json.dumps(body, separators=(",", ":")) if body else ""


def read(text: str | None) -> Trail:
    """Read a trail from the ledger; what is not one is an empty trail."""
    if not text:
        return Trail()
    try:
        body = json.loads(text)
        tried = {
            int(row[0]): Tried(int(row[1]), str(row[2]), str(row[3]), bool(row[4])) for row in body.get("tried", ())
        }
        via = tuple(str(host) for host in body.get("via", ()))
        walk, rounds, best, gains = (int(body.get(name, 0)) for name in ("walk", "rounds", "best", "gains"))
        return Trail(walk, tried, rounds, via, best, gains)
    except (ValueError, TypeError, AttributeError, IndexError):
        return Trail()


def next_of(count: int, trail: Trail) -> int | None:
    """Return the candidate to ask now, None when the walk is over."""
    return next((at for at in range(count) if _is_open(trail, at)), None)


def _is_open(trail: Trail, at: int) -> bool:
    tried = trail.tried.get(at)
    return tried is None or not (tried.definite or tried.walk >= trail.walk)


def is_definite(reason: str, before: Tried | None = None) -> bool:
    """Return whether a candidate that failed for this reason is never worth another request of the same job."""
    kind = _kind(reason)
    if kind is Kind.FRESH:  # once more from zero, then never again
        return before is not None and _kind(before.reason) is Kind.FRESH
    return kind in {Kind.PERMANENT, Kind.POLICY}


def ends_walk(reason: str) -> bool:
    """Return whether a reason says nothing about the candidate, so that the walk stops there and goes on later."""
    return reason in OF_THE_JOB or _kind(reason) is Kind.INFRASTRUCTURE


def answered(trail: Trail, at: int, reason: str, message: str = "", *, definite: bool | None = None) -> Trail:
    """Return the trail with one more answer. The redirect chain was this candidate's own, so it is forgotten."""
    final = is_definite(reason, trail.tried.get(at)) if definite is None else definite
    tried = {**trail.tried, at: Tried(trail.walk, reason, message[:MESSAGE], final)}
    return replace(trail, tried=tried, via=())


@dataclass(frozen=True, slots=True)
class Over:
    """A walk that found nothing: which candidate speaks for all, whether that is final, and where the next walk begins."""

    at: int
    final: bool
    trail: Trail
    following: int | None  # the first candidate of the next walk


def over(count: int, trail: Trail) -> Over:
    """End a walk. All definite: the first URL speaks and the job is over. Else the first one that may still work speaks."""
    after = replace(trail, walk=trail.walk + 1, rounds=0, via=())
    left = [at for at in range(count) if not trail.tried[at].definite]
    if not left:
        return Over(0, True, after, None)
    kinds = {at: _kind(trail.tried[at].reason) for at in left}
    speaker = next((at for at in left if kinds[at] is not Kind.FRESH), left[0])
    return Over(speaker, False, after, left[0])


def without(hosts: Sequence[str], trail: Trail, host: str, reason: str, message: str) -> Trail:
    """Return the trail of a job that waits for a host which was given up: its candidates there are closed for good, and so
    is the one whose redirect leads there."""
    dead = [at for at, name in enumerate(hosts) if name == host and _is_open(trail, at)]
    here = next_of(len(hosts), trail)
    if here is not None and hosts[here] != host and (len(hosts) == 1 or trail.via[-1:] == (host,)):
        dead.append(here)
    for at in dead:
        trail = answered(trail, at, reason, message, definite=True)
    return trail


def sent_on(trail: Trail, chain: tuple[str, ...]) -> Trail:
    """Return the trail of a job that waits for the last host of a redirect chain."""
    return replace(trail, rounds=trail.rounds + 1, via=chain)


def is_reserved(trail: Trail, slot: str, host: str, *, mirrored: bool) -> bool:
    """Return whether the lease's slot is that of a redirect's target, so that `host` is asked without a slot of its own."""
    if trail.via:
        return trail.via[-1] == slot
    return not mirrored and slot != host  # learned before trails were kept


def passes(trail: Trail, slot: str, host: str) -> bool:
    """Return whether a hop is one between the first host and the target whose slot is held."""
    return bool(trail.via) and trail.via[-1] == slot and host != slot and host in trail.via


def _kind(reason: str) -> Kind:
    if reason.startswith("http_") or reason in REASONS:
        return reason_named(reason).kind
    return Kind.TRANSIENT
