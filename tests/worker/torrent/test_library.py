"""`depot.torrents` as a media library uses it, with a real client: books, conflicts, failed releases, folders, deletion."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from longshore import Depot
from longshore.checker import check
from longshore.checker.check import LocalFiles
from longshore.config import load_settings
from longshore.domain.kinds import Status
from longshore.errors import Conflict, NotFound
from longshore.exports.directory_formats import link_tree
from longshore.exports.read_ledger import manifest_rows
from longshore.exports.torrent_origins import torrent_origins
from longshore.ledger.queries.torrents import Tracked
from longshore.ledger.records import CompletedJob
from longshore.ledger.user_tables import UserTx
from longshore.store import blob_names
from tests.support.origin import Origin, status
from tests.support.qbt import PASSWORD, Swarm, until

BOOK: dict[str, Any] = {"user_id": "u1", "book_id": "b1", "media_type": "ebook"}


@pytest.fixture
def depot(shared: Swarm, tmp_path: Path, where: str) -> Iterator[Depot]:
    client = {"url": shared.qbt.url, "username": "admin", "password": PASSWORD, "poll_s": 0.1}
    settings = load_settings(
        tmp_path / "depot", environ={}, ledger=where, qbittorrent=client, network={"allow": ["127.0.0.0/8"]}
    )
    with Depot(settings=settings) as opened:
        yield opened


def done(depot: Depot, job: Tracked) -> Tracked:
    def over() -> bool:
        depot.torrents.sync()
        return depot.torrents.show(job.job_id).status in (Status.COMPLETED, Status.FAILED)

    until("the job is over", over)
    return depot.torrents.show(job.job_id)


def epub() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as book:
        book.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        book.writestr("META-INF/container.xml", "<container/>")
        book.writestr("chapter.xhtml", os.urandom(20_000))
    return made.getvalue()


def test_a_book_is_started_listed_completed_and_told_to_the_application(depot: Depot, shared: Swarm) -> None:
    told: list[CompletedJob] = []

    def library(tx: UserTx, job: CompletedJob) -> None:
        (count,) = tx.execute("SELECT count(*) FROM artifacts WHERE tenant_id = :tenant", {"tenant": job.tenant_id})
        assert count[0] == 1, "the hook is in the transaction that registers the files"
        told.append(job)

    depot.torrents.on_completed(library)
    content = epub()
    made = shared.make(f"library {depot.ledger.dialect}.epub", content)
    job = depot.torrents.start(made.magnet, **BOOK)
    assert depot.torrents.start(made.magnet, **BOOK).job_id == job.job_id
    with pytest.raises(Conflict) as raised:
        depot.torrents.start(f"magnet:?xt=urn:btih:{'1' * 40}", **BOOK)
    assert raised.value.job_id == job.job_id
    assert [one.job_id for one in depot.torrents.list(active=True)] == [job.job_id]
    assert depot.torrents.book("b1").state == "Archive"
    assert done(depot, job).status is Status.COMPLETED
    assert depot.torrents.list(active=True) == []
    (file,) = depot.torrents.files(job.job_id)
    (result,) = told[-1].results
    assert (told[-1].request.book_id, result.artifact_id) == ("b1", file.artifact_id)
    assert file.content_type == "application/epub+zip"
    path = depot.store.path(depot.scope, file.pointer)
    assert path is not None
    assert (path.suffix, path.read_bytes()) == (".epub", content)
    book = depot.torrents.book("b1")
    (asset,) = book.assets
    assert (book.state, asset.status, asset.artifact_id) == ("Library", "available", file.artifact_id)
    assert depot.torrents.books() == [book]
    with pytest.raises(NotFound):
        depot.torrents.book("b2")


def test_a_hook_that_raises_leaves_the_torrent_to_be_imported_again(depot: Depot, shared: Swarm) -> None:
    raises = [True]

    def library(tx: UserTx, job: CompletedJob) -> None:
        if raises:
            raise ZeroDivisionError

    depot.torrents.on_completed(library)
    made = shared.make(f"raises {depot.ledger.dialect}.epub", os.urandom(9_000))
    job = depot.torrents.start(made.data, **BOOK)

    def noted() -> bool:
        depot.torrents.sync()
        return "ZeroDivisionError" in (depot.torrents.show(job.job_id).watch.note or "")

    until("the reason is noted", noted)
    assert depot.torrents.show(job.job_id).stage == "downloading"
    assert depot.artifacts() == []
    raises.clear()
    assert done(depot, job).status is Status.COMPLETED


def test_a_release_that_failed_is_refused_unless_the_caller_insists(depot: Depot) -> None:
    with Origin() as origin:
        url = origin.add("/a.torrent", status(404))
        first = done(depot, depot.torrents.start(url, **BOOK))
        assert (first.status, first.failure_reason) == (Status.FAILED, "http_404")
        with pytest.raises(Conflict, match=f"job {first.job_id}.*http_404") as raised:
            depot.torrents.start(url, **BOOK)
        assert "--again" in str(raised.value.hint)
        other = depot.torrents.start(url, **{**BOOK, "book_id": "b2"})
        assert other.job_id != first.job_id, "the failure was that of one book"
        again = depot.torrents.start(url, again=True, **BOOK)
        assert again.job_id != first.job_id
        assert done(depot, again).status is Status.FAILED
        assert depot.ledger.job(depot.scope, again.job_id).debug_id


def test_a_cancel_frees_the_place_and_is_no_failed_release(depot: Depot) -> None:
    magnet = f"magnet:?xt=urn:btih:{os.urandom(20).hex()}"
    job = depot.torrents.start(magnet, **BOOK)
    canceled = depot.torrents.cancel(job.job_id)
    assert canceled.status is Status.CANCELED
    again = depot.torrents.start(magnet, **BOOK)
    assert again.job_id != job.job_id
    depot.torrents.cancel(again.job_id)


def test_folders_are_kept_in_a_tree_and_templates_know_the_book(depot: Depot, shared: Swarm, tmp_path: Path) -> None:
    name = f"audio {depot.ledger.dialect}"
    files = {"1.mp3": os.urandom(3_000), "extras/1.mp3": os.urandom(4_000), "cover.jpg": os.urandom(500)}
    made = shared.make(name, files)
    book = {**BOOK, "media_type": "audiobook"}
    assert done(depot, depot.torrents.start(made.magnet, **book)).status is Status.COMPLETED
    depot.put(io.BytesIO(b"a file with the folder's name"), name=name)

    def tree(target: Path, template: str) -> dict[str, bytes]:
        def place(row: object, path: Path) -> None:
            artifact = depot.ledger.artifact(depot.scope, row.artifact_id)  # type: ignore[attr-defined]
            depot.place(artifact, path)

        rows = manifest_rows(depot.ledger, depot.scope, held=True)
        link_tree(rows, target, place, template, torrent_origins(depot.ledger, depot.scope))
        return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}

    placed = tree(tmp_path / "tree", "{name}")
    assert {path: placed[path] for path in placed if "/" in path} == {f"{name}/{path}": files[path] for path in files}
    assert len(placed) == 4
    by_book = tree(tmp_path / "books", "{book_id}/{media_type}/{sha256}.{ext}")
    assert {path.rpartition("/")[0] for path in by_book} == {"b1/audiobook", "none/none"}


def test_deleting_a_file_of_an_asset_removes_the_asset(depot: Depot, shared: Swarm) -> None:
    made = shared.make(f"deleted {depot.ledger.dialect}", {"a.epub": os.urandom(3_000), "b.jpg": os.urandom(99)})
    job = done(depot, depot.torrents.start(made.magnet, **BOOK))
    files = depot.torrents.files(job.job_id)
    assert depot.torrents.book("b1").state == "Library"
    assert len(depot.delete([files[1].artifact_id]).artifact_ids) == 1
    book = depot.torrents.book("b1")
    assert (book.state, book.assets[0].status, book.assets[0].artifact_id) == ("Archive", "removed", None)
    assert len(depot.delete([files[0].artifact_id]).artifact_ids) == 1
    assert depot.torrents.files(job.job_id) == []
    assert (shared.qbt.save / made.path.name).exists(), "the client's own files are the client's"
    if depot.ledger.dialect == "sqlite":
        place = Path(depot.settings.depot, "store")
        assert check(depot.settings.ledger, LocalFiles(place)).findings == []


@pytest.mark.parametrize(
    ("first", "ext"),
    [
        (epub(), ".epub"),
        (b"PK\x03\x04" + bytes(26) + b"META-INF/container.xml", ".epub"),
        (b"PK\x03\x04" + bytes(26) + b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet", ".ods"),
        (b"PK\x03\x04" + bytes(26) + b"[Content_Types].xml" + bytes(200) + b"word/document.xml", ".docx"),
        (b"PK\x03\x04" + bytes(26) + b"page 1.jpg", ".zip"),
        (b"PK\x03\x04" + bytes(1100) + b"word/document.xml", ".zip"),
    ],
)
def test_a_zip_is_named_after_what_is_in_it(first: bytes, ext: str) -> None:
    assert blob_names.extension(first) == ext


def test_an_epub_that_was_stored_as_a_zip_keeps_its_name(tmp_path: Path) -> None:
    with Depot(settings=load_settings(tmp_path / "depot", environ={})) as depot:
        content = epub()
        artifact = depot.put(io.BytesIO(content), name="a.epub").artifact
        assert artifact is not None
        path = depot.store.path(depot.scope, artifact.pointer)
        assert path is not None
        path.rename(path.with_suffix(".zip"))
        pointer = artifact.pointer.replace(".epub", ".zip")
        with apsw.Connection(depot.settings.ledger) as file:
            file.execute("DROP TRIGGER artifacts_immutable")
            file.execute("UPDATE artifacts SET storage_pointer = ?", (pointer,))
            file.execute("UPDATE blobs SET storage_pointer = ?", (pointer,))
        again = depot.put(io.BytesIO(content), name="b.epub", artifact_type="other")
        assert again.artifact is not None
        assert [one.name for one in path.parent.iterdir()] == [path.with_suffix(".zip").name]
