"""Equal bytes of one tenant's projects share an inode; each name lives a life of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from longshore.domain.model import Blob, Scope
from longshore.domain.settings import DedupeSettings, Settings
from longshore.store import LocalStore, Staged
from longshore.store.local import shared_bytes
from longshore.store.local.publish_link import problem_of
from longshore.store.records import Problem
from tests.store.publishing import SCOPE, of_part, publish, staged, wrong_blobs

TWIN = Scope(SCOPE.tenant_id, "twin")
OTHER_TENANT = Scope("other", SCOPE.project_id)


def inode(store: LocalStore, scope: Scope, blob: Blob) -> tuple[int, int]:
    path = store.path(scope, blob.pointer)
    assert path is not None
    stat = path.stat()
    return stat.st_ino, stat.st_nlink


@pytest.mark.parametrize("size", [5, 3_000_000])
def test_two_projects_share_an_inode(store: LocalStore, size: int) -> None:
    body = os.urandom(size)
    (one,) = publish(store, staged(body, "a"))
    if size < 1_000_000:
        item = staged(body, "b", scope=TWIN)
    else:
        part = store.part(TWIN, "b", 1)
        part.begin(url="u")
        part.write(body)
        item = of_part(part)
    (two,) = publish(store, item)
    (alien,) = publish(store, staged(body, "c", scope=OTHER_TENANT))
    assert [blob.dedupe_action for blob in (one, two, alien)] == ["download", "hardlink", "download"]
    assert not two.deduplicated  # new in its project: it counts there
    assert inode(store, SCOPE, one) == inode(store, TWIN, two)
    assert inode(store, TWIN, two)[1] == 2
    assert inode(store, OTHER_TENANT, alien)[1] == 1
    assert list(store.parts()) == []


def test_both_in_one_batch(store: LocalStore) -> None:
    one, two = publish(store, staged(b"x", "a"), staged(b"x", "b", scope=TWIN))
    assert inode(store, SCOPE, one) == inode(store, TWIN, two)
    assert sorted(blob.dedupe_action for blob in (one, two)) == ["download", "hardlink"]


def test_removing_one_keeps_the_other(store: LocalStore) -> None:
    (one,) = publish(store, staged(b"x", "a"))
    (two,) = publish(store, staged(b"x", "b", scope=TWIN))
    assert store.remove(SCOPE, one.pointer)
    assert inode(store, TWIN, two)[1] == 1
    (again,) = publish(store, staged(b"x", "c"))
    assert again.dedupe_action == "hardlink"
    assert store.quarantine(TWIN, two.pointer, "a test") is not None
    with store.open(SCOPE, again.pointer) as file:
        assert file.read() == b"x"


def test_damaged_bytes_are_not_shared(store: LocalStore) -> None:
    """The other project's blob is read before it is trusted; it stays there for `verify`."""
    (one,) = publish(store, staged(b"good", "a"))
    path = store.path(SCOPE, one.pointer)
    assert path is not None
    path.chmod(0o600)
    path.write_bytes(b"evil")
    (two,) = publish(store, staged(b"good", "b", scope=TWIN))
    assert two.dedupe_action == "copy"
    assert inode(store, TWIN, two)[1] == 1
    assert store.check(TWIN, two.pointer, two.sha256, two.size_bytes) is None
    assert store.check(SCOPE, one.pointer, one.sha256, one.size_bytes) is Problem.WRONG_HASH


def test_known_bytes_stay_as_they_are(store: LocalStore) -> None:
    """A project that has the bytes does not look at the others."""
    (two,) = publish(store, staged(b"x", "b", scope=TWIN))
    (one,) = publish(store, staged(b"x", "a"))
    (again,) = publish(store, staged(b"x", "c"))
    assert (again.deduplicated, again.dedupe_action) == (True, "download")
    assert inode(store, SCOPE, one) == inode(store, TWIN, two)


def test_without_the_setting_nothing_is_shared(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store", Settings(dedupe=DedupeSettings(hardlink=False)))
    (one,) = publish(store, staged(b"x", "a"))
    (two,) = publish(store, staged(b"x", "b", scope=TWIN))
    assert two.dedupe_action == "download"
    assert inode(store, SCOPE, one)[1] == inode(store, TWIN, two)[1] == 1
    store.close()


def test_a_link_in_the_place_of_a_project_is_not_followed(store: LocalStore, tmp_path: Path) -> None:
    (one,) = publish(store, staged(b"x", "a"))
    (store.root / SCOPE.tenant_id / "link").symlink_to(store.root / SCOPE.tenant_id / SCOPE.project_id)
    store.remove(SCOPE, one.pointer)
    (store.root / SCOPE.tenant_id / "file").write_bytes(b"")
    elsewhere = tmp_path / "elsewhere" / one.pointer.split("/")[2]
    elsewhere.mkdir(parents=True)
    (elsewhere / one.sha256).write_bytes(b"x")
    (store.root / SCOPE.tenant_id / "out").symlink_to(tmp_path / "elsewhere")
    (again,) = publish(store, staged(b"x", "b"))
    assert inode(store, SCOPE, again)[1] == 1


def test_a_blob_that_goes_while_it_is_shared(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = publish(store, staged(b"x", "a"))
    prove = problem_of

    def proven_and_gone(file: str, directory: int, item: Staged) -> Problem | None:
        problem = prove(file, directory, item)
        store.remove(SCOPE, one.pointer)
        return problem

    monkeypatch.setattr(shared_bytes, "problem_of", proven_and_gone)
    (two,) = publish(store, staged(b"x", "b", scope=TWIN))
    assert two.dedupe_action == "copy"
    assert wrong_blobs(store.root) == []
