"""Many rows in one step: the same rows, the same order, the same refusal as one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from longshore.domain.model import Expect, JobRequest, Scope
from longshore.domain.requests import download_request
from longshore.errors import BadInput, NotFound
from longshore.ledger import Ledger
from longshore.ledger.listing import JobFilter

SCOPE = Scope("t", "p")


def varied(number: int) -> JobRequest:
    """Give a request; every third one has something in every column."""
    url = f"https://h{number % 20}.example.org/{number}.pdf"
    if number % 3:
        return download_request(url)
    request = download_request(
        url, work_id=f"w{number}", artifact_id=f"a{number}", mirrors=[url + "?m"], name="n", priority=number % 5
    )
    return replace(request, expect=Expect("ab" * 32, 7), max_attempts=3, run_id="r", request_id="q", source="s")


@pytest.mark.parametrize("count", [1, 31, 32, 33, 255, 256, 257, 700])
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
