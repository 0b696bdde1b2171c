"""The local store: the publish protocol seen from outside."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import stat
from pathlib import Path

import pytest

from longshore.domain.model import Scope, Validators
from longshore.domain.settings import Settings, ShardSettings
from longshore.errors import NotFound, StoreError
from longshore.store import LocalStore, Part, Problem, Staged, open_store
from longshore.store.local.layout import LAYOUT_FILE
from tests.store.publishing import SCOPE, files_below, of_part, publish, staged


def test_a_small_body_gets_the_name_of_its_hash(store: LocalStore) -> None:
    item = staged(b"%PDF-1.7 hello")
    [blob] = publish(store, item)
    assert blob.pointer == f"acme/corpus/{item.sha256[:2]}/{item.sha256}.pdf"
    path = store.path(SCOPE, blob.pointer)
    assert path is not None
    assert path.read_bytes() == b"%PDF-1.7 hello"
    assert stat.S_IMODE(path.stat().st_mode) & 0o222 == 0
    assert path.stat().st_nlink == 1
    assert files_below(store.root) == sorted([LAYOUT_FILE, blob.pointer])


@pytest.mark.parametrize("count", [1, 8, 9, 64])
def test_a_batch_of_any_size_is_published_whole(store: LocalStore, count: int) -> None:
    items = [staged(b"body %d" % number, f"job-{number}") for number in range(count)]
    blobs = publish(store, *items)
    assert [blob.sha256 for blob in blobs] == [item.sha256 for item in items]
    for item, blob in zip(items, blobs, strict=True):
        with store.open(SCOPE, blob.pointer) as file:
            assert file.read() == item.body
    assert len(list(store.walk())) == count


def test_known_bytes_are_not_written_again(store: LocalStore) -> None:
    first, second = staged(b"same", "a"), staged(b"same", "b")
    [blob] = publish(store, first)
    path = store.path(SCOPE, blob.pointer)
    assert path is not None
    inode = path.stat().st_ino
    [again] = publish(store, second)
    assert (blob.deduplicated, again.deduplicated) == (False, True)
    assert path.stat().st_ino == inode


def test_tenants_share_nothing(store: LocalStore) -> None:
    one, two = publish(store, staged(b"x", "a"), staged(b"x", "b", scope=Scope("other", "corpus")))
    assert not two.deduplicated
    with pytest.raises(NotFound):
        store.open(SCOPE, two.pointer)
    assert store.stat(Scope("third", "corpus"), one.sha256) is None


def test_a_damaged_blob_is_replaced_and_kept_aside(store: LocalStore) -> None:
    [blob] = publish(store, staged(b"good bytes", "a"))
    path = store.path(SCOPE, blob.pointer)
    assert path is not None
    os.chmod(path, 0o600)
    os.truncate(path, 3)
    [again] = publish(store, staged(b"good bytes", "b"))
    assert not again.deduplicated
    assert path.read_bytes() == b"good bytes"
    kept = [name for name in os.listdir(store.root / ".staging/quarantine") if not name.endswith(".json")]
    assert len(kept) == 1


def test_check_tells_what_is_wrong(store: LocalStore) -> None:
    [blob] = publish(store, staged(b"0123456789", "a"))
    path = store.path(SCOPE, blob.pointer)
    assert path is not None
    assert store.check(SCOPE, blob.pointer, blob.sha256, 10) is None
    os.chmod(path, 0o600)
    path.write_bytes(b"0123456780")
    assert store.check(SCOPE, blob.pointer, blob.sha256, 10) == Problem.WRONG_HASH
    path.write_bytes(b"012")
    assert store.check(SCOPE, blob.pointer, blob.sha256, 10) == Problem.WRONG_SIZE
    path.unlink()
    assert store.check(SCOPE, blob.pointer, blob.sha256, 10) == Problem.MISSING


def test_a_pumped_body_is_published_from_its_part(store: LocalStore) -> None:
    body = os.urandom((5 << 20) + 12345)

    async def pump() -> Staged:
        part = store.part(SCOPE, "big", 1)
        part.begin(url="http://example.org/big", validators=Validators('"v1"'), total=len(body))
        room = asyncio.Event()
        pump = store.pump(part, room.set)
        for start in range(0, len(body), 70_001):
            if not pump.feed(body[start : start + 70_001]):
                await room.wait()
                room.clear()
        sha256, size = await pump.finish()
        return Staged(SCOPE, "big", 1, sha256, size, "application/octet-stream", part)

    item = asyncio.run(pump())
    assert isinstance(item.body, Part)
    assert (item.sha256, item.size_bytes) == (hashlib.sha256(body).hexdigest(), len(body))
    [blob] = publish(store, item)
    with store.open(SCOPE, blob.pointer) as file:
        assert file.read() == body
    assert 0 < item.fsync_s <= item.body.fsync_s
    assert list(store.parts()) == []
    assert files_below(store.root) == sorted([LAYOUT_FILE, blob.pointer])


def test_a_stopped_body_goes_on_in_the_next_epoch(store: LocalStore) -> None:
    body = os.urandom((2 << 20) + 777)
    cut = (1 << 20) + 100_003
    part = store.part(SCOPE, "big", 1)
    part.begin(url="http://example.org/big", validators=Validators('"v1"'), total=len(body))
    pump = store.pump(part)
    pump.feed(body[:cut])
    assert pump.stop_now() == cut
    facts = store.old_part(SCOPE, "big")
    assert facts is not None
    assert (facts.durable_bytes, facts.validators.etag, facts.total) == (cut, '"v1"', len(body))
    part = store.part(SCOPE, "big", 2, adopt=facts)
    assert part.size_bytes == cut
    assert part.sha256 == hashlib.sha256(body[:cut]).hexdigest()
    pump = store.pump(part)
    pump.feed(body[cut:])
    assert pump.finish_now() == (hashlib.sha256(body).hexdigest(), len(body))
    [blob] = publish(store, Staged(SCOPE, "big", 2, part.sha256, len(body), "x/y", part))
    assert store.check(SCOPE, blob.pointer, blob.sha256, len(body)) is None


def test_foreign_files_are_not_taken_for_blobs(store: LocalStore) -> None:
    [blob] = publish(store, staged(b"hello"))
    shard = store.root / "acme/corpus" / blob.sha256[:2]
    for name in ("README", "x" * 70, blob.sha256 + ".tar.gz.part~", blob.sha256[:63]):
        (shard / name).write_text("foreign")
    (store.root / "acme/corpus/notes.txt").write_text("foreign")
    (store.root / "stray").write_text("foreign")
    assert [held.pointer for held in store.walk()] == [blob.pointer]


def test_another_shard_width_is_refused(tmp_path: Path) -> None:
    LocalStore(tmp_path).close()
    with pytest.raises(StoreError, match="shard_width"):
        open_store(str(tmp_path), Settings(shard=ShardSettings(width=3)))


@pytest.mark.parametrize(
    "gone", [".staging/parts", ".staging/small", ".staging/quarantine", ".staging/room", ".staging"]
)
def test_directories_deleted_under_a_live_store_are_made_again(
    store: LocalStore, caplog: pytest.LogCaptureFixture, gone: str
) -> None:
    [blob] = publish(store, staged(b"before", "a"))
    shutil.rmtree(store.root / gone)
    part = store.part(SCOPE, "large", 1)
    part.reservation = store.reserve(SCOPE, 3 << 20)
    part.write(b"x" * 50_000)
    part.checkpoint()
    large, small = publish(store, of_part(part), staged(b"after", "b"))
    path = store.path(SCOPE, blob.pointer)
    assert path is not None
    path.chmod(0o600)
    path.write_bytes(b"bef?re")
    [fresh] = publish(store, staged(b"before", "c"))
    assert not fresh.deduplicated
    assert len(list(store.quarantined())) == 1
    assert {held.sha256 for held in store.walk()} == {blob.sha256, large.sha256, small.sha256}
    assert "recreated" in caplog.text


def test_a_part_whose_directory_is_deleted_fails_as_our_side(store: LocalStore) -> None:
    part = store.part(SCOPE, "large", 1)
    part.write(b"x" * 50_000)
    shutil.rmtree(store.root / ".staging/parts")
    item = of_part(part)
    outcome = store.stage([item])[0] or store.link([item])[0]
    assert isinstance(outcome, StoreError)
    assert outcome.reason == "disk_error"
    store.clean([item])
    again = store.part(SCOPE, "large", 2)
    again.write(b"x" * 50_000)
    publish(store, of_part(again))


def test_a_link_in_the_place_of_a_project_is_named(store: LocalStore, tmp_path: Path) -> None:
    [blob] = publish(store, staged(b"hello"))
    path = store.path(SCOPE, blob.pointer)
    assert path is not None
    project = path.parents[1]
    project.rename(tmp_path / "moved")
    project.symlink_to(tmp_path / "moved")
    assert store.sizes(SCOPE, [blob.pointer]) == [None]
    assert store.stat(SCOPE, blob.sha256) is None
    item = staged(b"hello", "other")
    assert store.stage([item]) == [None]
    [answer] = store.link([item])
    assert isinstance(answer, StoreError)
    assert "move it away" in str(answer)
