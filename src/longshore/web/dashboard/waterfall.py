"""A job's time as bars: one lane per attempt, with its wait, claim, transfer and finalising. Pure: views go in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from longshore.domain.policy.redaction import safe_text
from longshore.web.dashboard.render import human_span
from longshore.web.serializers import View

WIDTH: Final = 1000.0  # units of the drawing
NARROWEST: Final = 3.0
LANES: Final = 20
TITLES: Final = {"waiting": "waiting", "claimed": "claimed", "transfer": "transfer", "finalise": "finalise"}


def waterfall(detail: View, now: str) -> View:
    """Return the lanes of a job, the newest attempts only if there are many."""
    job, claims = detail["job"], detail["claims"][-LANES:]
    begins = detail["claims"][-LANES - 1]["ended_at"] if len(detail["claims"]) > LANES else job["created_at"]
    lanes = []
    free_since = _at(begins)
    for claim in claims:
        lanes.append(_lane(detail, claim, free_since, _at(now)))
        free_since = _at(claim["ended_at"] or now)
    if job["status"] in ("pending", "failed", "canceled", "skipped") and (not claims or job["status"] == "pending"):
        ended = job["failed_at"] or (now if job["status"] == "pending" else job["updated_at"])
        lanes.append(_named("waiting", [("waiting", free_since, _at(ended))], job["status"]))
    return _drawn(lanes)


Segment = tuple[str, float, float]  # what, from when to when


def _lane(detail: View, claim: View, free_since: float, now: float) -> View:
    """Return one attempt: waiting → claimed → transfer → finalise, as far as it came."""
    epoch, claimed, ended = (
        claim["epoch"],
        _at(claim["claimed_at"]),
        _at(claim["ended_at"]) if claim["ended_at"] else now,
    )
    effects = [effect for effect in detail["effects"] if effect["epoch"] == epoch]
    begun = transfer_began(detail, claim)
    final = min((_at(one["begun_at"]) for one in effects if one["kind"] == "FINALIZE"), default=None)
    edges = [("waiting", free_since), ("claimed", claimed)]
    if begun is not None:
        edges.append(("transfer", _at(begun)))
    elif final is not None:
        edges[-1] = ("transfer", claimed)  # a small body: nothing is noted between the claim and the whole body
    if final is not None:
        edges.append(("finalise", final))
    ends = [at for _, at in edges[1:]] + [ended]
    segments = [(what, at, max(at, end)) for (what, at), end in zip(edges, ends, strict=True)]
    marks = [
        {"kind": one["kind"], "state": one["state"], "at": _at(one["confirmed_at"] or one["begun_at"])}
        for one in effects
    ]
    how = claim["ended_how"] or "running"
    return _named(f"attempt {epoch}", segments, how) | {"owner": claim["owner"], "marks": marks}


def transfer_began(detail: View, claim: View) -> str | None:
    """Return when the body of a claim began to arrive, as its stage event says."""
    until = claim["ended_at"] or "~"
    for event in detail["events"]:
        streams = event["kind"] == "stage" and event["data"].get("to") == "STREAMING"
        if streams and claim["claimed_at"] <= event["at"] <= until:
            return str(event["at"])
    return None


def _named(label: str, segments: list[Segment], how: str) -> View:
    spans = [f"{TITLES[what]} {human_span(end - at)}" for what, at, end in segments]
    return {
        "label": label,
        "segments": segments,
        "how": safe_text(how),
        "text": " · ".join(spans),
        "owner": "",
        "marks": [],
    }


def _drawn(lanes: list[View]) -> View:
    """Place every bar on a common scale."""
    first = min((at for lane in lanes for _, at, _ in lane["segments"]), default=0.0)
    last = max((end for lane in lanes for _, _, end in lane["segments"]), default=0.0)
    scale = WIDTH / max(last - first, 1e-6)
    for lane in lanes:
        lane["bars"] = list(_bars(lane["segments"], first, scale))
        lane["marks"] = [mark | {"x": _x(mark.pop("at"), first, scale)} for mark in lane["marks"]]
        del lane["segments"]
    return {"lanes": lanes, "width": WIDTH, "took_s": max(0.0, last - first)}


def _bars(segments: Iterable[Segment], first: float, scale: float) -> Iterator[View]:
    for what, at, end in segments:
        x, width = _x(at, first, scale), max(NARROWEST, (end - at) * scale)
        yield {"what": what, "x": x, "width": round(min(width, WIDTH - x), 1), "took_s": end - at}


def _x(at: float, first: float, scale: float) -> float:
    return round(min(WIDTH - NARROWEST, max(0.0, (at - first) * scale)), 1)


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
