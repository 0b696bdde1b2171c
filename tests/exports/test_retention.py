"""History stays bounded: on both engines, beside work, and what was forgotten still answers."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from longshore.depot.maintenance import purge
from longshore.depot.maintenance.retention import Retention
from longshore.domain.identity.requests import download_request
from longshore.domain.model import Blob, NewArtifact, Scope, Status
from longshore.domain.outcomes import Completed, Failed
from longshore.domain.settings import RetentionSettings
from longshore.exports.read_ledger import manifest_rows
from longshore.ledger import Ledger
from longshore.ledger.maintenance import purge_order
from longshore.ledger.operations import audit_log, idempotency_keys
from longshore.store import open_store
from tests.support.ledgers import Clock

SCOPE = Scope("a", "p")
DAY_S = 86_400.0


def urls(start: int, count: int) -> list[str]:
    return [f"https://h{n % 7}.example/{n}" for n in range(start, start + count)]


def plan(ledger: Ledger, wanted: list[str]) -> list[str]:
    return [one.job_id for one in ledger.plan(SCOPE, [download_request(url) for url in wanted])]


def complete(ledger: Ledger, ids: list[str]) -> None:
    left = set(ids)
    while left:
        leases = ledger.claim("w", limit=50, ttl_s=600, scope=SCOPE, job_ids=sorted(left))
        numbers = [int((lease.job.request.url or "0").rpartition("/")[2]) for lease in leases]
        blobs = [Blob(f"{n:064x}", 5, f"p/{n}", "local", "text/plain") for n in numbers]
        for settled in ledger.settle(
            [(lease, Completed((NewArtifact(one),))) for lease, one in zip(leases, blobs, strict=True)]
        ):
            assert not isinstance(settled, Exception), settled
        left -= {lease.job_id for lease in leases}


def keeper(ledger: Ledger, tmp_path: Path, **settings: float) -> Retention:
    store = open_store(tmp_path / "store")
    return Retention(ledger, store, RetentionSettings(**settings), tmp_path)


def test_once_a_day_what_is_old_and_unused_goes_and_still_answers(ledger: Ledger, clock: Clock, tmp_path: Path) -> None:
    old = plan(ledger, urls(0, 30))
    complete(ledger, old[:10])
    ledger.cancel(SCOPE, old[10:20])
    clock.sleep(91 * DAY_S)
    young = plan(ledger, urls(100, 5))
    ledger.cancel(SCOPE, young[:2])
    retention = keeper(ledger, tmp_path)
    done = retention.daily()
    assert done is not None
    assert done.jobs == 10
    left = {row.job_id: row.status for row in manifest_rows(ledger, SCOPE)}
    assert left.keys() == {*old[:10], *old[20:], *young}, "held, waiting and young jobs stay"
    [table] = [pq.read_table(path) for path in (tmp_path / "archive").glob("*.parquet")]
    assert sorted(row["job_id"] for row in table.to_pylist()) == sorted(old[10:20])
    again = ledger.plan(SCOPE, [download_request(url) for url in urls(10, 10)])
    assert [(one.job_id, one.created, one.status) for one in again] == [
        (job_id, False, Status.CANCELED) for job_id in old[10:20]
    ], "the tombstone answers; nothing is fetched again"
    assert retention.daily() is None, "once a day"
    clock.sleep(DAY_S)
    assert retention.daily() is not None


def test_a_clock_that_jumps_makes_nobody_forget(ledger: Ledger, clock: Clock, tmp_path: Path) -> None:
    """A year ahead for an hour, then back: what was over yesterday is still there."""
    ids = plan(ledger, urls(0, 10))
    ledger.cancel(SCOPE, ids)
    retention, there = keeper(ledger, tmp_path), set(ids)
    assert retention.daily() is not None
    clock.sleep(DAY_S + 365 * DAY_S)
    assert retention.daily() is None
    clock.sleep(3_600)
    assert retention.daily() is None
    clock.sleep(-365 * DAY_S)
    assert retention.daily() is None
    assert {row.job_id for row in manifest_rows(ledger, SCOPE)} == there
    for _ in range(100):  # days that really pass, each with its look
        clock.sleep(DAY_S)
        assert retention.daily() is not None
    assert not list(manifest_rows(ledger, SCOPE))


def test_the_audit_log_and_remembered_requests_are_bounded(ledger: Ledger, clock: Clock, tmp_path: Path) -> None:
    plan(ledger, urls(0, 1))
    for _ in range(3):
        ledger.write(audit_log.audit, SCOPE, audit_log.NewEntry("t", "post", "/x", "10.0.0.1"))
    ledger.write(idempotency_keys.once, SCOPE, "old-key", "print", lambda _: {"n": 1})
    clock.sleep(8 * DAY_S)
    ledger.write(idempotency_keys.once, SCOPE, "young-key", "print", lambda _: {"n": 2})
    done = keeper(ledger, tmp_path).daily()
    assert done is not None
    assert done.lines == 1
    assert ledger.write(idempotency_keys.once, SCOPE, "young-key", "print", lambda _: {"n": 9}) == {"n": 2}
    assert ledger.write(idempotency_keys.once, SCOPE, "old-key", "print", lambda _: {"n": 9}) == {"n": 9}
    assert len(ledger.read(audit_log.audit_entries, SCOPE)) == 3
    clock.sleep(366 * DAY_S)
    ledger.write(audit_log.audit, SCOPE, audit_log.NewEntry("t", "post", "/young", "10.0.0.1"))
    assert keeper(ledger, tmp_path).daily() is None, "nobody looked for a year: that may be the clock"
    clock.sleep(DAY_S)
    keeper(ledger, tmp_path).daily()
    assert [line.target for line in ledger.read(audit_log.audit_entries, SCOPE)] == ["/young"]


def test_zero_keeps_everything(ledger: Ledger, clock: Clock, tmp_path: Path) -> None:
    ledger.cancel(SCOPE, plan(ledger, urls(0, 3)))
    ledger.write(audit_log.audit, SCOPE, audit_log.NewEntry("t", "post", "/x", "10.0.0.1"))
    clock.sleep(5_000 * DAY_S)
    done = keeper(ledger, tmp_path, days=0, audit_days=0, request_key_days=0).daily()
    assert done is not None
    assert (done.jobs, done.lines) == (0, 0)
    assert sum(ledger.counts(SCOPE).values()) == 3


def test_a_job_that_is_retried_after_the_page_was_read_is_not_forgotten(
    ledger: Ledger, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = plan(ledger, urls(0, 5))
    ledger.cancel(SCOPE, ids)
    clock.sleep(91 * DAY_S)
    written = purge._archive

    def overtaken(*arguments: object) -> Path:
        ledger.retry(SCOPE, ids[:1])
        return written(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(purge, "_archive", overtaken)
    purge.retire(ledger, SCOPE, before=ledger.now() - 1, target=tmp_path / "archive")
    left = {row.job_id for row in manifest_rows(ledger, SCOPE)}
    assert ids[0] in left
    assert left.isdisjoint(ids[1:])


def test_purge_beside_a_worker_touches_nothing_alive(ledger: Ledger, where: str, clock: Clock, tmp_path: Path) -> None:
    gone = plan(ledger, urls(0, 1_200))
    ledger.cancel(SCOPE, gone)
    held = plan(ledger, urls(2_000, 60))
    complete(ledger, held)
    clock.sleep(91 * DAY_S)
    live = plan(ledger, urls(3_000, 200))
    before = {row.job_id: row for row in manifest_rows(ledger, SCOPE)}
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with Ledger.open(where, clock=clock) as second:
                complete(second, live)
        except BaseException as error:
            failed.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    done = purge.retire(ledger, SCOPE, before=ledger.now() - 1, target=tmp_path / "archive")
    worker.join()
    assert failed == []
    assert done.jobs == len(gone)
    after = {row.job_id: row for row in manifest_rows(ledger, SCOPE)}
    assert after.keys() == {*held, *live}
    assert all(after[job_id] == before[job_id] for job_id in held)
    assert {after[job_id].status for job_id in live} == {"completed"}
    read = [row for path in done.files for row in pq.read_table(path).to_pylist()]
    assert {row["job_id"]: (row["url"], row["status"]) for row in read} == {
        job_id: (before[job_id].url, before[job_id].status) for job_id in gone
    }


def fail(ledger: Ledger, ids: list[str], reason: str = "http_404") -> None:
    left = set(ids)
    while left:
        leases = ledger.claim("w", limit=50, ttl_s=600, scope=SCOPE, job_ids=sorted(left))
        ledger.settle([(lease, Failed(reason, "gone")) for lease in leases])
        left -= {lease.job_id for lease in leases}


def retried(ledger: Ledger, ids: list[str]) -> list[str]:
    return [one.job_id for one in ledger.retry(SCOPE, ids)]


def failed_chains(ledger: Ledger, wanted: list[str], length: int) -> list[list[str]]:
    """Plan, fail, retry and fail again; the oldest links first."""
    links = [plan(ledger, wanted)]
    fail(ledger, links[0])
    while len(links) < length:
        links.append(retried(ledger, links[-1]))
        fail(ledger, links[-1], f"http_5{len(links):02d}")
    return links


def archived(done: purge.Purged) -> list[str]:
    return [row["job_id"] for path in done.files for row in pq.read_table(path).to_pylist()]


def test_one_purge_takes_whole_chains_of_retries(ledger: Ledger, clock: Clock, tmp_path: Path) -> None:
    """What is left never looks as if it had been tried again."""
    links = failed_chains(ledger, urls(0, 30), 4)
    clock.sleep(91 * DAY_S)
    told = purge.retire(ledger, SCOPE, before=ledger.now(), target=tmp_path / "archive", dry_run=True)
    done = purge.retire(ledger, SCOPE, before=ledger.now(), target=tmp_path / "archive")
    assert told.jobs == done.jobs == 120
    assert list(manifest_rows(ledger, SCOPE)) == []
    assert sorted(archived(done)) == sorted(job_id for link in links for job_id in link)
    assert ledger.counts(SCOPE)[Status.FAILED] == 0
    assert ledger.failures(SCOPE) == []
    again = ledger.plan(SCOPE, [download_request(url) for url in urls(0, 30)])
    assert [(one.job_id, one.created, one.status) for one in again] == [
        (job_id, False, Status.FAILED) for job_id in links[-1]
    ], "the tombstone has the newest outcome"


def test_a_chain_stays_whole_while_one_of_it_is_alive_young_or_holds_something(
    ledger: Ledger, clock: Clock, tmp_path: Path
) -> None:
    links = failed_chains(ledger, urls(0, 4), 2)
    alive = retried(ledger, links[-1][:1])
    complete(ledger, retried(ledger, links[-1][1:2]))
    clock.sleep(91 * DAY_S)
    before = ledger.now() - 1
    fail(ledger, retried(ledger, links[-1][2:3]))
    done = purge.retire(ledger, SCOPE, before=before, target=tmp_path / "archive")
    assert sorted(archived(done)) == sorted([links[0][3], links[1][3]])
    left = {row.job_id for row in manifest_rows(ledger, SCOPE)}
    assert {*alive, *links[0][:3], *links[1][:3]} < left


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_chains_longer_than_a_batch_go_newest_first(
    ledger: Ledger, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(purge, "BATCH", batch)
    failed_chains(ledger, urls(0, 3), 4)
    clock.sleep(91 * DAY_S)
    done = purge.retire(ledger, SCOPE, before=ledger.now(), target=tmp_path / "archive")
    assert done.jobs == len(set(archived(done))) == 12
    assert list(manifest_rows(ledger, SCOPE)) == []


def test_a_job_that_two_were_made_from_goes_once_with_the_last_of_them(
    ledger: Ledger, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One retry failed, one (another name for the same URL) was canceled: they are read on different pages."""
    monkeypatch.setattr(purge, "CHUNK", 1)
    (root,) = plan(ledger, urls(0, 1))
    fail(ledger, [root])
    fail(ledger, retried(ledger, [root]))
    other = ledger.plan(SCOPE, [download_request("https://h0.example/0", work_id="W", retry_of=root)])
    ledger.cancel(SCOPE, [one.job_id for one in other])
    clock.sleep(91 * DAY_S)
    told = purge.retire(ledger, SCOPE, before=ledger.now(), target=tmp_path / "archive", dry_run=True)
    done = purge.retire(ledger, SCOPE, before=ledger.now(), target=tmp_path / "archive")
    assert told.jobs == done.jobs == len(set(archived(done))) == 3
    assert list(manifest_rows(ledger, SCOPE)) == []


