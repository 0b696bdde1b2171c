"""A small model checker over the real ledger and the real store: two workers, one job, anything may happen between two steps.

A state is a directory (ledger and store), a clock and what each worker holds in its head. From every state every action is
tried on a copy: a step of either worker, the death of either (a new one comes), time past the lease, a cancel, a reconcile.
States that differ only in names and times are one state, so the search ends. After every action an outside witness looks.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import apsw

from longshore.checker import check
from longshore.checker.check import LocalFiles
from longshore.depot.maintenance.reconcile import Reconciler
from longshore.domain.identity.keys import op_key
from longshore.domain.identity.requests import download_request
from longshore.domain.model import SECOND, Blob, Lease, Micros, NewArtifact, Scope, Status
from longshore.domain.outcomes import Completed
from longshore.domain.settings import ReconcileSettings
from longshore.errors import LongshoreError
from longshore.ledger import Ledger
from longshore.ledger.records import Intent, Settled
from longshore.store import Staged, open_store

SCOPE = Scope()
TTL_S = 10.0
START: Micros = 1_700_000_000 * SECOND
STEPS = ("claim", "stage", "intent", "link", "settle", "clean")
BODIES = {"A": b"version one", "B": b"version two"}  # the object changed in between: the workers get other bytes


@dataclass(frozen=True)
class Mind:
    """What one worker knows: where it is, and its lease. A worker that died knows nothing."""

    at: int = 0
    lease: Lease | None = None
    accepted: int = 0
    deaths: int = 0


@dataclass(frozen=True)
class State:
    """One moment of the whole."""

    home: Path
    now: Micros
    minds: dict[str, Mind]
    expiries: int = 0
    canceled: bool = False
    path: tuple[str, ...] = ()


@dataclass
class Bounds:
    """How much may go wrong on one way through."""

    deaths: int = 1
    expiries: int = 2
    cancel: bool = True
    reconcile: bool = True


@dataclass
class Found:
    """What the search came to."""

    states: int = 0
    moves: int = 0
    ends: set[str] = field(default_factory=set)
    refused: int = 0


class World:
    """A state brought to life in a directory."""

    def __init__(self, state: State) -> None:
        self.state, self.now = state, state.now
        self.ledger = Ledger.open(state.home / "ledger.db", clock=lambda: self.now)
        self.store = open_store(state.home / "store")

    def close(self) -> None:
        self.ledger.close()
        self.store.close()

    def step(self, name: str) -> Mind:
        """Let a worker take its next step; it believes in its lease until the ledger refuses a write."""
        mind = self.state.minds[name]
        return getattr(self, f"_{STEPS[mind.at]}")(name, mind)  # type: ignore[no-any-return]

    def _claim(self, name: str, mind: Mind) -> Mind:
        leases = self.ledger.claim(f"{name}{mind.deaths}", limit=1, ttl_s=TTL_S)
        return replace(mind, at=1, lease=leases[0]) if leases else mind

    def _item(self, name: str, mind: Mind) -> Staged:
        assert mind.lease is not None
        body, lease = BODIES[name], mind.lease
        digest = hashlib.sha256(body).hexdigest()
        return Staged(lease.scope, lease.job_id, lease.epoch, digest, len(body), "text/plain", body)

    def _stage(self, name: str, mind: Mind) -> Mind:
        assert self.store.stage([self._item(name, mind)]) == [None]
        return replace(mind, at=2)

    def _intent(self, name: str, mind: Mind) -> Mind:
        item, lease = self._item(name, mind), mind.lease
        assert lease is not None
        key = op_key("FINALIZE", lease.job_id, sha256=item.sha256)
        (begun,) = self.ledger.begin([Intent(lease, "FINALIZE", key, "verifiable", item.sha256, {})])
        return replace(mind, at=0, lease=None) if isinstance(begun, LongshoreError) else replace(mind, at=3)

    def _link(self, name: str, mind: Mind) -> Mind:
        item = self._item(name, mind)
        self.store.stage([item])  # a process keeps what it staged; this one was put together again
        (blob,) = self.store.link([item])
        assert isinstance(blob, Blob), blob
        return replace(mind, at=4)

    def _settle(self, name: str, mind: Mind) -> Mind:
        assert mind.lease is not None
        blob = self.store.stat(SCOPE, self._item(name, mind).sha256)
        if blob is None:  # a reconciler took it away: only for who has no intent that counts
            return replace(mind, at=0, lease=None)
        (settled,) = self.ledger.settle([(mind.lease, Completed((NewArtifact(blob),)))])
        return replace(mind, at=5, accepted=mind.accepted + isinstance(settled, Settled))

    def _clean(self, name: str, mind: Mind) -> Mind:
        self.store.clean([self._item(name, mind)])
        return replace(mind, at=0, lease=None)

    def cancel(self) -> None:
        self.ledger.cancel(SCOPE, [job.job_id for job in self.ledger.jobs(SCOPE).items])

    def reconcile(self) -> None:
        Reconciler(
            self.ledger, self.store, ReconcileSettings(interval_s=3600, stale_part_s=0), self.state.home
        ).reconcile()


def beginning(home: Path) -> State:
    """One job, nobody at work."""
    home.mkdir(parents=True)
    with Ledger.open(home / "ledger.db", create=True, clock=lambda: START) as ledger:
        ledger.plan(SCOPE, [download_request("https://example.org/a")])
    open_store(home / "store").close()
    return State(home, START, {"A": Mind(), "B": Mind()})


def actions(state: State, bounds: Bounds) -> list[str]:
    """What can happen next."""
    found = [f"{name} steps" for name in state.minds]
    found += [f"{name} dies" for name, mind in state.minds.items() if mind.lease and mind.deaths < bounds.deaths]
    if state.expiries < bounds.expiries and any(mind.lease for mind in state.minds.values()):
        found.append("the lease runs out")
    if bounds.cancel and not state.canceled:
        found.append("canceled")
    return [*found, "reconciled"] if bounds.reconcile else found


def play(state: State, action: str, home: Path) -> State:
    """Do one thing on a copy; the new state is another directory."""
    shutil.copytree(state.home, home)
    state = replace(state, home=home, path=(*state.path, action))
    name = action[0]
    if action.endswith("dies"):
        gone = state.minds[name]
        return replace(state, minds={**state.minds, name: Mind(accepted=gone.accepted, deaths=gone.deaths + 1)})
    if action == "the lease runs out":
        return replace(state, now=state.now + int(2 * TTL_S) * SECOND, expiries=state.expiries + 1)
    world = World(state)
    try:
        if action == "canceled":
            world.cancel()
            return replace(state, canceled=True)
        if action == "reconciled":
            world.reconcile()
            return state
        return replace(state, minds={**state.minds, name: world.step(name)})
    finally:
        world.close()


_TABLES = {
    "jobs": "status, stage, ready, lease_owner, lease_until, lease_epoch, cancel_requested_at IS NOT NULL, next_attempt_at",
    "job_claims": "epoch, owner, outcome",
    "effects": "kind, state, epoch, fingerprint",
    "artifacts": "sha256, availability",
    "job_artifacts": "role, ordinal",
}


def fingerprint(state: State) -> str:
    """Tell states apart by what matters: rows without ids and times, names of files, minds; times only as before or after now."""
    connection = apsw.Connection(str(state.home / "ledger.db"), flags=apsw.SQLITE_OPEN_READONLY)
    seen: dict[str, object] = {}
    for table, columns in _TABLES.items():
        columns = columns.replace("lease_until", f"lease_until > {state.now}")
        seen[table] = sorted(map(repr, connection.execute(f"SELECT {columns} FROM {table}")))
    connection.close()
    store = state.home / "store"
    blobs = sorted(pointer for pointer, _, _ in LocalFiles(store).entries())
    staged = sorted(len(path.name) for path in (store / ".staging").rglob("*") if path.is_file())
    seen |= {"blobs": blobs, "staged": staged}
    seen["minds"] = {
        n: (m.at, m.lease.epoch if m.lease else None, m.accepted, m.deaths) for n, m in state.minds.items()
    }
    seen["spent"] = (state.expiries, state.canceled)
    return hashlib.sha256(json.dumps(seen, sort_keys=True, default=str).encode()).hexdigest()


def judge(state: State) -> str:
    """Whatever has happened: nothing is damaged, and at most one result was ever accepted."""
    report = check(str(state.home / "ledger.db"), LocalFiles(state.home / "store"))
    assert report.damage == [], (state.path, report.damage)
    accepted = sum(mind.accepted for mind in state.minds.values())
    assert accepted <= 1, state.path
    with Ledger.open(state.home / "ledger.db", clock=lambda: state.now) as ledger:
        (job,) = ledger.jobs(SCOPE).items
        results = ledger.results(SCOPE, job.job_id)
    assert (job.status is Status.COMPLETED) == (accepted == 1) == (len(results) == 1), state.path
    return str(job.status.value)


def explore(home: Path, bounds: Bounds, say: Callable[[str], None] = lambda _: None) -> Found:
    """Visit every state that can be reached within the bounds."""
    first = beginning(home / "0")
    seen, waiting, found = {fingerprint(first)}, deque([first]), Found(states=1)
    while waiting:
        state = waiting.popleft()
        for action in actions(state, bounds):
            found.moves += 1
            after = play(state, action, home / str(found.moves))
            mark = fingerprint(after)
            if mark in seen:
                shutil.rmtree(after.home)
                continue
            seen.add(mark)
            found.states += 1
            found.ends.add(judge(after))
            waiting.append(after)
            if found.states % 100 == 0:
                say(f"{found.states} states, {len(waiting)} waiting")
        shutil.rmtree(state.home)
    return found


__all__ = ["Bounds", "Found", "explore"]
