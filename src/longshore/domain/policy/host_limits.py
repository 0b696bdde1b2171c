"""How much may be started at a host now: a pure decision from what is configured, remembered and in flight.

Rules. What is in flight is derived from live leases. A rate is a schedule of starts (`next_start_at`). A host with too
many faults in a row rests, then gets one try, and is whole again after a success. So does a host with which several requests
got no connection for as long as it would rest: more requests at once would only wait for the same. The time that a try spent
waiting counts as rest. A host that answered nothing at all for `give_up_s`, from the start of the first request to the end of
the last try, is given up: the jobs that wait for it fail, because one try speaks for all of them. A
host that answers, but gave nothing but faults for `give_up_s`, is faulty: jobs that were asked for there fail, and each of the
others is asked for once, at the host's usual pace, because an answer speaks only for its own URL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from longshore.domain.model import SECOND, Micros
from longshore.domain.settings import HostSettings, HostsSettings

NEVER: Final[Micros] = 1 << 62
RECHECK: Final[Micros] = (
    5 * SECOND
)  # a host at its limit is checked again after this, even without a notification of a free slot
VERDICT: Final[Micros] = 30 * SECOND  # how long a host stays given up, at least
STALE: Final[Micros] = 600 * SECOND  # a silence that was not observed for this long restarts
_NO_LIMITS: Final = HostSettings()
REST_FOR_ALL: Final[Micros] = 3_600 * SECOND  # the longest rest that tenants can bring about for the others
UNREACHABLE: Final = "connect"  # the reason of a request that got no connection
SEVERAL: Final = 2
LEAST_REST: Final[Micros] = SECOND
BURST_S: Final = 0.1  # a rate may be used up to this far ahead


@dataclass(frozen=True, slots=True)
class HostUse:
    """What one owner has at a host: live leases and how many of them it may run at once."""

    owner: str
    leases: int
    slots: int
    first_expiry: Micros

    @property
    def in_flight(self) -> int:
        """How many can be running."""
        return min(self.leases, self.slots)


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the ledger remembers of a host."""

    host: str
    concurrency: int | None = None
    rate_per_s: float | None = None
    paused: bool = False
    cooldown_until: Micros | None = None
    failures: int = 0
    failed_at: Micros | None = None
    next_start_at: Micros | None = None
    uses: tuple[HostUse, ...] = ()
    reason: str | None = None  # of the last fault
    silent_since: Micros | None = None  # start of the first request without any answer since the last answer
    silences: int = 0  # requests without any answer since then
    nameless_at: Micros | None = None  # the resolver said that the name does not exist
    faulty_since: Micros | None = None  # the first fault of any kind since the last answer that was none
    cooldown_tenant: str | None = None  # the only tenant that `cooldown_until` is for; None: all


class HostState(StrEnum):
    """How a host stands, in one word for every table, field and page."""

    OK = "ok"  # it is asked as usual
    RESTING = "resting"  # asked by Retry-After or a person to be left alone, or after faults; then one try decides
    FAULTY = "faulty"  # nothing but faults for `give_up_s`: each URL is asked for once
    GIVEN_UP = "given up"  # no answer at all for `give_up_s`: its jobs failed, and the next one is a new try
    PAUSED = "paused"  # by a person, until it is resumed


