"""Fetch and probe: the interface for the worker. It follows redirects and checks each hop before the request."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Coroutine
from typing import Final, Self

import pycurl

from longshore.config.credentials import cookies as stored_cookies
from longshore.config.credentials import credentials, with_netrc
from longshore.domain.policy.network import NetworkPolicy
from longshore.domain.reasons import http_reason
from longshore.domain.settings import Settings, revealed
from longshore.domain.transfer.content_checks import is_challenge
from longshore.domain.transfer.credentials import Credential, credential_for
from longshore.domain.transfer.job_headers import CROSS_ORIGIN_HEADERS, FORBIDDEN_JOB_HEADERS
from longshore.domain.transfer.redirects import REDIRECTS, Target, next_target, read_target
from longshore.domain.transfer.response_head import Head, retry_after_s
from longshore.errors import Reasoned
from longshore.transfer.api import Answer, FetchRequest, Sink
from longshore.transfer.cookies import Cookies
from longshore.transfer.descriptor_gate import DescriptorGate
from longshore.transfer.easy_handle import EasyHandle
from longshore.transfer.ftp import RemoteFile
from longshore.transfer.ftp_threads import FileThreads
from longshore.transfer.header_lines import HeaderLine, as_received, as_written, check_header_values, credential_lines
from longshore.transfer.multi_loop import MultiLoop
from longshore.transfer.rate_limit import RateLimit
from longshore.transfer.stall_watchdog import Watchdog
from longshore.transfer.tls import ca_file

_LITERAL: Final = re.compile(r"[\d.]+\Z|.*:", re.ASCII)
_IDENTITY: Final = "Accept-Encoding: identity"
_PLAIN: Final[list[HeaderLine]] = [_IDENTITY]


class NoPieceError(Exception):
    """A piece cannot be fetched separately; the body must be fetched as one stream."""


class Transfer:
    """Transfers of one event loop. Create and close it inside the loop."""

    def __init__(
        self, settings: Settings | None = None, policy: NetworkPolicy | None = None, *, connections: int = 64
    ) -> None:
        settings = settings or Settings()
        self._settings, self._limits = settings, settings.transfer
        self.proxy = revealed(settings.network.proxy)
        table = credentials(settings)
        check_header_values(settings.network.user_agent, table)
        self.policy = policy or NetworkPolicy()
        self._loop = asyncio.get_running_loop()
        self._reactor = MultiLoop(self._loop, connections=connections)
        self.rate = RateLimit(settings.transfer)
        self._gate = DescriptorGate(settings.transfer.concurrency)
        self._files = FileThreads(self._loop)
        self._watchdog = Watchdog(self._loop, self._reactor, self._files, settings.transfer)
        self._idle: list[EasyHandle] = []
        self._idle_files: list[RemoteFile] = []  # SFTP handles with an open connection, the oldest first
        self._unclean: set[str] = set()  # hosts that send excess bytes: each request uses a new connection
        self._http1: set[str] = set()  # hosts that refused an HTTP/2 stream
        self._ca_file = ca_file(settings.network.ca_file)
        self._credentials = with_netrc(table, settings.network.netrc)
        self._cookies = stored_cookies(settings.network.cookies)
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the running transfers and close every connection."""
        if self._closed:
            return
        self._closed = True
        self._watchdog.close()
        stopped = Reasoned("interrupted", "the transfer was stopped")
        for exchange in [*self._reactor.exchanges(), *self._files.exchanges()]:
            if isinstance(exchange, EasyHandle):
                exchange.stop(stopped)
        for line in [*self._idle, *self._idle_files]:
            line.close()
        self._idle.clear()
        self._idle_files.clear()
        self._reactor.close()
        await self._files.close()

    async def fetch(self, ask: FetchRequest, sink: Sink) -> Answer:
        """GET a URL and write the body to the sink; raise `Reasoned` unless it is the body or a requested 304, 416."""
        return await self.guard(ask, self._walk(ask, sink))

    @property
    def short(self) -> bool:
        """Return whether file descriptors are scarce, so that requests wait for one another."""
        return self._gate.limit is not None

    async def fetch_piece(self, ask: FetchRequest, sink: Sink) -> Answer:
        """GET a piece of a body while another request for it runs: one exchange with the URL of the first response.

        Raise `NoPieceError` instead of waiting at the descriptor gate, which the other request has passed, and instead
        of following a redirect, which would move that request's slot to another host. Ignore the deadline and cancel
        event.
        """
        started = time.monotonic()
        target = read_target(ask.url)
        if self.short:
            raise NoPieceError("descriptors are short")
        line = await self._exchange(ask, target, self._headers(ask, target, own=True, cookies=None), sink, ())
        head = line.head
        assert head is not None
        if head.status in REDIRECTS:
            raise NoPieceError("redirected")
        return self._concluded(ask, line, head, started)

    async def probe(self, ask: FetchRequest) -> Answer:
        """HEAD a URL: the same as `fetch`, without a body."""
        return await self.guard(ask, self._walk(ask, None))

    async def guard(self, ask: FetchRequest, work: Coroutine[None, None, Answer]) -> Answer:
        """Await `work` with the request's deadline and cancel event, if it has them."""
        deadline = ask.deadline_s if ask.deadline_s is not None else self._limits.deadline_s
        if not deadline and ask.cancel is None:
            return await work
        task = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(ask.cancel.wait()) if ask.cancel is not None else None
        try:
            either = {task, watch} if watch else {task}
            await asyncio.wait(either, timeout=deadline or None, return_when="FIRST_COMPLETED")
            if task.done():
                return task.result()
            if watch is not None and watch.done():
                raise Reasoned("canceled", "canceled by request")
            raise Reasoned("deadline", f"not finished within {deadline:g} s")
        finally:
            if watch is not None:
                watch.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _walk(self, ask: FetchRequest, sink: Sink | None) -> Answer:
        """Follow redirects to the final response; check each hop, acquire its slot and send it only its own secrets."""
        started = time.monotonic()
        target = first = read_target(ask.url)
        cookies: Cookies | None = None
        seen: set[str] = {target.url}
        hops: tuple[str, ...] = ()
        while True:
            headers = self._headers(ask, target, own=target.origin == first.origin, cookies=cookies)
            line = await self._exchange(ask, target, headers, sink, hops)
            head = line.head
            assert head is not None
            if head.status not in REDIRECTS:
                return self._concluded(ask, line, head, started)
            if head.cookies:
                cookies = cookies or Cookies()
                cookies.take(target.url, head.cookies)
            hops = (*hops, target.url)
            target = await self._hop(ask, target, head, len(hops))
            state = f"{target.url} {cookies.line(target.url) if cookies else None}"
            if target.url in seen and (cookies is None or state in seen):
                raise Reasoned("redirect_loop", f"{target.host}: the redirects form a loop")
            seen |= {target.url, state}

    async def _exchange(
        self, ask: FetchRequest, target: Target, headers: list[HeaderLine], sink: Sink | None, hops: tuple[str, ...]
    ) -> EasyHandle:
        """Send one request and return its handle when the response is complete."""
        await self.rate.ready()
        await self._gate.enter()
        line: EasyHandle | None = None
        well = False
        try:
            line = self._line(target, ask.tenant)
            line.use_http1(target.host in self._http1)
            most = self._most(ask)
            try:
                fresh = target.host in self._unclean
                await line.run(ask, target, headers, sink=sink, hops=hops, max_bytes=most, fresh=fresh)
            except Reasoned as error:
                self._note_version(target.host, refused=line.requests.repeated)
                if line.unclean or error.reason == "protocol_error":
                    self._unclean.add(target.host)
                if not (line.unclean or line.foreign):
                    raise
                await line.run(ask, target, headers, sink=sink, hops=hops, max_bytes=most, fresh=True)
            well = True
        except BaseException:
            if line is not None:
                line.close()  # an interrupted handle is not reused
            raise
        finally:
            self._gate.leave(starved=line is not None and line.starved, well=well)
            limit = self._gate.limit
            self._reactor.bound(None if limit is None else math.ceil(limit))
        self._give_back(line)
        return line

    def _note_version(self, host: str, *, refused: bool) -> None:
        """Use HTTP/1.1 for a host that refused an HTTP/2 stream (it may require that), until a request fails there."""
        if refused:
            self._http1.add(host)
        else:
            self._http1.discard(host)

    def _line(self, target: Target, tenant: str) -> EasyHandle:
        if self._closed:
            raise Reasoned("interrupted", "the transfer is closed")
        if self.proxy is not None:
            self._check_by_name(target)
        self._watchdog.wake()
        if target.scheme not in ("http", "https"):
            return self._file(target, tenant)
        if self._idle:
            return self._idle.pop()
        return EasyHandle(self._reactor, self._settings, self.policy, self._ca_file, self.rate)

    def _file(self, target: Target, tenant: str) -> RemoteFile:
        credential = target.credential or self._credential(target, tenant)
        for line in self._idle_files:
            if target.scheme == "sftp" and line.identity == (target.host, credential):
                self._idle_files.remove(line)
                return line
        line = RemoteFile(self._files, self._settings, self.policy, self._ca_file, self.rate)
        line.identify(target, credential)
        return line

    def _check_by_name(self, target: Target) -> None:
        """Check literal addresses and names of this machine; a proxy resolves all other names."""
        name = target.hostname.rstrip(".")
        local = name == "localhost" or name.endswith(".localhost")
        literal = "127.0.0.1" if local else name if _LITERAL.match(name) else None
        if literal is not None and (word := self.policy.refusal(literal)) is not None:
            raise Reasoned("forbidden_address", f"{target.host} is an address that is not public ({word})")

    def _give_back(self, line: EasyHandle) -> None:
        if isinstance(line, RemoteFile):
            self._keep_file(line)
        elif not line.spent and len(self._idle) < self._limits.concurrency:
            self._idle.append(line)

    def _keep_file(self, line: RemoteFile) -> None:
        """Keep an SFTP handle for the next file of its host; close the oldest one if there are too many."""
        if line.keeps_connection and not line.spent:
            self._idle_files.append(line)
        while self._idle_files and (self.short or len(self._idle_files) > self._limits.concurrency):
            self._idle_files.pop(0).close()

    def _most(self, ask: FetchRequest) -> int:
        return self._limits.max_bytes if ask.max_bytes is None else min(ask.max_bytes, self._limits.max_bytes)

    def _headers(self, ask: FetchRequest, target: Target, *, own: bool, cookies: Cookies | None) -> list[HeaderLine]:
        """Return the header lines for one hop: the job's headers only for its origin, secrets only for their host."""
        credential = target.credential or self._credential(target, ask.tenant)
        plain = not ask.headers and not ask.ranged and not ask.conditional and not self._cookies
        if plain and credential is None and cookies is None:
            return _PLAIN
        lines: list[HeaderLine] = [_IDENTITY, *map(as_received, ask.conditions())]
        lines += [
            as_written(
                f"{name}: {value}" if value else f"{name};"
            )  # libcurl writes `Name;` as a header without a value
            for name, value in ask.headers
            if _may_send(name.lower(), own=own)
        ]
        named = {name.lower() for name, _ in ask.headers} if own else ()
        if credential is not None and "authorization" not in named:
            lines += credential_lines(credential)
        if "cookie" not in named and (line := self._cookie_line(target.url, cookies)):
            lines.append(as_received(line))
        return lines

    def _cookie_line(self, url: str, cookies: Cookies | None) -> str | None:
        """Return the Cookie header line for a URL: those of the file, and those that redirects have set since."""
        if not self._cookies:
            return cookies.line(url) if cookies else None
        pairs = self._cookies.pairs(url, time.time()) | (cookies.pairs(url) if cookies else {})
        return f"Cookie: {'; '.join(f'{name}={value}' for name, value in pairs.items())}" if pairs else None

    def _credential(self, target: Target, tenant: str) -> Credential | None:
        if not self._credentials:
            return None
        return credential_for(self._credentials, target.scheme, target.host, target.hostname, tenant)

    async def _hop(self, ask: FetchRequest, current: Target, head: Head, count: int) -> Target:
        if count > self._limits.max_redirects:
            raise Reasoned("redirect_loop", f"{current.host}: more than {self._limits.max_redirects} redirects")
        target = next_target(current, head.headers.get("location"))
        if ask.on_hop is not None and target.host != current.host and not await ask.on_hop(target.host):
            raise Reasoned("host_busy", f"{target.host} has no free slot", hint=target.host)
        return target

    def _concluded(self, ask: FetchRequest, line: EasyHandle, head: Head, started: float) -> Answer:
        self._judge(ask, head, line)
        answer = self._answer(line, head, started)
        if line.spent:
            line.close()
        return answer

    def _judge(self, ask: FetchRequest, head: Head, line: EasyHandle) -> None:
        """Raise `Reasoned` for an unacceptable response."""
        status = head.status
        if status in (200, 206):
            span = head.content_range.length if status == 206 and head.content_range else None
            if line.sink is not None and span is not None and line.received < span:
                raise Reasoned("truncated", f"{line.target.host}: {line.received} of {span} bytes of the range")
            return
        if (status == 304 and ask.conditional) or (status == 416 and ask.ranged):
            return
        if status == 304:
            raise Reasoned("protocol_error", f"{line.target.host}: 304 Not Modified to an unconditional request")
        wait = retry_after_s(head.headers.get("retry-after"), now=time.time(), date=head.headers.get("date"))
        is_page = is_challenge(head.status, head.headers, line.kept)
        reason, said = ("blocked_challenge", " with a challenge") if is_page else (http_reason(status), "")
        error = Reasoned(reason, f"{line.target.host} answered {status}{said}", retry_after_s=wait)
        error.facts = {"status": status, "final_url": head.url} | ({"hops": len(head.hops)} if head.hops else {})
        raise error

    def _answer(self, line: EasyHandle, head: Head, started: float) -> Answer:
        connections, address = line.peer if isinstance(line, RemoteFile) else _peer(line)
        return Answer(
            head=head,
            received_bytes=line.received if line.sink is not None else 0,
            elapsed_s=time.monotonic() - started,
            new_connections=connections,
            address=address,
        )


def _peer(line: EasyHandle) -> tuple[int, str]:
    """Return the number of new connections, and the address of the peer."""
    return line.easy.getinfo(pycurl.NUM_CONNECTS), line.easy.getinfo(pycurl.PRIMARY_IP)


def _may_send(name: str, *, own: bool) -> bool:
    """Return whether a job's header is sent to this hop. (Planning rejects the others; older versions did not.)"""
    return name not in FORBIDDEN_JOB_HEADERS and (own or name in CROSS_ORIGIN_HEADERS)
