"""The service's own verbs, on both engines."""

from __future__ import annotations

import pytest

from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from longshore.domain.model import Blob, NewArtifact, Scope
from longshore.domain.outcomes import Completed, Failed
from longshore.domain.policy.tokens import secret_hash
from longshore.domain.settings import HostsSettings
from longshore.errors import BadInput, NotFound
from longshore.ledger import Ledger, Move
from longshore.ledger.operations import audit_log, hosts, idempotency_keys, ledger_identity, tokens
from longshore.ledger.queries import all_tenants, lookup, throughput
from tests.support.ledgers import Clock

HERE, THERE = Scope("here", "p"), Scope("there", "p")


def test_a_token_lives_until_it_expires_or_is_revoked(ledger: Ledger, clock: Clock) -> None:
    secret, token = ledger.write(tokens.create_token, HERE, ["read"], name="n", expires_s=10)
    found = ledger.read(tokens.living_token, secret_hash(secret))
    assert found is not None
    assert found[0] == token
    assert ledger.read(tokens.is_alive, token.token_id)
    clock.sleep(10)
    assert ledger.read(tokens.living_token, secret_hash(secret)) is None
    assert not ledger.read(tokens.is_alive, token.token_id)
    secret, token = ledger.write(tokens.create_token, HERE, ["read"])
    ledger.write(tokens.revoke_token, token.token_id)
    assert ledger.read(tokens.living_token, secret_hash(secret)) is None
    assert ledger.read(tokens.list_tokens)[0].token_id == token.token_id
    with pytest.raises(NotFound):
        ledger.write(tokens.revoke_token, "nobody")


def test_a_session_lives_no_longer_than_its_token(ledger: Ledger, clock: Clock) -> None:
    _, token = ledger.write(tokens.create_token, HERE, ["read"], expires_s=10)
    secret = ledger.write(tokens.open_session, token, HERE, ["read"], 1000)
    assert ledger.read(tokens.living_token, secret_hash(secret)) is not None
    clock.sleep(10)
    assert ledger.read(tokens.living_token, secret_hash(secret)) is None


def test_the_last_use_only_moves_forward(ledger: Ledger) -> None:
    secret, token = ledger.write(tokens.create_token, HERE, ["read"])
    for at in (5, 9, 7):
        ledger.write(tokens.touch_token, token.token_id, at)
    found = ledger.read(tokens.token_by_hash, secret_hash(secret))
    assert found is not None
    assert found.last_used_at == 9


def test_scopes_and_names_are_checked(ledger: Ledger) -> None:
    for scope, scopes in ((HERE, ["root"]), (HERE, []), (Scope("Not a slug", "p"), ["read"])):
        with pytest.raises(BadInput):
            ledger.write(tokens.create_token, scope, scopes)
    assert ledger.read(tokens.list_tokens) == []
    assert not ledger.read(tokens.has_api_token)


def test_the_audit_log_is_one_tenants_own_and_pages_backwards(ledger: Ledger) -> None:
    for n in range(5):
        ledger.write(audit_log.audit, HERE, audit_log.NewEntry("t", "post", f"/{n}", "127.0.0.1", {"status": 200}))
    ledger.write(audit_log.audit, THERE, audit_log.NewEntry("t", "post", "/there", "127.0.0.1"))
    first = ledger.read(audit_log.audit_entries, HERE, None, 3)
    assert [entry.target for entry in first] == ["/4", "/3", "/2"]
    assert [entry.target for entry in ledger.read(audit_log.audit_entries, HERE, first[-1].seq, 3)] == ["/1", "/0"]


