"""Many rows in one step: the same rows, the same order, the same refusal as one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from longshore import compat
from longshore.domain.identity.requests import download_request
from longshore.domain.model import Expect, JobRequest, Scope, Status
from longshore.domain.outcomes import Released
from longshore.domain.settings import HostsSettings
from longshore.errors import BadInput, LeaseLost, NotFound
from longshore.ledger import Ledger
from longshore.ledger.queries import lookup
from longshore.ledger.queries.listing import JobFilter
from longshore.ledger.transaction import Row, Tx
from tests.ledger.acts import HOME, finalize, good, held, plan, settle

SCOPE = Scope("t", "p")
FREE = HostsSettings(concurrency=1_000_000)


def claims_ended(tx: Tx, outcome: str) -> list[Row]:
    """Give the grants that ended in one way."""
    tx.enter(HOME.tenant_id)
    return tx.all("claims_ended", outcome=outcome)


def varied(number: int) -> JobRequest:
    """Give a request; every third one has something in every column."""
    url = f"https://h{number % 20}.example.org/{number}.pdf"
    if number % 3:
        return download_request(url)
    request = download_request(
        url, work_id=f"w{number}", artifact_id=f"a{number}", mirrors=[url + "?m"], name="n", priority=number % 5
    )
    return replace(request, expect=Expect("ab" * 32, 7), max_attempts=3, run_id="r", request_id="q", source="s")


@pytest.mark.parametrize("count", [1, 15, 16, 17, 63, 64, 255, 256, 257, 700])
def test_every_column_of_every_row_arrives_in_order(ledger: Ledger, count: int) -> None:
    requests = [varied(number) for number in range(count)]
    planned = ledger.plan(SCOPE, requests)
    assert all(one.created for one in planned)
    assert [ledger.job(SCOPE, one.job_id).request for one in planned] == requests
    listed = ledger.jobs(SCOPE, JobFilter(), limit=1000).items
    assert {job.job_id for job in listed} == {one.job_id for one in planned}
    again = ledger.plan(SCOPE, requests)
    assert [one.job_id for one in again] == [one.job_id for one in planned]
    assert not any(one.created for one in again)


def test_one_bad_row_among_many_leaves_nothing(ledger: Ledger) -> None:
    bad = replace(varied(1), key="other", inputs=("no-such-artifact",))
    with pytest.raises(NotFound):
        ledger.plan(SCOPE, [*(varied(number) for number in range(300)), bad])
    assert sum(ledger.counts(SCOPE).values()) == 0
    assert len(ledger.plan(SCOPE, [varied(number) for number in range(300)])) == 300


@pytest.mark.parametrize("text", ["https://a.example/\0", "https://a.example/\ud800"])
def test_a_text_that_cannot_be_kept_is_found_among_plain_ones(ledger: Ledger, text: str) -> None:
    odd = JobRequest("download", "k" * 64, text, text, text, text, "a.example")
    with pytest.raises(BadInput):
        ledger.plan(SCOPE, [varied(1), odd, varied(2)])
    assert sum(ledger.counts(SCOPE).values()) == 0


def test_a_lane_that_stands_open_takes_more_and_higher_jobs(ledger: Ledger) -> None:
    ledger.plan(SCOPE, [download_request(f"https://h{n}.example.org/a") for n in range(20)])
    ledger.plan(SCOPE, [download_request(f"https://h{n}.example.org/b", priority=n % 2) for n in range(20)])
    leases = ledger.claim("w", limit=10, ttl_s=60)
    assert [ledger.job(SCOPE, lease.job_id).priority for lease in leases] == [1] * 10
    assert len(ledger.claim("w", limit=100, ttl_s=60)) == 30


@pytest.mark.parametrize("count", [1, 15, 16, 63, 64, 65, 337])
def test_every_job_of_a_batch_gets_its_own_effect_result_and_version(ledger: Ledger, count: int) -> None:
    """Intents, blobs, versions, results and claims go in blocks: nobody may get a neighbour's."""
    plan(ledger, count)
    leases = ledger.claim("w", limit=count, ttl_s=60, defaults=FREE)
    assert len(leases) == count
    intents = [finalize(lease, number) for number, lease in enumerate(leases)]
    assert [good(begun).state for begun in ledger.begin(intents)] == ["new"] * count
    assert [good(begun).state for begun in ledger.begin(intents)] == ["unfinished"] * count
    settled = [good(one) for one in ledger.settle([(lease, held(number)) for number, lease in enumerate(leases)])]
    for number, (lease, intent, end) in enumerate(zip(leases, intents, settled, strict=True)):
        (artifact,) = ledger.results(HOME, lease.job_id)
        result = compat.get_effect_result(ledger, HOME, intent.key)
        assert result is not None
        assert (artifact.artifact_id,) == end.artifact_ids
        assert (result["sha256"], result["artifact_id"]) == (f"{number:064x}", artifact.artifact_id)
        version = ledger.read(lookup.url_version, HOME, lease.job.request.canonical_url or "")
        assert version is not None
        assert (version.sha256, version.artifact_id) == (f"{number:064x}", artifact.artifact_id)
    assert not ledger.reconcile_jobs().wrong_counters
    assert {row[0] for row in ledger.read(claims_ended, outcome="completed")} == {lease.job_id for lease in leases}


def test_the_same_bytes_and_the_same_url_many_times_in_one_batch(ledger: Ledger) -> None:
    """A conflict inside one block is resolved as it would be row by row: the last one holds, the one before is named."""
    plan(ledger, 100)
    again = [download_request("https://h.example/0", work_id=f"w{number}") for number in range(50)]
    ledger.plan(HOME, again)
    leases = ledger.claim("w", limit=150, ttl_s=60, defaults=FREE)
    settled = [good(one) for one in ledger.settle([(lease, held(number % 7)) for number, lease in enumerate(leases)])]
    assert [one.stage for one in settled].count("INDEXED") == 7
    assert ledger.budget(HOME.tenant_id)[1].bytes == 70
    same = [end for lease, end in zip(leases, settled, strict=True) if lease.job.request.url == "https://h.example/0"]
    assert len(same) == 51
    version = ledger.read(lookup.url_version, HOME, "https://h.example/0")
    assert version is not None
    assert version.artifact_id == same[-1].artifact_ids[0]
    made = {one.artifact_id: one for end in same for one in ledger.results(HOME, end.job_id)}
    chain = [made[end.artifact_ids[0]].previous_id for end in same]
    assert chain == [None, *(end.artifact_ids[0] for end in same[:-1])]


def test_one_lost_lease_among_many_spoils_nothing_and_writes_nothing(ledger: Ledger) -> None:
    plan(ledger, 70)
    leases = ledger.claim("w", limit=70, ttl_s=60, defaults=FREE)
    ledger.begin([finalize(lease, number) for number, lease in enumerate(leases)])
    gone = leases[33]
    settle(ledger, gone, Released())
    answers = ledger.settle([(lease, held(number)) for number, lease in enumerate(leases)])
    assert [place for place, answer in enumerate(answers) if isinstance(answer, LeaseLost)] == [33]
    assert ledger.job(HOME, gone.job_id).status is Status.PENDING
    assert compat.get_effect_result(ledger, HOME, finalize(gone, 33).key) is None
    assert sum(1 for lease in leases if ledger.results(HOME, lease.job_id)) == 69
