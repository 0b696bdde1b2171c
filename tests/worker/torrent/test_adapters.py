"""The adapters of three kinds of users, each at most 40 lines: on SQLite, on PostgreSQL and with a real client."""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import apsw
import psycopg
import pytest

import longshore
from longshore import Depot, Scope
from longshore.config import load_settings
from longshore.domain.kinds import Status
from longshore.errors import Conflict
from tests.support.origin import Origin, Thing, cut
from tests.support.qbt import PASSWORD, Swarm, until

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PDF = b"%PDF-1.7\n" + b"1 0 obj\n" * 50
FIELDS = {
    *("final_path", "part_path", "content_length", "etag", "last_modified", "sha256", "bytes_written", "resumed"),
    *("resumed_from_bytes", "fsync_ms", "elapsed_ms", "avg_write_mibps", "dedupe_action", "shard_prefix"),
}


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")]))
    return importlib.import_module(name)


def opened(tmp_path: Path, where: str, **given: Any) -> Depot:
    allow = {"network": {"allow": ["127.0.0.0/8"]}, "retry": {"base_s": 0.01, "cap_s": 0.05}}
    return Depot(settings=load_settings(tmp_path / "depot", environ={}, ledger=where, **allow, **given))


@pytest.fixture
def table(where: str) -> Iterator[Any]:
    """Make a table of the user's own, and look into it past every policy."""
    if where.startswith("postgres"):
        with psycopg.connect(where, autocommit=True) as server:
            made: list[str] = []

            def run(text: str) -> list[tuple[Any, ...]]:
                cursor = server.execute(text.encode())
                if "CREATE TABLE" in text:
                    made.append(text.partition("EXISTS ")[2].split()[0])
                    server.execute(f"SELECT protect_table('{made[-1]}')".encode())
                return cursor.fetchall() if cursor.description else []

            yield run
            for name in made:
                server.execute(f"DROP TABLE {name}".encode())
        return
    file = apsw.Connection(where)
    file.set_busy_timeout(10_000)
    yield lambda text: file.execute(text).fetchall()
    file.close()


@pytest.mark.parametrize("name", ["downloader_adapter", "library_adapter", "platform_adapter"])
def test_an_adapter_has_at_most_forty_lines(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 40


def test_the_downloader_gets_its_manifest_row(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = example("downloader_adapter", monkeypatch)
    with Origin() as origin, opened(tmp_path, where) as depot:
        url = origin.add("/a.pdf", Thing(PDF, etag='"v1"'))
        named = {"work_id": "w-1", "artifact_id": "a-1", "url": url}
        row = adapter.download_pdf(depot, **named)
        assert set(row) == FIELDS
        assert Path(row["final_path"]).read_bytes() == PDF
        assert (row["etag"], row["bytes_written"], row["resumed"], row["dedupe_action"]) == (
            '"v1"',
            len(PDF),
            0,
            "download",
        )
        assert row["shard_prefix"] == row["sha256"][:2]
        again = adapter.download_pdf(depot, **named)
        assert (again["dedupe_action"], again["sha256"], origin.count("/a.pdf")) == ("skipped", row["sha256"], 1)
        large = PDF + os.urandom(3_000_000)
        url = origin.add("/large.pdf", cut(Thing(large, etag='"v2"'), 2_500_000), Thing(large, etag='"v2"'))
        row = adapter.download_pdf(depot, work_id="w-2", artifact_id="a-2", url=url)
        assert (row["resumed"], row["content_length"]) == (1, len(large))
        url = origin.add("/page.pdf", Thing(b"<!DOCTYPE html><html>log in</html>"))
        with pytest.raises(adapter.DownloadFailed, match="html_page"):
            adapter.download_pdf(depot, work_id="w-3", artifact_id="a-3", url=url)
        assert depot.verify().findings == []


def test_the_platform_keeps_its_own_rows(
    tmp_path: Path, where: str, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = example("platform_adapter", monkeypatch)
    scope, other = Scope("acme", "calls"), Scope("other", "calls")
    table(adapter.TABLES)
    with opened(tmp_path, where) as depot:
        recording = depot.put(io.BytesIO(b"hello"), name="call.txt", scope=scope).artifact
        silent = depot.put(io.BytesIO(b" "), name="silent.txt", scope=scope).artifact
        assert recording is not None
        assert silent is not None
        params = {"transcript_id": "t-1", "temperature": 0.2}
        job = depot.submit("transcribe", inputs=[recording], params=params, scope=scope)
        failing = depot.submit("transcribe", inputs=[silent], params={**params, "transcript_id": "t-2"}, scope=scope)
        result = depot.run()
        assert (result.completed, result.failed) == (1, 1)
        assert depot.ledger.job(scope, failing.job_id).reason == "recording.silent"
        found = adapter.transcript(depot, "t-1", scope)
        assert (found.created_by_job_id, found.metadata["temperature"]) == (job.job_id, 0.2)
        rows = [tuple(row) for row in table("SELECT tenant_id, transcript_id, artifact_id FROM transcripts")]
        assert rows == [("acme", "t-1", found.artifact_id)]
        with pytest.raises(ValueError, match="not enough values"):
            adapter.transcript(depot, "t-1", other)
        assert depot.delete(found.artifact_id, scope=scope).artifact_ids == [found.artifact_id]
        assert table("SELECT count(*) FROM transcripts")[0][0] == 0, "the row goes with its artifact"
        assert depot.verify(scope=scope).findings == []


def test_the_library_shelves_what_the_client_fetched(
    tmp_path: Path, where: str, table: Any, shared: Swarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = example("library_adapter", monkeypatch)
    table(adapter.SHELVES)
    client = {"url": shared.qbt.url, "username": "admin", "password": PASSWORD}
    with opened(tmp_path, where, qbittorrent=client) as depot:
        library = adapter.Library(depot)
        made = shared.make(f"shelf {depot.ledger.dialect}", {"1.mp3": os.urandom(5_000), "2.mp3": os.urandom(5_000)})
        job_id = library.request("u1", "b1", "audiobook", made.magnet)
        assert library.request("u1", "b1", "audiobook", made.magnet) == job_id
        with pytest.raises(Conflict):
            library.request("u1", "b1", "audiobook", f"magnet:?xt=urn:btih:{'2' * 40}")
        until("the book is there", lambda: job_id in library.refresh())
        rows = [tuple(row) for row in table("SELECT book_id, media_type, job_id, files FROM shelves")]
        assert rows == [("b1", "audiobook", job_id, 2)]
        assert depot.torrents.book("b1").state == "Library"
        waiting = library.request("u1", "b2", "ebook", f"magnet:?xt=urn:btih:{os.urandom(20).hex()}")
        assert library.cancel(waiting) == "canceled"
        assert depot.torrents.show(waiting).status is Status.CANCELED
        assert depot.verify().findings == []


def test_the_adapters_use_public_names_only() -> None:
    """What an adapter imports of the package is documented."""
    assert {"Depot", "Scope", "ArtifactFilter", "JobFailed", "Result", "Input"} <= set(longshore.__all__)
