"""Uploads of files that change or fail while they are read: refused by name, and the other files are taken."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longshore.config import load_settings
from longshore.depot import Depot, uploads
from longshore.errors import BadInput
from longshore.worker.kinds.upload.session import UploadSession
from tests.support.program import invoke

BODY = b"A" * (3 << 20)


@pytest.fixture
def depot(tmp_path: Path) -> Iterator[Depot]:
    with Depot(settings=load_settings(tmp_path / "depot", environ={})) as depot:
        yield depot


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "source"
    path.parent.mkdir()
    path.write_bytes(BODY)
    return path


@pytest.fixture
def while_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Do something once, after the first piece of a file was read."""

    def arrange(act: Callable[[], object]) -> None:
        write, todo = UploadSession.write, [act]

        def written(self: UploadSession, piece: bytes) -> None:
            write(self, piece)
            if todo:
                todo.pop()()

        monkeypatch.setattr(UploadSession, "write", written)

    return arrange


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"B" * 100)
        file.seek(-100, os.SEEK_END)
        file.write(b"B" * 100)


def overwrite_and_hide(path: Path) -> None:
    """Change bytes and set the old modification time again."""
    before = path.stat()
    overwrite(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def cut(path: Path) -> None:
    os.truncate(path, 2 << 20)


CHANGES = [overwrite, overwrite_and_hide, append, cut]


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_while_it_is_read_is_refused(
    depot: Depot, source: Path, while_read: Callable[..., None], change: Callable[[Path], None]
) -> None:
    while_read(lambda: change(source))
    with pytest.raises(BadInput, match="source changed while it was read"):
        depot.put(source)
    assert depot.artifacts() == []
    assert list(depot.store.walk()) == []
    assert list(depot.store.parts()) == []
    assert depot.put(source).artifact is not None


def test_an_open_file_that_changes_while_it_is_read_is_refused(
    depot: Depot, source: Path, while_read: Callable[..., None]
) -> None:
    while_read(lambda: overwrite(source))
    with source.open("rb") as file, pytest.raises(BadInput, match="changed while it was read"):
        depot.put(file)


def test_a_change_within_the_granularity_of_the_timestamps_is_seen(
    depot: Depot, source: Path, while_read: Callable[..., None]
) -> None:
    """A file system that stores whole seconds gives the same time to a file's last change and the one while it is read."""

    def change() -> None:
        overwrite(source)
        whole = time.time_ns() // 10**9 * 10**9
        os.utime(source, ns=(whole, whole))

    change()
    stamp = source.stat().st_mtime_ns
    real = os.fstat

    class Coarse:
        def __init__(self, found: os.stat_result) -> None:
            self.st_mode, self.st_size = found.st_mode, found.st_size
            self.st_mtime_ns = found.st_mtime_ns // 10**9 * 10**9
            self.st_ctime_ns = found.st_ctime_ns // 10**9 * 10**9

    while_read(change)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("longshore.depot.uploads.os.fstat", lambda fd: Coarse(real(fd)))
        with pytest.raises(BadInput, match="changed while it was read"):
            depot.put(source)
    assert source.stat().st_mtime_ns > stamp


def test_an_old_file_is_not_waited_for(depot: Depot, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(source, ns=(10**18, 10**18))
    time.sleep(uploads.TICK_NS / 10**9 * 1.5)
    monkeypatch.setattr("longshore.depot.uploads.time.sleep", lambda _: pytest.fail("waited"))
    assert depot.put(source).artifact is not None


@pytest.mark.parametrize("command", ["put", "adopt"])
def test_the_other_files_are_taken(tmp_path: Path, source: Path, while_read: Callable[..., None], command: str) -> None:
    other = source.with_name("zzz")
    other.write_bytes(b"other")
    while_read(lambda: overwrite(source))
    given = (source, other) if command == "put" else (source.parent,)
    ran = invoke(command, *given, "--depot", tmp_path / "depot", "--json")
    assert ran.code == 3
    (refused,) = ran.of("refused")
    assert refused["source"].endswith("source")
    assert "changed while it was read" in refused["message"]
    (taken,) = ran.of("taken")
    assert taken["size_bytes"] == 5


def test_adopt_in_python_takes_the_others_and_names_the_file(
    depot: Depot, source: Path, while_read: Callable[..., None]
) -> None:
    source.with_name("zzz").write_bytes(b"other")
    while_read(lambda: overwrite(source))
    with pytest.raises(BadInput, match=r"1 of 2 files .*source changed"):
        depot.adopt(source.parent)
    assert [one.size_bytes for one in depot.artifacts()] == [5]


def test_a_source_that_cannot_be_read_is_named_and_the_others_are_taken(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.write_bytes(b"good")
    ran = invoke("put", "/proc/self/mem", good, "--depot", tmp_path / "depot", "--json")
    assert ran.code == 3
    (refused,) = ran.of("refused")
    assert refused["source"] == "/proc/self/mem"
    assert "cannot be read" in refused["message"]
    (taken,) = ran.of("taken")
    assert taken["name"] == str(good)


def test_an_upload_is_described(depot: Depot) -> None:
    got = depot.put(
        b"words", artifact_type="report", schema_version="3", metadata={"pages": 2}, run_id="r", request_id="q"
    )
    assert got.artifact is not None
    assert (got.artifact.schema_version, got.artifact.metadata) == ("3", {"pages": 2})
    (job,) = depot.jobs()
    assert (job.request.run_id, job.request.request_id) == ("r", "q")
    assert job.results == (got.artifact.artifact_id,)
    with pytest.raises(BadInput, match="metadata"):
        depot.put(b"others", metadata={"x": float("nan")})


def test_put_takes_metadata(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_bytes(b"words")
    where = ("--depot", tmp_path / "depot", "--json")
    put = ("put", words, *where, "--metadata", "who=me", "--schema-version", "1", "--run", "r")
    (taken,) = invoke(*put, "--metadata", '{"pages": 2}').ok().lines
    (shown,) = invoke("show", taken["job_id"], *where).ok().lines
    (result,) = shown["artifacts"]
    assert (result["metadata"], result["schema_version"]) == ({"who": "me", "pages": 2}, "1")
    assert (shown["job"]["run_id"], shown["job"]["result_artifacts"]) == ("r", [taken["artifact_id"]])
    assert invoke("put", words, *where, "--metadata", "nothing").code == 2
