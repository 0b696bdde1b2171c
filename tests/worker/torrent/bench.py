"""A depot's torrent side for tests: real ledger, real store, real client, and a clock that the test turns."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longshore.domain.model import SECOND, Artifact, Scope
from longshore.domain.settings import QbittorrentSettings, QuotaSettings, Secret, Settings
from longshore.ledger import Ledger
from longshore.ledger.operations.torrents import Started
from longshore.ledger.queries.torrents import Tracked
from longshore.ledger.queries.torrents import torrent as read_torrent
from longshore.store import LocalStore
from longshore.transfer import NetworkPolicy, Transfer
from longshore.worker.kinds.torrent.client import Client
from longshore.worker.kinds.torrent.fetch_metainfo import fetcher
from longshore.worker.kinds.torrent.service import TorrentService, request_of
from longshore.worker.kinds.torrent.sync_loop import Cycle
from tests.support.qbt import PASSWORD, Made, until

SCOPE = Scope("t1", "p1")
START = 1_800_000_000 * SECOND


class Clock:
    """Time that stands still until the test turns it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    def turn(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


class Bench:
    """What a test drives: one cycle at a time, at a time of its own."""

    def __init__(self, root: Path, url: str, *, store: Path | None = None, **settings: Any) -> None:
        self.clock = Clock()
        self.root = root
        self.ledger = Ledger.open(root / "ledger.db", create=True, clock=self.clock)
        self.store = LocalStore(store or root / "store", Settings(quota=QuotaSettings(free_bytes_min=0)))
        plain = QbittorrentSettings(url=url, username="admin", password=Secret(PASSWORD))
        self.settings = plain.replaced(**settings)
        self.client = Client(self.settings)

    def close(self) -> None:
        self.ledger.close()
        self.store.close()

    async def _with_service(self, work: Any) -> Any:
        async with Transfer(policy=NetworkPolicy.allowing("127.0.0.0/8")) as transfer:
            fetch = fetcher(transfer, self.settings.max_torrent_bytes)
            service = TorrentService(self.ledger, self.store, self.settings, fetch, owner="test", client=self.client)
            return await work(service)

    def cycle(self, after_s: float = 0.0) -> Cycle:
        """Turn the clock, run one cycle and wait for everything it started."""

        async def work(service: TorrentService) -> Cycle:
            cycle = await service.sync.cycle()
            await service.sync.drain()
            cycle.completed += service.sync.take_completed()
            return cycle

        self.clock.turn(after_s)
        result = asyncio.run(self._with_service(work))
        assert isinstance(result, Cycle)
        return result

    def request(
        self, source: str | Made, *, user: str = "u1", book: str = "b1", media: str = "ebook", scope: Scope = SCOPE
    ) -> Any:
        given: dict[str, Any] = {"user_id": user, "book_id": book, "media_type": media}
        if isinstance(source, Made):
            return request_of(scope, f"file:///{source.path.name}.torrent", metainfo=source.data, **given)
        return request_of(scope, source, **given)

    def start(self, source: str | Made, **names: Any) -> str:
        """Make the job, without handing its torrent over."""
        return self.started(source, **names).job_id

    def started(self, source: str | Made, **names: Any) -> Started:
        request = self.request(source, **names)
        result = asyncio.run(self._with_service(lambda service: service.start(request)))
        assert isinstance(result, Started)
        return result

    def cancel(self, job_id: str, *, scope: Scope = SCOPE, with_files: bool = False) -> Tracked:
        result = asyncio.run(self._with_service(lambda service: service.cancel(scope, job_id, with_files=with_files)))
        assert isinstance(result, Tracked)
        return result

    def job(self, job_id: str, scope: Scope = SCOPE) -> Tracked:
        return self.ledger.read(read_torrent, scope, job_id)

    def until_stage(self, job_id: str, stage: str, *, each_s: float = 0.0, scope: Scope = SCOPE) -> Tracked:
        """Cycle until the job gets there; the clock stands unless told otherwise."""

        def there() -> bool:
            self.cycle(each_s)
            return self.job(job_id, scope).stage == stage

        until(f"job {job_id} is {stage}", there)
        return self.job(job_id, scope)

    def until_seen(self, job_id: str) -> Tracked:
        """Cycle until the client has shown the torrent once."""

        def seen() -> bool:
            self.cycle()
            return self.job(job_id).watch.seen_at is not None

        until(f"job {job_id} is in the client", seen)
        return self.job(job_id)

    def results(self, job_id: str, scope: Scope = SCOPE) -> list[Artifact]:
        return self.ledger.results(scope, job_id)

    def bytes_of(self, artifact: Artifact) -> bytes:
        with self.store.open(artifact.scope, artifact.pointer) as file:
            content = file.read()
        assert hashlib.sha256(content).hexdigest() == artifact.sha256
        return content

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Look into the database as an outsider does."""
        import apsw

        connection = apsw.Connection(str(self.root / "ledger.db"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return [tuple(row) for row in connection.execute(sql)]
        finally:
            connection.close()

    def history(self, job_id: str) -> list[str]:
        return [row[0] for row in self.rows(f"SELECT kind FROM events WHERE job_id = '{job_id}' ORDER BY seq")]


@contextmanager
def bench(root: Path, url: str, **settings: Any) -> Iterator[Bench]:
    made = Bench(root, url, **settings)
    try:
        yield made
    finally:
        made.close()
