"""Runs on both engines: names that jobs share, and what became of them."""

from __future__ import annotations

from datetime import UTC, datetime

import apsw
import psycopg
import pytest

from longshore.domain.identity.requests import download_request
from longshore.domain.model import SECOND, JobRequest, Scope, Status
from longshore.domain.outcomes import Failed
from longshore.errors import NotFound
from longshore.ledger import JobFilter, Ledger
from longshore.ledger.queries import runs
from tests.ledger.test_listing import A, B, completed, plan, settle_all
from tests.support.ledgers import Clock


def test_runs_are_listed_with_counts_bytes_begin_and_end(ledger: Ledger, clock: Clock) -> None:
    begun = clock.now
    plan(ledger, A, 3, run_id="monday")
    clock.sleep(10)
    settle_all(ledger, A, completed(1), 2)
    plan(ledger, A, 1, host="other.example", run_id="tuesday")
    plan(ledger, B, 2, run_id="monday")
    tuesday, monday = ledger.read(runs.runs, A).items
    assert (tuesday.run_id, monday.run_id) == ("tuesday", "monday")
    assert {status.value: n for status, n in monday.jobs.items() if n} == {"pending": 1, "completed": 2}
    assert (monday.bytes, monday.begun_at, monday.ended_at, monday.missing) == (22, begun, None, 0)
    (last,) = ledger.matching_ids(A, JobFilter(run_id="monday", statuses=(Status.PENDING,)))
    leases = ledger.claim("w", limit=1, ttl_s=60, scope=A, job_ids=[last])
    ledger.settle([(leases[0], Failed("http_404", "gone"))])
    plan(ledger, A, 1, host="third.example")  # without a run
    monday = ledger.read(runs.run, A, "monday")
    assert (monday.jobs[Status.FAILED], monday.missing, monday.ended_at) == (1, 1, clock.now)
    assert ledger.read(runs.run_counts, A, "monday") == monday.jobs
    assert ledger.read(runs.run, B, "monday").jobs[Status.PENDING] == 2
    with pytest.raises(NotFound):
        ledger.read(runs.run, B, "tuesday")


def test_pages_of_runs(ledger: Ledger) -> None:
    for number in range(7):
        plan(ledger, A, 1, host=f"h{number}.example", run_id=f"r{number % 4}-{number}")
    names, after = [], None
    while True:
        page = ledger.read(runs.runs, A, after=after, limit=3)
        names.append([run.run_id for run in page.items])
        after = page.next
        if after is None:
            break
    assert names == [["r2-6", "r1-5", "r0-4"], ["r3-3", "r2-2", "r1-1"], ["r0-0"]]


def test_failures_of_a_run(ledger: Ledger) -> None:
    plan(ledger, A, 2, host="one.example", run_id="x")
    settle_all(ledger, A, Failed("http_404", "gone"), 2)
    plan(ledger, A, 1, host="two.example", run_id="y")
    settle_all(ledger, A, Failed("http_500", "broken"), 1)
    assert [(one.reason, one.host, one.count) for one in ledger.failures(A, run_id="x")] == [
        ("http_404", "one.example", 2)
    ]
    failed = ledger.matching_ids(A, JobFilter(run_id="x", statuses=(Status.FAILED,)))
    (first, _) = ledger.retry(A, failed)
    assert ledger.job(A, first.job_id).request.run_id == "x"  # a retry belongs to the run
    assert ledger.failures(A, run_id="x") == []
    run = ledger.read(runs.run, A, "x")
    assert (run.jobs[Status.FAILED], run.jobs[Status.PENDING], run.missing) == (2, 2, 0)


def test_a_filter_by_run_reads_only_the_jobs_of_the_run(ledger: Ledger) -> None:
    """The pages are full although the jobs lie far apart."""
    wanted = plan(ledger, A, 5, host="few.example", run_id="few")
    ledger.plan(A, [download_request(f"https://many.example/{number}", run_id="many") for number in range(5_000)])
    wanted += plan(ledger, A, 5, host="late.example", run_id="few")
    page = ledger.jobs(A, JobFilter(run_id="few"), limit=100)
    assert [job.job_id for job in page.items] == wanted[::-1]
    assert page.next is None
    oldest = ledger.jobs(A, JobFilter(run_id="few", oldest_first=True), limit=3)
    assert [job.job_id for job in oldest.items] == wanted[:3]


def test_a_long_name_is_a_name(ledger: Ledger) -> None:
    name = "ü" * 1024
    plan(ledger, A, 1, run_id=name)
    assert [run.run_id for run in ledger.read(runs.runs, A).items] == [name]
    assert ledger.read(runs.runs, Scope("c", "c")).items == []


def test_the_times_of_the_torrents_view_are_text(ledger: Ledger, clock: Clock, where: str, engine: str) -> None:
    clock.now += 42
    request = JobRequest(
        "torrent", None, user_id="u", book_id="b", media_type="ebook", source="magnet:?xt=urn:btih:" + "a" * 40
    )
    ledger.plan(A, [request])
    query = "SELECT created_at_utc, completed_at_utc FROM download_jobs"
    if engine == "sqlite":
        row = apsw.Connection(where).execute(query).fetchone()
    else:
        with psycopg.connect(where) as connection:
            row = connection.execute(query).fetchone()
    assert row == (datetime.fromtimestamp(clock.now // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S.000042Z"), None)