def test_once_is_once_and_undone_with_its_transaction(ledger: Ledger) -> None:
    done: list[int] = []

    def act(_: object) -> list[int]:
        done.append(1)
        return [len(done)]

    assert [ledger.write(idempotency_keys.once, HERE, "k", "f", act) for _ in range(3)] == [[1]] * 3
    with pytest.raises(idempotency_keys.KeyReused):
        ledger.write(idempotency_keys.once, HERE, "k", "other", act)
    assert ledger.write(idempotency_keys.once, THERE, "k", "other", act) == [2]

    def fails(_: object) -> None:
        raise BadInput("no")

    with pytest.raises(BadInput):
        ledger.write(idempotency_keys.once, HERE, "l", "f", fails)
    assert ledger.write(idempotency_keys.once, HERE, "l", "f", act) == [3]


def complete(ledger: Ledger, scope: Scope, *names: str) -> None:
    ledger.plan(scope, [download_request(f"https://a.example/{scope.tenant_id}/{n}") for n in range(len(names))])
    leases = ledger.claim("w", limit=len(names), ttl_s=100, scope=scope)
    ledger.advance([Move(lease, "STREAMING") for lease in leases])
    blobs = [Blob(name * 32, 100, "p", "local", "text/plain") for name in names]
    for result in ledger.settle(
        [(lease, Completed((NewArtifact(blob),))) for lease, blob in zip(leases, blobs, strict=True)]
    ):
        assert not isinstance(result, Exception), result


def test_what_is_held_and_what_was_saved_is_counted_and_reconcile_agrees(ledger: Ledger) -> None:
    complete(ledger, HERE, "aa", "bb", "aa")
    complete(ledger, THERE, "aa")
    assert ledger.read(throughput.held_totals, HERE) == {
        "artifacts": 3,
        "artifact_bytes": 300,
        "blobs": 2,
        "blob_bytes": 200,
        "missing": 0,
        "missing_bytes": 0,
    }
    assert ledger.reconcile_jobs().wrong_counters == 0


def test_arrivals_are_counted_by_slot_in_one_look(ledger: Ledger, clock: Clock) -> None:
    complete(ledger, HERE, "aa", "bb")
    clock.sleep(60)
    complete(ledger, Scope("here", "q"), "cc")
    now, rows = ledger.read(throughput.arrivals, HERE, lambda now: now - 3600 * 1_000_000, 60)
    assert now == clock.now
    assert [(files, size) for _, files, size in rows] == [(2, 200)]
    assert ledger.read(throughput.arrivals, HERE, lambda now: now, 60)[1] == []


def test_totals_are_over_all_tenants(ledger: Ledger, clock: Clock) -> None:
    complete(ledger, HERE, "aa")
    complete(ledger, THERE, "aa", "bb")
    ledger.plan(THERE, [download_request("https://later.example/")])
    ledger.write(hosts.set_host, "later.example", {"paused": True})
    totals = ledger.read(all_tenants.totals, HostsSettings())
    assert (totals.jobs[Status.COMPLETED], totals.jobs[Status.PENDING]) == (3, 1)
    assert (totals.artifacts, totals.artifact_bytes, totals.blobs) == (3, 300, 3)
    assert totals.oldest_ready_at == clock.now
    assert totals.last_success_at == clock.now
    assert totals.circuits["paused"] == 1
    host = ledger.read(all_tenants.host, "later.example")
    assert host is not None
    assert host.paused
    assert [h.host for h in ledger.read(all_tenants.resting_hosts, HostsSettings(), 10)] == ["later.example"]
    assert ledger.read(all_tenants.host, "unknown.example") is None
    assert ledger.read(ledger_identity.schema_version).isdigit()


def test_a_retried_failure_is_not_current(ledger: Ledger) -> None:
    [planned] = ledger.plan(HERE, [download_request("https://f.example/")])
    [lease] = ledger.claim("w", limit=1, ttl_s=100)
    ledger.settle([(lease, Failed("http_404", "no"))])
    assert ledger.read(lookup.current_ids, HERE, [planned.job_id, "x"]) == [planned.job_id]
    ledger.retry(HERE, [planned.job_id])
    assert ledger.read(lookup.current_ids, HERE, [planned.job_id]) == []
