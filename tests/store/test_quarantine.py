"""Quarantine and recovery: out of reach, and back again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from longshore.domain.model import Scope
from longshore.errors import NotFound
from longshore.store import LocalStore
from longshore.store.staging import quarantine
from tests.store.publishing import SCOPE, of_part, publish, staged


def test_a_blob_goes_and_comes_back(store: LocalStore) -> None:
    [blob] = publish(store, staged(b"hello"))
    name = store.quarantine(SCOPE, blob.pointer, "nobody points to it")
    assert name is not None
    with pytest.raises(NotFound):
        store.open(SCOPE, blob.pointer)
    assert not store.restore(Scope("other", "corpus"), name)
    assert store.restore(SCOPE, name)
    assert store.check(SCOPE, blob.pointer, blob.sha256, 5) is None
    assert not store.restore(SCOPE, name)
    assert os.listdir(store.root / ".staging/quarantine") == []


def test_what_was_published_meanwhile_stays(store: LocalStore) -> None:
    [blob] = publish(store, staged(b"hello"))
    name = store.quarantine(SCOPE, blob.pointer, "orphan")
    assert name is not None
    [again] = publish(store, staged(b"hello", "other"))
    assert not again.deduplicated
    path = store.path(SCOPE, blob.pointer)
    assert path is not None
    inode = path.stat().st_ino
    assert store.restore(SCOPE, name)
    assert path.stat().st_ino == inode


def test_forgotten(store: LocalStore) -> None:
    [blob] = publish(store, staged(b"hello"))
    name = store.quarantine(SCOPE, blob.pointer, "orphan")
    assert name is not None
    store.forget(Scope("other", "x"), name)
    store.forget(SCOPE, "../" + name)
    assert name in os.listdir(store.root / ".staging/quarantine")
    store.forget(SCOPE, name)
    assert os.listdir(store.root / ".staging/quarantine") == []
    assert store.quarantine(SCOPE, blob.pointer, "gone") is None


def test_a_directory_in_the_place_of_a_blob_is_forgotten_without_following_links(
    store: LocalStore, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("kept")
    [blob] = publish(store, staged(b"hello"))
    path = store.path(SCOPE, blob.pointer)
    assert path is not None
    path.unlink()
    (path / "deep").mkdir(parents=True)
    (path / "deep/file").write_text("x")
    (path / "link").symlink_to(tmp_path / "outside")
    name = store.set_aside(SCOPE, blob.pointer, blob.sha256, 5, "verify")
    assert name is not None
    store.forget(SCOPE, name)
    assert os.listdir(store.root / ".staging/quarantine") == []
    assert (tmp_path / "outside/file").read_text() == "kept"


def test_a_link_to_a_directory_is_forgotten_and_its_target_kept(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    [blob] = publish(store, staged(b"hello"))
    path = store.path(SCOPE, blob.pointer)
    assert path is not None
    path.unlink()
    path.symlink_to(tmp_path / "outside")
    name = store.set_aside(SCOPE, blob.pointer, blob.sha256, 5, "verify")
    assert name is not None
    store.forget(SCOPE, name)
    assert os.listdir(store.root / ".staging/quarantine") == []
    assert (tmp_path / "outside").is_dir()


def test_refused_bodies_are_kept_up_to_a_number(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "MOST_BODIES", 3)
    part = store.part(SCOPE, "part", 1)
    part.write(b"<html>")
    assert store.quarantine_body(SCOPE, "part", 1, part, "html_page") is not None
    part.discard()
    for number in range(5):
        assert store.quarantine_body(SCOPE, f"job{number}", 1, b"<html>", "html_page") is not None
    bodies = [name for name in os.listdir(store.root / ".staging/quarantine") if not name.endswith(".json")]
    assert len(bodies) == 3


def test_recovery_finds_a_blob_a_small_body_or_a_part(store: LocalStore) -> None:
    held, small, large = staged(b"held", "a"), staged(b"small", "b"), os.urandom(100_000)
    publish(store, held)
    assert store.stage([small]) == [None]  # and then the process died
    part = store.part(SCOPE, "c", 1)
    part.write(large)
    item = of_part(part)
    assert store.stage([item]) == [None]
    part.close()
    for job_id, sha256, size in (
        ("a", held.sha256, 4),
        ("b", small.sha256, 5),
        ("c", item.sha256, 100_000),
    ):
        blob = store.recover(SCOPE, job_id, 2, sha256=sha256, size_bytes=size, content_type="x/y")
        assert blob is not None
        assert store.check(SCOPE, blob.pointer, sha256, size) is None
    assert store.recover(SCOPE, "d", 2, sha256="0" * 64, size_bytes=3, content_type="x/y") is None


def test_recovery_believes_no_part_whose_bytes_differ(store: LocalStore) -> None:
    part = store.part(SCOPE, "c", 1)
    part.write(b"announced")
    item = of_part(part)
    part.write_at(b"A", 0)
    part.close()
    assert store.recover(SCOPE, "c", 2, sha256=item.sha256, size_bytes=9, content_type="x/y") is None
    assert list(store.walk()) == []


def test_sizes_of_a_whole_list(store: LocalStore) -> None:
    [blob] = publish(store, staged(b"hello"))
    wanted = [blob.pointer, f"acme/corpus/aa/{'a' * 64}", "nonsense", f"other/corpus/aa/{'a' * 64}"]
    assert store.sizes(SCOPE, wanted) == [5, None, None, None]
