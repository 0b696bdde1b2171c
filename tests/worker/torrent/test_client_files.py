"""The client's files as an enemy would have them: names that lead elsewhere, links, devices, files that change."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longshore.domain.settings import QbittorrentSettings
from longshore.errors import Reasoned
from longshore.worker.kinds.torrent.client import ClientFile
from longshore.worker.kinds.torrent.client_files import NotVisible, digest, opened, place_of, wanted
from tests.support.qbt import Made, Swarm, until
from tests.worker.torrent.bench import Bench, bench

PLAIN = QbittorrentSettings()


def file(name: str, size: int = 3, *, progress: float = 1.0, chosen: bool = True) -> ClientFile:
    return ClientFile(name, size, progress, chosen)


def read(settings: QbittorrentSettings, save_path: object, one: ClientFile) -> bytes:
    with opened(settings, str(save_path), one) as fd:
        return os.read(fd, 100)


def test_a_plain_file_below_the_save_path(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c.txt").write_bytes(b"abc")
    assert read(PLAIN, tmp_path, file("a/b/c.txt")) == b"abc"


@pytest.mark.parametrize("name", ["../secret", "a/../../secret", "/etc/hostname", "a//b", "", "."])
def test_names_never_lead_out_of_the_save_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_bytes(b"abc")
    (tmp_path / "save/a").mkdir(parents=True)
    with pytest.raises(Reasoned) as caught:
        read(PLAIN, tmp_path / "save", file(name))
    assert caught.value.reason == "unsafe_path"


@pytest.mark.parametrize("where", ["file", "directory"])
def test_links_are_refused_wherever_they_stand(tmp_path: Path, where: str) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/key").write_bytes(b"abc")
    (tmp_path / "save").mkdir()
    if where == "file":
        (tmp_path / "save/key").symlink_to(tmp_path / "secrets/key")
        name = "key"
    else:
        (tmp_path / "save/book").symlink_to(tmp_path / "secrets")
        name = "book/key"
    with pytest.raises(Reasoned) as caught:
        read(PLAIN, tmp_path / "save", file(name))
    assert caught.value.reason == "unsafe_path"


def test_devices_and_pipes_are_refused_without_hanging(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Reasoned, match="not a regular file"):
        read(PLAIN, tmp_path, file("pipe", 0))


def test_what_is_not_there_or_not_whole_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"ab")
    (tmp_path / "afile").write_bytes(b"abc")
    for name in ("short", "nothing", "no/where", "afile/below"):
        with pytest.raises(NotVisible) as caught:
            read(PLAIN, tmp_path, file(name))
        assert str(tmp_path) in str(caught.value)
    with pytest.raises(NotVisible):
        read(PLAIN, "C:\\Downloads", file("a"))
    with pytest.raises(NotVisible):
        read(PLAIN, "", file("a"))


def test_mapped_paths_name_both_sides(tmp_path: Path) -> None:
    (tmp_path / "seen/books").mkdir(parents=True)
    (tmp_path / "seen/books/a").write_bytes(b"abc")
    mapped = QbittorrentSettings(
        path_map={"/downloads": str(tmp_path / "wrong"), "/downloads/x": str(tmp_path / "seen")}
    )
    assert read(mapped, "/downloads/x/books", file("a")) == b"abc"
    with pytest.raises(NotVisible) as caught:
        read(mapped, "/downloads/y", file("a"))
    assert "/downloads/y/a" in str(caught.value)
    assert str(tmp_path / "wrong/y/a") in str(caught.value)
    with pytest.raises(Reasoned):
        place_of(mapped, "/downloads/x/../../etc", "passwd")


def test_only_wanted_files_and_only_when_whole() -> None:
    files = [file("a"), file("b", chosen=False, progress=0.1)]
    assert wanted(files) == [files[0]]
    with pytest.raises(NotVisible):
        wanted([file("a", progress=0.99)])
    with pytest.raises(NotVisible):
        wanted([file("a", chosen=False)])


def test_a_file_that_changes_under_the_reading_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "moving"
    path.write_bytes(b"x" * 3_000_000)
    touched: list[int] = []

    def touch(_: bytes) -> None:
        if not touched:
            with path.open("r+b") as other:
                other.write(b"y")
            os.utime(path, ns=(1, 1))
        touched.append(1)

    fd = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(NotVisible, match="changed"):
            digest(fd, each=touch)
        found = digest(fd)
    finally:
        os.close(fd)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_that_cannot_be_read_is_waited_for(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)  # reading a directory fails as a bad disk does: in the middle of things
    try:
        with pytest.raises(NotVisible, match="cannot be read"):
            digest(fd)
    finally:
        os.close(fd)


# --- with a real client


@pytest.fixture
def depot(shared: Swarm, tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path / "depot", shared.qbt.url) as made:
        yield made


def _bencode(value: Any) -> bytes:
    match value:
        case int():
            return b"i%de" % value
        case bytes():
            return b"%d:%s" % (len(value), value)
        case list():
            return b"l" + b"".join(map(_bencode, value)) + b"e"
        case dict():
            return b"d" + b"".join(_bencode(k) + _bencode(v) for k, v in sorted(value.items())) + b"e"
    raise AssertionError(value)


def hostile(shared: Swarm, home: Path, name: bytes, path: list[bytes] | None, content: bytes) -> Made:
    """Make a torrent whose names nobody checked, and seed it from where libtorrent itself would put it."""
    info: dict[bytes, Any] = {b"name": name, b"piece length": 1 << 20, b"pieces": hashlib.sha1(content).digest()}
    if path is None:
        info[b"length"] = len(content)
    else:
        info[b"files"] = [{b"length": len(content), b"path": path}]
    data = _bencode({b"announce": shared.tracker.url.encode(), b"info": info})
    lt = importlib.import_module("libtorrent")
    meant = lt.torrent_info(lt.bdecode(data)).files().file_path(0)
    target = home / meant
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    v1 = hashlib.sha1(_bencode(info)).hexdigest()
    made = Made(data, v1, None, f"magnet:?xt=urn:btih:{v1}", home / "x")
    shared.seeder.seed(made)
    return made


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (b"../../../evil.epub", None),
        (b"/etc/evil.epub", None),
        (b"folder", [b"..", b"..", b"evil.epub"]),
        (b"n" * 250 + b".epub", None),
        (b"a\x01\x1b[2J\nname.epub", None),
    ],
)
def test_hostile_names_stay_inside_the_store(
    depot: Bench, shared: Swarm, tmp_path: Path, name: bytes, path: list[bytes] | None
) -> None:
    content = os.urandom(20_000)
    (tmp_path / "seed").mkdir()
    made = hostile(shared, tmp_path / "seed", name, path, content)
    job_id = depot.start(made)
    depot.until_stage(job_id, "completed")
    (artifact,) = depot.results(job_id)
    assert depot.bytes_of(artifact) == content
    root = tmp_path / "depot"
    held = [found for found in root.rglob("*") if found.is_file() and found.stat().st_size == len(content)]
    assert [found.name[:64] for found in held] == [hashlib.sha256(content).hexdigest()]
    assert held[0].is_relative_to(root / "store")
    assert [found for found in tmp_path.rglob("evil.epub") if not found.is_relative_to(tmp_path / "seed")] == []


def test_a_link_in_the_save_path_fails_the_job_and_takes_nothing(depot: Bench, shared: Swarm, tmp_path: Path) -> None:
    made = shared.make("linked.epub", os.urandom(20_000))
    secret = tmp_path / "secret"
    secret.write_bytes(os.urandom(20_000))
    job_id = depot.start(made)
    depot.cycle()
    until("finished", lambda: [seen for seen in depot.client.by_ids([made.id]) if seen.complete])
    theirs = shared.qbt.save / "linked.epub"
    theirs.unlink()
    theirs.symlink_to(secret)
    depot.until_stage(job_id, "failed")
    assert depot.job(job_id).failure_reason == "unsafe_path"
    assert depot.results(job_id) == []
    assert list(depot.store.walk()) == []


def test_files_that_cannot_be_seen_are_waited_for_with_both_paths(shared: Swarm, tmp_path: Path) -> None:
    made = shared.make("elsewhere.epub", os.urandom(20_000))
    seen_as = tmp_path / "mounted"
    mapping = {str(shared.qbt.save): str(seen_as)}
    with bench(tmp_path / "depot", shared.qbt.url, path_map=mapping) as depot:
        job_id = depot.start(made)
        until("waits", lambda: depot.cycle() and depot.job(job_id).watch.substate == "waiting for files")
        note = depot.job(job_id).watch.note or ""
        assert str(shared.qbt.save / "elsewhere.epub") in note
        assert str(seen_as / "elsewhere.epub") in note
        for _ in range(20):
            depot.cycle(60)
        assert depot.job(job_id).stage == "downloading", "nothing counts against the job"
        seen_as.mkdir()
        (seen_as / "elsewhere.epub").write_bytes(made.path.read_bytes())
        depot.until_stage(job_id, "completed")
        assert depot.bytes_of(depot.results(job_id)[0]) == made.path.read_bytes()
