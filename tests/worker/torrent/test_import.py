"""From a magnet link or a .torrent to bytes in the store, with a real client and a real seeder."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.domain.kinds import Status
from longshore.domain.model import Scope
from longshore.domain.torrents.model import OURS_TAG, job_tag
from longshore.errors import Conflict, LeaseLost
from longshore.ledger.operations.artifact_registry import mark_available
from longshore.ledger.operations.torrents import lease_import
from longshore.store import open_store
from longshore.worker.kinds.torrent.import_files import Import
from tests.support.origin import Origin, Thing, status
from tests.support.qbt import Swarm, until
from tests.worker.torrent.bench import SCOPE, Bench, bench


@pytest.fixture
def depot(shared: Swarm, tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path / "depot", shared.qbt.url) as made:
        yield made


def test_a_magnet_becomes_a_book_in_the_library(depot: Bench, shared: Swarm) -> None:
    content = os.urandom(400_000)
    made = shared.make("magnet book.epub", content)
    job_id = depot.start(made.magnet)
    assert depot.rows("SELECT state FROM books") == [("Archive",)]
    done = depot.until_stage(job_id, "completed")
    assert done.status is Status.COMPLETED
    assert done.progress == 100
    (artifact,) = depot.results(job_id)
    assert depot.bytes_of(artifact) == content
    assert artifact.name == "magnet book.epub"
    assert depot.rows("SELECT book_id, state FROM books") == [("b1", "Library")]
    ((status_, path, source, artifact_id, asset_job),) = depot.rows(
        "SELECT status, storage_path, source_url, artifact_id, job_id FROM media_assets"
    )
    assert (status_, source, artifact_id, asset_job) == ("available", made.magnet, artifact.artifact_id, job_id)
    assert Path(path).read_bytes() == content
    assert depot.history(job_id)[-2:] == ["downloading", "completed"], "never a jump from queued"
    assert (shared.qbt.save / "magnet book.epub").read_bytes() == content, "the seeder keeps its file"


def test_a_torrent_file_becomes_a_book_and_is_linked_not_copied(depot: Bench, shared: Swarm) -> None:
    made = shared.make("file.epub", os.urandom(100_000))
    job_id = depot.start(made)
    depot.until_stage(job_id, "completed")
    (artifact,) = depot.results(job_id)
    path = depot.store.path(SCOPE, artifact.pointer)
    theirs = shared.qbt.save / "file.epub"
    assert path is not None
    assert path.stat().st_ino == theirs.stat().st_ino
    assert theirs.stat().st_mode & 0o200, "the client may still write its own file"
    seen = depot.client.by_ids([made.id])[0]
    assert seen.tags == {OURS_TAG, job_tag(job_id)}
    assert seen.category == "longshore-ebook"


def test_without_links_the_file_is_copied(shared: Swarm, tmp_path: Path) -> None:
    made = shared.make("copied.epub", os.urandom(100_000))
    with bench(tmp_path / "depot", shared.qbt.url, hardlink=False) as depot:
        job_id = depot.start(made)
        depot.until_stage(job_id, "completed")
        (artifact,) = depot.results(job_id)
        path = depot.store.path(SCOPE, artifact.pointer)
        assert path is not None
        assert path.stat().st_ino != (shared.qbt.save / "copied.epub").stat().st_ino
        assert depot.bytes_of(artifact) == made.path.read_bytes()
        assert list(depot.store.parts()) == []


def test_into_a_store_that_is_elsewhere(shared: Swarm, tmp_path: Path, postgres_dsn: str) -> None:
    made = shared.make("elsewhere.epub", os.urandom(100_000))
    with bench(tmp_path / "depot", shared.qbt.url) as depot:
        here, depot.store = depot.store, open_store(postgres_dsn, parts=tmp_path / "parts")  # type: ignore[assignment]
        try:
            job_id = depot.start(made)
            depot.until_stage(job_id, "completed")
            (artifact,) = depot.results(job_id)
            assert depot.bytes_of(artifact) == made.path.read_bytes()
            assert depot.rows("SELECT storage_path FROM media_assets") == [(artifact.pointer,)]
            assert (shared.qbt.save / "elsewhere.epub").stat().st_mode & 0o200
        finally:
            depot.store.close()
            depot.store = here


def test_an_import_stops_when_its_lease_is_lost(depot: Bench, shared: Swarm) -> None:
    made = shared.make("stopped.epub", os.urandom(100_000))
    job_id = depot.start(made)
    depot.cycle()
    until("finished", lambda: [seen for seen in depot.client.by_ids([made.id]) if seen.complete])
    lease = depot.ledger.write(lease_import, depot.job(job_id), "somebody", 60)
    assert lease is not None
    lost = threading.Event()
    lost.set()
    files = depot.client.files(made.id)
    assert files is not None
    with pytest.raises(LeaseLost):
        Import(depot.ledger, depot.store, depot.settings, lease, lost).take(str(shared.qbt.save), files)
    assert list(depot.store.walk()) == []
    depot.cycle(15)
    assert depot.job(job_id).stage == "queued", "it is somebody else's"
    depot.clock.turn(60)
    depot.until_stage(job_id, "completed")


def test_a_hybrid_added_by_its_v1_magnet_changes_its_id(depot: Bench, shared: Swarm) -> None:
    content = os.urandom(300_000)
    made = shared.make("hybrid.epub", content, version="hybrid")
    job_id = depot.start(made.v1_magnet)
    assert depot.job(job_id).identity.v2 is None
    done = depot.until_stage(job_id, "completed")
    assert done.external_job_id == made.id
    assert (done.identity.v1, done.identity.v2) == (made.v1, made.v2)
    assert depot.bytes_of(depot.results(job_id)[0]) == content


def test_a_folder_gives_every_file_and_the_largest_of_its_medium_stands_for_it(depot: Bench, shared: Swarm) -> None:
    files = {
        "part 1.mp3": os.urandom(90_000),
        "sub/part 2.mp3": os.urandom(150_000),
        "same as part 1.mp3": b"",
        "booklet.pdf": os.urandom(200_000),
        "cover.jpg": os.urandom(900),
    }
    files["same as part 1.mp3"] = files["part 1.mp3"]
    made = shared.make("audio book", files)
    job_id = depot.start(made, media="audiobook")
    depot.until_stage(job_id, "completed")
    results = depot.results(job_id)
    assert {str(artifact.metadata["path"]): depot.bytes_of(artifact) for artifact in results} == {
        f"audio book/{name}": content for name, content in files.items()
    }
    largest = next(artifact for artifact in results if artifact.name == "part 2.mp3")
    path = str(depot.store.path(SCOPE, largest.pointer))
    assert depot.rows("SELECT artifact_id, storage_path, status FROM media_assets") == [
        (largest.artifact_id, path, "available")
    ]
    assert depot.rows("SELECT role, ordinal FROM job_artifacts ORDER BY ordinal") == [("result", n) for n in range(5)]
    assert depot.rows("SELECT count(*) FROM blobs") == [(4,)], "the same bytes are kept once"
    assert depot.ledger.mark_missing(SCOPE, [results[0].artifact_id]) == 1
    assert depot.rows("SELECT state FROM books") == [("Archive",)], "any lost file, not only the main one"
    assert depot.client.by_ids([made.id])[0].category == "longshore-audiobook"


def test_files_that_nobody_wanted_are_not_taken(depot: Bench, shared: Swarm) -> None:
    made = shared.make("choice", {"a.txt": os.urandom(50_000), "b.txt": os.urandom(50_000)}, seed=False)
    api = shared.qbt.api()
    job_id = depot.start(made)
    depot.until_seen(job_id)
    files = until("files", lambda: api.torrents_files(torrent_hash=made.id))
    unwanted = next(file["index"] for file in files if file["name"].endswith("b.txt"))
    api.torrents_file_priority(torrent_hash=made.id, file_ids=unwanted, priority=0)
    shared.seeder.seed(made)
    depot.until_stage(job_id, "completed")
    assert [artifact.name for artifact in depot.results(job_id)] == ["a.txt"]


def test_the_same_start_is_the_same_job_and_another_source_is_refused(depot: Bench, shared: Swarm) -> None:
    made, other = shared.make("same.epub", os.urandom(30_000)), shared.make("other.epub", os.urandom(30_000))
    first = depot.started(made.magnet)
    assert first.created
    for again in (made.magnet, f"magnet:?xt=urn:btih:{made.v1}", made):
        started = depot.started(again)
        assert (started.job_id, started.created) == (first.job_id, False)
    with pytest.raises(Conflict) as caught:
        depot.started(other.magnet)
    assert caught.value.job_id == first.job_id
    assert first.job_id in str(caught.value)
    assert depot.started(other.magnet, user="u2").created
    assert depot.started(other.magnet, book="b2").created
    assert depot.started(other.magnet, media="audiobook").created
    assert depot.started(other.magnet, scope=Scope("t2", "p1")).created


def test_after_the_end_the_place_is_free_and_the_source_url_stays(depot: Bench, shared: Swarm) -> None:
    first, second = shared.make("first.epub", os.urandom(30_000)), shared.make("second.epub", os.urandom(30_000))
    depot.until_stage(depot.start(first.magnet), "completed")
    job_id = depot.start(second.magnet)
    depot.until_stage(job_id, "completed")
    (artifact,) = depot.results(job_id)
    rows = depot.rows("SELECT source_url, artifact_id, job_id FROM media_assets")
    assert rows == [(first.magnet, artifact.artifact_id, job_id)]


def test_a_book_whose_bytes_are_lost_is_archived_and_comes_back(depot: Bench, shared: Swarm) -> None:
    made = shared.make("lost.epub", os.urandom(30_000))
    job_id = depot.start(made.magnet)
    depot.until_stage(job_id, "completed")
    (artifact,) = depot.results(job_id)
    assert depot.ledger.mark_missing(SCOPE, [artifact.artifact_id]) == 1
    assert depot.rows("SELECT status FROM media_assets") == [("missing",)]
    assert depot.rows("SELECT state FROM books") == [("Archive",)]
    depot.ledger.write(mark_available, SCOPE, [artifact.artifact_id])
    assert depot.rows("SELECT state FROM books") == [("Library",)]


def test_a_torrent_that_was_there_already_is_adopted_and_left_alone(depot: Bench, shared: Swarm) -> None:
    depot.settings = depot.settings.replaced(adopt_foreign=True)
    made = shared.make("foreign.epub", os.urandom(30_000))
    api = shared.qbt.api()
    api.torrents_add(torrent_files=made.data, category="theirs", tags="mine")
    until("finished", lambda: [seen for seen in depot.client.by_ids([made.id]) if seen.complete])
    job_id = depot.start(made.magnet)
    depot.until_stage(job_id, "completed")
    assert depot.job(job_id).watch.foreign
    assert depot.bytes_of(depot.results(job_id)[0]) == made.path.read_bytes()
    seen = depot.client.by_ids([made.id])[0]
    assert (seen.category, seen.tags) == ("theirs", frozenset({"mine", job_tag(job_id)}))


def test_a_torrent_behind_a_url_is_fetched_by_us(depot: Bench, shared: Swarm) -> None:
    made = shared.make("url.epub", os.urandom(30_000))
    with Origin() as origin:
        origin.add("/a.torrent", Thing(made.data))
        job_id = depot.start(origin.url("/a.torrent"))
        depot.until_stage(job_id, "completed")
        assert origin.count("/a.torrent") == 1
    assert depot.bytes_of(depot.results(job_id)[0]) == made.path.read_bytes()


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (status(404), "http_404"),
        (Thing(b"<!DOCTYPE html><html>log in</html>", content_type="text/html"), "html_page"),
        (Thing(b"d4:infod4:name1:aee"), "bad_torrent"),
    ],
)
def test_a_url_that_gives_no_torrent_fails_at_once(depot: Bench, behaviour: object, reason: str) -> None:
    with Origin() as origin:
        origin.add("/a.torrent", behaviour)  # type: ignore[arg-type]
        job_id = depot.start(origin.url("/a.torrent"))
        depot.cycle()
    job = depot.job(job_id)
    assert (job.status, job.failure_reason) == (Status.FAILED, reason)
    assert depot.rows("SELECT status, failure_reason FROM download_jobs") == [("failed", reason)]


def test_a_url_that_fails_for_now_is_tried_as_often_as_set(shared: Swarm, tmp_path: Path) -> None:
    with Origin() as origin, bench(tmp_path / "depot", shared.qbt.url, enqueue_attempts=3) as depot:
        origin.add("/a.torrent", status(503))
        job_id = depot.start(origin.url("/a.torrent"))
        for attempt in (1, 2):
            depot.cycle(15)
            assert (depot.job(job_id).stage, depot.job(job_id).watch.refusals) == ("queued", attempt)
        depot.cycle(15)
        assert (depot.job(job_id).stage, depot.job(job_id).failure_reason) == ("failed", "http_503")
        assert origin.count("/a.torrent") == 3
