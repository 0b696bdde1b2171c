"""A second name outside the store: whole or not at all, never over something, never a way into the store."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from longshore import failpoints
from longshore.domain.model import Scope
from longshore.errors import BadInput, BlobDamaged, Conflict, NotFound, StoreError
from longshore.store import LocalStore, place
from tests.store.publishing import SCOPE, publish, staged
from tests.support.disks import small_disk


def test_a_copy_is_independent(store: LocalStore, tmp_path: Path) -> None:
    [blob] = publish(store, staged(b"hello"))
    target = tmp_path / "new/deep/name.txt"
    assert place(store, SCOPE, blob.pointer, target) in ("reflink", "copy")
    target.write_bytes(b"edited")
    assert store.check(SCOPE, blob.pointer, blob.sha256, 5) is None
    assert os.listdir(target.parent) == ["name.txt"]


def test_a_hard_link_only_on_request(store: LocalStore, tmp_path: Path) -> None:
    [blob] = publish(store, staged(b"hello"))
    path = store.path(SCOPE, blob.pointer)
    assert path is not None
    assert place(store, SCOPE, blob.pointer, tmp_path / "a", mode="hardlink") == "hardlink"
    assert (tmp_path / "a").stat().st_ino == path.stat().st_ino
    assert place(store, SCOPE, blob.pointer, tmp_path / "b", mode="copy") == "copy"
    assert (tmp_path / "b").stat().st_ino != path.stat().st_ino


def test_nothing_is_replaced_unless_told(store: LocalStore, tmp_path: Path) -> None:
    [blob] = publish(store, staged(b"hello"))
    target = tmp_path / "mine"
    target.write_text("mine")
    with pytest.raises(Conflict):
        place(store, SCOPE, blob.pointer, target)
    assert target.read_text() == "mine"
    place(store, SCOPE, blob.pointer, target, overwrite=True)
    assert target.read_bytes() == b"hello"


def test_a_link_at_the_target_is_replaced_and_not_followed(store: LocalStore, tmp_path: Path) -> None:
    [blob] = publish(store, staged(b"hello"))
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(Conflict):
        place(store, SCOPE, blob.pointer, tmp_path / "link")
    place(store, SCOPE, blob.pointer, tmp_path / "link", overwrite=True)
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("step", ["place.write", "place.name"])
def test_a_failure_leaves_nothing_behind(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    [blob] = publish(store, staged(b"hello"))

    def fail(name: str) -> None:
        if name == step:
            raise failpoints.FailpointRaised(errno.EIO, "injected")

    monkeypatch.setattr(failpoints, "hit", fail)
    (tmp_path / "out").mkdir()
    with pytest.raises(StoreError):
        place(store, SCOPE, blob.pointer, tmp_path / "out/name")
    assert os.listdir(tmp_path / "out") == []


def test_another_file_system_gets_a_copy(store: LocalStore) -> None:
    [blob] = publish(store, staged(b"hello" * 1000))
    with small_disk() as other:
        assert place(store, SCOPE, blob.pointer, other / "name", mode="hardlink") == "copy"
        assert (other / "name").read_bytes() == b"hello" * 1000


def test_what_is_not_there_or_has_no_name(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        place(store, SCOPE, f"acme/corpus/aa/{'a' * 64}", tmp_path / "name")
    with pytest.raises(BadInput):
        place(store, SCOPE, f"acme/corpus/aa/{'a' * 64}", Path("/"))
    assert not (tmp_path / "name").exists()


def test_what_a_killed_process_left_is_removed_and_what_a_live_one_holds_stays(
    store: LocalStore, tmp_path: Path
) -> None:
    [blob] = publish(store, staged(b"hello"))
    (tmp_path / "out").mkdir()
    left, held, foreign = (tmp_path / f"out/.longshore-{c * 32}" for c in ("a", "b", "z"))
    for path in (left, held, foreign):
        path.write_bytes(b"x")
    with held.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        place(store, SCOPE, blob.pointer, tmp_path / "out/name")
        assert sorted(os.listdir(tmp_path / "out")) == sorted([held.name, foreign.name, "name"])


def test_a_file_that_cannot_be_replaced_leaves_nothing(store: LocalStore, tmp_path: Path) -> None:
    [blob] = publish(store, staged(b"hello"))
    (tmp_path / "out/name").mkdir(parents=True)
    for mode in ("hardlink", "copy"):
        with pytest.raises(StoreError):
            place(store, SCOPE, blob.pointer, tmp_path / "out/name", mode=mode, overwrite=True)
    assert os.listdir(tmp_path / "out") == ["name"]


@pytest.mark.parametrize("found", [b"01234", b"", b"0123456789 and more"], ids=["truncated", "empty", "longer"])
def test_fresh_bytes_that_replace_a_blob_of_another_size_stay(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: bytes
) -> None:
    """The size that was seen is the damaged file's: it says nothing about what has its name under the lock."""
    [blob] = publish(store, staged(b"0123456789"))
    path = store.path(SCOPE, blob.pointer)
    assert path is not None
    path.unlink()
    path.write_bytes(found)
    set_aside = store.set_aside

    def after_a_repair(scope: Scope, pointer: str, sha256: str, size_bytes: int, why: str) -> str | None:
        assert size_bytes == len(found)
        publish(store, staged(b"0123456789", "other"))
        return set_aside(scope, pointer, sha256, size_bytes, why)

    monkeypatch.setattr(store, "set_aside", after_a_repair)
    with pytest.raises(BlobDamaged):
        place(store, SCOPE, blob.pointer, tmp_path / "out/name")
    assert path.read_bytes() == b"0123456789"
    assert [aside.size_bytes for aside in store.quarantined()] == [len(found)]
    place(store, SCOPE, blob.pointer, tmp_path / "out/name")
