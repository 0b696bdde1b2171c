"""Disks that fail: full, broken, hostile. Nothing is published by halves, and the error says which kind it was."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from longshore import failpoints
from longshore.domain.model import Blob
from longshore.errors import DiskFull, NotFound, PublishFailed, StoreError
from longshore.store import LocalStore
from longshore.store.durability import barriers, filesystem
from longshore.store.local import blob_directories
from tests.store.publishing import NO_FLOOR, SCOPE, files_below, linked, of_part, publish, staged, wrong_blobs
from tests.support.disks import small_disk


def fail_at(monkeypatch: pytest.MonkeyPatch, step: str, code: int, *, times: int = 1) -> list[str]:
    """Raise an error at the first hits of a failpoint; give the list of those that were raised."""
    raised: list[str] = []

    def hit(name: str) -> None:
        if name == step and len(raised) < times:
            raised.append(name)
            raise failpoints.FailpointRaised(code, "injected")

    monkeypatch.setattr(failpoints, "hit", hit)
    return raised


@pytest.mark.parametrize("step", ["stage.barrier", "link.dirsync"])
@pytest.mark.parametrize("count", [2, barriers.FEW + 2])
def test_a_failed_barrier_fails_the_whole_batch_and_is_not_asked_again(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, step: str, count: int
) -> None:
    part = store.part(SCOPE, "part", 1)
    part.write(b"of a part")
    items = [*(staged(b"body %d" % n, f"job{n}") for n in range(count - 1)), of_part(part)]
    raised = fail_at(monkeypatch, step, errno.EIO)
    outcomes: list[object] = list(store.stage(items))
    if step == "link.dirsync":
        assert outcomes == [None] * count
        outcomes = list(store.link(items))
    assert len(raised) == 1
    assert all(isinstance(outcome, PublishFailed) for outcome in outcomes)
    assert [name for name in files_below(store.root) if name.startswith(".staging")] == []
    assert part.closed
    # A later link of the same items publishes nothing: their bytes must come again.
    assert all(isinstance(outcome, PublishFailed) for outcome in store.link(items))
    assert wrong_blobs(store.root) == []


def _note(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, done: list[tuple[str, int]]) -> None:
    """Let calls pass, and note them with the inode that they are about."""
    real = getattr(where, name)

    def noted(fd: int) -> None:
        done.append((name, os.fstat(fd).st_ino))
        real(fd)

    monkeypatch.setattr(where, name, noted)


def test_a_name_whose_barrier_failed_counts_only_after_its_directories_were_written_anew(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells of a failed write-back once; the next fsync of an unchanged directory says yes and does nothing."""
    store._barriers._whole_allowed = False
    (item,) = items = [staged(b"body", "job1")]
    assert store.stage(items) == [None]
    with monkeypatch.context() as broken:
        fail_at(broken, "link.dirsync", errno.EIO)
        assert isinstance(store.link(items)[0], PublishFailed)
    done: list[tuple[str, int]] = []
    _note(monkeypatch, blob_directories, "_dirty", done)
    _note(monkeypatch, os, "fsync", done)
    again = staged(b"body", "job2")
    (blob,) = publish(store, again)
    path = store.path(SCOPE, blob.pointer)
    assert path is not None
    assert blob.sha256 == item.sha256
    for directory in (path.parent, *path.parent.parents[:3]):
        inode = directory.stat().st_ino
        assert ("_dirty", inode) in done, directory
        assert done.index(("_dirty", inode)) < done.index(("fsync", inode))
    done.clear()
    publish(store, staged(b"body", "job3"))
    assert "_dirty" not in [what for what, _ in done]  # trusted again
    assert not [name for name in files_below(store.root) if ".dirty" in name]


