"""A job's history as steps: what happened, when, how long it took. Pure: views go in, steps come out."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Any, Final

from longshore.web.dashboard.waterfall import transfer_began
from longshore.web.serializers import View

_TITLES: Final = {
    "planned": "Planned",
    "claimed": "Claimed by a worker",
    "received": "Received the whole body",
    "completed": "Completed",
    "skipped": "Skipped: held already",
    "failed": "Failed for good",
    "deferred": "Will be tried again",
    "released": "Given back",
    "canceled": "Canceled",
    "expired": "The lease expired",
    "dead": "The worker died",
}
_TONES: Final = {
    "completed": "completed",
    "skipped": "skipped",
    "failed": "failed",
    "deferred": "warn",
    "canceled": "canceled",
    "expired": "warn",
    "dead": "warn",
    "planned": "pending",
}
_RANK: Final = {"planned": 0, "claimed": 1, "received": 1}
_ENDS: Final = frozenset({"completed", "skipped", "failed", "canceled"})


def steps(detail: View) -> list[View]:
    """Merge all records of a job into one timeline."""
    job = detail["job"]
    found = [_step("planned", job["created_at"], text=f"as {job['job_type']}")]
    for claim in detail["claims"]:
        found.append(_step("claimed", claim["claimed_at"], text=f"lease {claim['epoch']}, {claim['owner']}"))
        if claim["ended_at"]:
            how, _, reason = claim["ended_how"].partition(": ")
            found.append(_step(how, claim["ended_at"], reason=reason or None))
    for effect in detail["effects"]:
        took = effect["took_s"]
        title = f"{effect['kind'].capitalize()} {effect['state']}"
        found.append(
            {
                **_step("effect", effect["confirmed_at"] or effect["begun_at"], text=f"lease {effect['epoch']}"),
                "title": title,
                "took_s": took,
            }
        )
    found += _received(detail)
    known = {(step["kind"], step["at"]) for step in found}
    for event in detail["events"]:
        if (event["kind"], event["at"]) not in known:
            found.append(_step(event["kind"], event["at"], reason=event["data"].get("reason"), facts=event["data"]))
        else:
            _enrich(found, event)
    # Records of one transaction have the same time: put ends after confirmations.
    found.sort(key=lambda step: (step["at"], _RANK.get(step["kind"], 3 if step["end"] else 2)))
    return _timed(found)


def _received(detail: View) -> list[View]:
    """Return when each attempt had the whole body, and how long the transfer took: no event of its own says so."""
    found = []
    for effect in detail["effects"]:
        claim = next((one for one in detail["claims"] if one["epoch"] == effect["epoch"]), None)
        if effect["kind"] != "FINALIZE" or claim is None:
            continue
        begun = transfer_began(detail, claim)
        took = max(0.0, (_at(effect["begun_at"]) - _at(begun or claim["claimed_at"])).total_seconds())
        text = "" if begun else "with the wait for a free connection"
        found.append({**_step("received", effect["begun_at"], text=text), "took_s": took})
    return found


def _title(kind: str, facts: View) -> str:
    if kind != "stage":
        return _TITLES.get(kind, kind.replace("_", " ").capitalize())
    if facts.get("to") == "STREAMING":
        return "Transfer resumed" if facts.get("resumed_from_bytes") else "Transfer began"
    return f"Reached {facts.get('to', 'the next stage')}"


def _step(kind: str, at: str, *, text: str = "", reason: str | None = None, facts: View | None = None) -> View:
    return {
        "kind": kind,
        "title": _title(kind, facts or {}),
        "tone": _TONES.get(kind, "processing"),
        "end": kind in _ENDS,
        "at": at,
        "text": text,
        "reason": reason,
        "facts": {name: _plain(value) for name, value in (facts or {}).items() if name != "reason"},
        "took_s": None,
    }


def _enrich(found: list[View], event: View) -> None:
    for step in found:
        if (step["kind"], step["at"]) == (event["kind"], event["at"]):
            step["facts"] |= {name: _plain(value) for name, value in event["data"].items() if name != "reason"}


def _plain(value: Any) -> str:
    return str(value)[:300]


def _timed(found: list[View]) -> list[View]:
    for before, step in pairwise(found):
        if step["took_s"] is None:
            step["took_s"] = max(0.0, (_at(step["at"]) - _at(before["at"])).total_seconds())
    return found


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)
