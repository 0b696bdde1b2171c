"""What goes wrong with real clients, each with the clock in the test's hand."""

from __future__ import annotations

import http.client
import http.server
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from longshore.domain.kinds import ACTIVE, Status
from longshore.domain.torrents.model import OURS_TAG, job_tag
from longshore.worker.kinds.torrent.client_checks import left_behind
from tests.support.qbt import Swarm, swarm, until
from tests.worker.torrent.bench import SCOPE, START, Bench, bench


@pytest.fixture
def depot(shared: Swarm, tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path / "depot", shared.qbt.url) as made:
        yield made


def test_removed_by_hand_fails_after_the_grace_and_is_not_added_again(depot: Bench, shared: Swarm) -> None:
    made = shared.make("removed.epub", os.urandom(30_000), seed=False)
    job_id = depot.start(made.magnet)
    depot.until_seen(job_id)
    shared.qbt.api().torrents_delete(torrent_hashes=made.id, delete_files=True)
    until("gone", lambda: not depot.client.by_ids([made.id]))
    for _ in range(5):  # misses at 0, 15, 30, 45 and 60 seconds
        job = depot.job(job_id)
        assert job.status in ACTIVE
        depot.cycle(15)
        assert depot.job(job_id).first_not_found_at == START + 15_000_000
    job = depot.job(job_id)
    assert (job.status, job.failure_reason) == (Status.FAILED, "missing_external_job")
    depot.cycle(15)
    assert depot.client.by_ids([made.id]) == []
    assert depot.rows("SELECT state FROM books") == [("Archive",)]


def test_removed_and_back_within_the_grace(depot: Bench, shared: Swarm) -> None:
    made = shared.make("flapping.epub", os.urandom(30_000), seed=False)
    api = shared.qbt.api()
    job_id = depot.start(made)
    depot.until_seen(job_id)
    for _ in range(2):
        api.torrents_delete(torrent_hashes=made.id, delete_files=False)
        until("gone", lambda: not depot.client.by_ids([made.id]))
        depot.cycle(15)
        depot.cycle(45)
        assert depot.job(job_id).first_not_found_at is not None
        api.torrents_add(torrent_files=made.data)
        until("back", lambda: depot.client.by_ids([made.id]))
        depot.cycle(14)
        assert depot.job(job_id).first_not_found_at is None
    shared.seeder.seed(made)
    depot.until_stage(job_id, "completed")


def test_paused_is_neither_failure_nor_progress(shared: Swarm, tmp_path: Path) -> None:
    made = shared.make("paused.epub", os.urandom(30_000), seed=False)
    with bench(tmp_path / "depot", shared.qbt.url, stall_s=60) as depot:
        job_id = depot.start(made)
        depot.until_seen(job_id)
        api = shared.qbt.api()
        api.torrents_pause(torrent_hashes=made.id)
        until("paused", lambda: depot.client.by_ids([made.id])[0].state in ("pausedDL", "stoppedDL"))
        for _ in range(10):
            depot.cycle(30)
        job = depot.job(job_id)
        assert (job.stage, job.watch.substate) == ("downloading", "paused")
        api.torrents_resume(torrent_hashes=made.id)
        shared.seeder.seed(made)
        depot.until_stage(job_id, "completed")


def test_no_seeds_for_too_long_is_a_setting(shared: Swarm, tmp_path: Path) -> None:
    made = shared.make("stalled.epub", os.urandom(30_000), seed=False)
    with bench(tmp_path / "depot", shared.qbt.url, stall_s=60) as depot:
        job_id = depot.start(made)
        depot.until_stage(job_id, "downloading")
        until("stalled", lambda: depot.cycle() and depot.job(job_id).watch.stalled)
        depot.cycle(59)
        assert depot.job(job_id).stage == "downloading"
        depot.cycle(1)
        assert depot.job(job_id).failure_reason == "external_stalled"
        assert depot.client.by_ids([made.id]), "what failed here may still be wanted there"
        (finding,) = left_behind(depot.ledger, depot.client)
        assert "stalled.epub" in finding.message
        assert job_id in (finding.remedy or "")
        assert depot.cancel(job_id, with_files=True).status is Status.FAILED
        until("removed", lambda: not depot.client.by_ids([made.id]))
        assert left_behind(depot.ledger, depot.client) == []


