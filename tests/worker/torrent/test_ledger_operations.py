"""The ledger's verbs for torrents, on both engines: who wins, what is written, who sees whom."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from longshore.domain.identity.keys import op_key
from longshore.domain.kinds import Status
from longshore.domain.model import Blob, Lease, NewArtifact, Scope
from longshore.domain.torrents.model import Clock as Running
from longshore.domain.torrents.model import Identity, TorrentRequest, torrent_request
from longshore.domain.torrents.sync_rules import PollState
from longshore.errors import BadInput, Conflict, InvalidTransition, LeaseLost, NotFound
from longshore.ledger import Intent, Ledger
from longshore.ledger.operations import effects
from longshore.ledger.operations.artifact_registry import mark_available
from longshore.ledger.operations.book_assets import book_status
from longshore.ledger.operations.make_claimable import expire_and_promote
from longshore.ledger.operations.torrents import (
    FINALIZE,
    INTERRUPTED,
    Noted,
    cancel_confirmed,
    complete_torrent,
    hold_torrents,
    lease_import,
    note_torrents,
    release_import,
    start_torrent,
    want_cancel,
)
from longshore.ledger.queries.torrents import (
    Tracked,
    active_torrents,
    due_torrents,
    metainfo,
    sharing,
    torrent,
    torrents,
)
from tests.support.ledgers import Clock

HERE, THERE = Scope("t1", "p1"), Scope("t2", "p1")
V1, V2 = "a" * 40, "b" * 64


def request(n: int = 1, scope: Scope = HERE, source: str = "magnet:?x", **other: Any) -> TorrentRequest:
    given = {"user_id": "u1", "book_id": f"b{n}", "media_type": "ebook", "source": source, **other}
    return torrent_request(scope, **given)


def started(ledger: Ledger, n: int = 1, scope: Scope = HERE, **other: Any) -> Tracked:
    made = ledger.write(start_torrent, request(n, scope, **other))
    return ledger.read(torrent, scope, made.job_id)


def noted(ledger: Ledger, job: Tracked, watch: PollState | None = None, stage: str | None = None, **other: Any) -> bool:
    note = Noted(job, watch or job.watch, stage or job.stage, **other)
    return ledger.write(note_torrents, [note], [job])[0]


def again(ledger: Ledger, job: Tracked) -> Tracked:
    return ledger.read(torrent, job.scope, job.job_id)


def leased(ledger: Ledger, job: Tracked, ttl_s: float = 60) -> Lease:
    lease = ledger.write(lease_import, job, "me", ttl_s)
    assert lease is not None
    return lease


def artifact(ledger: Ledger, lease: Lease, letter: str = "c") -> NewArtifact:
    sha256 = letter * 64
    key = op_key(FINALIZE, lease.job_id, sha256=sha256)
    ledger.begin([Intent(lease, FINALIZE, key, "verifiable", sha256, {"sha256": sha256})])
    return NewArtifact(Blob(sha256, 3, f"x/{letter}", "local", "text/plain"), "torrent")


def test_a_start_keeps_what_it_was_given(ledger: Ledger) -> None:
    job = started(ledger, identity=Identity(V1, V2), metainfo=b"\x00d\xff")
    assert (job.status, job.stage, job.identity) == (Status.PENDING, "queued", Identity(V1, V2))
    assert (job.user_id, job.book_id, job.media_type, job.source) == ("u1", "b1", "ebook", "magnet:?x")
    assert ledger.read(metainfo, HERE, job.job_id) == b"\x00d\xff"
    assert ledger.counts(HERE)[Status.PENDING] == 1
    assert ledger.claim("worker", limit=10, ttl_s=60) == [], "no worker takes a torrent by accident"


def test_the_same_start_and_another_one(ledger: Ledger) -> None:
    first = ledger.write(start_torrent, request(identity=Identity(V1)))
    assert ledger.write(start_torrent, request()).job_id == first.job_id
    assert ledger.write(start_torrent, request(source="magnet:?y", identity=Identity(V1, V2))).job_id == first.job_id
    with pytest.raises(Conflict) as caught:
        ledger.write(start_torrent, request(source="magnet:?z"))
    assert caught.value.job_id == first.job_id
    assert ledger.write(start_torrent, request(scope=THERE, source="magnet:?z")).created


def test_many_starts_at_once_make_one_job(ledger: Ledger) -> None:
    found: list[str] = []
    gate = threading.Barrier(12)

    def start() -> None:
        gate.wait()
        found.append(ledger.write(start_torrent, request()).job_id)

    threads = [threading.Thread(target=start) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    assert len(set(found)) == 1


def test_the_rotation_takes_all_tenants_in_turn(ledger: Ledger, clock: Clock) -> None:
    jobs = [started(ledger, n, scope) for n in range(3) for scope in (HERE, THERE)]
    assert ledger.read(active_torrents) == 6
    seen: list[str] = []
    for _ in range(3):
        clock.sleep(1)
        due = ledger.read(due_torrents, 2)
        ledger.write(note_torrents, [], due)
        seen += [job.job_id for job in due]
    assert sorted(seen) == sorted(job.job_id for job in jobs)
    clock.sleep(1)
    assert [job.job_id for job in ledger.read(due_torrents, 2)] == seen[:2]


def test_of_250_jobs_each_is_polled_within_three_cycles(ledger: Ledger, clock: Clock) -> None:
    jobs = {started(ledger, n).job_id for n in range(250)}
    for _ in range(2):
        seen: set[str] = set()
        for _ in range(3):
            clock.sleep(15)
            due = ledger.read(due_torrents, 100)
            assert len(due) == 100
            ledger.write(note_torrents, [Noted(job, job.watch, job.stage) for job in due], due)
            seen.update(job.job_id for job in due)
        assert seen == jobs


def test_of_two_writers_the_second_changes_nothing(ledger: Ledger) -> None:
    job = started(ledger)
    mine = PollState(added_at=1, done_bytes=50, size_bytes=100, missing=Running(5, 6, 7))
    assert noted(ledger, job, mine, external_job_id=V1, identity=Identity(V1))
    assert not noted(ledger, job, PollState(added_at=2))
    now = again(ledger, job)
    assert now.watch == mine
    assert (now.progress, now.external_job_id, now.identity.v1, now.first_not_found_at) == (50, V1, V1, 5)
    assert noted(ledger, now, PollState(added_at=1), "downloading")
    assert again(ledger, job).first_not_found_at is None
    assert ledger.counts(HERE)[Status.PROCESSING] == 1


def test_no_jump_and_no_way_back(ledger: Ledger) -> None:
    job = started(ledger)
    with pytest.raises(InvalidTransition):
        noted(ledger, job, stage="completed")
    assert noted(ledger, job, stage="downloading")
    job = again(ledger, job)
    with pytest.raises(InvalidTransition):
        noted(ledger, job, stage="queued")
    assert noted(ledger, job, reason="missing_external_job", message="see http://u:secret@h/x")
    over = again(ledger, job)
    assert (over.status, over.failure_reason) == (Status.FAILED, "missing_external_job")
    assert "secret" not in (over.message or "")
    assert not noted(ledger, replace(over, stage="downloading"))
    assert ledger.read(due_torrents, 10) == []
    assert ledger.write(start_torrent, request()).created, "the place is free again"


def test_an_outage_holds_every_clock(ledger: Ledger) -> None:
    job, other = started(ledger), started(ledger, 2, THERE)
    ledger.write(hold_torrents)
    assert again(ledger, job).held
    assert again(ledger, other).held
    assert noted(ledger, job)
    assert not again(ledger, job).held
    assert again(ledger, other).held


def test_an_import_is_leased_fenced_and_completed_at_once(ledger: Ledger, clock: Clock) -> None:
    job = started(ledger)
    assert noted(ledger, job, PollState(added_at=1, seen_at=1))
    job = again(ledger, job)
    lease = leased(ledger, job)
    assert ledger.read(due_torrents, 10) == [], "not polled while it is imported"
    assert ledger.write(lease_import, job, "you", 60) is None
    assert not noted(ledger, again(ledger, job))
    new = [artifact(ledger, lease, "c"), artifact(ledger, lease, "d")]
    settled = ledger.write(complete_torrent, lease, new, main=1, storage_path="/x/d", watch=job.watch)
    assert (settled.status, settled.stage, len(settled.artifact_ids)) == (Status.COMPLETED, "completed", 2)
    done = again(ledger, job)
    assert (done.status, done.progress) == (Status.COMPLETED, 100)
    assert done.completed_at == clock.now
    assert ledger.read(due_torrents, 10) == []
    assert ledger.read(effects.unfinished, HERE, job.job_id) == []
    assert ledger.counts(HERE)[Status.COMPLETED] == 1
    with pytest.raises(LeaseLost):
        ledger.write(complete_torrent, lease, new, main=0, storage_path="/x/c", watch=job.watch)


def moves(ledger: Ledger, job: Tracked) -> list[tuple[str, int]]:
    """Give the moves in a job's history and when they were written."""
    events = ledger.timeline(job.scope, job.job_id).events
    return [(event.kind, event.at) for event in events if event.kind in ("downloading", "completed", "failed")]


