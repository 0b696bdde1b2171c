"""Random histories against a small model, on both engines.

Invariants: one live lease per job; epochs only grow; nothing is written with an old epoch; terminal is final; every
acknowledged job exists; confirmed effects never run again; counters, lanes and rows agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from longshore.domain.model import Lease, Scope, Status
from longshore.domain.outcomes import Canceled, Deferred, Failed, Outcome, Released
from longshore.domain.settings import HostsSettings
from longshore.errors import LeaseLost, LongshoreError
from longshore.ledger import Intent, Ledger, Move
from tests.ledger.acts import downloads, held
from tests.support.ledgers import Clock
from tests.support.postgres import Cluster

SCOPES = (Scope("a", "p"), Scope("a", "q"), Scope("b", "p"))
HOSTS = ("one.example", "two.example")
OVER = (Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELED)
TTL_S = 10


class Histories(RuleBasedStateMachine):
    """What may happen to a ledger, in any order."""

    make: Callable[[Clock], Ledger]

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.ledger = type(self).make(self.clock)
        self.jobs: dict[str, Scope] = {}
        self.keys: dict[tuple[Scope, str, int], str] = {}
        self.status: dict[str, Status] = {}
        self.epoch: dict[str, int] = {}
        self.live: dict[str, Lease] = {}
        self.old: list[Lease] = []
        self.confirmed: dict[str, dict[str, Any]] = {}

    def teardown(self) -> None:
        self.ledger.close()

    def _expired(self) -> None:
        for job_id, lease in list(self.live.items()):
            if lease.until <= self.clock.now:
                self.old.append(self.live.pop(job_id))

    @rule(scope=st.sampled_from(SCOPES), host=st.sampled_from(HOSTS), number=st.integers(0, 4))
    def plan(self, scope: Scope, host: str, number: int) -> None:
        (planned,) = self.ledger.plan(scope, downloads(1, host=host, start=number))
        known = self.keys.get((scope, host, number))
        assert (known is None) == planned.created
        assert known in (None, planned.job_id)
        self.keys[scope, host, number] = planned.job_id
        if planned.created:
            self.jobs[planned.job_id] = scope
            self.status[planned.job_id], self.epoch[planned.job_id] = Status.PENDING, 0

    @rule(limit=st.integers(1, 4), owner=st.sampled_from(["x", "y"]))
    def claim(self, limit: int, owner: str) -> None:
        self._expired()
        free = [j for j, s in self.status.items() if s not in OVER and j not in self.live]
        leases = self.ledger.claim(
            owner, limit=limit, ttl_s=TTL_S, defaults=HostsSettings(concurrency=3, breaker_failures=0)
        )
        for lease in leases:
            assert lease.job_id in free
            assert lease.epoch == self.epoch[lease.job_id] + 1
            self.live[lease.job_id], self.epoch[lease.job_id] = lease, lease.epoch
            self.status[lease.job_id] = Status.PROCESSING
        assert all(n <= 3 for n in Counter(lease.job.request.host for lease in self.live.values()).values())

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.live)))
        lease = self.live[job_id]
        lost = self.ledger.renew([lease], TTL_S).lost
        assert bool(lost) == (lease.until <= self.clock.now)
        if not lost:
            self.live[job_id] = Lease(
                lease.scope, job_id, lease.epoch, lease.owner, self.clock.now + TTL_S * 10**6, lease.job
            )

    @rule(seconds=st.sampled_from([1, 4, 11]))
    def time_passes(self, seconds: int) -> None:
        self.clock.sleep(seconds)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), what=st.sampled_from(["held", "failed", "later", "now", "released", "canceled"]))
    def settle(self, data: st.DataObject, what: str) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.live)))
        lease = self.live.pop(job_id)
        outcomes: dict[str, tuple[Outcome, Status]] = {
            "held": (held(self.epoch[job_id] % 3 + 1), Status.COMPLETED),
            "failed": (Failed("http_404", "gone"), Status.FAILED),
            "later": (Deferred("truncated", "cut", 5.0), Status.PENDING),
            "now": (Deferred("truncated", "cut", 0.0), Status.PENDING),
            "released": (Released(), Status.PENDING),
            "canceled": (Canceled(), Status.CANCELED),
        }
        outcome, status = outcomes[what]
        if status is Status.PENDING and self.ledger.job(lease.scope, job_id).cancel_requested_at is not None:
            status = Status.CANCELED  # whoever asked for a stop gets it: there is no other try
        answer = self.ledger.settle([(lease, outcome)])[0]
        if lease.until <= self.clock.now:
            assert isinstance(answer, LeaseLost)
            self.old.append(lease)
            return
        assert not isinstance(answer, LongshoreError), answer
        assert answer.status is status
        self.status[job_id] = status
        self.old.append(lease)

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def a_zombie_tries(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.old))
        before = self.ledger.job(lease.scope, lease.job_id)
        assert isinstance(self.ledger.settle([(lease, held())])[0], LeaseLost)
        assert isinstance(self.ledger.advance([Move(lease, "STREAMING")])[0], LeaseLost)
        assert isinstance(self.ledger.begin([Intent(lease, "X", f"x-{lease.job_id}")])[0], LeaseLost)
        assert self.ledger.job(lease.scope, lease.job_id) == before

    @precondition(lambda self: self.live)
    @rule(data=st.data(), crash=st.booleans())
    def effect(self, data: st.DataObject, crash: bool) -> None:
        lease = self.live[data.draw(st.sampled_from(sorted(self.live)))]
        key = f"effect-{lease.job_id}"
        begun = self.ledger.begin([Intent(lease, "EFFECT", key, "verifiable")])[0]
        if lease.until <= self.clock.now:
            assert isinstance(begun, LeaseLost)
            return
        assert not isinstance(begun, LongshoreError)
        assert (begun.state == "confirmed") == (key in self.confirmed)
        if begun.state == "confirmed":
            assert begun.result == self.confirmed[key]
        elif not crash:
            result = {"code": "OK", "epoch": lease.epoch}
            self.ledger.confirm(lease, key, result)
            self.confirmed[key] = result

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.jobs)))
        result = self.ledger.cancel(self.jobs[job_id], [job_id])
        if result.canceled:
            assert self.status[job_id] is Status.PENDING
            self.status[job_id] = Status.CANCELED
        if result.unchanged:
            assert self.status[job_id] in OVER

    @rule(owner=st.sampled_from(["x", "y"]))
    def a_process_dies(self, owner: str) -> None:
        self._expired()
        self.ledger.release_dead([owner])
        for job_id, lease in list(self.live.items()):
            if lease.owner == owner:
                self.old.append(self.live.pop(job_id))

    @rule()
    def reopen(self) -> None:
        self.ledger.close()
        self.ledger = type(self).make(self.clock)

    @invariant()
    def the_ledger_agrees(self) -> None:
        # First: it ends leases that ran out, and what the rules are told of a job must be what it is then.
        healed = self.ledger.reconcile_jobs()
        assert (healed.forgotten_jobs, healed.forgotten_lanes, healed.wrong_counters) == (0, 0, 0)
        for job_id, scope in self.jobs.items():
            job = self.ledger.job(scope, job_id)
            assert job.lease_epoch == self.epoch[job_id]
            if self.status[job_id] in OVER:
                assert job.status is self.status[job_id]
            lease = self.live.get(job_id)
            if lease is not None and lease.until > self.clock.now:
                assert (job.lease_owner, job.status) == (lease.owner, Status.PROCESSING)
            self.status[job_id] = job.status


def run(make: Callable[[Clock], Ledger], examples: int) -> None:
    machine = type("Bound", (Histories,), {"make": staticmethod(make)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def histories(tmp_path_factory: pytest.TempPathFactory, examples: int) -> None:
    paths: dict[Clock, str] = {}

    def make(clock: Clock) -> Ledger:
        if clock not in paths:
            paths[clock] = str(tmp_path_factory.mktemp("history") / "ledger.db")
        return Ledger.open(paths[clock], create=True, clock=clock)

    run(make, examples)


@pytest.mark.slow
def test_histories_on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> None:
    histories(tmp_path_factory, 40)


def test_histories_on_postgres(postgres_cluster: Cluster) -> None:
    from tests.support.ledgers import build_template

    fresh: dict[Clock, str] = {}

    def make(clock: Clock) -> Ledger:
        if clock not in fresh:
            fresh[clock] = postgres_cluster.emptied(postgres_cluster.template("ledger_shared", build_template))
        return Ledger.open(fresh[clock], clock=clock)

    run(make, 10)


@pytest.mark.torture
@pytest.mark.timeout(1_800)
def test_many_histories_on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> None:
    histories(tmp_path_factory, 500)