def test_a_chain_whose_newest_is_retried_after_the_page_was_read_stays(
    ledger: Ledger, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = failed_chains(ledger, urls(0, 3), 3)
    clock.sleep(91 * DAY_S)
    written = purge._archive

    def overtaken(*arguments: object) -> Path:
        ledger.retry(SCOPE, links[-1][:1])
        return written(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(purge, "_archive", overtaken)
    purge.retire(ledger, SCOPE, before=ledger.now(), target=tmp_path / "archive")
    left = {row.job_id for row in manifest_rows(ledger, SCOPE)}
    assert len(left) == 4
    assert {link[0] for link in links} < left


def test_what_too_many_point_to_waits_for_the_next_purge(
    ledger: Ledger, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for those above is bounded; what is left out this time stays whole and goes later."""
    monkeypatch.setattr(purge_order, "MOST", 3)
    (root,) = plan(ledger, urls(0, 1))
    fail(ledger, [root])
    many = [download_request(url, retry_of=root) for url in urls(10, 5)]
    ledger.cancel(SCOPE, [one.job_id for one in ledger.plan(SCOPE, many)])
    clock.sleep(91 * DAY_S)
    assert purge.retire(ledger, SCOPE, before=ledger.now(), target=tmp_path / "archive").jobs == 5
    assert [row.job_id for row in manifest_rows(ledger, SCOPE)] == [root]
    assert purge.retire(ledger, SCOPE, before=ledger.now(), target=tmp_path / "archive").jobs == 1