@dataclass(frozen=True, slots=True)
class HostVerdict:
    """A host that is not waited for any longer."""

    at: Micros  # jobs planned later wait for the next try
    asked_only: bool  # it speaks only for jobs that were asked for there


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one owner may take at a host now: `leases`, of which `slots` may run at once; if none, not before when."""

    leases: int
    slots: int
    not_before: Micros | None = None
    interval: Micros = 0  # time that each start uses up at a host with a rate


def allowance(
    facts: HostFacts, owner: str, defaults: HostsSettings, now: Micros, *, ahead: int = 0, at_once: int = NEVER
) -> Allowance:
    """Decide how many leases an owner may get at a host. It never keeps more slots than it can run at once: a second
    worker finds the rest of a large host free."""
    if not facts.host:
        return Allowance(NEVER, NEVER)
    if (rest := rests_until(facts, defaults, now)) is not None:
        return Allowance(0, 0, rest)
    limit = _concurrency(facts, defaults, now)
    mine = next((use for use in facts.uses if use.owner == owner), HostUse(owner, 0, 0, now))
    free = limit - sum(use.in_flight for use in facts.uses)  # below 0: the limit was lowered meanwhile
    slots = max(0, min(mine.in_flight + free, max(1, at_once)))
    rate = _rate(facts, defaults)
    if rate > 0:
        return _rated(facts, max(0, min(free, slots)), slots, rate, now)
    # After a breaker's rest one try decides: leases ahead would all carry its one slot and run one by one long after it.
    # At a faulty host most leases ahead would be turned away by the next faults.
    ahead = ahead if slots and not _is_open(facts, defaults) else 0
    leases = max(0, slots + ahead - mine.leases)
    return Allowance(leases, slots, None if leases else _full_until(facts, now))


def started(facts: HostFacts, count: int, interval: Micros, now: Micros) -> Micros:
    """Return the next start that a rate allows after `count` more."""
    return max(facts.next_start_at or 0, now - _tolerance(interval)) + count * interval


def rests_until(facts: HostFacts, defaults: HostsSettings, now: Micros) -> Micros | None:
    """Return until when nothing may be asked of a host; None: it does not rest."""
    if facts.paused or _limit(facts, defaults) == 0:
        return NEVER
    until = facts.cooldown_until or 0
    if _is_tried(facts, defaults, now):
        until = max(until, _tried_at(facts, defaults))
    return until if until > now else None


def rest_of(facts: HostFacts, now: Micros) -> tuple[str, Micros] | None:
    """Return the one tenant that a host told to wait, and until when; None: the host rests for all, or not at all.

    One tenant can make a server answer 429 for hours. The others are asked to wait when they are told so themselves.
    """
    if facts.cooldown_tenant is None or (facts.cooldown_until or 0) <= now:
        return None
    return facts.cooldown_tenant, facts.cooldown_until or 0


def for_tenant(facts: HostFacts, tenant: str) -> HostFacts:
    """Return what a tenant sees of a host: not the rest that only another one was asked for."""
    if facts.cooldown_tenant in (None, tenant):
        return facts
    return replace(facts, cooldown_until=None)


def _tried_at(facts: HostFacts, defaults: HostsSettings) -> Micros:
    """Return when a host whose breaker is open gets its one try: after its rest, or when it would be given up."""
    failed_at, took = facts.failed_at or 0, _try_takes(facts)
    until = failed_at + int(defaults.breaker_cooldown_s * SECOND)
    least = min(until, failed_at + LEAST_REST)
    if defaults.give_up_s:
        for since, ahead in ((facts.silent_since, took), (facts.faulty_since, 0)):
            deadline = (since or 0) + int(defaults.give_up_s * SECOND)
            if since is not None and failed_at < deadline:
                until = max(least, min(until - ahead, deadline - ahead))
    return until


def _try_takes(facts: HostFacts) -> Micros:
    """Return how long the first request without an answer waited for one; 0 if the series began with another fault."""
    if facts.silent_since is None or facts.faulty_since is None:
        return 0
    return max(0, facts.faulty_since - facts.silent_since)


def state_of(facts: HostFacts, defaults: HostsSettings, now: Micros) -> tuple[HostState, Micros | None]:
    """Return how a host stands, and until when; None: no end is known, or nothing to wait for."""
    if facts.paused:
        return HostState.PAUSED, None
    until = rests_until(facts, defaults, now)
    ends = None if until is None or until >= NEVER else until
    if facts.nameless_at is not None or _has_lasted(facts, facts.silent_since, defaults):
        return HostState.GIVEN_UP, ends
    if until is not None:
        return HostState.RESTING, ends
    if facts.silent_since is None and _has_lasted(facts, facts.faulty_since, defaults):
        return HostState.FAULTY, None
    return HostState.RESTING if _is_open(facts, defaults) else HostState.OK, None


def judged(facts: HostFacts, defaults: HostsSettings, now: Micros) -> HostVerdict | None:
    """Return the verdict on a host: given up, faulty, or None."""
    if (at := given_up(facts, defaults, now)) is not None:
        return HostVerdict(at, asked_only=False)
    if (at := found_faulty(facts, defaults, now)) is not None:
        return HostVerdict(at, asked_only=True)
    return None


def given_up(facts: HostFacts, defaults: HostsSettings, now: Micros) -> Micros | None:
    """Return when a host was found dead: jobs planned before that and waiting for it fail. None: it is not given up.

    A verdict holds for as long as the host would rest; after that the next job tries again. Jobs planned after it, such as
    those of `retry`, wait for that try.
    """
    if facts.nameless_at is not None and now - facts.nameless_at < _holds(defaults):
        return facts.nameless_at
    return _lasted(facts, facts.silent_since, defaults, now)


def found_faulty(facts: HostFacts, defaults: HostsSettings, now: Micros) -> Micros | None:
    """Return when a host was found to answer with nothing but faults: jobs that were asked for there and wait for another
    attempt fail. None: it was not, or it does not answer at all now."""
    return None if facts.silent_since is not None else _lasted(facts, facts.faulty_since, defaults, now)


def _lasted(facts: HostFacts, since: Micros | None, defaults: HostsSettings, now: Micros) -> Micros | None:
    """Return the last fault, if the breaker is open, faults lasted for `give_up_s` and the last one is not long ago."""
    if facts.failed_at is None or now - facts.failed_at >= _holds(defaults):
        return None
    return facts.failed_at if _has_lasted(facts, since, defaults) else None


def _has_lasted(facts: HostFacts, since: Micros | None, defaults: HostsSettings) -> bool:
    """Return whether the breaker is open and faults lasted for `give_up_s`."""
    if not defaults.give_up_s or since is None or facts.failed_at is None or not _is_open(facts, defaults):
        return False
    return facts.failed_at - since >= defaults.give_up_s * SECOND


def _holds(defaults: HostsSettings) -> Micros:
    return max(VERDICT, int(defaults.breaker_cooldown_s * SECOND))


def limits_of(facts: HostFacts, defaults: HostsSettings) -> tuple[int, float]:
    """Return the connections at once and the requests per second that are configured for a host; rate 0: no limit."""
    return _limit(facts, defaults), _rate(facts, defaults)


def _limit(facts: HostFacts, defaults: HostsSettings) -> int:
    profile = defaults.named.get(facts.host, _NO_LIMITS)
    for value in (facts.concurrency, profile.concurrency):
        if value is not None:
            return value
    return defaults.concurrency


def _concurrency(facts: HostFacts, defaults: HostsSettings, now: Micros) -> int:
    limit = _limit(facts, defaults)
    return min(1, limit) if _is_tried(facts, defaults, now) else limit


def _is_tried(facts: HostFacts, defaults: HostsSettings, now: Micros) -> bool:
    """Return whether a host rests and then gets one try that decides. A faulty one does not: who was asked for is gone."""
    return _is_open(facts, defaults) and found_faulty(facts, defaults, now) is None


def _is_open(facts: HostFacts, defaults: HostsSettings) -> bool:
    """Return whether the breaker is open."""
    if not defaults.breaker_failures:
        return False
    return facts.failures >= defaults.breaker_failures or _is_unreachable(facts, defaults)


def _is_unreachable(facts: HostFacts, defaults: HostsSettings) -> bool:
    """Return whether several requests got no connection, for as long as a host rests."""
    if facts.reason != UNREACHABLE or facts.silences < SEVERAL or facts.silent_since is None or facts.failed_at is None:
        return False
    return facts.failed_at - facts.silent_since >= defaults.breaker_cooldown_s * SECOND


def _rate(facts: HostFacts, defaults: HostsSettings) -> float:
    profile = defaults.named.get(facts.host, _NO_LIMITS)
    for value in (facts.rate_per_s, profile.rate_per_s):
        if value is not None:
            return value
    return defaults.rate_per_s


def _rated(facts: HostFacts, free: int, slots: int, rate: float, now: Micros) -> Allowance:
    interval = max(1, int(SECOND / rate))
    next_start = facts.next_start_at or 0
    if next_start > now:
        return Allowance(0, 0, next_start, interval)
    earned = 1 + min(now - next_start, _tolerance(interval)) // interval
    leases = min(free, earned)
    return Allowance(leases, slots, None if leases else _full_until(facts, now), interval)


def _tolerance(interval: Micros) -> Micros:
    """Return how far starts may bunch: whole intervals within the burst, so that slow rates are exact."""
    return int(BURST_S * SECOND) // interval * interval


def _full_until(facts: HostFacts, now: Micros) -> Micros:
    expiries = [use.first_expiry for use in facts.uses if use.leases]
    return max(now + 1, min([now + RECHECK, *expiries]))
