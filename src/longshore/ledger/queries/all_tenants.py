"""What concerns all tenants, for the operator: totals and hosts. On PostgreSQL the statements are functions of the dispatcher."""

from __future__ import annotations

from dataclasses import dataclass, field

from longshore.domain.model import SECOND, Micros, Status
from longshore.domain.policy.host_limits import state_of
from longshore.domain.settings import HostsSettings
from longshore.ledger.named_rows import HostRow
from longshore.ledger.operations.hosts import host_of
from longshore.ledger.records import Host
from longshore.ledger.rows import encoded
from longshore.ledger.transaction import Row, Tx


@dataclass(frozen=True, slots=True)
class Totals:
    """How the whole depot stands."""

    jobs: dict[Status, int] = field(default_factory=dict)
    artifacts: int = 0
    artifact_bytes: int = 0
    blobs: int = 0
    blob_bytes: int = 0
    oldest_ready_at: Micros | None = None
    last_success_at: Micros | None = None
    circuits: dict[str, int] = field(default_factory=dict)


def totals(tx: Tx, defaults: HostsSettings) -> Totals:
    """Add everything up, from counters and the ends of indexes."""
    counted = {name: int(n) for name, n in tx.all("depot_counters")}
    (oldest,) = tx.one("depot_oldest_ready") or (None,)
    (last,) = tx.one("depot_last_success") or (None,)
    paused, open_, known = tx.one("depot_circuits", **_resting(tx, defaults)) or (0, 0, 0)
    paused, open_ = int(paused or 0), int(open_ or 0)
    return Totals(
        jobs={status: counted.get(status.value, 0) for status in Status},
        artifacts=counted.get("artifacts", 0),
        artifact_bytes=counted.get("artifact_bytes", 0),
        blobs=counted.get("blobs", 0),
        blob_bytes=counted.get("blob_bytes", 0),
        oldest_ready_at=oldest,
        last_success_at=last,
        circuits={"closed": int(known) - paused - open_, "open": open_, "paused": paused},
    )


def host(tx: Tx, name: str) -> Host | None:
    """Return one host with what is in flight there."""
    row = tx.one("host_one", host=name)
    return _hosts(tx, [row])[0] if row else None


def host_state(host: Host, now: Micros, defaults: HostsSettings) -> tuple[str, Micros | None]:
    """Return a host's state (`domain.policy.host_limits.HostState`), and until when; None: no end, or nothing to wait for."""
    state, until = state_of(host.facts, defaults, now)
    return state.value, until


def resting_hosts(tx: Tx, defaults: HostsSettings, many: int) -> list[Host]:
    """Return hosts that are not asked now: paused, told to wait, or failing."""
    return _hosts(tx, tx.all("hosts_resting", many=many, **_resting(tx, defaults)))


def _resting(tx: Tx, defaults: HostsSettings) -> dict[str, int]:
    since = tx.now - int(defaults.breaker_cooldown_s * SECOND)
    return {"now": tx.now, "failures": defaults.breaker_failures or 1 << 62, "since": since}


def _hosts(tx: Tx, found: list[Row]) -> list[Host]:
    rows = [HostRow._make(row) for row in found]
    in_flight: dict[str, int] = {}
    for name, _, leases, slots, _ in tx.all("host_uses", hosts=encoded([row.host for row in rows]), now=tx.now):
        in_flight[name] = in_flight.get(name, 0) + min(leases, slots or 1)
    return [host_of(row, in_flight.get(row.host, 0)) for row in rows]


@dataclass(frozen=True, slots=True)
class WorkerLeases:
    """Who holds leases, how many, and when the first of them ends."""

    owner: str
    leases: int
    until: Micros


def leases(tx: Tx) -> list[WorkerLeases]:
    """Return who holds leases now, over all tenants."""
    return [WorkerLeases(*row) for row in tx.all("workers")]
