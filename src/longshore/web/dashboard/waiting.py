"""Why a job waits, in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from longshore.domain.kinds import Status
from longshore.ledger.queries.why_waiting import COUNTED, JobWait
from longshore.web.dashboard.render import many, stamp
from longshore.web.serializers import View, remedy_of

SHORT: Final = {
    "paused": "host paused",
    "resting": "host rests",
    "backoff": "backing off",
    "host_busy": "host at its limit",
    "external": "torrent client",
    "turn": "ready",
}


def pending_ids(jobs: Iterable[View]) -> list[str]:
    """Return the jobs among these that may wait for something."""
    return [job["job_id"] for job in jobs if job["status"] == Status.PENDING]


def shown_wait(wait: JobWait | None) -> dict[str, Any] | None:
    """Show what a job waits for; None: for nothing."""
    if wait is None:
        return None
    return {
        "kind": wait.kind,
        "short": SHORT[wait.kind],
        "text": _text(wait),
        "host": wait.host,
        "reason": wait.reason or None,
        "until": stamp(wait.until),
        "ahead": wait.ahead,
    }


def _text(wait: JobWait) -> str:
    if wait.kind == "paused":
        return f"The host {wait.host} is paused until an operator resumes it." + _behind(wait)
    if wait.kind == "resting":
        why = f" ({wait.reason})" if wait.reason else ""
        return f"The host {wait.host} is not asked for a while{why}." + _behind(wait)
    if wait.kind == "backoff":
        meaning = remedy_of(wait.reason)[0]
        cause = f": {meaning}" if meaning else ""
        tries = f" after {many(wait.attempts, 'attempt')}" if wait.attempts else ""
        return f"Backing off{tries}{cause}."
    if wait.kind == "host_busy":
        return f"The host {wait.host} is at its limit of transfers or its rate." + _behind(wait)
    if wait.kind == "external":
        return "It waits for the torrent client."
    return "Ready: the next free worker takes it." if not wait.ahead else "Ready." + _behind(wait)


def _behind(wait: JobWait) -> str:
    if not wait.ahead:
        return ""
    more = "more than " if wait.ahead >= COUNTED else ""
    of_host = f" of {wait.host}" if wait.host else ""
    return f" {more}{many(min(wait.ahead, COUNTED), 'job')}{of_host} {'is' if wait.ahead == 1 else 'are'} ahead of it.".replace(
        " more", " More", 1
    )
