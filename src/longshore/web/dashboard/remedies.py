"""Which remedies fit a reason, the best first. Pure."""

from __future__ import annotations

from typing import Final

from longshore.domain.reasons import Kind, Reason, reason_named

RETRY, SLOW, PAUSE, LATER, URLS = "retry", "slow", "pause", "later", "urls"
_BUSY: Final = frozenset({"http_429", "http_503", "too_slow", "blocked_challenge"})  # the host says: not so fast


def advised(reason: str | None) -> tuple[str, ...]:
    """Return what to do about failures of a reason. Where the same request fails again, a retry is not the first advice."""
    known = _known(reason)
    if known is None:
        return (RETRY, URLS)
    if reason in _BUSY:
        return (SLOW, LATER, RETRY, PAUSE) if known.kind is not Kind.PERMANENT else (URLS, PAUSE, SLOW, RETRY)
    if known.kind in (Kind.PERMANENT, Kind.POLICY):
        return (URLS, RETRY)
    return (LATER, RETRY, PAUSE, URLS) if known.host_fault else (RETRY, URLS)


def _known(reason: str | None) -> Reason | None:
    try:
        return reason_named(reason or "")
    except KeyError:
        return None  # a code of a user's own handler
