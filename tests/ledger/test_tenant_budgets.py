"""Budgets of tenants hold on both engines: bytes, items, jobs at a time; whoever is at a limit stops nobody else."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from longshore.domain.identity.requests import download_request
from longshore.domain.model import Blob, JobRequest, Lease, NewArtifact, Scope
from longshore.domain.outcomes import Completed, Failed
from longshore.domain.policy.tenant_budgets import Budget
from longshore.errors import BadInput, OverBudget
from longshore.ledger import Intent, Ledger
from longshore.ledger.operations.leasing import TENANTS

A, A2, B = Scope("a", "p"), Scope("a", "q"), Scope("b", "p")


def plan(ledger: Ledger, scope: Scope, count: int, start: int = 0) -> list[str]:
    requests = [download_request(f"https://h{n}.example/{scope.project_id}/{n}") for n in range(start, start + count)]
    return [one.job_id for one in ledger.plan(scope, requests)]


def claim(ledger: Ledger, limit: int = 100, owner: str = "w", **kw: object) -> list[Lease]:
    return ledger.claim(owner, limit=limit, ttl_s=60, **kw)  # type: ignore[arg-type]


def publish(ledger: Ledger, lease: Lease, number: int, size: int) -> object:
    """Intend to publish bytes, and register them if that is allowed."""
    sha256 = f"{number:064x}"
    request = {"sha256": sha256, "size_bytes": size}
    (begun,) = ledger.begin([Intent(lease, "FINALIZE", f"{lease.job_id}-{number}", "verifiable", sha256, request)])
    if isinstance(begun, OverBudget):
        return begun
    blob = Blob(sha256, size, f"a/p/{sha256}", "local", "text/plain")
    return ledger.settle([(lease, Completed((NewArtifact(blob),)))])[0]


def test_jobs_at_a_time_are_counted_over_projects_workers_and_named_claims(ledger: Ledger) -> None:
    ledger.set_budget("a", jobs=3)
    plan(ledger, A, 5)
    named = plan(ledger, A2, 5)
    plan(ledger, B, 5)
    first = claim(ledger, scope=A)
    assert len(first) == 3
    assert claim(ledger, scope=A2) == []
    assert claim(ledger, scope=A2, job_ids=named) == []
    assert {lease.scope for lease in claim(ledger, owner="other")} == {B}
    ledger.settle([(first[0], Failed("http_404", "gone"))])
    assert len(claim(ledger, scope=A2, job_ids=named, owner="other")) == 1
    assert claim(ledger) == []
    assert ledger.budget("a")[1].jobs == 3


def test_a_lease_that_ran_out_gives_its_place_back(ledger: Ledger, clock: object) -> None:
    ledger.set_budget("a", jobs=2)
    plan(ledger, A, 4)
    assert len(claim(ledger)) == 2
    clock.sleep(61)  # type: ignore[attr-defined]
    assert len(claim(ledger, owner="other")) == 2
    assert claim(ledger, owner="third") == []


def test_items_are_refused_when_planned_and_nothing_of_the_batch_is_kept(ledger: Ledger) -> None:
    ledger.set_budget("a", items=4)
    known = plan(ledger, A, 3)
    with pytest.raises(OverBudget, match="4 items"):
        plan(ledger, A2, 2)
    assert ledger.counts(A2) == ledger.counts(Scope("a", "none"))
    assert plan(ledger, A, 3) == known, "what is known costs nothing"
    plan(ledger, A2, 1)
    plan(ledger, B, 9)
    leases = claim(ledger, scope=A)
    publish(ledger, leases[0], 1, 5)
    ledger.settle([(leases[1], Failed("http_404", "gone"))])
    plan(ledger, A, 1, start=50)  # what failed is no item any more
    with pytest.raises(OverBudget):
        ledger.plan(A, [JobRequest("own", "k")])
    with pytest.raises(OverBudget):
        ledger.retry(A, [leases[1].job_id])
    ledger.set_budget("a", items=5)
    assert ledger.retry(A, [leases[1].job_id])[0].created


def test_bytes_are_refused_before_they_are_published_and_what_is_held_costs_nothing(ledger: Ledger) -> None:
    ledger.set_budget("a", bytes=100)
    plan(ledger, A, 6)
    plan(ledger, B, 1)
    one, two, three, four, five, _ = claim(ledger, scope=A)
    assert not isinstance(publish(ledger, one, 1, 60), Exception)
    refused = publish(ledger, two, 2, 41)
    assert isinstance(refused, OverBudget)
    assert refused.reason == "quota_exceeded"
    assert not isinstance(publish(ledger, three, 1, 60), Exception), "the same bytes again"
    (promised,) = ledger.begin(
        [Intent(four, "FINALIZE", "k4", "verifiable", "4" * 64, {"sha256": "4" * 64, "size_bytes": 30})]
    )
    assert not isinstance(promised, Exception)
    assert isinstance(publish(ledger, five, 5, 20), OverBudget), "bytes on their way count"
    assert not isinstance(publish(ledger, claim(ledger, scope=B)[0], 6, 1_000), Exception)
    assert ledger.budget("a")[1].bytes == 60


def test_a_tenant_that_is_full_is_told_so_job_by_job_and_nobody_waits_for_it(ledger: Ledger) -> None:
    plan(ledger, A, 3)
    publish(ledger, claim(ledger, limit=1)[0], 1, 100)
    ledger.set_budget("a", bytes=100)
    second, third = claim(ledger)
    assert isinstance(publish(ledger, second, 2, 1), OverBudget)
    assert not isinstance(publish(ledger, third, 3, 0), Exception), "nothing always fits"


def test_many_tenants_at_their_limit_do_not_hide_the_next_one(ledger: Ledger) -> None:
    for number in range(TENANTS + 3):
        scope = Scope(f"t{number:03}", "p")
        ledger.plan(scope, [JobRequest("own", "1"), JobRequest("own", "2")])
        ledger.set_budget(scope.tenant_id, jobs=1)
    while claim(ledger):
        pass
    ledger.plan(Scope("z", "p"), [JobRequest("own", "1")])
    assert [lease.scope.tenant_id for lease in claim(ledger)] == ["z"]


def test_settings_apply_to_whom_the_ledger_says_nothing_of(ledger: Ledger) -> None:
    ledger.backend.budget = Budget(bytes=50, items=3, jobs=1)
    plan(ledger, A, 3)
    with pytest.raises(OverBudget):
        plan(ledger, A, 1, start=10)
    ledger.set_budget("b", items=0, jobs=2)
    plan(ledger, B, 5)
    leases = claim(ledger)
    assert sorted(lease.scope.tenant_id for lease in leases) == ["a", "b", "b"]
    of_a = next(lease for lease in leases if lease.scope == A)
    assert isinstance(publish(ledger, of_a, 1, 51), OverBudget)
    assert ledger.budget("b")[0] == Budget(bytes=50, items=0, jobs=2)
    ledger.set_budget("b", jobs=None)
    assert ledger.budget("b")[0].jobs == 1


@pytest.mark.parametrize("changes", [{"bytes": -1}, {"items": 1.5}, {"jobs": True}, {"hosts": 3}, {"jobs": 1 << 63}])
def test_a_budget_that_is_none_is_refused(ledger: Ledger, changes: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        ledger.set_budget("a", **changes)  # type: ignore[arg-type]
    assert ledger.budget("a")[0] == Budget()


def test_workers_that_claim_at_the_same_time_do_not_pass_a_budget_together(where: str, ledger: Ledger) -> None:
    """Several connections, each its own transaction: the sum stays within the limit, whoever comes first."""
    ledger.set_budget("a", jobs=7, items=40)
    plan(ledger, A, 40)
    gate = threading.Barrier(4)

    def worker(number: int) -> int:
        with Ledger.open(where) as mine:
            gate.wait(60)
            taken = sum(len(claim(mine, limit=5, owner=f"w{number}")) for _ in range(5))
            with pytest.raises(OverBudget):
                plan(mine, A, 1, start=1_000 + number)
            return taken

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(worker, range(4))) <= 7
    ledger.set_budget("a", jobs=0)
    assert ledger.budget("a")[1].items == 40
