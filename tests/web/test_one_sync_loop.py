"""`serve` keeps torrents in step with one loop, that of its worker."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from longshore.depot.async_depot import AsyncDepot
from longshore.web.server import serve
from longshore.web.server_options import ServerOptions
from longshore.worker.kinds.torrent import service_lifetime as torrent_side


@pytest.mark.parametrize("workers", [True, False])
def test_serve_starts_one_torrent_sync_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: bool) -> None:
    started: list[object] = []

    async def sync(depot: object, stop: asyncio.Event, report: object = None) -> None:
        started.append(depot)
        await stop.wait()

    def stop_soon(url: str, link: str | None) -> None:
        asyncio.get_running_loop().call_later(0.5, os.kill, os.getpid(), signal.SIGTERM)

    async def served() -> int:
        async with AsyncDepot.open(tmp_path / "depot") as depot:
            return await serve(depot, ServerOptions(port=0, workers=workers), stop_soon)

    monkeypatch.setattr(torrent_side, "sync_forever", sync)
    assert asyncio.run(served()) == signal.SIGTERM
    assert len(started) == (1 if workers else 0)
