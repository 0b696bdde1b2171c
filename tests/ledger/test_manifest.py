"""The manifest by pages and the purge, on both engines."""

from __future__ import annotations

from longshore.domain.identity.requests import download_request
from longshore.domain.model import SECOND, Scope, Status
from longshore.domain.outcomes import Failed
from longshore.ledger import Ledger
from longshore.ledger.operations.purging import purge, purgeable
from longshore.ledger.queries.manifest import entries

SCOPE = Scope("acme", "papers")
OTHER = Scope("globex", "papers")


def failed(ledger: Ledger, scope: Scope, count: int) -> list[str]:
    """Plan and fail some downloads; give their ids in order of planning."""
    planned = ledger.plan(scope, [download_request(f"https://{scope.tenant_id}.example/{n}") for n in range(count)])
    while leases := ledger.claim("worker", limit=100, ttl_s=60, scope=scope):
        ledger.settle([(lease, Failed("http_404", "not there")) for lease in leases])
    return [one.job_id for one in planned]


def test_pages_give_every_job_once_in_order(ledger: Ledger) -> None:
    ids = failed(ledger, SCOPE, 7)
    failed(ledger, OTHER, 3)
    found: list[str] = []
    while page := ledger.read(entries, SCOPE, after=found[-1] if found else "", many=3):
        found += [entry.job_id for entry in page]
    assert found == ids
    (first, *_) = ledger.read(entries, SCOPE)
    assert (first.status, first.reason, first.facts["reason"]) == ("failed", "http_404", "http_404")


def test_a_filter_is_a_filter(ledger: Ledger) -> None:
    failed(ledger, SCOPE, 2)
    ledger.plan(SCOPE, [download_request("https://acme.example/waiting")])
    assert len(ledger.read(entries, SCOPE, status="failed")) == 2
    assert len(ledger.read(entries, SCOPE, status="pending")) == 1
    assert ledger.read(entries, SCOPE, job_type="torrent") == []


def test_purging_keeps_the_key_and_the_counters(ledger: Ledger) -> None:
    ids = failed(ledger, SCOPE, 4)
    before = ledger.now() + SECOND
    assert ledger.read(purgeable, SCOPE, Status.FAILED, before=before) == ([[one] for one in ids], None)
    assert ledger.write(purge, SCOPE, ids[:3], before=before) == 3
    assert ledger.counts(SCOPE)[Status.FAILED] == 1
    (again,) = ledger.plan(SCOPE, [download_request("https://acme.example/0")])
    assert (again.job_id, again.created, again.status) == (ids[0], False, Status.FAILED)


def test_another_tenants_jobs_stay(ledger: Ledger) -> None:
    mine, theirs = failed(ledger, SCOPE, 2), failed(ledger, OTHER, 2)
    before = ledger.now() + SECOND
    assert ledger.write(purge, SCOPE, [*mine, *theirs], before=before) == 2
    assert [entry.job_id for entry in ledger.read(entries, OTHER)] == theirs


def test_what_waits_or_is_linked_stays(ledger: Ledger) -> None:
    (first, *_) = failed(ledger, SCOPE, 2)
    ledger.retry(SCOPE, [first])
    before = ledger.now() + SECOND
    found, _ = ledger.read(purgeable, SCOPE, Status.FAILED, before=before)
    assert [first] not in found, "a newer job names it"
    assert len(found) == 1


def test_a_search_for_what_may_go_goes_on_where_it_stopped(ledger: Ledger) -> None:
    ids = failed(ledger, SCOPE, 5)
    ledger.plan(SCOPE, [download_request(f"https://acme.example/waiting/{n}") for n in range(5)])
    before, found = ledger.now() + SECOND, list[list[str]]()
    edge: int | None = 0
    while edge is not None:
        page, edge = ledger.read(purgeable, SCOPE, Status.FAILED, before=before, edge=edge, scan=2)
        found.append([job_id for chain in page for job_id in chain])
    assert found == [ids[:2], ids[2:4], ids[4:]]
    assert ledger.read(purgeable, SCOPE, Status.COMPLETED, before=before) == ([], None)
