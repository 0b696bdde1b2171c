"""One process: uvicorn and, by default, a worker and the torrent sync in the same event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

import uvicorn
from fastapi import FastAPI

from longshore.depot import AsyncDepot
from longshore.depot.webhooks import Deliverer
from longshore.domain.policy.open_files import wanted
from longshore.domain.run_events import RunEvent
from longshore.errors import LongshoreError
from longshore.ledger.operations import tokens
from longshore.web.app import make_app
from longshore.web.connections import Connection, Connections
from longshore.web.metrics import Metrics
from longshore.web.serve_log import log_job
from longshore.web.server_options import ServerOptions, is_loopback
from longshore.web.service import Service
from longshore.web.tls import Tls
from longshore.worker.open_files import raised

log = logging.getLogger("longshore.web")

DRAIN_S: Final = 30.0
WEBHOOKS_S: Final = 1.0  # how often it is looked whether changes are to be sent


def make_service(depot: AsyncDepot, settings: ServerOptions) -> Service:
    """Build a service around an open depot."""
    service = Service(depot.ledger, depot.store, settings, hosts=depot.runtime.hosts, depot=depot, wake=depot.notify)
    service.started_at = depot.ledger.now()
    service.metrics = metrics = Metrics(service)
    depot.ledger.backend.commit_seconds = metrics.commits.observe

    def hear(note: RunEvent) -> None:
        metrics.note(note)
        service.note(note)
        log_job(note)

    depot.runner.on_note = hear
    return service


class Server(uvicorn.Server):
    """Uvicorn that closes event streams first, so that they do not delay a shutdown."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self.service, self.ready = service, ready
        self.seen: list[int] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Report the address once the server accepts connections."""
        with self._handshakes_bounded():
            await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            self.ready(f"{'https' if self.config.ssl else 'http'}://{_in_url(host)}:{port}")

    @contextlib.contextmanager
    def _handshakes_bounded(self) -> Iterator[None]:
        """Give TLS handshakes the deadline of a request's head; uvicorn has no setting for it (60 seconds)."""
        loop: Any = asyncio.get_running_loop()
        if self.config.ssl is None:
            yield
            return
        original = loop.create_server
        loop.create_server = partial(original, ssl_handshake_timeout=self.service.settings.head_timeout_s)
        try:
            yield
        finally:
            loop.create_server = original

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers: `obeyed` handles signals until the workers have stopped, too."""
        yield

    @contextlib.contextmanager
    def obeyed(self, depot: AsyncDepot) -> Iterator[None]:
        """Drain requests and workers on the first signal, abort both on the second; the caller sets the exit code."""

        def obey(number: int) -> None:
            if not self.seen:
                log.warning("finishing or suspending running jobs; send the signal again to abort")
                depot.drain()
            else:
                self.force_exit = True
                depot.abort()
                depot.ledger.give_up()
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


def listening(settings: ServerOptions) -> socket.socket:
    """Bind the port before anything else starts, so that a port in use is reported at once."""
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
    """Send a state to systemd (`Type=notify`)."""
    if path := os.environ.get("NOTIFY_SOCKET"):
        address = "\0" + path[1:] if path.startswith("@") else path
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line, contextlib.suppress(OSError):
            line.sendto(state.encode(), address)


def within_open_files(depot: AsyncDepot, settings: ServerOptions) -> ServerOptions:
    """Raise the limit of open files for the connections, or allow only half of it to them."""
    needed = settings.connections + wanted(depot.settings.transfer.concurrency)
    if (limit := raised(needed)) >= needed:
        return settings
    connections = max(8, min(settings.connections, limit // 2))
    log.warning("%d open files are allowed: no more than %d connections; raise `ulimit -n`", limit, connections)
    return replace(settings, connections=connections)


def config_of(app: FastAPI, table: Connections, tls: Tls | None = None) -> uvicorn.Config:
    """Return uvicorn's configuration: HTTP/1.1 with our deadlines and limits of connections."""
    config = uvicorn.Config(
        app,
        http=cast("Any", partial(Connection, table)),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        lifespan="off",
        timeout_graceful_shutdown=int(DRAIN_S),
        h11_max_incomplete_event_size=65_536,
        proxy_headers=False,
    )
    config.load()
    config.ssl = tls.context if tls else None
    return config


async def serve(
    depot: AsyncDepot, settings: ServerOptions, say: Callable[[str, str | None], None], *, link: bool = False
) -> int:
    """Serve until a signal arrives; return its number, or 0."""
    tls = Tls(settings.tls_certificate, settings.tls_key or "") if settings.tls_certificate else None
    if settings.is_bare():
        log.warning("listening on %s without TLS: tokens and everything else can be read on the way", settings.host)
    service = make_service(depot, settings)
    app = make_app(service)
    listener = listening(settings)
    if is_loopback(settings.host) and (link or not depot.ledger.read(tokens.has_api_token)):
        service.first_code, service.first_always = secrets.token_urlsafe(32), link
        service.first_until = time.monotonic() + settings.first_link_s

    def ready(url: str) -> None:
        notify_systemd("READY=1")
        say(url, f"{url}/first?code={service.first_code}" if service.first_code else None)

    server = Server(config_of(app, Connections(within_open_files(depot, settings)), tls), service, ready)
    with server.obeyed(depot):
        async with beside(depot, settings, server, tls):
            await server.serve([listener])
    notify_systemd("STOPPING=1")
    return server.seen[0] if server.seen else 0


@contextlib.asynccontextmanager
async def beside(depot: AsyncDepot, settings: ServerOptions, server: Server, tls: Tls | None = None) -> Any:
    """Run the workers in the server's loop, and drain them after it stops."""
    tasks: list[asyncio.Task[Any]] = []
    if settings.workers:
        tasks.append(asyncio.create_task(_work(depot, server), name="worker"))
        tasks.append(asyncio.create_task(_send_webhooks(depot, server), name="webhooks"))
    beats = [asyncio.create_task(_watchdog(), name="watchdog")]
    if tls is not None:
        beats.append(asyncio.create_task(tls.keep_fresh(), name="certificate"))
    tasks += beats
    try:
        yield
    finally:
        depot.drain()
        for task in beats:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        depot.ledger.give_up()  # the threads of requests that were cut off must not wait for a silent server
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


async def _send_webhooks(depot: AsyncDepot, server: Server) -> None:
    """Send changes to the webhooks of all tenants as they come."""
    closing, failing = server.service.closing, False
    deliverer = Deliverer(
        depot.ledger,
        depot.runtime.policy,
        depot.settings.network,
        stopped=lambda: closing.is_set() or bool(server.seen),
    )
    while not closing.is_set():
        try:
            await asyncio.to_thread(deliverer.round)
            failing = False
        except LongshoreError as error:  # the ledger: the worker reports it, too
            if not failing:
                log.warning("webhooks wait: %s", error)
            failing = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(closing.wait(), WEBHOOKS_S)


async def _watchdog() -> None:
    """Ping systemd's watchdog while the loop runs, if it is enabled."""
    every = int(os.environ.get("WATCHDOG_USEC", "0")) / 2_000_000
    while every:
        notify_systemd("WATCHDOG=1")
        await asyncio.sleep(every)
