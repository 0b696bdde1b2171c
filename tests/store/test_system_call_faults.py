"""Every system call of a part's and a batch's way into the store fails once: nothing is half there, and the error is ours."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from longshore.domain.model import Blob, Validators
from longshore.errors import LongshoreError, StoreError
from longshore.store import LocalStore, Part
from longshore.store.durability import barriers, filesystem
from tests.store.publishing import NO_FLOOR, SCOPE, files_below, of_part, staged, wrong_blobs

CALLS = ("open", "pwrite", "link", "mkdir", "fsync", "unlink", "rename", "fchmod", "ftruncate", "pread", "rmdir", "dup")
LARGE = os.urandom(50_000)


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: nothing here depends on what an fsync does, only on whether it fails."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="longshore-") as where:
        yield Path(where)


class Sweep:
    """Counts the calls and lets one of them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.fail_at = 0
        self.code = 0
        self.failed = ""
        for name in CALLS:
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))
        monkeypatch.setattr(filesystem, "syncfs", self._wrapped("syncfs", filesystem.syncfs))

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == self.fail_at:
                self.failed = f"{name} {arguments[:2]}"
                raise OSError(self.code, os.strerror(self.code))
            return real(*arguments, **named)

        return call

    def arm(self, at: int, code: int) -> None:
        self.count, self.fail_at, self.code, self.failed = 0, at, code, ""


def publish_all(store: LocalStore, number: int) -> list[Blob]:
    """Take a part through two epochs, then publish it with small bodies; give what is promised."""
    with closing(store.part(SCOPE, f"large{number}", 1)) as part:
        part.begin(url="http://example.org/", validators=Validators('"v1"'), total=len(LARGE))
        part.write(LARGE[:20_000])
        part.checkpoint()
    with closing(store.part(SCOPE, f"large{number}", 2, adopt=store.old_part(SCOPE, f"large{number}"))) as part:
        part.write(LARGE[part.size_bytes :])
        return publish_with(store, part, number)


def publish_with(store: LocalStore, part: Part, number: int) -> list[Blob]:
    items = [of_part(part), *(staged(b"%d/%d" % (number, n), f"small{number}-{n}") for n in range(2))]
    problems = store.stage(items)
    assert all(problem is None or isinstance(problem, StoreError) for problem in problems)
    outcomes = store.link(items)
    assert all(isinstance(outcome, Blob | StoreError) for outcome in outcomes)
    store.clean(items)
    return [outcome for outcome in outcomes if isinstance(outcome, Blob)]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EMFILE], ids=["ENOSPC", "EIO", "EMFILE"])
@pytest.mark.parametrize("few", [8, 0], ids=["fsync-each", "syncfs"])
def test_each_call_fails_once(quick: Path, monkeypatch: pytest.MonkeyPatch, code: int, few: int) -> None:
    monkeypatch.setattr(barriers, "FEW", few)
    monkeypatch.setattr(barriers, "SLOW_PER_FILE_S", 1e9)
    monkeypatch.setattr(barriers, "POOL", 1)
    store = LocalStore(quick / "store", NO_FLOOR)
    sweep = Sweep(monkeypatch)
    publish_all(store, 0)
    store.reserve(SCOPE, 1 << 20).release()  # opens the file of the process's reservations, which stays open
    baseline = open_files(quick)
    for at in range(1, 400):
        sweep.arm(at, code)
        try:
            promised = publish_all(store, at)
        except LongshoreError:
            promised = []
        reached, failed = bool(sweep.failed), sweep.failed
        sweep.arm(0, 0)
        check(store, promised, failed)
        assert open_files(quick) <= baseline, f"{failed} leaves a descriptor open"
        if not reached:
            break
    assert 40 < at < 399
    assert len(promised) == 3
    store.close()


def open_files(below: Path) -> int:
    """Count this process's descriptors of files in a directory."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{name}").startswith(str(below))
    return count


def check(store: LocalStore, promised: list[Blob], failed: str) -> None:
    assert wrong_blobs(store.root) == [], failed
    for blob in promised:
        assert store.check(SCOPE, blob.pointer, blob.sha256, blob.size_bytes) is None, failed
    for facts in list(store.parts()):
        store.drop_part(facts)
    left = [name for name in files_below(store.root) if name.startswith(".staging")]
    assert left == [], failed
