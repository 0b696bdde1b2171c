"""The depot as an fsspec file system: fsspec's own tests where they read, and the programs that read through it."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from hashlib import md5, sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
import pytest
from fsspec.tests.abstract import AbstractFixtures, AbstractGetTests

from longshore.depot import Depot
from longshore.domain.model import Scope
from longshore.integrations.filesystem import LongshoreFileSystem
from tests.support.origin import Origin, Thing
from tests.worker.conftest import MakeDepot

CSV = b"name,n\none,1\ntwo,2\n"


def put(depot: Depot, body: bytes, work: str, name: str, **given: Any) -> str:
    inside: dict[str, Any] = {"metadata": {"path": name}} if "/" in name else {}
    taken = depot.put(io.BytesIO(body), name=name.rpartition("/")[2], work_id=work, **inside, **given).artifact
    assert taken is not None
    return taken.artifact_id


@pytest.fixture
def depot(make_depot: MakeDepot) -> Depot:
    return make_depot()


@pytest.fixture
def fs(depot: Depot) -> Iterator[LongshoreFileSystem]:
    system = fsspec.filesystem("longshore", depot=depot.settings.depot, skip_instance_cache=True)
    assert type(system) is LongshoreFileSystem
    yield system
    system.close()


class TestAbstract(AbstractFixtures, AbstractGetTests):
    """fsspec's tests of reading. Copying, writing and moving inside the file system do not apply: it is read-only."""

    @pytest.fixture
    def fs(self, fs: LongshoreFileSystem, depot: Depot, monkeypatch: pytest.MonkeyPatch) -> LongshoreFileSystem:
        """One of the tests makes its files with `mkdir` and `touch`: that goes to the depot itself."""
        monkeypatch.setattr(fs, "mkdir", print)
        monkeypatch.setattr(
            fs, "touch", lambda path: made(depot, path.removeprefix("works/").partition("/")[2], work="src")
        )
        return fs

    @pytest.fixture
    def fs_path(self) -> str:
        return "works"

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *parts: "/".join(str(part) for part in parts)

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self, depot: Depot) -> str:
        return made(depot, "file1", "file2", "subdir/subfile1", "subdir/subfile2", "subdir/nesteddir/nestedfile")

    @pytest.fixture
    def fs_glob_edge_cases_files(self, depot: Depot) -> str:
        inner = ("subfile1", "subfile2", "nesteddir/nestedfile")
        return made(depot, "file1", "file2", *(f"subdir{number}/{name}" for number in range(2) for name in inner))

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self, depot: Depot) -> str:
        return made(depot, "subdir.txt", "subdir/subfile.txt")

    @pytest.fixture
    def fs_10_files_with_hashed_names(self, depot: Depot) -> str:
        for number in range(10):
            put(depot, b"%d" % number, "source", f"{md5(b'%d' % number).hexdigest()}.txt")
        return "works/source"


def made(depot: Depot, *names: str, work: str = "source") -> str:
    for name in names:
        put(depot, name.encode(), work, name)
    return f"works/{work}"


def test_every_way_to_a_file_says_the_same(depot: Depot, fs: LongshoreFileSystem, origin: Origin) -> None:
    url = origin.add("/data.csv", Thing(CSV))
    artifact = depot.get([url])[0].artifact
    assert artifact is not None
    digest = sha256(CSV).hexdigest()
    work = f"works/{quote(url, safe='')}"
    ways = [f"{work}/data.csv", f"sha256/{digest}", f"artifacts/{artifact.artifact_id}"]
    for way in ways:
        found = fs.info(way)
        assert (found["name"], found["size"], found["type"], found["sha256"]) == (way, len(CSV), "file", digest)
        assert fs.cat_file(f"longshore://{way}") == CSV
        assert (fs.cat_file(way, 5, 9), fs.cat_file(way, -2)) == (CSV[5:9], CSV[-2:])
        assert (fs.ukey(way), fs.checksum(way)) == (digest, int(digest, 16))
        assert fs.created(way) == fs.modified(way)
        assert fs.ls(way, detail=False) == [way]
        with fs.open(way, "rt") as text:
            assert text.readline() == "name,n\n"
        assert fs.ls(fs._parent(way), detail=False) == [way]
    assert fs.ls("", detail=False) == ["artifacts", "manifest.parquet", "projects", "sha256", "works"]
    assert fs.ls("works", detail=False) == [work]
    assert fs.isdir(work) and fs.isdir("works") and fs.isfile(ways[0]) and not fs.exists("works/nothing")
    assert pickle.loads(pickle.dumps(fs)).cat_file(ways[0]) == CSV


