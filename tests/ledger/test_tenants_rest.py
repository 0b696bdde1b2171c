"""Retry-After that one tenant got rests the host for that tenant; for all only when others got it too, and not for days."""

from __future__ import annotations

from longshore.domain.identity.requests import download_request
from longshore.domain.model import SECOND, Scope
from longshore.domain.outcomes import Deferred
from longshore.domain.policy.host_limits import REST_FOR_ALL
from longshore.domain.settings import HostsSettings
from longshore.ledger import Ledger
from longshore.ledger.operations.hosts import rests, set_host
from tests.support.ledgers import Clock

HOST = "shared.example"
A, B, C = (Scope(name, "p") for name in ("a", "b", "c"))
DAY_S = 86_400


def plan(ledger: Ledger, scope: Scope, count: int = 3) -> None:
    ledger.plan(scope, [download_request(f"https://{HOST}/{scope.tenant_id}/{n}") for n in range(count)])


def told_to_wait(ledger: Ledger, scope: Scope, seconds: float) -> None:
    """One job of a tenant is asked for and gets 429 with Retry-After."""
    (lease,) = ledger.claim("w", limit=1, ttl_s=600, scope=scope)
    outcome = Deferred("http_429", "later", seconds, host_rest_s=seconds)
    ledger.settle([(lease, outcome)])


def claimed(ledger: Ledger) -> set[str]:
    leases = ledger.claim("w", limit=1, ttl_s=600) + ledger.claim("w", limit=20, ttl_s=600)
    return {lease.scope.tenant_id for lease in leases}


def test_one_tenants_retry_after_rests_the_host_for_it_alone(ledger: Ledger, clock: Clock) -> None:
    for scope in (A, B):
        plan(ledger, scope)
    told_to_wait(ledger, A, DAY_S)
    assert claimed(ledger) == {"b"}
    assert ledger.read(rests, HOST, "a", defaults=HostsSettings())
    assert not ledger.read(rests, HOST, "b", defaults=HostsSettings())
    clock.sleep(DAY_S * 1.2)
    assert "a" in claimed(ledger)


def test_named_jobs_of_the_others_are_taken_too(ledger: Ledger) -> None:
    plan(ledger, A)
    told_to_wait(ledger, A, DAY_S)
    planned = ledger.plan(B, [download_request(f"https://{HOST}/named")])
    leases = ledger.claim("w", limit=5, ttl_s=600, scope=B, job_ids=[planned[0].job_id])
    assert [lease.job_id for lease in leases] == [planned[0].job_id]


def test_when_several_are_told_to_wait_all_wait_but_not_for_days(ledger: Ledger, clock: Clock) -> None:
    for scope in (A, B, C):
        plan(ledger, scope)
    told_to_wait(ledger, A, DAY_S)
    told_to_wait(ledger, B, DAY_S)
    assert claimed(ledger) == set()
    clock.sleep(REST_FOR_ALL / SECOND - 10)
    assert claimed(ledger) == set()
    clock.sleep(20)
    assert "c" in claimed(ledger)


def test_a_short_rest_that_several_got_is_as_long_as_told(ledger: Ledger, clock: Clock) -> None:
    for scope in (A, B, C):
        plan(ledger, scope)
    told_to_wait(ledger, A, 20)
    told_to_wait(ledger, B, 60)
    clock.sleep(50)
    assert claimed(ledger) == set()
    clock.sleep(20)
    assert "c" in claimed(ledger)


def test_a_pause_by_the_operator_is_for_all(ledger: Ledger, clock: Clock) -> None:
    for scope in (A, B):
        plan(ledger, scope)
    told_to_wait(ledger, A, DAY_S)
    ledger.write(set_host, HOST, {"cooldown_until": clock() + 600 * SECOND})
    assert claimed(ledger) == set()
