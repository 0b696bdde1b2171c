"""Hosts: what they allow now, and what is remembered of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from longshore.domain.identity.keys import check_text
from longshore.domain.model import SECOND, Lease, Micros, Scope
from longshore.domain.policy.host_limits import (
    NEVER,
    RECHECK,
    VERDICT,
    Allowance,
    HostFacts,
    HostUse,
    allowance,
    for_tenant,
    judged,
    rest_of,
    rests_until,
    started,
)
from longshore.domain.settings import HostsSettings
from longshore.errors import BadInput, LeaseLost
from longshore.ledger.named_rows import HostRow
from longshore.ledger.operations.fencing import fence
from longshore.ledger.operations.make_claimable import free_slots
from longshore.ledger.records import Host
from longshore.ledger.rows import check_lease, encoded
from longshore.ledger.transaction import Tx

_SLOT_BITS: Final = 12  # of `jobs.lease_slots`; above them the time of the grant in milliseconds
PAUSED: Final = "paused"  # why a host rests that a person told to rest until a time


class Allowances:
    """What one owner may still take at each host within one transaction."""

    def __init__(self, tx: Tx, owner: str, defaults: HostsSettings, ahead: int = 0, at_once: int = NEVER) -> None:
        self._tx = tx
        self._owner = owner
        self._defaults = defaults
        self._ahead, self._at_once = ahead, at_once
        self._facts: dict[str, HostFacts] = {"": HostFacts("")}
        self._left: dict[str, Allowance] = {"": allowance(HostFacts(""), owner, defaults, tx.now)}
        self._taken: dict[str, int] = {}
        self._resting: dict[str, tuple[str, Micros]] = {}  # hosts that only one tenant waits for, which, and until when

    def load(self, hosts: Iterable[str]) -> None:
        """Read what is not known yet, in two statements."""
        fresh = {host for host in hosts if host not in self._facts}
        for facts in host_facts(self._tx, fresh).values():
            self._facts[facts.host] = facts
            if (rest := rest_of(facts, self._tx.now)) is not None:
                self._resting[facts.host] = rest
            self._left[facts.host] = allowance(
                for_tenant(facts, ""),
                self._owner,
                self._defaults,
                self._tx.now,
                ahead=self._ahead,
                at_once=self._at_once,
            )

    def _rest(self, host: str, tenant: str) -> Micros | None:
        resting, until = self._resting.get(host, (None, 0))
        return until if resting == tenant else None

    def left(self, host: str, tenant: str) -> int:
        """Return how many more leases of a host there are for a tenant."""
        if self._resting and self._rest(host, tenant) is not None:
            return 0
        return self._left[host].leases - self._taken.get(host, 0)

    def slots(self, host: str) -> int:
        """Return how many leases of a host the owner may run at once."""
        return min(self._left[host].slots, 1 << 30)

    def dated_slots(self, host: str) -> int:
        """Return the same as the row of a lease keeps it."""
        return dated_slots(self.slots(host), self._tx.now)

    def not_before(self, host: str, tenant: str) -> Micros:
        """Return when a host that is at its limit should be checked again."""
        if (until := self._rest(host, tenant)) is not None:
            return until
        left, taken = self._left[host], self._taken.get(host, 0)
        if taken and left.interval:
            return started(self._facts[host], taken, left.interval, self._tx.now)
        return left.not_before or self._tx.now + RECHECK

    def take(self, host: str, count: int) -> None:
        """Use some of it up."""
        if host:
            self._taken[host] = self._taken.get(host, 0) + count

    def write(self) -> None:
        """Move the schedules of hosts with a rate on."""
        now = self._tx.now
        rows = [
            (host, started(self._facts[host], count, self._left[host].interval, now), now)
            for host, count in sorted(self._taken.items())
            if count and self._left[host].interval
        ]
        self._tx.many("host_started", rows)


def dated_slots(slots: int, now: Micros) -> int:
    """Return a number of slots with the time of its grant in front: the greatest is the latest.

    The latest grant decides how many leases an owner runs at once at a host, for its older leases, too. If the greatest
    number of slots counted instead, an owner that had given slots back would seem to have them still, and its next claim
    would get them although others use them.
    """
    return now // 1000 << _SLOT_BITS | min(slots, (1 << _SLOT_BITS) - 1)


def host_facts(tx: Tx, hosts: Iterable[str]) -> dict[str, HostFacts]:
    """Read what is remembered of hosts and what is in flight there."""
    names = sorted(hosts)
    if not names:
        return {}
    # Read the host rows first: on PostgreSQL this locks them, so no other transaction adds a use after the count.
    known = {row.host: row for row in map(HostRow._make, tx.all("host_facts", hosts=encoded(names)))}
    uses = _uses(tx, names)
    facts = {}
    for name in names:
        facts[name] = _facts_of(known.get(name), name, tuple(uses.get(name, ())))
    return facts


def _facts_of(row: HostRow | None, name: str, uses: tuple[HostUse, ...] = ()) -> HostFacts:
    """Make a record of the columns {host}."""
    if row is None:
        return HostFacts(name, uses=uses)
    return HostFacts(
        host=row.host,
        concurrency=row.concurrency,
        rate_per_s=row.rate_per_s,
        paused=bool(row.paused),
        cooldown_until=row.cooldown_until,
        failures=row.failures,
        failed_at=row.failed_at,
        next_start_at=row.next_start_at,
        uses=uses,
        reason=row.reason,
        silent_since=row.silent_since,
        silences=row.silences,
        nameless_at=row.nameless_at,
        faulty_since=row.faulty_since,
        cooldown_tenant=row.cooldown_tenant,
    )


def _uses(tx: Tx, hosts: Sequence[str]) -> dict[str, list[HostUse]]:
    """Count what is in flight at hosts, by owner."""
    uses: dict[str, list[HostUse]] = {}
    for host, owner, leases, slots, expiry in tx.all("host_uses", hosts=encoded(list(hosts)), now=tx.now):
        count = (slots or 0) & (1 << _SLOT_BITS) - 1
        uses.setdefault(host, []).append(HostUse(owner, leases, count or 1, expiry))
    return uses


def hop(tx: Tx, lease: Lease, host: str, *, defaults: HostsSettings, trail: str | None = None) -> bool:
    """Take a slot of another host for this lease; False: that host is full or rests. What the candidates answered so far
    (`trail`) becomes durable in either case."""
    check_text("host", host)
    tx.enter(check_lease(lease).scope.tenant_id)
    row = fence(tx, [lease]).get(lease)
    if row is None:
        raise LeaseLost(f"the lease of job {lease.job_id} is lost")
    if trail is not None:
        tx.send("set_trail", [(trail, row.seq, lease.epoch)])
    if row.slot_host == host:
        return True
    allowed = Allowances(tx, lease.owner, defaults)
    allowed.load([host])
    if allowed.left(host, lease.scope.tenant_id) < 1:
        return False
    allowed.take(host, 1)
    allowed.write()
    tx.send("set_slot", [(host, allowed.dated_slots(host), row.seq, lease.epoch)])
    free_slots(tx, [row.slot_host])
    return True


def rests(tx: Tx, host: str, tenant: str, *, defaults: HostsSettings) -> bool:
    """Return whether nothing may be asked of a host now. Only reads."""
    return resting_until(tx, host, tenant, defaults=defaults) is not None


def resting_until(tx: Tx, host: str, tenant: str, *, defaults: HostsSettings) -> Micros | None:
    """Return until when nothing may be asked of a host; None: it does not rest. Only reads."""
    row = tx.one("host_row", host=host)
    facts = for_tenant(_facts_of(HostRow._make(row) if row else None, host), tenant)
    return rests_until(facts, defaults, tx.now)


def rests_of(tx: Tx, names: Iterable[str], *, defaults: HostsSettings) -> dict[str, tuple[Micros, str]]:
    """Return those of the hosts that rest now: until when, and why. Only reads, one statement."""
    rows = map(HostRow._make, tx.all("hosts_named", hosts=encoded(sorted(set(names)))))
    ends = ((row, rests_until(_facts_of(row, row.host), defaults, tx.now)) for row in rows)
    return {row.host: (end, PAUSED if row.paused else row.reason or "") for row, end in ends if end is not None}


def given_up_hosts(tx: Tx, *, defaults: HostsSettings) -> dict[str, Micros]:
    """Return the hosts that are given up now, each with the time of the verdict. Only reads."""
    rows = tx.all("hosts_silent", after=tx.now - 2 * max(VERDICT, int(defaults.breaker_cooldown_s * SECOND)))
    found = ((row.host, judged(_facts_of(row, row.host), defaults, tx.now)) for row in map(HostRow._make, rows))
    return {host: verdict.at for host, verdict in found if verdict is not None}


def set_host(tx: Tx, host: str, changes: Mapping[str, Any]) -> None:
    """Change what is configured for a host: concurrency, rate_per_s, paused, cooldown_until (None = the default)."""
    check_text("host", host)
    _check_changes(changes)
    tx.send("host_known", [(host, tx.now)])
    for name, value in changes.items():
        tx.run(f"host_set_{name}", host=host, value=int(value) if name == "paused" else value, now=tx.now)
    if changes.get("cooldown_until", 0) is None:
        tx.send("host_well", [(tx.now, host)])
    elif "cooldown_until" in changes:
        tx.run("host_set_reason", host=host, value=PAUSED, now=tx.now)
    free_slots(tx, [host])


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "concurrency": (int,),
    "rate_per_s": (int, float),
    "paused": (bool,),
    "cooldown_until": (int,),
}


def _check_changes(changes: Mapping[str, Any]) -> None:
    for name, value in changes.items():
        if name not in _KINDS:
            raise BadInput(f"a host has no {name!r}")
        if value is None and name != "paused":
            continue
        fits = isinstance(value, bool) if name == "paused" else _is_limit(value, _KINDS[name])
        if not fits:
            raise BadInput(f"{name} cannot be {value!r}")


def _is_limit(value: Any, kinds: tuple[type, ...]) -> bool:
    return type(value) in kinds and 0 <= value < NEVER


def hosts(tx: Tx, after: str = "", limit: int = 1_000) -> list[Host]:
    """List hosts by name, with what is in flight."""
    rows = [HostRow._make(row) for row in tx.all("hosts_page", after=after, many=limit)]
    uses = _uses(tx, [row.host for row in rows])
    return [host_of(row, sum(use.in_flight for use in uses.get(row.host, ()))) for row in rows]


def pending_by_host(tx: Tx, scope: Scope, host: str | None = None) -> dict[str, int]:
    """Count the pending jobs of each host, or of one."""
    tx.enter(scope.tenant_id)
    counted: dict[str, int] = {}
    for name, jobs in tx.all("hosts_pending", host=host, **scope._asdict()):
        if name:
            counted[name] = counted.get(name, 0) + jobs
    return counted


def host_of(row: HostRow, in_flight: int) -> Host:
    """Return the record of a host from its row."""
    return Host(
        host=row.host,
        concurrency=row.concurrency,
        rate_per_s=row.rate_per_s,
        paused=bool(row.paused),
        cooldown_until=row.cooldown_until,
        failures=row.failures,
        failed_at=row.failed_at,
        reason=row.reason,
        in_flight=in_flight,
        facts=_facts_of(row, row.host),
    )
