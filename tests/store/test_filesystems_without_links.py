"""A file system without links, and without RENAME_NOREPLACE as well: names still appear whole and replace nothing."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest

from longshore.domain.model import Blob
from longshore.errors import StoreError
from longshore.store import LocalStore, place
from longshore.store.durability import filesystem
from longshore.store.staging.borrowed_file import ForeignPart
from tests.store.publishing import SCOPE, linked, of_part, publish, staged, wrong_blobs


def refusing(code: int) -> Callable[..., NoReturn]:
    def call(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return call


@pytest.fixture(params=["noreplace", "nothing"])
def linkless(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    monkeypatch.setattr(os, "link", refusing(errno.EPERM))
    if request.param == "nothing":
        monkeypatch.setattr(filesystem, "rename_noreplace", refusing(errno.EINVAL))
    store = LocalStore(tmp_path / "store")
    request.addfinalizer(store.close)
    return store


def test_bodies_get_their_names(linkless: LocalStore, tmp_path: Path) -> None:
    part = linkless.part(SCOPE, "large", 1)
    part.write(os.urandom(50_000))
    blobs = publish(linkless, staged(b"small", "a"), of_part(part))
    again = publish(linkless, staged(b"small", "b"))
    assert [blob.deduplicated for blob in (*blobs, *again)] == [False, False, True]
    assert wrong_blobs(tmp_path / "store") == []
    assert list(linkless.parts()) == []


def test_many_at_once_replace_nothing(linkless: LocalStore) -> None:
    body, barrier = os.urandom(20_000), threading.Barrier(6)

    def work(number: int) -> Blob:
        item = staged(body, f"job{number}")
        assert linkless.stage([item]) == [None]
        barrier.wait(60)
        return linked(linkless, [item])[0]

    with ThreadPoolExecutor(6) as pool:
        blobs = list(pool.map(work, range(6)))
    assert sum(not blob.deduplicated for blob in blobs) == 1


def test_quarantined_and_restored(linkless: LocalStore) -> None:
    [blob] = publish(linkless, staged(b"suspect", "a"))
    name = linkless.quarantine(SCOPE, blob.pointer, "no row names it")
    assert name is not None
    assert linkless.restore(SCOPE, name)
    assert linkless.check(SCOPE, blob.pointer, blob.sha256, 7) is None


def test_a_foreign_file_is_not_moved(linkless: LocalStore, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"seeded")
    item = staged(b"seeded", "a")
    with theirs.open("rb") as file:
        item.body = ForeignPart(file.fileno(), item.sha256, 6, b"seeded")
        assert linkless.stage([item]) == [None]
        assert isinstance(linkless.link([item])[0], StoreError)
    assert theirs.read_bytes() == b"seeded"


def test_placed_only_where_nothing_can_be_replaced_by_mistake(
    tmp_path: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    [blob] = publish(store, staged(b"hello", "a"))
    real = os.open

    def no_tmpfile(path: str, flags: int, *rest: int, **named: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "none")
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", no_tmpfile)
    place(store, SCOPE, blob.pointer, tmp_path / "out/one")
    monkeypatch.setattr(os, "link", refusing(errno.EPERM))
    place(store, SCOPE, blob.pointer, tmp_path / "out/two")
    monkeypatch.setattr(filesystem, "rename_noreplace", refusing(errno.EINVAL))
    with pytest.raises(StoreError, match="neither links") as refused:
        place(store, SCOPE, blob.pointer, tmp_path / "out/three")
    assert "--overwrite" in (refused.value.hint or "")
    place(store, SCOPE, blob.pointer, tmp_path / "out/three", overwrite=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == dict.fromkeys(
        ("one", "two", "three"), b"hello"
    )