def test_a_torrent_faster_than_the_polls_begins_and_ends_in_one_transaction(ledger: Ledger, clock: Clock) -> None:
    job = started(ledger)
    lease = leased(ledger, job)
    assert (again(ledger, job).stage, moves(ledger, job)) == ("queued", []), "nothing has happened yet"
    assert ledger.counts(HERE)[Status.PENDING] == 1
    new = [artifact(ledger, lease)]
    with pytest.raises(BadInput):  # a transaction that fails leaves neither move
        ledger.write(complete_torrent, lease, [], main=0, storage_path="/x", watch=job.watch)
    assert (again(ledger, job).stage, moves(ledger, job)) == ("queued", [])
    clock.sleep(5)
    ledger.write(complete_torrent, lease, new, main=0, storage_path="/x", watch=job.watch)
    assert moves(ledger, job) == [("downloading", clock.now), ("completed", clock.now)]
    counts = ledger.counts(HERE)
    assert (counts[Status.PENDING], counts[Status.PROCESSING], counts[Status.COMPLETED]) == (0, 0, 1)


def test_an_import_that_fails_leaves_a_download_and_one_that_is_interrupted_nothing(
    ledger: Ledger, clock: Clock
) -> None:
    job = started(ledger)
    assert ledger.write(release_import, leased(ledger, job), job.watch, INTERRUPTED)
    assert (again(ledger, job).stage, moves(ledger, job)) == ("queued", [])
    lease = leased(ledger, again(ledger, job))
    assert ledger.write(release_import, lease, replace(job.watch, note="no room"), "disk_full")
    assert (again(ledger, job).stage, moves(ledger, job)) == ("downloading", [("downloading", clock.now)])
    assert ledger.counts(HERE)[Status.PROCESSING] == 1
    assert not ledger.write(release_import, lease, job.watch, "disk_full"), "it was given back"


