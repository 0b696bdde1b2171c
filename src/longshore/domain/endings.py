"""How an attempt that failed ends: now, later or for good. The table is `domain.reasons`; the random number is an argument."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from longshore.domain.outcomes import Deferred, Failed
from longshore.domain.reasons import REASONS, Kind, reason_named
from longshore.domain.retry import retry_delay_s
from longshore.domain.settings import RetrySettings
from longshore.domain.space import COUNTED, Lack

OUR_SIDE_DELAY_S: Final = 1.0  # infrastructure: asked again soon, with nothing counted
PROMISED_DELAY_S: Final = 5.0  # room is promised to transfers under way: asked again when some may be over
RESTING: Final = frozenset({"http_429", "http_503"})


@dataclass(frozen=True, slots=True)
class Mishap:
    """What one attempt came to, as a value."""

    reason: str
    message: str
    retry_after_s: float | None = None
    host: str | None = None  # where it happened, if that is another host than the job's own
    debug_id: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # telemetry: how far it came
    lack: str | None = None  # of `disk_full`: what lacks, a word of domain.space


@dataclass(frozen=True, slots=True)
class Past:
    """What the ledger knows of the attempts before."""

    attempts: int  # failed ones, this one not counted
    reason: str | None  # of the last one
    max_attempts: int | None = None  # of this job; None takes the setting


def kind_of(reason: str) -> Kind:
    """Tell what a reason means; a word that is not in the vocabulary is a mistake of ours."""
    if reason.startswith("http_") or reason in REASONS:
        return reason_named(reason).kind
    return Kind.TRANSIENT


def ending(mishap: Mishap, past: Past, draw: float, settings: RetrySettings) -> Deferred | Failed:
    """Decide between another attempt and the end."""
    kind = Kind.TRANSIENT if mishap.lack in COUNTED else kind_of(mishap.reason)
    if kind is Kind.INFRASTRUCTURE:
        pause = PROMISED_DELAY_S if mishap.lack == Lack.PROMISED else OUR_SIDE_DELAY_S
        delay = max(pause * (0.5 + draw), mishap.retry_after_s or 0.0)
        return Deferred(mishap.reason, mishap.message, delay, counts=False, host=mishap.host, facts=mishap.facts)
    if kind in {Kind.PERMANENT, Kind.POLICY}:
        return _final(mishap, mishap.message)
    if kind is Kind.FRESH and past.reason is not None and kind_of(past.reason) is Kind.FRESH:
        return _final(mishap, f"{mishap.message} (for the second time, from zero)")
    attempt = past.attempts + 1
    allowed = settings.max_attempts if past.max_attempts is None else past.max_attempts
    if attempt >= allowed:
        return _final(mishap, f"{mishap.message} (attempt {attempt} of {allowed})")
    delay = retry_delay_s(
        attempt, draw, base_s=settings.base_s, cap_s=settings.cap_s, retry_after_s=mishap.retry_after_s
    )
    if mishap.lack in COUNTED:
        delay = max(delay, OUR_SIDE_DELAY_S * (0.5 + draw))  # room is not made faster than our side is asked again
    rest = mishap.retry_after_s if mishap.reason in RESTING else None
    return Deferred(mishap.reason, mishap.message, delay, host=mishap.host, host_rest_s=rest, facts=mishap.facts)


def _final(mishap: Mishap, message: str) -> Failed:
    return Failed(mishap.reason, message, debug_id=mishap.debug_id, facts=mishap.facts)


def worst_of_mirrors(mishaps: list[Mishap]) -> Mishap:
    """Choose the one that speaks for all candidates: one worth another attempt if there is any, else the first URL's."""
    order = (Kind.INFRASTRUCTURE, Kind.TRANSIENT, Kind.FRESH)
    for kind in order:
        for mishap in mishaps:
            if kind_of(mishap.reason) is kind:
                return mishap
    return mishaps[0]
