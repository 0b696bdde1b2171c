"""The pump: bytes in any pieces come out whole, hashed and durable; memory stays within its limits."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore import failpoints
from longshore.domain.model import Validators
from longshore.errors import PublishFailed, StoreError
from longshore.store import LocalStore, Part, PartWriter
from longshore.store.staging import part_writer
from longshore.store.staging.parts import Part as RealPart
from tests.store.publishing import SCOPE, of_part, publish

MIB = 1 << 20


def begun(store: LocalStore, epoch: int = 1, job_id: str = "big") -> Part:
    part = store.part(SCOPE, job_id, epoch, adopt=store.old_part(SCOPE, job_id) if epoch > 1 else None)
    part.begin(url="http://example.org/", validators=Validators('"v1"'), total=None)
    return part


def pieces(body: bytes, size: int) -> Iterator[bytes]:
    return (body[start : start + size] for start in range(0, len(body), size))


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 3 * MIB, 3 * MIB + 5])
def test_any_length(store: LocalStore, size: int, direct: bool) -> None:
    body = os.urandom(size)
    part = begun(store)
    if not direct and part.direct_fd is not None:
        os.close(part.direct_fd)
        part.direct_fd = None
    carrier = store.pump(part)
    for piece in pieces(body, 65_537):
        carrier.feed(piece)
    assert carrier.finish_now() == (hashlib.sha256(body).hexdigest(), size)
    [blob] = publish(store, of_part(part))
    assert store.check(SCOPE, blob.pointer, blob.sha256, size) is None


def test_a_device_that_takes_no_direct_writes(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    part = begun(store)
    if part.direct_fd is None:
        pytest.skip("no direct writes here anyway")
    direct, real = part.direct_fd, os.pwrite

    def refuse(fd: int, data: bytes, offset: int) -> int:
        if fd == direct:
            raise OSError(errno.EINVAL, "no")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", refuse)
    body = os.urandom(2 * MIB + 5)
    carrier = store.pump(part)
    carrier.feed(body)
    assert carrier.finish_now() == (hashlib.sha256(body).hexdigest(), len(body))
    assert os.fstat(part.fd).st_size == len(body)
    part.discard()


@pytest.mark.parametrize("cut", [1, 4096, 5000, MIB, MIB + 1, 2 * MIB + 4097])
def test_stopped_anywhere_and_gone_on(store: LocalStore, cut: int) -> None:
    body = os.urandom(3 * MIB + 77)
    first = begun(store)
    carrier = store.pump(first)
    for piece in pieces(body[:cut], 100_000):
        carrier.feed(piece)
    assert carrier.stop_now() == cut
    part = begun(store, 2)
    assert part.size_bytes == cut
    carrier = store.pump(part)
    for piece in pieces(body[cut:], 100_000):
        carrier.feed(piece)
    assert carrier.finish_now() == (hashlib.sha256(body).hexdigest(), len(body))
    part.discard()


def test_a_full_pump_pauses_and_resumes(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    real = RealPart.write_at

    def held(self: RealPart, data: bytes | memoryview, offset: int, *, direct: bool = False) -> None:
        assert gate.wait(60)
        real(self, data, offset, direct=direct)

    monkeypatch.setattr(RealPart, "write_at", held)

    async def run() -> tuple[int, tuple[str, int]]:
        resumed = asyncio.Event()
        carrier = store.pump(begun(store), resumed.set)
        fed = 0
        while carrier.feed(bytes(MIB)):
            fed += 1
            assert fed < 100
        assert not resumed.is_set()
        gate.set()
        await asyncio.wait_for(resumed.wait(), 60)
        return fed + 1, await carrier.finish()

    count, (sha256, size) = asyncio.run(run())
    assert count == part_writer.PLENTY
    assert (sha256, size) == (hashlib.sha256(bytes(count * MIB)).hexdigest(), count * MIB)


def test_many_pumps_share_memory(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    real = RealPart.hashed

    def held(self: RealPart, data: bytes | memoryview) -> None:
        assert gate.wait(60)
        real(self, data)

    monkeypatch.setattr(RealPart, "hashed", held)
    pumps = [store.pump(begun(store, job_id=f"job{n}")) for n in range(30)]
    for carrier in pumps:
        while carrier.feed(bytes(MIB)):
            pass
    in_use = store.staging._buffers.in_use
    assert in_use <= 30 * (part_writer.FEW + 1) + part_writer.SHARED
    gate.set()
    for carrier in pumps:
        assert carrier.finish_now()[1] >= part_writer.FEW * MIB
    assert store.staging._buffers.in_use == 0


@pytest.mark.parametrize("size", [1, 4097, 2 * MIB, 2 * MIB + 1, 7 * MIB + 5])
def test_bytes_received_into_its_memory(store: LocalStore, size: int) -> None:
    """Who fills the pump's own memory, in any steps and mixed with `feed`, gets the same body."""
    body = os.urandom(size)
    part = begun(store)
    carrier = store.pump(part)
    done, step = 0, 1
    while done < size:
        room = carrier.room()
        count = min(step, len(room), size - done)
        room[:count] = body[done : done + count]
        carrier.filled(count)
        carrier.feed(body[done + count : done + count + 3])
        done, step = min(size, done + count + 3), step * 3 % 700_001 + 1
    assert carrier.finish_now() == (hashlib.sha256(body).hexdigest(), size)
    [blob] = publish(store, of_part(part))
    assert store.check(SCOPE, blob.pointer, blob.sha256, size) is None