@pytest.mark.parametrize("how", ["worker", "sweep"])
def test_a_queued_import_that_is_canceled_or_dies_is_counted_once(ledger: Ledger, clock: Clock, how: str) -> None:
    job = started(ledger)
    leased(ledger, job, 10)
    asked = ledger.cancel(HERE, [job.job_id])
    assert (asked.canceled, asked.requested) == ((), (job.job_id,)), "whoever imports it is asked to stop"
    if how == "sweep":
        clock.sleep(11)
        ledger.write(expire_and_promote)
    else:
        assert ledger.write(cancel_confirmed, again(ledger, job))
    counts = ledger.counts(HERE)
    assert (counts[Status.PENDING], counts[Status.PROCESSING], counts[Status.CANCELED]) == (0, 0, 1)
    assert again(ledger, job).status is Status.CANCELED


def test_an_asset_is_available_while_every_file_of_it_is(ledger: Ledger) -> None:
    job = started(ledger)
    lease = leased(ledger, job)
    new = [artifact(ledger, lease, letter) for letter in "cde"]
    settled = ledger.write(complete_torrent, lease, new, main=1, storage_path="/x/d", watch=job.watch)
    first, _, last = settled.artifact_ids

    def state() -> tuple[str | None, str]:
        found = ledger.read(book_status, HERE, "b1", "ebook")
        assert found is not None
        assert (found.storage_path, found.job_id) == ("/x/d", job.job_id)
        return found.status, found.state

    assert ledger.read(book_status, HERE, "nothing", "ebook") is None
    assert ledger.read(book_status, THERE, "b1", "ebook") is None
    assert state() == ("available", "Library")
    ledger.mark_missing(HERE, [first, last])
    assert state() == ("missing", "Archive")
    ledger.write(mark_available, HERE, [last])
    assert state() == ("missing", "Archive"), "one lost chapter is a lost book"
    ledger.write(mark_available, HERE, [first])
    assert state() == ("available", "Library")


def test_an_import_whose_process_died_is_done_by_the_next(ledger: Ledger, clock: Clock) -> None:
    job = started(ledger)
    dead = leased(ledger, job, 10)
    new = [artifact(ledger, dead)]
    clock.sleep(11)
    (job,) = ledger.read(due_torrents, 10)
    lease = leased(ledger, job)
    assert lease.epoch == dead.epoch + 1
    with pytest.raises(LeaseLost):
        ledger.write(complete_torrent, dead, new, main=0, storage_path="/x", watch=job.watch)
    assert ledger.write(release_import, lease, replace(job.watch, note="no room"), "disk_full")
    back = again(ledger, job)
    assert (back.stage, back.watch.note) == ("downloading", "no room")
    last = leased(ledger, back)
    ledger.write(complete_torrent, last, [artifact(ledger, last)], main=0, storage_path="/x", watch=job.watch)
    assert again(ledger, job).status is Status.COMPLETED


