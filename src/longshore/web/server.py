"""One process: uvicorn, and unless told otherwise a worker and the torrent sync beside it in the same loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

import uvicorn

from longshore.depot import AsyncDepot
from longshore.domain.notes import Note
from longshore.ledger import tokens
from longshore.torrents.opening import syncing
from longshore.web.app import make_app
from longshore.web.guard import is_loopback
from longshore.web.metrics import Metrics
from longshore.web.service import Service
from longshore.web.settings import ServeSettings

log = logging.getLogger("longshore.web")

DRAIN_S: Final = 30.0


def make_service(depot: AsyncDepot, settings: ServeSettings) -> Service:
    """Put a service around an open depot."""
    service = Service(depot.ledger, depot.store, settings, hosts=depot.yard.hosts, depot=depot, wake=depot.notify)
    service.started_at = depot.ledger.now()
    service.metrics = metrics = Metrics(service)
    depot.ledger.backend.commit_seconds = metrics.commits.observe

    def hear(note: Note) -> None:
        metrics.note(note)
        service.note(note)

    depot.on_note = hear
    return service


class Server(uvicorn.Server):
    """Uvicorn that ends its endless answers first: an open event stream must not hold up a stop."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self.service, self.ready = service, ready
        self.seen: list[int] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell the address when connections are taken."""
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            self.ready(f"http://{_in_url(host)}:{port}")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `obeyed`, which hears them until the workers are down, too."""
        yield

    @contextlib.contextmanager
    def obeyed(self, depot: AsyncDepot) -> Iterator[None]:
        """Let the first signal drain requests and workers, and the second abort both; the exit code is our caller's."""

        def obey(number: int) -> None:
            if not self.seen:
                log.warning("finishing or putting down what is under way; once more to abort")
                depot.drain()
            else:
                self.force_exit = True
                depot.abort()
            self.seen.append(number)
            self.service.closing.set()
            self.should_exit = True

        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            loop.add_signal_handler(number, obey, number)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)


def _in_url(host: str) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    return f"[{shown}]" if ":" in shown and not shown.startswith("[") else shown


def listening(settings: ServeSettings) -> socket.socket:
    """Take the port before anything else starts, so that a port in use is told at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror, f"{settings.host}:{settings.port}") from error
    return listener


def notify_systemd(state: str) -> None:
    """Tell systemd how we are, if it asked (`Type=notify`)."""
    if path := os.environ.get("NOTIFY_SOCKET"):
        address = "\0" + path[1:] if path.startswith("@") else path
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line, contextlib.suppress(OSError):
            line.sendto(state.encode(), address)


async def serve(
    depot: AsyncDepot, settings: ServeSettings, say: Callable[[str, str | None], None], *, link: bool = False
) -> int:
    """Serve until a signal comes; give its number, or 0."""
    service = make_service(depot, settings)
    app = make_app(service)
    listener = listening(settings)
    if is_loopback(settings.host) and (link or not depot.ledger.read(tokens.has_api_token)):
        service.first_code = secrets.token_urlsafe(32)

    def ready(url: str) -> None:
        notify_systemd("READY=1")
        say(url, f"{url}/first?code={service.first_code}" if service.first_code else None)

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        lifespan="off",
        timeout_graceful_shutdown=int(DRAIN_S),
        limit_concurrency=2000,
        h11_max_incomplete_event_size=65_536,
        proxy_headers=False,
    )
    server = Server(config, service, ready)
    with server.obeyed(depot):
        async with beside(depot, settings, server), syncing(depot, wanted=settings.workers):
            await server.serve([listener])
    notify_systemd("STOPPING=1")
    return server.seen[0] if server.seen else 0


@contextlib.asynccontextmanager
async def beside(depot: AsyncDepot, settings: ServeSettings, server: Server) -> Any:
    """Run the workers beside the server, and end them in good order after it."""
    tasks: list[asyncio.Task[Any]] = []
    if settings.workers:
        tasks.append(asyncio.create_task(_work(depot, server), name="worker"))
    tasks.append(asyncio.create_task(_watchdog(), name="watchdog"))
    try:
        yield
    finally:
        depot.drain()
        tasks[-1].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        for result in done:
            if isinstance(result, Exception):
                log.error("ended with an error", exc_info=result)


async def _work(depot: AsyncDepot, server: Server) -> None:
    try:
        await depot.run(forever=True)
    except Exception:
        log.exception("the worker ended; the server stops with it")
        server.should_exit = True
        server.service.closing.set()
        raise


async def _watchdog() -> None:
    """Ping systemd while the loop runs, if it asked."""
    every = int(os.environ.get("WATCHDOG_USEC", "0")) / 2_000_000
    while every:
        notify_systemd("WATCHDOG=1")
        await asyncio.sleep(every)
