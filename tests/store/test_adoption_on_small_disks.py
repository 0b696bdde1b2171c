"""A part that the disk can hold once but not twice is moved to the next epoch: no zombie reaches it, no floor is used up."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore import failpoints
from longshore.domain.model import Validators
from longshore.domain.settings import QuotaSettings, Settings
from longshore.errors import StoreError, StoreUnavailable
from longshore.store import LocalStore, Part, PartFacts
from tests.store.publishing import SCOPE, of_part, publish
from tests.support.disks import small_disk

MIB = 1 << 20
BODY = os.urandom(4 * MIB + 12_345)
FLOOR = MIB // 2


@pytest.fixture
def store() -> Iterator[LocalStore]:
    with small_disk("7m") as disk:
        store = LocalStore(disk / "store", Settings(quota=QuotaSettings(free_bytes_min=FLOOR)))
        yield store
        store.close()


def left(store: LocalStore, body: bytes = BODY, epoch: int = 1) -> tuple[Part, PartFacts]:
    """Leave a part with durable bytes, still open as a zombie would have it."""
    part = store.part(SCOPE, "job", epoch)
    part.begin(url="http://example.org/a", validators=Validators('"v1"'), total=len(body))
    part.write(body)
    part.checkpoint()
    facts = store.old_part(SCOPE, "job")
    assert facts is not None
    return part, facts


def directory(store: LocalStore, epoch: int = 1) -> Path:
    return store.root / ".staging/parts/acme/corpus/job" / str(epoch)


def free(store: LocalStore) -> int:
    return store.room().free_bytes


def watch_free(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seen: list[int] = []
    monkeypatch.setattr(failpoints, "hit", lambda _name: seen.append(free(store)))
    return seen


def test_a_part_that_fits_only_once_is_moved(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    zombie, facts = left(store)
    seen = watch_free(store, monkeypatch)
    part = store.part(SCOPE, "job", 2, adopt=facts)
    assert (part.size_bytes, part.sha256) == (len(BODY), hashlib.sha256(BODY).hexdigest())
    assert part.durable_bytes == len(BODY)
    assert min(seen) >= FLOOR
    assert not directory(store).exists()
    zombie.close()


def test_a_zombie_neither_changes_nor_publishes_what_was_moved(store: LocalStore) -> None:
    zombie, facts = left(store)
    part = store.part(SCOPE, "job", 2, adopt=facts)
    zombie.write_at(b"garbage", 0)
    late = of_part(zombie)
    assert isinstance(store.stage([late])[0] or store.link([late])[0], StoreError)
    zombie.close()
    [blob] = publish(store, of_part(part))
    assert store.check(SCOPE, blob.pointer, hashlib.sha256(BODY).hexdigest(), len(BODY)) is None


def test_a_published_body_is_never_emptied(store: LocalStore) -> None:
    """A zombie linked it in the last moment: the inode is a blob now."""
    zombie, facts = left(store)
    blob = store.root / "blob"
    os.link(directory(store) / "body", blob)
    part = store.part(SCOPE, "job", 2, adopt=facts)
    assert part.size_bytes == 0
    assert blob.read_bytes() == BODY
    assert blob.stat().st_mode & 0o777 == 0o444
    part.close()
    zombie.close()


def test_a_flipped_bit_is_noticed_when_a_part_is_moved(store: LocalStore) -> None:
    zombie, facts = left(store)
    zombie.write_at(bytes([BODY[7] ^ 1]), 7)
    zombie.close()
    part = store.part(SCOPE, "job", 2, adopt=facts)
    assert (part.size_bytes, part.durable_bytes) == (0, 0)
    assert free(store) > 6 * MIB
    part.close()


def test_without_room_for_a_piece_the_job_starts_from_zero(store: LocalStore) -> None:
    zombie, facts = left(store)
    zombie.close()
    (store.root / "filler").write_bytes(bytes(free(store) - FLOOR - 100_000))
    part = store.part(SCOPE, "job", 2, adopt=facts)
    assert part.size_bytes == 0
    assert not directory(store).exists()
    assert store.old_part(SCOPE, "job") is None
    part.close()


def test_half_copies_of_epochs_in_between_give_way(store: LocalStore) -> None:
    """A kill during the copy left a part without facts; it must not take the room of the next copy."""
    zombie, facts = left(store, BODY[: 5 * MIB // 2])
    zombie.close()
    half = store.part(SCOPE, "job", 2)
    half.write(BODY[: 5 * MIB // 2])
    half.close()
    part = store.part(SCOPE, "job", 3, adopt=facts)
    assert part.size_bytes == 5 * MIB // 2
    assert not directory(store, 2).exists()
    part.close()


def test_a_copy_that_fails_leaves_nothing(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    zombie, facts = left(store, BODY[: 2 * MIB])
    zombie.close()
    writes: list[str] = []

    def fail(name: str) -> None:
        writes.append(name)
        if name == "part.write" and writes.count(name) == 2:
            raise StoreUnavailable("no memory")

    monkeypatch.setattr(failpoints, "hit", fail)
    with pytest.raises(StoreUnavailable):
        store.part(SCOPE, "job", 2, adopt=facts)
    assert not directory(store, 2).exists()
    assert store.old_part(SCOPE, "job") == facts
    assert store.room().reserved_bytes == 0


def test_a_disk_that_cannot_free_pieces_starts_from_zero(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    zombie, facts = left(store)
    zombie.close()

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no holes here")

    monkeypatch.setattr("longshore.store.durability.filesystem.punch_hole", refuse)
    part = store.part(SCOPE, "job", 2, adopt=facts)
    assert part.size_bytes == 0
    part.close()
    assert free(store) > 6 * MIB


@pytest.mark.parametrize("length", [3 * MIB, None])
def test_a_new_body_takes_the_room_of_its_jobs_earlier_parts(store: LocalStore, length: int | None) -> None:
    zombie, _ = left(store)
    zombie.close()
    store.reserve_for_part(SCOPE, "job", 2, MIB).release()
    assert directory(store).exists()
    store.reserve_for_part(SCOPE, "job", 2, length).release()
    assert not directory(store).exists()