def test_a_poll_ends_a_lease_that_ran_out(ledger: Ledger, clock: Clock) -> None:
    job = started(ledger)
    leased(ledger, job, 10)
    clock.sleep(11)
    (job,) = ledger.read(due_torrents, 10)
    assert noted(ledger, job, reason="missing_external_job", message="gone")
    assert again(ledger, job).status is Status.FAILED


def test_cancel_is_wanted_first_and_confirmed_later(ledger: Ledger) -> None:
    job = started(ledger)
    wanted = ledger.write(want_cancel, HERE, job.job_id, with_files=True)
    assert wanted.status is Status.PENDING
    assert wanted.cancel_requested_at is not None
    assert wanted.watch.cancel_files
    assert ledger.write(lease_import, wanted, "me", 60) is None, "what is to be canceled is not imported"
    assert ledger.write(cancel_confirmed, wanted)
    over = again(ledger, job)
    assert (over.status, over.released_at is not None) == (Status.CANCELED, True)
    assert ledger.counts(HERE)[Status.CANCELED] == 1
    assert ledger.write(want_cancel, HERE, job.job_id).status is Status.CANCELED


def test_a_cancel_that_comes_during_the_import_wins(ledger: Ledger) -> None:
    job = started(ledger)
    lease = leased(ledger, job)
    new = [artifact(ledger, lease)]
    wanted = ledger.write(want_cancel, HERE, job.job_id)
    with pytest.raises(LeaseLost):
        ledger.write(complete_torrent, lease, new, main=0, storage_path="/x", watch=job.watch)
    assert ledger.write(cancel_confirmed, wanted)
    assert again(ledger, job).status is Status.CANCELED


def test_a_completion_that_is_written_stays(ledger: Ledger) -> None:
    job = started(ledger)
    lease = leased(ledger, job)
    new = [artifact(ledger, lease)]
    ledger.write(complete_torrent, lease, new, main=0, storage_path="/x", watch=job.watch)
    assert ledger.write(want_cancel, HERE, job.job_id).status is Status.COMPLETED
    assert not ledger.write(cancel_confirmed, again(ledger, job))


def test_who_shares_a_torrent_is_seen_over_all_tenants(ledger: Ledger) -> None:
    first = started(ledger, 1, identity=Identity(V1))
    second = started(ledger, 2, THERE, identity=Identity(V1, V2))
    third = started(ledger, 3, identity=Identity("c" * 40))
    ledger.write(want_cancel, THERE, second.job_id)
    assert ledger.read(sharing, Identity(V1), []) == {
        first.job_id: (Status.PENDING, False),
        second.job_id: (Status.PENDING, True),
    }
    assert set(ledger.read(sharing, Identity(v2=V2), [third.job_id, "unknown"])) == {second.job_id, third.job_id}
    assert ledger.read(sharing, Identity(), []) == {}


def test_nobody_sees_another_tenants_torrents(ledger: Ledger) -> None:
    mine, theirs = started(ledger, 1, HERE), started(ledger, 1, THERE)
    assert [job.job_id for job in ledger.read(torrents, HERE)] == [mine.job_id]
    with pytest.raises(NotFound):
        ledger.read(torrent, HERE, theirs.job_id)
    with pytest.raises(NotFound):
        ledger.write(want_cancel, HERE, theirs.job_id)


def test_lists_go_on_where_they_ended(ledger: Ledger) -> None:
    jobs = [started(ledger, n).job_id for n in range(5)]
    first = ledger.read(torrents, HERE, limit=3)
    rest = ledger.read(torrents, HERE, after=first[-1].job_id)
    assert [job.job_id for job in (*first, *rest)] == jobs
    assert ledger.read(torrents, HERE, status=Status.COMPLETED) == []


def test_a_retry_knows_what_the_job_before_knew(ledger: Ledger) -> None:
    job = started(ledger, identity=Identity(V1), metainfo=b"d1:ae")
    assert noted(ledger, job, reason="missing_external_job", message="gone")
    (planned,) = ledger.retry(HERE, [job.job_id])
    new = ledger.read(torrent, HERE, planned.job_id)
    assert (new.identity, new.source, new.stage) == (Identity(V1), "magnet:?x", "queued")
    assert ledger.read(metainfo, HERE, planned.job_id) == b"d1:ae"
