"""Power is cut at every step of a publish, on a real ext4: what was acknowledged is there, and nothing is half there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from longshore import failpoints
from longshore.domain.model import Blob, Validators
from longshore.store import LocalStore
from longshore.store.durability import barriers
from tests.store.publishing import NO_FLOOR, SCOPE, linked, of_part, staged, wrong_blobs
from tests.support.disks import PowerCut, power_cut_disk

Cut = tuple[str, Path, tuple[Blob, ...], int]


class Recorder:
    """Cuts the power at chosen failpoints and remembers what had been promised by then."""

    def __init__(self, disk: PowerCut, wanted: Callable[[str], bool]) -> None:
        self.disk = disk
        self.wanted = wanted
        self.promised: list[Blob] = []
        self.durable_bytes = 0
        self.cuts: list[Cut] = []
        self.active = False

    def hit(self, name: str) -> None:
        if self.active and self.wanted(name):
            self.now(name)

    def now(self, name: str) -> None:
        self.cuts.append((name, self.disk.cut(), tuple(self.promised), self.durable_bytes))


def publish_two_batches(store: LocalStore, recorder: Recorder, size: int) -> None:
    for batch in range(2):
        items = [staged(b"%d/%d " % (batch, n) * 900, f"job-{batch}-{n}") for n in range(size)]
        assert store.stage(items) == [None] * size
        recorder.promised += linked(store, items)
        recorder.now("promised")
        store.clean(items)
    recorder.now("end")


def check_cuts(recorder: Recorder) -> None:
    assert recorder.cuts
    for name, copy, promised, _ in recorder.cuts:
        with recorder.disk.after(copy) as where:
            assert wrong_blobs(where / "store") == [], name
            store = LocalStore(where / "store", NO_FLOOR)
            try:
                for blob in promised:
                    assert store.check(SCOPE, blob.pointer, blob.sha256, blob.size_bytes) is None, name
            finally:
                store.close()


@pytest.mark.parametrize("size", [2, barriers.FEW + 2], ids=["fsync-each", "syncfs"])
def test_every_step_of_a_publish(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with power_cut_disk() as disk:
        store = LocalStore(disk.root / "store", NO_FLOOR)
        seen: dict[str, int] = {}

        def first_two(name: str) -> bool:
            seen[name] = seen.get(name, 0) + 1
            return seen[name] <= 2 and not name.startswith(("part.", "quarantine."))

        recorder = Recorder(disk, first_two)
        monkeypatch.setattr(failpoints, "hit", recorder.hit)
        recorder.active = True
        publish_two_batches(store, recorder, size)
        recorder.active = False
        store.close()
        assert {"stage.write", "stage.barrier", "link.mkdir", "link.link", "link.dirsync", "clean.unlink"} <= set(seen)
        check_cuts(recorder)


@pytest.mark.torture  # a `sync` of somebody else's would save what must be lost
@pytest.mark.parametrize("skipped", ["stage.barrier", "link.dirsync"])
def test_the_cut_shows_a_missing_barrier(skipped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test can fail: without one of the barriers something promised is lost."""
    with power_cut_disk() as disk:
        store = LocalStore(disk.root / "store", NO_FLOOR)
        recorder = Recorder(disk, lambda _: False)
        wait = barriers.Barrier.wait

        def forgetful(barrier: barriers.Barrier) -> None:
            if barrier._name != skipped:
                wait(barrier)

        monkeypatch.setattr(barriers.Barrier, "wait", forgetful)
        items = [staged(os.urandom(20_000), f"job-{n}") for n in range(2)]
        store.stage(items)
        recorder.promised += linked(store, items)
        recorder.now("promised")
        store.close()
        with pytest.raises(AssertionError):
            check_cuts(recorder)


def test_a_part_never_promises_more_than_the_disk_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    body = os.urandom((1 << 20) + 4321)
    with power_cut_disk() as disk:
        store = LocalStore(disk.root / "store", NO_FLOOR)
        recorder = Recorder(disk, lambda name: name.startswith("part."))
        monkeypatch.setattr(failpoints, "hit", recorder.hit)
        recorder.active = True
        part = store.part(SCOPE, "big", 1)
        part.begin(url="http://example.org/", validators=Validators('"v1"'), total=len(body))
        for start in range(0, len(body), 400_000):
            part.write(body[start : start + 400_000])
            recorder.durable_bytes = part.checkpoint()
        item = of_part(part)
        store.stage([item])
        recorder.promised += linked(store, [item])
        recorder.now("promised")
        recorder.active = False
        store.clean([item])
        store.close()
        for name, copy, promised, durable in recorder.cuts:
            with disk.after(copy) as where:
                check_part(where / "store", name, body, durable)
                assert wrong_blobs(where / "store") == [], name
                assert all((where / "store" / blob.pointer).exists() for blob in promised), name


def check_part(root: Path, name: str, body: bytes, durable: int) -> None:
    store = LocalStore(root, NO_FLOOR)
    try:
        facts = store.old_part(SCOPE, "big")
        promised = facts.durable_bytes if facts is not None else 0
        assert promised >= durable, name
        if facts is not None:
            part = store.part(SCOPE, "big", 2, adopt=facts)
            assert part.size_bytes == promised, name
            assert part.read_back(0, promised) == body[:promised], name
            part.discard()
    finally:
        store.close()