def test_a_pump_that_failed_has_no_memory_to_give(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PublishFailed("injected")

    monkeypatch.setattr(RealPart, "write_at", fail)
    carrier = store.pump(begun(store))
    carrier.feed(bytes(2 * MIB))
    carrier._wait()
    with pytest.raises(PublishFailed):
        carrier.room()
    with pytest.raises(PublishFailed):
        carrier.finish_now()


def test_buffers_are_large_while_there_are_few() -> None:
    buffers = part_writer.Buffers()
    taken = [buffers.take() for _ in range(30)]
    assert {len(buffer) for buffer in taken} == {MIB, part_writer.LARGE * MIB}
    assert sum(len(buffer) for buffer in taken if len(buffer) > MIB) == part_writer.AMPLE * MIB
    assert buffers.in_use == sum(map(len, taken)) // MIB
    for buffer in taken:
        buffers.give(buffer)
    kept = [buffer for free in buffers._free.values() for buffer in free]
    assert buffers.in_use == 0 and sum(map(len, kept)) <= part_writer.SHARED * MIB
    assert buffers.take() in kept


def test_a_slow_body_is_checkpointed_on_the_way(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("longshore.store.staging.part_writer.monotonic", lambda: now[0])
    part = begun(store)
    carrier = store.pump(part)
    body = os.urandom(MIB)
    for number, piece in enumerate(pieces(body, 10_000)):
        now[0] = number * 0.2
        carrier.feed(piece)
    carrier._wait()
    facts = store.old_part(SCOPE, "big")
    assert facts is not None
    assert 900_000 < facts.durable_bytes <= MIB
    assert part.read_back(0, facts.durable_bytes) == body[: facts.durable_bytes]
    assert carrier.finish_now()[0] == hashlib.sha256(body).hexdigest()
    part.discard()


@pytest.mark.parametrize("step", ["part.write", "part.fsync"])
def test_a_failed_write_reaches_the_feeder_and_ends_the_part(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(name: str) -> None:
        if name == step:
            raise failpoints.FailpointRaised(5, "injected")

    monkeypatch.setattr(part_writer, "CHECKPOINT_S", 0.0)
    carrier = store.pump(begun(store))
    monkeypatch.setattr(failpoints, "hit", fail)
    carrier.feed(bytes(2 * MIB))
    carrier._wait()
    with pytest.raises(StoreError):
        carrier.feed(b"x")
    with pytest.raises(StoreError):
        carrier.finish_now()
    monkeypatch.undo()
    assert list(store.parts()) == []
    assert store.staging._buffers.in_use == 0


def test_abandoned(store: LocalStore) -> None:
    async def run() -> PartWriter:
        carrier = store.pump(begun(store))
        carrier.feed(bytes(3 * MIB))
        await carrier.abandon()
        return carrier

    carrier = asyncio.run(run())
    assert list(store.parts()) == []
    assert store.staging._buffers.in_use == 0
    with pytest.raises(PublishFailed):
        carrier.feed(b"x")


@pytest.mark.parametrize("keep", [True, False])
def test_a_finish_that_is_cut_short_is_waited_for(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    """Nobody closes or counts a part whose last bytes are still on their way to the disk."""
    gate = threading.Event()
    real = RealPart.write_at

    def held(self: RealPart, data: bytes | memoryview, offset: int, *, direct: bool = False) -> None:
        assert gate.wait(60)
        real(self, data, offset, direct=direct)

    monkeypatch.setattr(RealPart, "write_at", held)
    body = os.urandom(MIB + 77)

    async def run() -> None:
        carrier = store.pump(begun(store))
        carrier.feed(body)
        finishing = asyncio.ensure_future(carrier.finish())
        await asyncio.sleep(0)
        finishing.cancel()
        await asyncio.wait([finishing])
        ending = asyncio.ensure_future(carrier.stop() if keep else carrier.abandon())
        await asyncio.sleep(0.05)
        assert not ending.done()
        gate.set()
        await asyncio.wait_for(ending, 60)

    asyncio.run(run())
    assert store.staging._buffers.in_use == 0
    if not keep:
        assert list(store.parts()) == []
        return
    part = begun(store, 2)
    assert (part.size_bytes, part.sha256) == (len(body), hashlib.sha256(body).hexdigest())
    part.discard()


@pytest.mark.torture  # a gigabyte; the figure depends on the machine's memory, not on its speed
def test_memory_stays_flat(tmp_path: Path) -> None:
    code = f"""
import resource
from pathlib import Path
from longshore.domain.model import Scope
from longshore.store import LocalStore, Staged
store = LocalStore(Path({str(tmp_path)!r}))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
part = store.part(Scope(), "big", 1)
pump = store.pump(part)
for _ in range(1 << 14):
    if not pump.feed(bytes(1 << 16)):
        pump._wait()
sha256, size = pump.finish_now()
item = Staged(Scope(), "big", 1, sha256, size, "x/y", part)
assert store.stage([item]) == [None]
print(store.link([item])[0].size_bytes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    size, grown_kib = map(int, said.split())
    assert size == 1 << 30
    assert grown_kib < 32 << 10
