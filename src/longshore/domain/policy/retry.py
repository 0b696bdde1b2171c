"""Decide whether a failed attempt is retried, and when, from `domain.reasons`. The random number is an argument."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from longshore.domain.outcomes import Blame, Deferred, Failed
from longshore.domain.policy.backoff import retry_delay_s
from longshore.domain.policy.disk_space import COUNTED, Lack
from longshore.domain.reasons import REASONS, Kind, reason_named
from longshore.domain.settings import RetrySettings
from longshore.domain.transfer.mirrors import MAX_ROUNDS, Trail

OUR_SIDE_DELAY_S: Final = 1.0  # infrastructure: retried soon, without counting an attempt
PROMISED_DELAY_S: Final = 5.0  # running transfers have reserved the space: retried when some may be done
URL_BUSY_DELAY_S: Final = 5.0  # the end of a transfer in the same process wakes them earlier
OFFLINE_DELAY_S: Final = 3600.0  # a run that is online does not wait for it (`wake_waiting`)
RESTING: Final = frozenset({"http_429", "http_503"})
PROGRESS_SHARE: Final = 100  # an attempt that adds one part in so many of the declared length is progress
PROGRESS_BYTES: Final = 1 << 20  # and so is one that adds this much


@dataclass(frozen=True, slots=True)
class Gain:
    """What an attempt left behind for the next one."""

    kept: int  # durable bytes of the body, those of earlier attempts included
    total: int | None = None  # the declared length
    resumable: bool = False  # the server named a version, so that the next attempt can go on from here
    resumed: bool = True  # the answer began where the durable bytes ended, not at the object's first byte


@dataclass(frozen=True, slots=True)
class Failure:
    """The facts of one failed attempt."""

    reason: str
    message: str
    retry_after_s: float | None = None
    host: str | None = None  # where the next attempt is claimed, if that is another host than the job's own
    debug_id: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # telemetry: how far it came
    lack: str | None = None  # for `disk_full`: a value of `disk_space.Lack`
    final: bool = False  # no candidate is worth another request
    trail: Trail | None = None  # what the candidates answered; None: as the ledger has it
    blames: tuple[Blame, ...] | None = None
    gain: Gain | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """What the ledger knows of the attempts before."""

    attempts: int  # failed ones, this one not counted
    reason: str | None  # of the last one
    max_attempts: int | None = None  # of this job; None takes the setting
    trail: Trail = field(default_factory=Trail)


def kind_of(reason: str) -> Kind:
    """Return the kind of a reason; an unknown reason is an internal error."""
    if reason.startswith("http_") or reason in REASONS:
        return reason_named(reason).kind
    return Kind.TRANSIENT


def next_outcome(failure: Failure, past: Past, draw: float, settings: RetrySettings) -> Deferred | Failed:
    """Decide between another attempt and the end."""
    kind = Kind.TRANSIENT if failure.lack in COUNTED else kind_of(failure.reason)
    if kind is Kind.INFRASTRUCTURE and not _is_sent_round(failure):
        return _later(failure, _our_delay_s(failure, draw), counts=False)
    if failure.final or kind in {Kind.PERMANENT, Kind.POLICY}:
        return _final(failure, failure.message)
    if kind is Kind.TRANSIENT and failure.lack is None and progressed(failure.gain, past.trail.best, past.trail.gains):
        delay = max(min(OUR_SIDE_DELAY_S, settings.base_s) * (0.5 + draw), failure.retry_after_s or 0.0)
        return _later(_at_best(failure, past), delay, progressed=True)
    if kind is Kind.FRESH and past.reason is not None and kind_of(past.reason) is Kind.FRESH:
        return _final(failure, f"{failure.message} (for the second time, from zero)")
    attempt = past.attempts - past.trail.gains + 1
    allowed = settings.max_attempts if past.max_attempts is None else past.max_attempts
    if attempt >= allowed:
        return _final(failure, f"{failure.message} (attempt {attempt} of {allowed})")
    delay = retry_delay_s(
        attempt, draw, base_s=settings.base_s, cap_s=settings.cap_s, retry_after_s=failure.retry_after_s
    )
    if failure.lack in COUNTED:
        delay = max(delay, OUR_SIDE_DELAY_S * (0.5 + draw))  # room is not made faster than our side is asked again
    return _later(_rested(failure), delay)


def _our_delay_s(failure: Failure, draw: float) -> float:
    """Return how long a job waits for our side, or for a slot; one that waits in another host's lane needs no clock."""
    if failure.reason == "host_busy" and failure.host is not None:
        return 0.0
    if failure.reason == "url_busy":
        return URL_BUSY_DELAY_S * (0.5 + draw)
    if failure.reason == "offline":
        return OFFLINE_DELAY_S
    pause = PROMISED_DELAY_S if failure.lack == Lack.PROMISED else OUR_SIDE_DELAY_S
    return max(pause * (0.5 + draw), failure.retry_after_s or 0.0)


def progressed(gain: Gain | None, best: int, gains: int = 0) -> bool:
    """Return whether an attempt that ended early brought the body on. Such an attempt does not count.

    `best` is the high-water mark of durable bytes, `gains` the number of attempts that did not count before. This ends,
    whatever a server declares: at most 100 attempts, or one per MiB of the durable bytes if these are more, do not count.
    A server that keeps to one length never reaches that limit, because each gain is 1 % of the length or 1 MiB. An answer
    from the object's first byte is progress only while nothing was durable, so an attempt that sends the same bytes again
    counts.
    """
    if gain is None or not gain.resumable or (best and not gain.resumed):
        return False
    if gains >= max(PROGRESS_SHARE, gain.kept // PROGRESS_BYTES):
        return False
    added = gain.kept - best
    enough = PROGRESS_BYTES if not gain.total else min(PROGRESS_BYTES, -(-gain.total // PROGRESS_SHARE))
    return added >= max(1, enough)


def _at_best(failure: Failure, past: Past) -> Failure:
    assert failure.gain is not None
    return replace(
        failure, trail=replace(failure.trail or past.trail, best=failure.gain.kept, gains=past.trail.gains + 1)
    )


def _is_sent_round(failure: Failure) -> bool:
    """Return whether redirects led from one busy host to another too often: from here on that counts as an attempt."""
    return failure.reason == "host_busy" and failure.trail is not None and failure.trail.rounds > MAX_ROUNDS


def _rested(failure: Failure) -> Failure:
    """Begin the rounds of the next attempt anew."""
    return (
        replace(failure, trail=replace(failure.trail, rounds=0))
        if _is_sent_round(failure) and failure.trail
        else failure
    )


def _later(failure: Failure, delay_s: float, *, counts: bool = True, progressed: bool = False) -> Deferred:
    return Deferred(
        failure.reason,
        failure.message,
        delay_s,
        counts=counts,
        host=failure.host,
        host_rest_s=failure.retry_after_s if failure.reason in RESTING else None,
        facts=failure.facts,
        trail=None if failure.trail is None else failure.trail.text(),
        blames=failure.blames,
        progressed=progressed,
    )


def _final(failure: Failure, message: str) -> Failed:
    return Failed(failure.reason, message, debug_id=failure.debug_id, facts=failure.facts, blames=failure.blames)