def test_a_magnet_without_metadata_is_a_setting(shared: Swarm, tmp_path: Path) -> None:
    made = shared.make("metadata.epub", os.urandom(30_000), seed=False)
    with bench(tmp_path / "depot", shared.qbt.url, metadata_s=60) as depot:
        job_id = depot.start(made.magnet)
        until("metadata", lambda: depot.cycle() and depot.job(job_id).watch.metadata)
        assert (depot.job(job_id).stage, depot.job(job_id).watch.substate) == ("queued", "metadata")
        depot.cycle(60)
        assert depot.job(job_id).failure_reason == "external_stalled"


def test_an_unwritable_save_path_fails_with_the_clients_words(shared: Swarm, tmp_path: Path) -> None:
    blocker = shared.qbt.root / "a file"
    blocker.write_text("x")
    made = shared.make("unwritable.epub", os.urandom(30_000))
    with bench(tmp_path / "depot", shared.qbt.url, save_path=str(blocker / "sub")) as depot:
        job_id = depot.start(made)
        until("error", lambda: depot.cycle() and depot.job(job_id).watch.state == "error")
        until("words", lambda: depot.cycle() and depot.job(job_id).watch.note)
        for _ in range(4):
            depot.cycle(60)
            assert depot.job(job_id).status in ACTIVE, "within the grace"
        assert depot.job(job_id).watch.restarted, "one start of ours"
        depot.until_stage(job_id, "failed", each_s=60)
        job = depot.job(job_id)
        assert (job.status, job.failure_reason) == (Status.FAILED, "external_error")
        assert "irectory" in (job.message or ""), job.message


def test_an_error_that_is_mended_in_time_goes_on(shared: Swarm, tmp_path: Path) -> None:
    blocker = shared.qbt.root / "another file"
    blocker.write_text("x")
    made = shared.make("mended.epub", os.urandom(30_000))
    with bench(tmp_path / "depot", shared.qbt.url, save_path=str(blocker)) as depot:
        job_id = depot.start(made)
        until("error", lambda: depot.cycle() and depot.job(job_id).watch.state == "error")
        blocker.unlink()
        for _ in range(3):
            depot.cycle(60)  # past half of the grace: the one automatic start
        depot.until_stage(job_id, "completed")
        assert depot.bytes_of(depot.results(job_id)[0]) == made.path.read_bytes()


def test_a_client_that_is_away_concludes_nothing(tmp_path: Path, version: str) -> None:
    with swarm(tmp_path / "s", version=version) as own, bench(tmp_path / "depot", own.qbt.url) as depot:
        made, other = own.make("away.epub", os.urandom(30_000), seed=False), own.make("new.epub", os.urandom(9_000))
        job_id = depot.start(made)
        depot.until_seen(job_id)
        own.qbt.api().torrents_delete(torrent_hashes=made.id, delete_files=True)
        until("gone for good", lambda: not depot.client.by_ids([made.id]) and not own.qbt.saved(made.id))
        depot.cycle(15)
        depot.cycle(45)
        assert depot.job(job_id).watch.missing is not None
        own.qbt.kill()
        started_away = depot.start(other, book="b2")
        for _ in range(40):  # ten minutes
            assert depot.cycle(15).away
        own.qbt.start()
        depot.cycle(15)
        job = depot.job(job_id)
        assert job.status in ACTIVE, "the clock stood still"
        assert job.watch.missing is not None
        assert job.watch.missing.ran == 45_000_000
        depot.cycle(14)
        assert depot.job(job_id).status in ACTIVE
        depot.cycle(1)
        assert depot.job(job_id).failure_reason == "missing_external_job"
        depot.until_stage(started_away, "completed")


def test_a_client_killed_during_the_download(tmp_path: Path, version: str) -> None:
    with swarm(tmp_path / "s", version=version) as own, bench(tmp_path / "depot", own.qbt.url) as depot:
        content = os.urandom(300_000)
        made = own.make("killed.epub", content, seed=False)
        job_id = depot.start(made.magnet)
        depot.until_seen(job_id)
        until("saved by the client", lambda: own.qbt.saved(made.id))
        own.qbt.kill()
        assert depot.cycle(15).away
        own.qbt.start()
        own.seeder.seed(made)
        depot.until_stage(job_id, "completed")
        assert depot.bytes_of(depot.results(job_id)[0]) == content
        assert len(own.qbt.api().torrents_info()) == 1


