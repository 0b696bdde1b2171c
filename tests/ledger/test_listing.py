"""Reading verbs on both engines: what they give, page by page, and to whom."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from longshore import compat
from longshore.domain.identity.requests import download_request
from longshore.domain.model import Blob, JobRequest, Lease, NewArtifact, Scope, Status
from longshore.domain.outcomes import Completed, Deferred, Failed, Outcome, Reused
from longshore.errors import BadInput, NotFound
from longshore.ledger import ArtifactFilter, Intent, JobFilter, Ledger
from longshore.ledger.queries import all_tenants, due_work, history, listing
from tests.support.ledgers import Clock

A = Scope("a", "p")
B = Scope("b", "p")


def plan(ledger: Ledger, scope: Scope, count: int, host: str = "h.example", **fields: Any) -> list[str]:
    requests = [download_request(f"https://{host}/{number}", **fields) for number in range(count)]
    return [planned.job_id for planned in ledger.plan(scope, requests)]


def settle_all(ledger: Ledger, scope: Scope, outcome: Outcome, count: int) -> list[Lease]:
    leases: list[Lease] = []
    while len(leases) < count:
        some = ledger.claim("w", limit=count - len(leases), ttl_s=60, scope=scope)
        assert some
        for settled in ledger.settle([(lease, outcome) for lease in some]):
            assert not isinstance(settled, Exception), settled
        leases += some
    return leases


def completed(number: int, *, kind: str = "download") -> Completed:
    blob = Blob(f"{number:064x}", 10 + number, f"ptr/{number}", "local", "text/plain")
    return Completed((NewArtifact(blob, artifact_type=kind),))


def complete_one(ledger: Ledger, scope: Scope, url: str, number: int, **kw: Any) -> tuple[str, str]:
    (planned,) = ledger.plan(scope, [download_request(url, **kw)], again="always")
    (lease,) = ledger.claim("w", limit=1, ttl_s=60, scope=scope, job_ids=[planned.job_id])
    (settled,) = ledger.settle([(lease, completed(number))])
    assert not isinstance(settled, Exception), settled
    return planned.job_id, settled.artifact_ids[0]


def pages(ledger: Ledger, scope: Scope, wanted: JobFilter, limit: int) -> list[list[str]]:
    found, after = [], None
    while True:
        page = ledger.jobs(scope, wanted, after=after, limit=limit)
        found.append([job.job_id for job in page.items])
        assert len(page.items) <= limit
        after = page.next
        if after is None:
            return found


def test_jobs_come_newest_first_in_pages_without_gap_or_double(ledger: Ledger) -> None:
    ids = plan(ledger, A, 25)
    for limit in (1, 7, 25, 100):
        assert list(itertools.chain(*pages(ledger, A, JobFilter(), limit))) == ids[::-1]
    oldest = JobFilter(oldest_first=True)
    assert list(itertools.chain(*pages(ledger, A, oldest, 7))) == ids


def test_a_list_over_all_statuses_keeps_the_order_of_planning(ledger: Ledger) -> None:
    ids = plan(ledger, A, 12)
    settle_all(ledger, A, Failed("http_404", "gone"), 4)
    ledger.cancel(A, ids[-2:])
    assert list(itertools.chain(*pages(ledger, A, JobFilter(), 5))) == ids[::-1]
    assert [job.job_id for job in ledger.jobs(A, JobFilter(status=Status.CANCELED)).items] == ids[:-3:-1]
    some = JobFilter(statuses=(Status.CANCELED, Status.FAILED))
    assert len(ledger.jobs(A, some).items) == 6


def test_filters_match_what_they_say(ledger: Ledger, clock: Clock) -> None:
    one = plan(ledger, A, 3, "one.example")
    two = plan(ledger, A, 2, "two.example", work_id="W7")
    own = ledger.plan(A, [JobRequest("extract", "k1", run_id="r1")])[0].job_id
    settle_all(ledger, A, Failed("http_404", "gone"), 6)
    clock.sleep(100)
    ledger.retry(A, one[:1])

    def found(**wanted: Any) -> set[str]:
        return {job.job_id for job in ledger.jobs(A, JobFilter(**wanted)).items}

    assert found(host="two.example") == set(two)
    assert found(work_id="W7") == set(two)
    assert found(work_id="W7", status=Status.PENDING) == set()
    assert found(work_id="W7", oldest_first=True) == set(two)
    assert found(job_type="extract") == {own} == found(run_id="r1")
    assert found(url="https://two.example/1") == {two[1]} == found(canonical_url="https://two.example/1")
    assert found(reason="http_404", status=Status.FAILED) == {*one, *two, own}
    assert found(stage="PLANNED") == found(status=Status.PENDING)
    assert found(updated_after=clock.now) == found(status=Status.PENDING) | {one[0]}
    by_url = found(work_id="https://one.example/2")
    assert by_url == {one[2]}


def test_a_filter_that_rarely_matches_gives_short_pages_and_finds_all(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SCAN", 10)
    plan(ledger, A, 30, "common.example")
    rare = plan(ledger, A, 2, "rare.example")
    plan(ledger, A, 30, "other.example")
    found = pages(ledger, A, JobFilter(host="rare.example"), 3)
    assert list(itertools.chain(*found)) == rare[::-1]
    assert len(found) > 2, "the look was bounded"
    assert ledger.matching_ids(A, JobFilter(host="rare.example")) == rare[::-1]
    assert ledger.matching_ids(A, JobFilter(host="common.example"), at_most=4).__len__() == 4


def test_a_type_and_a_group_of_failures_are_found_at_once_wherever_they_lie(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SCAN", 3)
    group = plan(ledger, A, 5, "gone.example")
    settle_all(ledger, A, Failed("http_404", "gone"), 5)
    own = [one.job_id for one in ledger.plan(A, [JobRequest("pdf_text", f"key{n}") for n in range(5)])]
    plan(ledger, A, 20, "later.example")
    settle_all(ledger, A, Failed("dns", "no such host"), 20)
    for oldest in (False, True):
        turn = 1 if oldest else -1
        failed = JobFilter(status=Status.FAILED, reason="http_404", host="gone.example", oldest_first=oldest)
        typed = JobFilter(job_type="pdf_text", oldest_first=oldest)
        assert pages(ledger, A, failed, 4)[0] == group[::turn][:4], "a full page, although twenty others lie before it"
        assert list(itertools.chain(*pages(ledger, A, failed, 2))) == group[::turn]
        assert pages(ledger, A, typed, 4)[0] == own[::turn][:4]
        assert list(itertools.chain(*pages(ledger, A, typed, 2))) == own[::turn]
    [retried] = ledger.retry(A, group[2:3])
    assert (
        ledger.matching_ids(A, JobFilter(status=Status.FAILED, reason="http_404", host="gone.example")) == group[::-1]
    )
    assert retried.created


def test_a_cursor_that_is_none_is_refused(ledger: Ledger) -> None:
    for after in ("", "x", "-1", "1" * 30, "１", "1.0"):
        with pytest.raises(BadInput):
            ledger.jobs(A, JobFilter(), after=after)


def test_a_page_has_a_size(ledger: Ledger) -> None:
    for limit in (0, -1, 10_001, True, 1.5, "7"):
        for call in (ledger.jobs, ledger.artifacts):
            with pytest.raises(BadInput):
                call(A, limit=limit)  # type: ignore[arg-type]


def test_counts_come_from_counters_and_are_right(ledger: Ledger) -> None:
    ids = plan(ledger, A, 10)
    settle_all(ledger, A, Failed("http_404", "gone"), 3)
    ledger.cancel(A, ids[-1:])
    ledger.claim("w", limit=2, ttl_s=60)
    counts = ledger.counts(A)
    assert {status.value: n for status, n in counts.items() if n} == {
        "pending": 4,
        "processing": 2,
        "failed": 3,
        "canceled": 1,
    }
    assert ledger.read(listing.count_matching, A, JobFilter(status=Status.FAILED), 100) == 3
    assert ledger.read(listing.count_matching, A, JobFilter(host="h.example"), 100) == 10
    assert ledger.reconcile_jobs().wrong_counters == 0


def test_failures_are_grouped_and_a_retry_takes_them_out(ledger: Ledger) -> None:
    plan(ledger, A, 3, "one.example")
    settle_all(ledger, A, Failed("http_404", "gone"), 3)
    other = plan(ledger, A, 2, "two.example")
    settle_all(ledger, A, Failed("dns", "no such name"), 2)
    first, second = ledger.failures(A)
    assert (first.reason, first.host, first.count, first.message) == ("http_404", "one.example", 3, "gone")
    assert (second.reason, second.host, second.count, second.sample_job_id) == ("dns", "two.example", 2, other[1])
    assert second.sample_url == "https://two.example/1"
    ledger.retry(A, other)
    assert [group.reason for group in ledger.failures(A)] == ["http_404"]
    assert ledger.failures(B) == []
    assert len(ledger.failures(A, limit=1)) == 1


def test_a_timeline_tells_planning_grants_events_and_effects(ledger: Ledger, clock: Clock) -> None:
    (job_id,) = plan(ledger, A, 1)
    clock.sleep(1)
    (lease,) = ledger.claim("w1", limit=1, ttl_s=60)
    compat.run_effect(ledger, lease, "HEAD", "key-1", lambda: {"status": 200})
    clock.sleep(1)
    ledger.settle([(lease, Deferred("connect", "refused", 5.0))])
    clock.sleep(10)
    (again,) = ledger.claim("w2", limit=1, ttl_s=60)
    ledger.settle([(again, completed(1))])
    story = ledger.timeline(A, job_id)
    assert [event.kind for event in story.events] == ["planned", "deferred", "completed"]
    assert [(claim.epoch, claim.owner, claim.outcome) for claim in story.claims] == [
        (1, "w1", "deferred"),
        (2, "w2", "completed"),
    ]
    assert [(effect.kind, effect.state) for effect in story.effects] == [("HEAD", "confirmed")]
    assert story.events[0].at < story.claims[0].claimed_at < story.events[1].at
    with pytest.raises(NotFound):
        ledger.timeline(B, job_id)


def test_events_are_read_in_order_and_only_once(ledger: Ledger) -> None:
    start = ledger.read(history.last_event, A)
    ids = plan(ledger, A, 6)
    plan(ledger, B, 2, "b.example")
    settle_all(ledger, A, Failed("http_404", "gone"), 6)
    settle_all(ledger, B, Failed("http_404", "gone"), 2)
    seen, seq = [], start
    while events := ledger.read(history.events_after, A, seq, limit=4):
        assert all(event.seq > seq for event in events)
        seen += [event.job_id for event in events]
        seq = events[-1].seq
    assert sorted(seen, key=str) == sorted(ids)
    assert ledger.read(history.last_event, A) == seq
    assert ledger.read(history.events_after, A, seq) == []
    for bad in (-1, True, "1", 1 << 63):
        with pytest.raises(BadInput):
            ledger.read(history.events_after, A, bad)  # type: ignore[arg-type]


def test_artifacts_are_found_by_hash_url_work_and_type(ledger: Ledger) -> None:
    _, first = complete_one(ledger, A, "https://one.example/x", 1)
    _, second = complete_one(ledger, A, "https://one.example/x", 2)
    _, worked = complete_one(ledger, A, "https://two.example/y", 3, work_id="W7")
    own = ledger.plan(A, [JobRequest("extract", "k1")])[0].job_id
    (lease,) = ledger.claim("w", limit=1, ttl_s=60, scope=A, job_ids=[own])
    (settled,) = ledger.settle([(lease, completed(1, kind="text"))])
    assert not isinstance(settled, Exception)
    (text,) = settled.artifact_ids

    def found(**wanted: Any) -> list[str]:
        return [one.artifact_id for one in ledger.artifacts(A, ArtifactFilter(**wanted)).items]

    assert found() == [text, worked, second, first]
    assert found(sha256=f"{1:064x}") == [text, first]
    assert found(sha256=f"{1:064x}", artifact_type="text") == [text]
    assert found(url="https://one.example/x") == [second, first] == found(work_id="https://one.example/x")
    assert found(work_id="W7") == [worked]
    assert found(work_id="W8") == found(url="https://none.example/") == []
    assert found(artifact_type="text") == [text]
    ledger.mark_missing(A, [second])
    assert found(availability="missing") == [second]
    assert ledger.artifact(A, second).availability == "missing"
    assert ledger.artifacts(B).items == []
    with pytest.raises(NotFound):
        ledger.artifact(B, first)


def test_artifacts_come_in_pages(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SCAN", 3)
    plan(ledger, A, 9)
    leases = ledger.claim("w", limit=9, ttl_s=60) + ledger.claim("w", limit=9, ttl_s=60)
    for number, lease in enumerate(leases):
        ledger.settle([(lease, completed(number, kind="even" if number % 2 == 0 else "odd"))])
    for wanted, count in ((ArtifactFilter(), len(leases)), (ArtifactFilter(artifact_type="odd"), len(leases) // 2)):
        found: list[str] = []
        after = None
        while True:
            page = ledger.artifacts(A, wanted, after=after, limit=2)
            found += [one.artifact_id for one in page.items]
            after = page.next
            if after is None:
                break
        assert found == sorted(set(found), reverse=True)
        assert len(found) == count


def test_provenance_names_every_job_of_the_bytes(ledger: Ledger) -> None:
    source, artifact_id = complete_one(ledger, A, "https://one.example/x", 1, work_id="W1")
    other = ledger.plan(A, [download_request("https://mirror.example/x")])[0].job_id
    (lease,) = ledger.claim("w", limit=1, ttl_s=60, scope=A, job_ids=[other])
    ledger.settle([(lease, Reused(source, artifact_id))])
    user = ledger.plan(A, [JobRequest("extract", "k", inputs=(artifact_id,))])[0].job_id
    links = {link.job_id: link for link in ledger.read(history.provenance, A, artifact_id)}
    assert links.keys() == {source, other, user}
    assert (links[source].role, links[source].url, links[source].work_id) == ("result", "https://one.example/x", "W1")
    assert (links[other].role, links[user].role) == ("result", "input")
    with pytest.raises(NotFound):
        ledger.read(history.provenance, B, artifact_id)


def test_leases_and_the_oldest_ready_job(ledger: Ledger, clock: Clock) -> None:
    assert ledger.read(all_tenants.leases) == []
    assert ledger.read(due_work.oldest_ready, A) is None
    plan(ledger, A, 2)
    first = clock.now
    clock.sleep(5)
    plan(ledger, B, 2, "b.example")
    assert ledger.read(due_work.oldest_ready, A) == first
    ledger.claim("w1", limit=2, ttl_s=60, scope=A)
    ledger.claim("w2", limit=1, ttl_s=90, scope=B)
    assert [(worker.owner, worker.leases) for worker in ledger.read(all_tenants.leases)] == [("w1", 2), ("w2", 1)]
    assert ledger.read(due_work.oldest_ready, A) is None


def test_one_tenant_sees_nothing_of_another(ledger: Ledger) -> None:
    ids = plan(ledger, A, 2)
    (lease, _) = ledger.claim("w", limit=2, ttl_s=60)
    ledger.begin([Intent(lease, "HEAD", "k")])
    assert ledger.jobs(B).items == []
    assert sum(ledger.counts(B).values()) == 0
    assert ledger.read(history.events_after, B, 0) == []
    assert ledger.matching_ids(B, JobFilter()) == []
    with pytest.raises(NotFound):
        ledger.job(B, ids[0])
    assert ledger.jobs(Scope("a", "q")).items == []
    for scope in (Scope("", "p"), Scope("A", "p"), Scope("a/b", "p")):
        with pytest.raises(BadInput):
            ledger.jobs(scope)


def test_ids_are_found_by_their_beginning_and_end_in_one_scope(ledger: Ledger) -> None:
    ids, others = plan(ledger, A, 3), plan(ledger, B, 1)

    assert ledger.ids_like(A, ids[1][-12:], 9) == [ids[1]]
    assert ledger.ids_like(A, ids[0][:8], 9) == sorted(ids)
    assert len(ledger.ids_like(A, ids[0][:8], 2)) == 2
    assert ledger.ids_like(A, others[0][-12:], 9) == []
