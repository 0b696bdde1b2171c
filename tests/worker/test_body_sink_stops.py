"""The sink of a body: whatever stops it, a part that is still written is touched by nobody else."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from longshore.domain.model import Scope
from longshore.domain.transfer.response_head import parse_head
from longshore.errors import StoreError
from longshore.store import LocalStore, Part
from longshore.worker.kinds.download.body_sink import BodySink

SCOPE = Scope("t", "p")


def sink_of(store: LocalStore, threads: ThreadPoolExecutor, size: int) -> BodySink:
    lease: Any = SimpleNamespace(scope=SCOPE, job_id="big", epoch=1)
    sink = BodySink(store, lease, "http://h/", threads, judge=lambda _: None, small_bytes=1024, on_large=lambda _: None)
    sink.resume = lambda: None
    lines = [b"HTTP/1.1 200 OK\r\n", f"Content-Length: {size}\r\n".encode(), b'ETag: "v1"\r\n', b"\r\n"]
    sink.begin(parse_head(lines, "http://h/", ()))
    return sink


def test_stopped_while_the_last_bytes_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    real = Part.write_at

    def held(self: Part, data: bytes | memoryview, offset: int, *, direct: bool = False) -> None:
        assert gate.wait(60)
        real(self, data, offset, direct=direct)

    monkeypatch.setattr(Part, "write_at", held)
    body = os.urandom(300_000)
    store = LocalStore(tmp_path / "store")

    async def run() -> None:
        with ThreadPoolExecutor(2) as threads:
            sink = sink_of(store, threads, len(body))
            sink.write(body)
            finishing = asyncio.ensure_future(sink.finish())
            while not sink._pump:
                await asyncio.sleep(0)
            for _ in range(10):
                await asyncio.sleep(0)
            finishing.cancel()
            await asyncio.wait([finishing])
            ending = asyncio.ensure_future(sink.abandon(keep=True))
            await asyncio.sleep(0.05)
            assert not ending.done(), "the part was put away while it was written"
            gate.set()
            await asyncio.wait_for(ending, 60)

    asyncio.run(run())
    facts = store.old_part(SCOPE, "big")
    assert facts is not None and facts.durable_bytes == len(body)
    part = store.part(SCOPE, "big", 2, adopt=facts)
    assert part.read_back(0, len(body)) == body
    part.discard()
    store.close()


def test_a_disk_that_does_not_read_ends_the_transfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transfer is paused until the part is there: an error must wake it, or it would wait for ever."""
    store = LocalStore(tmp_path / "store")

    def broken(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Part, "begin", broken)

    async def run() -> None:
        with ThreadPoolExecutor(2) as threads:
            sink = sink_of(store, threads, 300_000)
            woken = asyncio.Event()
            sink.resume = woken.set
            await asyncio.wait_for(woken.wait(), 60)
            with pytest.raises(StoreError):
                sink.write(b"x")
            await sink.abandon(keep=True)

    asyncio.run(run())
    assert list(store.parts()) == []
    names = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert [name for name in names if name.startswith(f"{store.root}/.staging/parts/")] == []
    store.close()