class Forgetful:
    """A client that acknowledges adds and loses them: a proxy before the real one that swallows the first ones."""

    def __init__(self, port: int, adds: int) -> None:
        proxy = self
        self.swallowed = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.path.endswith("/torrents/add") and proxy.swallowed < adds:
                    proxy.swallowed += 1
                    self._answer(200, {}, b"Ok.")
                    return
                link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                headers = {
                    name: value
                    for name, value in self.headers.items()
                    if name.lower() not in ("host", "accept-encoding")
                }
                link.request(self.command, self.path, body, headers | {"Host": f"127.0.0.1:{port}"})
                answer = link.getresponse()
                kept = {name: value for name, value in answer.getheaders() if name.lower() == "set-cookie"}
                self._answer(answer.status, kept, answer.read())
                link.close()

            def _answer(self, code: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = _pass_on  # noqa: N815

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def forgetful(port: int, adds: int) -> Iterator[Forgetful]:
    proxy = Forgetful(port, adds)
    try:
        yield proxy
    finally:
        proxy.close()


def test_an_add_that_was_acknowledged_and_lost_is_repeated_once(shared: Swarm, tmp_path: Path) -> None:
    made = shared.make("lost add.epub", os.urandom(30_000))
    with forgetful(shared.qbt.web_port, 1) as proxy, bench(tmp_path / "depot", proxy.url) as depot:
        job_id = depot.start(made.magnet)
        depot.cycle()
        assert proxy.swallowed == 1
        depot.cycle(15)
        assert depot.client.by_ids([made.id]) == []
        depot.cycle(15)  # the second miss: added once more
        depot.until_stage(job_id, "completed")


def test_an_add_that_is_lost_twice_fails(shared: Swarm, tmp_path: Path) -> None:
    made = shared.make("lost twice.epub", os.urandom(30_000))
    with forgetful(shared.qbt.web_port, 9) as proxy, bench(tmp_path / "depot", proxy.url) as depot:
        job_id = depot.start(made.magnet)
        cycles = 0
        while depot.job(job_id).status is Status.PENDING and cycles < 20:
            depot.cycle(15)
            cycles += 1
        job = depot.job(job_id)
        assert (job.failure_reason, proxy.swallowed) == ("missing_external_job", 2)


def test_twenty_starts_at_once_make_one_job_and_one_torrent(depot: Bench, shared: Swarm) -> None:
    made = shared.make("twenty.epub", os.urandom(30_000))
    ids: list[str] = []
    gate = threading.Barrier(20)

    def start() -> None:
        gate.wait()
        job_id = depot.start(made.magnet)
        depot.cycle()
        ids.append(job_id)

    threads = [threading.Thread(target=start) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 20
    assert len(set(ids)) == 1
    assert depot.rows("SELECT count(*) FROM jobs") == [(1,)]
    depot.until_stage(ids[0], "completed")
    torrents = [row for row in shared.qbt.api().torrents_info() if row["infohash_v1"] == made.v1]
    assert len(torrents) == 1
    assert len(depot.results(ids[0])) == 1
    assert depot.history(ids[0]).count("completed") == 1


def test_every_job_is_polled_within_three_cycles(shared: Swarm, tmp_path: Path) -> None:
    with bench(tmp_path / "depot", shared.qbt.url, batch=4) as depot:
        made = [shared.make(f"fair {n}.epub", os.urandom(2_000), seed=False) for n in range(10)]
        jobs = [depot.start(one.magnet, book=f"b{n}") for n, one in enumerate(made)]
        for _ in range(3):
            depot.cycle(15)
        until("all seen", lambda: depot.cycle(1) and all(depot.job(job).watch.seen_at for job in jobs))
        for _ in range(4):
            since = depot.clock.now
            for _ in range(3):
                assert depot.cycle(15).polled == 4
            polled = depot.rows("SELECT job_id, synced_at FROM torrents")
            assert all(at > since for _, at in polled)
        shared.qbt.api().torrents_delete(torrent_hashes=[one.id for one in made], delete_files=True)


def test_two_users_share_a_torrent_until_the_last_one_leaves(depot: Bench, shared: Swarm) -> None:
    made = shared.make("shared.epub", os.urandom(30_000), seed=False)
    first, second = depot.start(made, user="u1"), depot.start(made, user="u2")
    depot.until_seen(first)
    depot.until_seen(second)
    until("both tags", lambda: {job_tag(first), job_tag(second)} <= depot.client.by_ids([made.id])[0].tags)
    assert depot.cancel(first, with_files=True).status is Status.CANCELED
    assert depot.client.by_ids([made.id])[0].tags == {OURS_TAG, job_tag(second)}
    assert depot.cancel(second, with_files=True).status is Status.CANCELED
    until("removed", lambda: not depot.client.by_ids([made.id]))
    assert not (shared.qbt.save / "shared.epub").exists()
    assert depot.rows("SELECT count(*) FROM download_jobs WHERE status = 'canceled'") == [(2,)]


def test_a_completed_job_keeps_the_torrent_for_its_seeding(depot: Bench, shared: Swarm) -> None:
    made = shared.make("kept.epub", os.urandom(30_000))
    done = depot.start(made, user="u1")
    depot.until_stage(done, "completed")
    other = depot.start(made, user="u2")
    assert depot.cancel(other).status is Status.CANCELED
    assert depot.client.by_ids([made.id])
    assert depot.cancel(done).status is Status.COMPLETED, "what is over stays"
    assert depot.client.by_ids([made.id])


def test_files_stay_unless_asked_and_foreign_torrents_stay_always(depot: Bench, shared: Swarm) -> None:
    depot.settings = depot.settings.replaced(adopt_foreign=True)
    ours = shared.make("ours.epub", os.urandom(300_000), seed=False)
    depot.until_seen(first := depot.start(ours, user="u1"))
    theirs = shared.make("theirs.epub", os.urandom(30_000), seed=False)
    shared.qbt.api().torrents_add(torrent_files=theirs.data, tags="mine")
    until("there", lambda: depot.client.by_ids([theirs.id]))
    depot.until_seen(second := depot.start(theirs, user="u2"))
    (shared.qbt.save / "ours.epub").write_bytes(b"a part of it")
    depot.cancel(first)
    depot.cancel(second, with_files=True)
    until("ours is removed", lambda: not depot.client.by_ids([ours.id]))
    assert (shared.qbt.save / "ours.epub").exists()
    assert depot.client.by_ids([theirs.id])[0].tags == {"mine"}


def test_a_cancel_waits_for_a_client_that_is_away(tmp_path: Path, version: str) -> None:
    with swarm(tmp_path / "s", version=version) as own, bench(tmp_path / "depot", own.qbt.url) as depot:
        made = own.make("later.epub", os.urandom(30_000), seed=False)
        job_id = depot.start(made)
        depot.until_seen(job_id)
        own.qbt.stop()
        waiting = depot.cancel(job_id)
        assert waiting.status in ACTIVE
        assert waiting.cancel_requested_at is not None
        depot.cycle(15)
        own.qbt.start()
        depot.until_stage(job_id, "canceled")
        assert own.qbt.api().torrents_info() == []


def test_the_plain_cancel_of_the_ledger_reaches_the_client_too(depot: Bench, shared: Swarm) -> None:
    waiting, working = (shared.make(name, os.urandom(30_000), seed=False) for name in ("plain 1.epub", "plain 2.epub"))
    first, second = depot.start(waiting.magnet, book="b1"), depot.start(working, book="b2")
    depot.until_seen(first)
    depot.until_stage(second, "downloading")
    depot.ledger.cancel(SCOPE, [first, second])
    assert depot.job(first).stage == "canceled"
    depot.until_stage(second, "canceled")
    until("both removed", lambda: depot.cycle() and not depot.client.by_ids([waiting.id, working.id]))


def test_a_retry_of_a_failed_job_is_a_linked_new_one(depot: Bench, shared: Swarm) -> None:
    made = shared.make("retried.epub", os.urandom(30_000))
    job_id = depot.start(made)
    depot.cycle()
    until("added", lambda: depot.client.by_ids([made.id]))
    shared.qbt.api().torrents_delete(torrent_hashes=made.id, delete_files=True)
    until("gone", lambda: not depot.client.by_ids([made.id]))
    _never_seen(depot, job_id)
    (again,) = depot.ledger.retry(SCOPE, [job_id])
    assert again.job_id != job_id
    depot.until_stage(again.job_id, "completed")
    assert depot.rows(f"SELECT retry_of FROM jobs WHERE job_id = '{again.job_id}'") == [(job_id,)]


def _never_seen(depot: Bench, job_id: str) -> None:
    """Let a job fail whose torrent somebody removed."""
    job = depot.job(job_id)
    assert job.watch.seen_at is not None or job.watch.added_at is not None
    from dataclasses import replace

    from longshore.ledger.operations.torrents import Noted, note_torrents

    watch: Any = replace(job.watch, seen_at=job.watch.seen_at or depot.clock.now)
    assert depot.ledger.write(note_torrents, [Noted(job, watch, job.stage)]) == [True]
    depot.cycle(15)
    depot.cycle(60)
    assert depot.job(job_id).failure_reason == "missing_external_job"