def test_a_project_of_its_own(depot: Depot, fs: LongshoreFileSystem) -> None:
    depot.put(io.BytesIO(b"here"), name="a", work_id="w")
    depot.put(io.BytesIO(b"there"), name="a", work_id="w", scope=Scope("default", "other"))
    assert fs.ls("projects", detail=False) == ["projects/default", "projects/other"]
    assert fs.cat_file("works/w/a") == fs.cat_file("projects/default/works/w/a") == b"here"
    assert fs.cat_file("projects/other/works/w/a") == b"there"
    assert fs.ls("projects/other/works", detail=False) == ["projects/other/works/w"]
    assert not fs.exists(f"sha256/{sha256(b'there').hexdigest()}")
    assert fs.info("projects/other/manifest.parquet")["size"] > 0


def test_two_files_of_one_name(depot: Depot, fs: LongshoreFileSystem) -> None:
    put(depot, b"old", "w", "a.txt")
    put(depot, b"new", "w", "a.txt")
    assert fs.cat_file("works/w/a.txt") == b"new"
    names = fs.ls("works/w", detail=False)
    assert sorted(fs.cat_file(name) for name in names) == [b"new", b"old"]


def test_damaged_lost_and_deleted_bytes_are_not_read(depot: Depot, fs: LongshoreFileSystem) -> None:
    damaged, deleted = put(depot, b"damaged", "w", "a"), put(depot, b"deleted", "w", "b")
    (path,) = [
        p for p in Path(depot.settings.depot, "store").rglob("*") if p.is_file() and p.read_bytes() == b"damaged"
    ]
    path.chmod(0o644)
    path.write_bytes(b"dAmaged")
    with pytest.raises(FileNotFoundError):
        fs.cat_file(f"artifacts/{damaged}")
    depot.delete(deleted)
    assert not fs.exists(f"artifacts/{deleted}")
    with pytest.raises(FileNotFoundError):
        fs.ls("works/w")


def test_nothing_is_written(fs: LongshoreFileSystem, depot: Depot) -> None:
    put(depot, b"x", "w", "a")
    with pytest.raises(PermissionError):
        fs.open("works/w/b", "wb")
    for act in (fs.mkdir, fs.rm, fs.touch, fs.makedirs):
        with pytest.raises(PermissionError):
            act("works/w/a")


def test_pandas_duckdb_and_pyarrow_read_through_it(depot: Depot, fs: LongshoreFileSystem) -> None:
    import duckdb
    import pandas as pd
    import pyarrow.parquet as pq

    put(depot, CSV, "w", "data.csv")
    options = {"depot": depot.settings.depot}
    frame = pd.read_csv("longshore://works/w/data.csv", storage_options=options)
    assert list(frame["n"]) == [1, 2]
    manifest = pd.read_parquet("longshore://manifest.parquet", storage_options=options)
    assert list(manifest["name"]) == ["data.csv"]
    assert pq.read_table("manifest.parquet", filesystem=fs).num_rows == 1
    with duckdb.connect() as connection:
        connection.register_filesystem(fs)
        assert connection.sql("SELECT sum(n) FROM read_csv('longshore://works/w/*.csv')").fetchall() == [(3,)]
        (row,) = connection.sql("SELECT status, size_bytes FROM 'longshore://manifest.parquet'").fetchall()
    assert row == ("completed", len(CSV))
    put(depot, b"more", "w", "more.txt")
    assert len(pd.read_parquet("longshore://manifest.parquet", storage_options=options)) == 2