def test_syncfs_that_reports_an_error_fails_the_batch(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "write-back failed")

    monkeypatch.setattr(filesystem, "syncfs", broken)
    outcomes = store.stage([staged(b"body %d" % n, f"job{n}") for n in range(barriers.FEW + 2)])
    assert all(isinstance(outcome, PublishFailed) for outcome in outcomes)
    assert list(store.walk()) == []


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        (errno.ENOSPC, DiskFull, "disk_full"),
        (errno.EDQUOT, DiskFull, "disk_full"),
        (errno.EIO, PublishFailed, "disk_error"),
        (errno.EROFS, PublishFailed, "disk_error"),
        (errno.EMFILE, StoreError, "store_unavailable"),
    ],
)
@pytest.mark.parametrize("step", ["stage.write", "link.link"])
def test_one_failed_item_does_not_fail_its_neighbours(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[StoreError], reason: str, step: str
) -> None:
    items = [staged(b"body %d" % n, f"job{n}") for n in range(6)]
    fail_at(monkeypatch, step, code)
    problems = [error for error in store.stage(items) if error is not None]
    outcomes = store.link(items)
    if step == "link.link":
        problems = [outcome for outcome in outcomes if isinstance(outcome, StoreError)]
    assert [(type(problem) is kind or isinstance(problem, kind), problem.reason) for problem in problems] == [
        (True, reason)
    ]
    assert sum(isinstance(outcome, Blob) for outcome in outcomes) == 5
    store.clean(items)
    assert [name for name in files_below(store.root) if name.startswith(".staging")] == []


def test_a_shard_that_cannot_be_made_fails_its_items_only(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(store, staged(b"first", "first"))
    items = [staged(b"body %d" % n, f"job{n}") for n in range(6)]
    fail_at(monkeypatch, "link.mkdir", errno.ENOSPC)
    assert store.stage(items) == [None] * 6
    outcomes = store.link(items)
    assert sum(isinstance(outcome, DiskFull) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, Blob) for outcome in outcomes) == 5
    assert wrong_blobs(store.root) == []


def test_a_full_disk_and_then_room_again() -> None:
    with small_disk("2m") as root:
        store = LocalStore(root / "store", NO_FLOOR)
        filler = root / "filler"
        filler.write_bytes(bytes((1 << 20) + (700 << 10)))
        items = [staged(os.urandom(100_000), f"job{n}") for n in range(8)]
        outcomes = store.stage(items)
        assert any(isinstance(outcome, DiskFull) for outcome in outcomes)
        assert all(outcome is None or isinstance(outcome, DiskFull) for outcome in outcomes)
        store.clean(items)
        assert [name for name in files_below(store.root) if name.startswith(".staging")] == []
        filler.unlink()
        assert len(publish(store, *items)) == 8
        assert wrong_blobs(store.root) == []
        store.close()


def test_a_full_disk_under_a_pump() -> None:
    with small_disk("3m") as root:
        store = LocalStore(root / "store", NO_FLOOR)
        part = store.part(SCOPE, "big", 1)
        assert part.direct_fd is None or os.fstat(part.direct_fd)  # tmpfs may or may not take O_DIRECT
        pump = store.pump(part)
        with pytest.raises(DiskFull):
            for _ in range(64):
                pump.feed(os.urandom(1 << 20))
                pump._wait()
        with pytest.raises(DiskFull):
            pump.finish_now()
        assert list(store.parts()) == []
        store.close()


def test_no_inodes_left() -> None:
    with small_disk("4m", inodes=40) as root:
        store = LocalStore(root / "store", NO_FLOOR)
        items = [staged(b"body %d" % n, f"job{n}") for n in range(60)]
        outcomes = store.stage(items)
        assert any(isinstance(outcome, DiskFull) for outcome in outcomes)
        store.clean(items)
        assert wrong_blobs(store.root) == []
        store.close()


def test_staging_on_another_file_system_is_refused(tmp_path: Path) -> None:
    with small_disk() as other:
        (tmp_path / "store").mkdir()
        LocalStore(tmp_path / "store").close()
        staging = tmp_path / "store/.staging"
        os.rename(staging, tmp_path / "moved")
        staging.mkdir()
        if os.system(f"mount --bind {other} {staging}"):
            pytest.skip("needs bind mounts")
        try:
            with pytest.raises(StoreError, match="another file system"):
                LocalStore(tmp_path / "store")
        finally:
            os.system(f"umount {staging} || umount -l {staging}")


