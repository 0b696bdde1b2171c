"""The values of the overview: counts, what arrives now and how fast, the chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fastapi import Request

from longshore.domain.kinds import TORRENT, Status
from longshore.domain.model import SECOND, Micros, Scope
from longshore.domain.settings import HostsSettings
from longshore.ledger.queries import all_tenants, listing
from longshore.ledger.queries.throughput import Transfer
from longshore.ledger.transaction import Tx
from longshore.web import health, queries
from longshore.web.dashboard.arrivals import spans_of
from longshore.web.dashboard.render import stamp
from longshore.web.dashboard.throughput import WINDOWS, Slot, Window, spread
from longshore.web.security.auth import Caller
from longshore.web.serializers import View, job_view
from longshore.web.service import Service

SHOWN: Final = 50  # transfers
NOW_S: Final = 10.0  # bodies that ended so lately count as arriving now
RESTING: Final = 12


async def overview(service: Service, caller: Caller, request: Request) -> View:
    """Return the values of the overview."""
    window = WINDOWS.get(request.query_params.get("window", ""), WINDOWS["1h"])
    now, slots, moving = await service.arrivals.read(caller.scope, window)
    lately = slots if window.name == "5m" else (await service.arrivals.read(caller.scope, WINDOWS["5m"]))[1]
    view: View = await service.ledger.read_async(_overview, service.hosts, caller, now)
    shown = transfers(service, moving, now)
    measured = [one for one, seen in zip(moving, shown, strict=True) if seen["rate_bytes_s"] is not None]
    rate = sum(one["rate_bytes_s"] or 0 for one in shown) + _rest(lately, measured, now)
    active = shown + [service.with_progress(job) | _UNKNOWN for job in view.pop("torrents")]
    view["active"] = active[:SHOWN]
    view["moving"] = _moving(view["jobs"], len(active), now, lately) | {"rate_bytes_s": round(rate)}
    buckets = _buckets(window, now, slots)
    view["throughput"] = {"windows": list(WINDOWS), "window": window.name, "slot_s": window.slot_s, "buckets": buckets}
    view["throughput"] |= _plain_chart([bucket["bytes_per_s"] for bucket in buckets])
    view["disk"] = await health.disk(service) if caller.may("admin") else None
    return view


_UNKNOWN: Final = {"rate_bytes_s": None, "eta_s": None}


def transfers(service: Service, moving: Sequence[Transfer], now: Micros) -> list[dict[str, Any]]:
    """Show transfers with their rates; progress of this process is newer than the ledger's."""
    found = []
    for one in moving:
        job = service.with_progress(job_view(one.job))
        rate = service.rates.measured(one, job["bytes_done"] or 0, job["bytes_total"], now)
        found.append(job | {"rate_bytes_s": rate.rate_bytes_s, "eta_s": rate.eta_s})
    service.rates.forget(moving)
    return found


def _rest(lately: Sequence[Slot], measured: Sequence[Transfer], now: Micros) -> float:
    """Return the bytes per second of everything but the measured transfers, over the last moments: small bodies have no
    rate of their own."""
    recent = [slot for slot in lately if slot.at > now - (NOW_S + 5) * SECOND]
    under_way = sum(size for at, _, size in spread(WINDOWS["5m"], now, spans_of(measured, now)) if at >= recent[0].at)
    arrived = sum(slot.size_bytes for slot in recent) - under_way
    return max(0, arrived) / max(1.0, (now - recent[0].at) / SECOND)


def _moving(jobs: View, receiving: int, now: Micros, lately: Sequence[Slot]) -> View:
    """Return how many jobs move, and how long the rest takes at the pace of late."""
    files = sum(slot.files for slot in lately)
    pace = files / max(1.0, (now - lately[0].at) / SECOND)
    left = jobs["pending"] + jobs["processing"]
    return {
        "receiving": receiving,
        "claimed": max(0, jobs["processing"] - receiving),
        "files_per_minute": round(pace * 60, 1),
        "left": left,
        "eta_s": round(left / pace) if left and pace else None,
    }


def _buckets(window: Window, now: Micros, slots: Sequence[Slot]) -> list[View]:
    return [
        {
            "at": stamp(slot.at),
            "at_s": slot.at // SECOND,
            "bytes_per_s": round(max(0, slot.size_bytes) / slot.lasted_s(window, now)),
            "files": slot.files,
            "files_per_minute": round(slot.files * 60 / slot.lasted_s(window, now), 1),
        }
        for slot in slots
    ]


def _plain_chart(rates: Sequence[int]) -> View:
    """Return the line that is shown without JavaScript, in a box of 600 by 120."""
    most = max(rates, default=0)
    step = 600 / max(1, len(rates) - 1)
    points = (f"{index * step:.1f},{118 - 114 * rate / max(1, most):.1f}" for index, rate in enumerate(rates))
    return {"most": most, "points": " ".join(points)}


def _overview(tx: Tx, defaults: HostsSettings, caller: Caller, now: int) -> View:
    view = {"now": stamp(now), **queries.stats(tx, caller.scope), "torrents": _torrents(tx, caller.scope)}
    if not caller.may("admin"):
        return view | {"breakers": None}
    resting = all_tenants.resting_hosts(tx, defaults, RESTING)
    return view | {"breakers": [queries.shown_host(host, tx.now, defaults) for host in resting]}


def _torrents(tx: Tx, scope: Scope) -> list[View]:
    """Return the torrents that a client loads now."""
    wanted = listing.JobFilter(status=Status.PROCESSING, job_type=TORRENT)
    return [job_view(job) for job in listing.jobs(tx, scope, wanted, limit=SHOWN).items if job.bytes_done is not None]
