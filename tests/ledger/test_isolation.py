"""One tenant cannot see, count or change another's, nor one project another's: generated over every table and every verb.

A table that nobody fills, a verb with a parameter that nobody taught and a method of `Ledger` that is no verb fail here.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from longshore.domain.model import Scope
from longshore.errors import LongshoreError
from longshore.ledger import Ledger
from tests.ledger.strangers import OWNER, World, verbs

# Verbs that see all tenants, each with its reason. They are for workers, operators and the service itself; none of
# them is reachable with a tenant's token.
DEPOT_WIDE = {
    "give_up_host.give_up_host": "a host that is given up is given up for all: one probe speaks for every tenant's jobs",
    "repair.reconcile_jobs": "heals the ledger's own rows",
    "all_tenants.host": "hosts are shared by all: politeness",
    "all_tenants.resting_hosts": "hosts are shared by all: politeness",
    "ledger_identity.schema_version": "names no row",
    "all_tenants.totals": "sums for /metrics",
    "due_work.anything_available": "a yes or no, for `doctor`",
    "due_work.blobs_counted": "a number, for the reconciler",
    "due_work.scopes_known": "maintenance goes over all tenants",
    "due_work.stops_wanted": "jobs whose lease this process holds",
    "effects.cleanup_stale_ops": "heals",
    "hosts.host_facts": "hosts are shared by all: politeness",
    "hosts.hosts": "hosts are shared by all: politeness",
    "hosts.set_host": "hosts are shared by all: politeness",
    "leasing.claim": "a worker serves all tenants unless a scope is named; that case is tested apart",
    "all_tenants.leases": "who works, for operators",
    "make_claimable.cleanup_stale_leases": "expiry",
    "make_claimable.next_due": "a time",
    "make_claimable.release_dead": "leases of dead processes",
    "make_claimable.expire_and_promote": "expiry",
    "tokens.has_api_token": "a yes or no",
    "tokens.is_alive": "looked up before a tenant is known",
    "tokens.list_tokens": "the operator's list, on the command line",
    "tokens.living_token": "looked up before a tenant is known, by hash",
    "tokens.revoke_token": "the operator's, on the command line",
    "tokens.token_by_hash": "looked up before a tenant is known, by hash",
    "tokens.touch_token": "of a token that was just used",
    "torrents.hold_torrents": "the loop that polls the one client",
    "torrents.active_torrents": "a number, for the loop that polls the one client",
    "torrents.due_torrents": "the loop that polls the one client",
    "webhooks.webhook_scopes": "which tenants are sent to, for the one process that sends",
    "torrents.sharing": "who else uses a torrent of the one client",
}
# Steps inside verbs: they take rows that a fence, a claim or a page of the same transaction gave out.
INSIDE = {
    "stages.finalize", "stages.step", "purge_order.chains", "purge_order.unpointed", "planning.add_counts", "artifact_registry.register",
    "failed_releases.check_release", "failed_releases.release_failed", "failed_releases.release_succeeded",
    "lookup.with_results", "artifact_registry.reuse", "make_claimable.free_slots", "make_claimable.release_expired", "make_claimable.mark_lanes",
}  # fmt: skip
# Methods of Ledger that are not named after a verb: how verbs are run, or other names for plan, claim, renew and settle.
OTHER_METHODS = {
    "on_completed",
    "apply_migration", "claim_async", "close", "plan_begun", "give_up", "silent_s", "now", "queue_length", "read", "read_async",
    "read_costly_async",
    "write_async", "write",
}  # fmt: skip
STRANGERS = {"another tenant": Scope("b", "p"), "another project": Scope("a", "q")}


@pytest.fixture
def world(ledger: Ledger, where: str) -> World:
    return World(ledger, where)


def test_every_verb_has_its_place() -> None:
    names = set(verbs())
    assert names >= DEPOT_WIDE.keys() | INSIDE, "a verb that is gone is still listed"
    methods = {name for name, _ in inspect.getmembers(Ledger, inspect.isfunction) if not name.startswith("_")}
    assert methods - OTHER_METHODS <= {name.rpartition(".")[2] for name in names}


def test_every_table_with_a_tenant_is_filled(world: World) -> None:
    empty = [table for table, rows in world.rows().items() if not rows]
    assert empty == [], "fill them in tests/ledger/strangers.py, so that the tests below mean something"


@pytest.mark.parametrize("who", sorted(STRANGERS))
def test_no_verb_shows_or_changes_what_is_somebody_elses(ledger: Ledger, world: World, who: str) -> None:
    stranger = STRANGERS[who]
    same_tenant = stranger.tenant_id == OWNER.tenant_id
    for name, verb in sorted(verbs().items()):
        if name in DEPOT_WIDE or name in INSIDE or (same_tenant and name.startswith("tenant_budgets.")):
            continue  # a budget is the whole tenant's
        before = world.rows(of_project=same_tenant)
        given = {
            parameter.name: world.argument(name, parameter.name, stranger)
            for parameter in list(inspect.signature(verb).parameters.values())[1:]
            if parameter.default is parameter.empty
        }
        answer = attempt(ledger, verb, given)
        told = repr(answer)
        known = repr(given)
        leaked = [canary for canary in world.canaries if canary in told and canary not in known]
        assert leaked == [], f"{name} tells {who}: {told[:500]}"
        assert world.rows(of_project=same_tenant) == before, f"{name} changed what is not {who}'s"


def attempt(ledger: Ledger, verb: Any, given: dict[str, Any]) -> Any:
    """Run a verb as a write; an answer that comes piece by piece is read."""

    def call(tx: Any) -> Any:
        answer = verb(tx, **given)
        return list(answer) if inspect.isgenerator(answer) else answer

    try:
        return ledger.write(call)
    except LongshoreError as error:
        return error


@pytest.mark.parametrize("who", sorted(STRANGERS))
def test_a_claim_within_a_scope_takes_nothing_of_another(ledger: Ledger, world: World, who: str) -> None:
    stranger = STRANGERS[who]
    before = world.rows(of_project=True)
    assert ledger.claim("stranger", limit=100, ttl_s=60, scope=stranger) == []
    assert ledger.claim("stranger", limit=100, ttl_s=60, scope=stranger, job_ids=world.job_ids) == []
    assert world.rows(of_project=True) == before


@pytest.mark.parametrize("who", sorted(STRANGERS))
def test_the_same_request_is_another_job_elsewhere(ledger: Ledger, world: World, who: str) -> None:
    (planned,) = ledger.plan(STRANGERS[who], [world.request])
    assert planned.created
    assert planned.job_id not in world.job_ids
    assert ledger.held(STRANGERS[who], world.sha256) is None