def test_staging_behind_a_bind_mount_is_refused(tmp_path: Path) -> None:
    """The device is the same, and yet no link crosses a mount."""
    LocalStore(tmp_path / "store").close()
    (tmp_path / "elsewhere").mkdir()
    staging = tmp_path / "store/.staging"
    if os.geteuid() or os.system(f"mount --bind {tmp_path}/elsewhere {staging}"):
        pytest.skip("needs bind mounts")
    try:
        with pytest.raises(StoreError, match="another file system"):
            LocalStore(tmp_path / "store")
    finally:
        os.system(f"umount {staging} || umount -l {staging}")
    assert [name for name in os.listdir(tmp_path / "store") if name.startswith(".probe")] == []


def test_an_fsync_that_fails_early_in_a_large_batch_fails_all_of_it(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store._barriers._whole_allowed = False
    monkeypatch.setattr(barriers, "CHUNK", 4)
    real, calls = os.fsync, 0

    def second_fails(fd: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.EIO, "injected")
        real(fd)

    monkeypatch.setattr(barriers, "POOL", 1)
    monkeypatch.setattr(os, "fsync", second_fails)
    outcomes = store.stage([staged(b"body %d" % n, f"job{n}") for n in range(20)])
    assert all(isinstance(outcome, PublishFailed) for outcome in outcomes)
    assert [name for name in files_below(store.root) if name.startswith(".staging")] == []


@pytest.mark.parametrize("what", ["tenant", "shard", "blob"])
def test_a_planted_link_is_never_followed(store: LocalStore, tmp_path: Path, what: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("precious")
    item = staged(b"hello", "job")
    if what == "tenant":
        (store.root / "acme").symlink_to(outside)
    elif what == "shard":
        (store.root / "acme/corpus").mkdir(parents=True)
        (store.root / "acme/corpus" / item.sha256[:2]).symlink_to(outside)
    else:
        (store.root / "acme/corpus" / item.sha256[:2]).mkdir(parents=True)
        (store.root / "acme/corpus" / item.sha256[:2] / item.sha256).symlink_to(outside / "victim")
    assert store.stage([item]) == [None]
    [outcome] = store.link([item])
    if what in ("shard", "blob"):  # the link goes to quarantine, the blob or its directory takes its place
        assert isinstance(outcome, Blob)
        assert store.check(SCOPE, outcome.pointer, item.sha256, 5) is None
        assert not (store.root / "acme/corpus" / item.sha256[:2]).is_symlink()
        assert not (store.root / outcome.pointer).is_symlink()
    else:
        assert isinstance(outcome, StoreError)
    assert sorted(path.name for path in outside.iterdir()) == ["victim"]
    assert (outside / "victim").read_text() == "precious"


HASH = "a" * 64
FOREIGN = (
    "../../etc/passwd",
    "/etc/passwd",
    "",
    "acme/corpus/../x",
    f"acme/corpus/aa/{HASH[1:]}",
    f"acme/corpus/ab/{HASH}",
    f"acme/corpus/aa/{HASH}/../x",
    f"acme/corpus/aa/{HASH}.p/f",
    f"other/corpus/aa/{HASH}",
)


@pytest.mark.parametrize("pointer", FOREIGN)
def test_a_pointer_leads_nowhere_else(store: LocalStore, pointer: str) -> None:
    for use in (store.path, store.open):
        with pytest.raises(NotFound):
            use(SCOPE, pointer)
    assert store.quarantine(SCOPE, pointer, "test") is None
    assert not store.remove(SCOPE, pointer)


def test_one_hash_from_many_threads(store: LocalStore) -> None:
    body = os.urandom(10_000)
    barrier = threading.Barrier(8)

    def one(number: int) -> Blob:
        item = staged(body, f"job{number}")
        assert store.stage([item]) == [None]
        barrier.wait(60)
        [blob] = linked(store, [item])
        store.clean([item])
        return blob

    with ThreadPoolExecutor(8) as pool:
        blobs = list(pool.map(one, range(8)))
    assert sorted(blob.deduplicated for blob in blobs) == [False] + [True] * 7
    assert [held.sha256 for held in store.walk()] == [blobs[0].sha256]
    assert wrong_blobs(store.root) == []


def test_a_damaged_hash_from_many_threads(store: LocalStore) -> None:
    body = os.urandom(10_000)
    [blob] = publish(store, staged(body, "first"))
    path = store.path(SCOPE, blob.pointer)
    assert path is not None
    os.chmod(path, 0o600)
    os.truncate(path, 1)
    items = [staged(body, f"job{number}") for number in range(8)]
    assert store.stage(items) == [None] * 8
    with ThreadPoolExecutor(8) as pool:
        outcomes = [outcome for [outcome] in pool.map(lambda item: store.link([item]), items)]
    assert all(isinstance(outcome, Blob) for outcome in outcomes)
    assert store.check(SCOPE, blob.pointer, blob.sha256, len(body)) is None
    kept = [name for name in os.listdir(store.root / ".staging/quarantine") if not name.endswith(".json")]
    assert len(kept) == 1


def test_without_links_the_staged_file_is_moved(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refused)
    part = store.part(SCOPE, "part", 1)
    part.write(b"a part")
    first = publish(store, staged(b"small"), of_part(part))
    assert [blob.deduplicated for blob in first] == [False, False]
    [again] = publish(store, staged(b"small", "other"))
    assert again.deduplicated
    assert wrong_blobs(store.root) == []
    assert [name for name in files_below(store.root) if name.startswith(".staging")] == []


def test_what_was_not_staged_is_not_linked(store: LocalStore) -> None:
    part = store.part(SCOPE, "part", 1)
    part.write(b"a part")
    for item in (staged(b"never"), of_part(part)):
        [outcome] = store.link([item])
        assert isinstance(outcome, PublishFailed)
    assert list(store.walk()) == []
    wrong = of_part(part)
    wrong.sha256 = "0" * 64
    [refused] = store.stage([wrong])
    assert isinstance(refused, PublishFailed)
    assert isinstance(store.link([wrong])[0], PublishFailed)
    part.discard()


@pytest.mark.parametrize("whole", [True, False], ids=["syncfs", "fsync-each"])
def test_a_batch_with_more_files_than_descriptors(tmp_path: Path, whole: bool) -> None:
    code = f"""
import resource
from pathlib import Path
from longshore.domain.model import Blob, Scope
from longshore.store import LocalStore
from longshore.store.durability import barriers
from tests.store.publishing import publish, staged
barriers.CHUNK = 32
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
store = LocalStore(Path({str(tmp_path)!r}))
store._barriers._whole_allowed = store._barriers._whole_allowed and {whole}
scopes = [Scope("tenant%d" % n, "p") for n in range(5)]
items = [staged(b"%d" % n, "job%d" % n, scope=scopes[n % 5]) for n in range(400)]
print(len(publish(store, *items)), len(list(store.walk())))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["400", "400"]


def test_dear_syncfs_makes_way_for_fsync_and_comes_back(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = filesystem.syncfs

    def counted(fd: int) -> None:
        calls.append(fd)
        real(fd)

    monkeypatch.setattr(filesystem, "syncfs", counted)
    monkeypatch.setattr(barriers, "SLOW_PER_FILE_S", -1.0)
    rounds = (1 + barriers.REST + 1 + 2 * barriers.REST + 1 + 1) // 2  # each has two barriers
    for number in range(rounds):
        publish(store, *(staged(b"%d/%d" % (number, n), f"job{number}-{n}") for n in range(barriers.FEW + 1)))
    assert len(calls) == 3  # at once, after REST others, after twice as many
    assert len(list(store.walk())) == rounds * (barriers.FEW + 1)
