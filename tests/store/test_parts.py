"""Parts: what counts after a restart, who may touch them, and what becomes of a broken one."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
from pathlib import Path

import pytest

from longshore import failpoints
from longshore.domain.model import Scope, Validators
from longshore.errors import BadInput, DiskFull, PublishFailed, StoreError
from longshore.store import LocalStore, Part, PartFacts
from tests.store.publishing import SCOPE, files_below, of_part, publish

BODY = os.urandom(300_001)


def begun(store: LocalStore, epoch: int = 1, adopt: PartFacts | None = None) -> Part:
    part = store.part(SCOPE, "job", epoch, adopt=adopt)
    part.begin(url="http://example.org/a", final_url="http://cdn/a", validators=Validators('"v1"'), total=len(BODY))
    return part


def part_directory(store: LocalStore, epoch: int = 1) -> Path:
    return store.root / ".staging/parts/acme/corpus/job" / str(epoch)


def test_only_a_checkpoint_counts(store: LocalStore) -> None:
    part = begun(store)
    part.write(BODY[:100_000])
    part.checkpoint()
    part.write(BODY[100_000:])
    part.close()
    facts = store.old_part(SCOPE, "job")
    digest = hashlib.sha256(BODY[:100_000]).hexdigest()
    assert facts == PartFacts(
        SCOPE, "job", 1, "http://example.org/a", "http://cdn/a", Validators('"v1"'), len(BODY), 100_000, digest
    )


def test_nothing_counts_before_the_first_checkpoint(store: LocalStore) -> None:
    part = begun(store)
    part.write(BODY)
    part.close()
    assert store.old_part(SCOPE, "job") is None
    assert [facts.durable_bytes for facts in store.parts()] == [0]


def test_the_next_epoch_gets_a_copy_and_the_zombie_keeps_its_own(store: LocalStore) -> None:
    zombie = begun(store)
    zombie.write(BODY[:200_000])
    zombie.checkpoint()
    facts = store.old_part(SCOPE, "job")
    part = begun(store, 2, facts)
    assert (part.size_bytes, part.sha256) == (200_000, hashlib.sha256(BODY[:200_000]).hexdigest())
    zombie.write_at(b"garbage", 0)  # the old descriptor is still open
    part.write(BODY[200_000:])
    [blob] = publish(store, of_part(part))
    zombie.close()
    assert blob.sha256 == hashlib.sha256(BODY).hexdigest()
    assert store.check(SCOPE, blob.pointer, blob.sha256, len(BODY)) is None


def test_the_garbage_behind_a_checkpoint_is_not_copied(store: LocalStore) -> None:
    part = begun(store)
    part.write(BODY[:50_000])
    part.checkpoint()
    part.write_at(bytes(100_000), 50_000)
    part.close()
    adopted = begun(store, 2, store.old_part(SCOPE, "job"))
    assert adopted.size_bytes == 50_000
    assert os.fstat(adopted.fd).st_size == 50_000
    adopted.close()


@pytest.mark.parametrize("damage", ["gone", "short", "facts", "nested", "types", "symlink"])
def test_a_broken_part_counts_for_nothing(store: LocalStore, damage: str, tmp_path: Path) -> None:
    part = begun(store)
    part.write(BODY)
    part.checkpoint()
    part.close()
    where = part_directory(store)
    if damage == "gone":
        (where / "body").unlink()
    elif damage == "short":
        os.truncate(where / "body", 10)
    elif damage == "facts":
        (where / "facts.json").write_text('{"v": 1')
    elif damage == "nested":
        (where / "facts.json").write_text("[" * 500_000)
    elif damage == "types":
        facts = json.loads((where / "facts.json").read_text())
        (where / "facts.json").write_text(json.dumps(facts | {"headers": ["a"], "url": 7, "total": "x"}))
    else:
        (where / "body").unlink()
        (tmp_path / "secret").write_bytes(BODY)
        (where / "body").symlink_to(tmp_path / "secret")
    assert store.old_part(SCOPE, "job") is None


def test_a_part_that_breaks_while_it_is_adopted_is_started_over(store: LocalStore) -> None:
    part = begun(store)
    part.write(BODY)
    part.checkpoint()
    part.close()
    facts = store.old_part(SCOPE, "job")
    os.truncate(part_directory(store) / "body", 10)
    adopted = begun(store, 2, facts)
    assert (adopted.size_bytes, adopted.durable_bytes) == (0, 0)
    adopted.write(b"fresh")
    [blob] = publish(store, of_part(adopted))
    assert blob.sha256 == hashlib.sha256(b"fresh").hexdigest()


def test_only_a_later_epoch_of_the_same_job_adopts(store: LocalStore) -> None:
    part = begun(store, 5)
    part.write(b"x")
    part.checkpoint()
    part.close()
    facts = store.old_part(SCOPE, "job")
    assert facts is not None
    with pytest.raises(BadInput):
        store.part(SCOPE, "job", 4, adopt=facts)
    with pytest.raises(BadInput):
        store.part(SCOPE, "other", 6, adopt=facts)
    assert store.old_part(Scope("acme", "other"), "job") is None


def test_starting_over_forgets_what_was_durable(store: LocalStore) -> None:
    part = begun(store)
    part.write(BODY)
    part.checkpoint()
    part.restart()
    assert store.old_part(SCOPE, "job") is None
    part.write(b"second version")
    [blob] = publish(store, of_part(part))
    assert blob.sha256 == hashlib.sha256(b"second version").hexdigest()


def test_a_new_part_while_the_old_one_is_swept_away(store: LocalStore) -> None:
    """Removing an older epoch's part removes the job's empty directory: a new part may be just about to use it."""
    stop = threading.Event()

    def sweep() -> None:
        while not stop.is_set():
            store.drop_part(PartFacts(SCOPE, "job", 1))

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        for epoch in range(2, 60):
            begun(store, epoch).discard()
    finally:
        stop.set()
        sweeper.join()
    assert list(store.parts()) == []


def test_a_failed_fsync_is_the_end_of_the_part(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    part = begun(store)
    part.write(BODY)

    def fail(name: str) -> None:
        if name == "part.fsync":
            raise failpoints.FailpointRaised(errno.EIO, "the disk")

    monkeypatch.setattr(failpoints, "hit", fail)
    with pytest.raises(PublishFailed):
        part.checkpoint()
    assert part.closed
    assert list(store.parts()) == []


def test_a_part_is_private(store: LocalStore) -> None:
    part = begun(store)
    directory = part_directory(store)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / "body").stat().st_mode & 0o777 == 0o600
    part.discard()
    assert files_below(store.root / ".staging") == []


def test_a_planted_body_is_not_followed(store: LocalStore, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    directory = part_directory(store)
    directory.mkdir(parents=True)
    (directory / "body").symlink_to(victim)
    part = begun(store)
    part.write(BODY)
    part.close()
    assert victim.read_text() == "precious"


def test_a_planted_directory_is_not_followed(store: LocalStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (store.root / ".staging/parts/acme").symlink_to(outside)
    with pytest.raises(StoreError):
        begun(store)
    assert list(outside.iterdir()) == []


def test_blocks_set_aside_do_not_change_the_size(store: LocalStore) -> None:
    part = store.part(SCOPE, "job", 1)
    part.begin(url="http://example.org/", total=4 << 20, preallocate=4 << 20)
    assert os.fstat(part.fd).st_size == 0
    part.write(b"tiny")
    part.cut(part.size_bytes)
    [blob] = publish(store, of_part(part))
    path = store.path(SCOPE, blob.pointer)
    assert path is not None
    assert (path.stat().st_size, path.stat().st_blocks * 512 <= 8192) == (4, True)


def test_the_hash_of_a_resumed_part_covers_its_bytes_only(store: LocalStore) -> None:
    first = begun(store)
    first.write(BODY[:100_000])
    first.checkpoint()
    first.close()
    part = store.part(SCOPE, "job", 2, adopt=store.old_part(SCOPE, "job"))
    part.begin(url="http://example.org/a", total=len(BODY), preallocate=len(BODY))
    assert part.sha256 == hashlib.sha256(BODY[:100_000]).hexdigest()
    part.write(BODY[100_000:])
    [blob] = publish(store, of_part(part))
    assert blob.sha256 == hashlib.sha256(BODY).hexdigest()
    assert store.check(SCOPE, blob.pointer, blob.sha256, len(BODY)) is None


def test_a_lying_length_sets_nothing_aside_beyond_what_was_reserved(store: LocalStore) -> None:
    assert store.preallocation(10 << 40, ceiling=16 << 20) == 16 << 20
    assert store.preallocation(1000, ceiling=16 << 20) == 0
    assert store.preallocation(None, ceiling=16 << 20) == 0


def test_a_disk_without_room_says_so(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    part = begun(store)

    def full(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskFull):
        part.write(BODY)


def test_short_writes_are_finished(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    part = begun(store)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:4097], offset))
    part.write(BODY)
    monkeypatch.undo()
    [blob] = publish(store, of_part(part))
    assert store.check(SCOPE, blob.pointer, hashlib.sha256(BODY).hexdigest(), len(BODY)) is None


def test_bytes_out_of_order_are_hashed_in_order(store: LocalStore) -> None:
    part = begun(store)
    part.write_at(BODY[200_000:], 200_000)
    part.write_at(BODY[:200_000], 0)
    part.hash_to(len(BODY))
    assert part.sha256 == hashlib.sha256(BODY).hexdigest()
    part.discard()


def test_a_foreign_file_is_taken_in(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "foreign").write_bytes(BODY)
    with (tmp_path / "foreign").open("rb") as file:
        part = store.part(SCOPE, "import", 1)
        part.take_from(file.fileno())
    [blob] = publish(store, of_part(part))
    assert blob.sha256 == hashlib.sha256(BODY).hexdigest()
    (tmp_path / "foreign").write_bytes(b"changed later")
    assert store.check(SCOPE, blob.pointer, blob.sha256, len(BODY)) is None


@pytest.mark.parametrize("place", [0, 50_000, 99_999])
def test_a_bit_that_flips_in_a_part_makes_it_worthless(store: LocalStore, place: int) -> None:
    part = begun(store)
    part.write(BODY[:100_000])
    part.checkpoint()
    part.close()
    (body,) = store.root.glob(".staging/**/body")
    flipped = bytearray(body.read_bytes())
    flipped[place] ^= 1
    body.write_bytes(flipped)
    again = store.part(SCOPE, "job", 2, adopt=store.old_part(SCOPE, "job"))
    assert (again.size_bytes, again.facts.durable_bytes) == (0, 0)
    again.discard()


def test_what_the_verdict_needs_is_as_durable_as_the_bytes(store: LocalStore) -> None:
    part = store.part(SCOPE, "job", 1)
    part.begin(url="http://a.example/", headers={"content-type": "application/pdf"}, delimited=False)
    part.write(BODY)
    part.checkpoint()
    part.close()
    facts = store.old_part(SCOPE, "job")
    assert facts is not None
    assert (facts.headers, facts.delimited) == ({"content-type": "application/pdf"}, False)


@pytest.mark.parametrize("name", ["facts.json", "body"])
@pytest.mark.parametrize("writer", [False, True])
def test_a_fifo_in_a_part_is_not_waited_for(store: LocalStore, name: str, *, writer: bool) -> None:
    part = store.part(SCOPE, "job", 1)
    part.write(b"some bytes")
    part.checkpoint()
    part.close()
    (there,) = [path for path in store.root.rglob(name) if ".staging" in path.parts]
    there.unlink()
    os.mkfifo(there)
    held = os.open(there, os.O_RDWR) if writer else None  # somebody has it open and says nothing
    try:
        assert store.old_part(SCOPE, "job") is None
        assert [one.durable_bytes for one in store.parts()] == [0]
    finally:
        if held is not None:
            os.close(held)
