"""One easy handle: the options of each request, callbacks, limits. `curl_options` sets the constant options."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import pycurl

from longshore.domain.policy.network import NetworkPolicy
from longshore.domain.settings import Settings, revealed
from longshore.domain.transfer.declared_digests import OF_THE_MESSAGE
from longshore.domain.transfer.redirects import REDIRECTS, Target
from longshore.domain.transfer.response_head import Head, parse_head
from longshore.errors import Reasoned
from longshore.transfer.api import FetchRequest, Sink
from longshore.transfer.check_head import check_range
from longshore.transfer.content_decoder import Decoder, check_coding
from longshore.transfer.content_digest import checked_write
from longshore.transfer.curl_errors import failure
from longshore.transfer.curl_options import http_version, request_target, set_constant_options
from longshore.transfer.descriptor_gate import NO_DESCRIPTOR, no_descriptor_left
from longshore.transfer.direct_receive import FROM, WORTH, DirectReceive, Open, has_room
from longshore.transfer.header_lines import HeaderLine, has_secrets
from longshore.transfer.kept_connections import KeptConnection
from longshore.transfer.multi_loop import Reactor
from longshore.transfer.oversized_body import overrun
from longshore.transfer.rate_limit import RateLimit
from longshore.transfer.resend_limit import RequestLimit

_IGNORED_BODY: Final = 65_536  # of redirects and error responses: read up to this size to reuse the connection
_PLAIN_VERSIONS: Final = (pycurl.CURL_HTTP_VERSION_1_0, pycurl.CURL_HTTP_VERSION_1_1)
_HTTP: Final = ("http", "https")
_KEPT_BODY: Final = 4096  # of error responses: kept to detect a challenge


class _EnoughError(Exception):
    """The rest of this body is not needed."""


class EasyHandle:
    """A reusable easy handle. `run` returns a future; the callbacks fill `head`, `received` and the sink."""

    def __init__(
        self, reactor: Reactor, settings: Settings, policy: NetworkPolicy, ca_file: str | None, rate: RateLimit
    ) -> None:
        self.easy: Any = pycurl.Curl()
        self.rate = rate
        self._reactor = reactor
        self._limits, self._network = settings.transfer, settings.network
        self._proxy = revealed(settings.network.proxy)
        self._policy = policy
        self.lines: list[bytes] = []
        self._sent_headers: list[HeaderLine] | None = None
        self._sent_nobody = self._sent_exactly = False
        self._sent_fresh = self.secure = False
        self._sent_most = -1
        self._sent_http1 = False
        self._done: asyncio.Future[None] | None = None
        self._set_constants(ca_file)
        self._clear()

    def _clear(self) -> None:
        self.lines.clear()
        self.head: Head | None = None
        self.received = 0
        self.kept = b""
        self.held = False
        self.refused: str | None = None
        self.opened = 0
        self.requests = RequestLimit()
        self.no_socket = ""
        self.starved = False  # no descriptor was available for a socket
        self.unclean = False  # the reused connection had unread bytes: they are not the answer
        self.foreign = False  # the reused connection carried another tenant's secrets, or this request has some
        self._reused: KeptConnection | None = None  # until the first header line
        self.moved = (0.0, -1)  # time and position of the last progress that the watchdog saw
        self.pace = (0.0, 0)  # start of the speed window
        self._fault: BaseException | None = None
        self._take: Callable[[bytes], bool | None] = self._drop
        self._limit = self._mark = _IGNORED_BODY  # the mark: the next offset at which `_look_up` runs
        self._straight: DirectReceive | None = None
        self._decoder: Decoder | None = None
        self.spent = False  # the handle must not be reused
        self.answered_at = 0.0  # when the watchdog first saw that the result is known

    def _set_constants(self, ca_file: str | None) -> None:
        easy = self.easy
        set_constant_options(easy, self._limits, self._network, self._proxy, ca_file)
        easy.setopt(pycurl.HEADERFUNCTION, self.lines.append)  # no Python runs per header line, except with TLS
        easy.setopt(pycurl.WRITEFUNCTION, self._write)
        easy.setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)
        easy.setopt(pycurl.PREREQFUNCTION, self._about_to_send)

    # --- one exchange

    def run(
        self,
        ask: FetchRequest,
        target: Target,
        headers: list[HeaderLine],
        *,
        sink: Sink | None,
        hops: tuple[str, ...],
        max_bytes: int,
        fresh: bool = False,
    ) -> asyncio.Future[None]:
        """Send one request (HEAD without a sink) and return a future of its end; `fresh`: use a new connection."""
        self._clear()
        self.ask, self.target, self.sink, self.hops, self._max = ask, target, sink, hops, max_bytes
        easy = self.easy
        easy.setopt(pycurl.URL, target.url)
        if self._sent_exactly or "%" in target.url:
            self._send_exactly(target)
        nobody = sink is None
        if nobody is not self._sent_nobody:
            easy.setopt(pycurl.NOBODY, nobody)
            if not nobody:
                easy.setopt(pycurl.HTTPGET, 1)
            self._sent_nobody = nobody
        if headers != self._sent_headers:
            easy.setopt(pycurl.HTTPHEADER, headers)
            self._sent_headers = headers
        if max_bytes != self._sent_most:
            easy.setopt(pycurl.MAXFILESIZE_LARGE, max_bytes)  # libcurl refuses a declared length before any body
            self._sent_most = max_bytes
        if (secure := target.scheme == "https") is not self.secure:
            easy.setopt(pycurl.HEADERFUNCTION, self._secure_line if secure else self.lines.append)
            self.secure = secure
        if fresh is not self._sent_fresh:
            easy.setopt(pycurl.FRESH_CONNECT, fresh)
            self._sent_fresh = fresh
        self._done = future = asyncio.get_running_loop().create_future()
        self._reactor.start(self)
        return future

    def use_http1(self, http1: bool) -> None:
        """Offer only HTTP/1.1 in the next requests, or again what the settings allow."""
        if http1 is not self._sent_http1:
            self.easy.setopt(pycurl.HTTP_VERSION, http_version(http2=self._limits.http2 and not http1))
            self._sent_http1 = http1

    def _about_to_send(self, _peer: str, own: str, _peer_port: int, own_port: int) -> int:
        """Allow libcurl to send on the chosen connection, unless that has unread bytes or the request was sent before."""
        place = own, own_port
        if not self._reactor.kept.may_use(place, self.ask.tenant, has_secrets(self._sent_headers), new=self.opened > 0):
            self.foreign = True
            return int(pycurl.PREREQFUNC_ABORT)
        kept = self._reactor.kept.take(place, self.easy)
        self.ask.sent(self.target.host)
        if kept is not None and not kept.is_quiet():
            self.unclean = True
        elif self.target.scheme not in _HTTP or self.requests.may_send(on_kept=not self.opened):
            if kept is not None and self.target.scheme == "https":
                self._reused = kept.counted(self._reactor.kept.sent_on)
            return int(pycurl.PREREQFUNC_OK)
        return int(pycurl.PREREQFUNC_ABORT)

    def _secure_line(self, line: bytes) -> int | None:
        """Take a header line over TLS; abort if the first one came before the request was sent."""
        kept, self._reused = self._reused, None
        self.unclean = kept is not None and not kept.has_answered()
        self.lines.append(line)
        return -1 if self.unclean else None

    def _send_exactly(self, target: Target) -> None:
        """Keep the URL's escapes unchanged: libcurl would change %7e to %7E, which would break signatures.

        The option cannot be unset, so it is set again for every later request of the handle.
        """
        if self.target.scheme not in _HTTP:
            return
        self.easy.setopt(pycurl.REQUEST_TARGET, request_target(target, self._proxy))
        self._sent_exactly = True

    def finished(self, code: int, message: str) -> None:
        """Convert libcurl's result and resolve the future."""
        future, self._done = self._done, None
        if future is None or future.done():
            return
        try:
            self._conclude(code, message)
        except BaseException as error:  # noqa: BLE001  the future passes the sink's exception to the caller
            future.set_exception(error)
        else:
            future.set_result(None)

    def _conclude(self, code: int, message: str) -> None:
        fault = self._fault
        if fault is not None and not isinstance(fault, _EnoughError):
            raise fault
        if code and fault is None and self.is_answered():
            return  # the rest of a refusal's page, or of a redirect's, is not needed
        if code == pycurl.E_FILESIZE_EXCEEDED and self.head is None:
            if not self._has_whole_head():
                raise Reasoned("protocol_error", f"{self.target.host}: Content-Length: a length that is not acceptable")
            self._begin()  # raises the matching reason
        if code and fault is None:
            if self.refused is not None and not self.opened:
                raise Reasoned(
                    "forbidden_address", f"{self.target.host} leads to an address that is not public ({self.refused})"
                )
            raise self._failure(code, message)
        if self.head is None:
            self._begin()
        if self._decoder is not None:
            self._decoder.finish()

    def _failure(self, code: int, message: str) -> Reasoned:
        host = self.target.host
        if not self.received and (self.starved or no_descriptor_left()):
            self.starved = True
            return Reasoned("too_many_files", f"{host}: no descriptor for a connection")
        if self.no_socket:
            return Reasoned("connect", f"{host}: no socket ({self.no_socket})")
        if self.requests.repeated:
            return Reasoned("protocol_error", f"{host}: the server refused the HTTP/2 stream of the request")
        begun = self.received > 0 or self._has_answered()  # the server has responded
        error = failure(code, message, host=host, scheme=self.target.scheme, begun=begun)
        after_the_end = self.head is not None and self.received == self.head.length
        error.disowned = after_the_end or error.reason == "protocol_error"
        return error

    def _has_answered(self) -> bool:
        """Return whether the final head has begun, not only an informational one or that of a proxy tunnel."""
        starts = [line for line in self.lines if line.startswith(b"HTTP/")]
        return bool(starts) and self._proxy is None and not starts[-1].partition(b" ")[2].startswith(b"1")

    def progress(self) -> int:
        """Return a number that grows with each byte of the body and with the final head.

        Informational heads, lines of an incomplete head, and trailers do not count: a server could send them forever.
        """
        return self.received + (self.head is not None or (self._has_whole_head() and self._has_answered()))

    def _has_whole_head(self) -> bool:
        return bool(self.lines) and self.lines[-1] in (b"\r\n", b"\n")

    def is_answered(self) -> bool:
        """Return whether the final head is complete and its body is not needed: an error or a redirect."""
        if self.head is None:
            tunnel = self._proxy is not None and self.target.scheme == "https"  # the head may come from the proxy
            if tunnel or self.target.scheme not in _HTTP or not self._has_whole_head():
                return False
            try:
                head = self._read_head()
            except Reasoned:  # informational or unreadable so far: decided at the end
                return False
            if head.status in (200, 206):
                return False
            self._begin()
        return self.head is not None and self.head.status not in (200, 206)

    def enough(self) -> None:
        """End the exchange immediately with the response received so far."""
        self._leave()
        self.spent = True
        self.finished(0, "")

    def stop(self, error: BaseException) -> None:
        """End the exchange immediately with this error."""
        self._leave()
        future, self._done = self._done, None
        if future is not None and not future.done():
            future.set_exception(error)

    def close(self) -> None:
        """Close the handle permanently."""
        self._leave()
        self.easy.close()

    def _leave(self) -> None:
        if self._straight is not None:
            self._straight.close()
            self._straight = None
        self._reactor.drop(self)

    def _resume(self, run: asyncio.Future[None] | None) -> None:
        """Resume after a pause if the same run is still active: a handle is reused for later runs."""
        if self.held and self._done is run:
            self.held = False
            if self._straight is not None:
                self._straight.go_on()
            else:
                self._reactor.resume(self)

    # --- libcurl's callbacks

    def _write(self, data: bytes) -> int | None:
        if self.held:
            return int(pycurl.WRITEFUNC_PAUSE)
        if self.sink is None:  # libcurl also passes FTP replies to a probe here
            return None
        try:
            if self.head is None:
                self._begin()
            self.received += len(data)
            if self.received > self._mark:
                self._look_up()
            pause_s = self.rate.spend(len(data)) if self.rate else 0.0
            if self._take(data) is False:
                self.held = True
            elif pause_s:
                self.held = True
                asyncio.get_running_loop().call_later(pause_s, self._resume, self._done)
        except BaseException as error:  # noqa: BLE001  must not propagate through libcurl; `finished` raises it
            self._fault = error
            return 0
        return None

    def _open_socket(self, _purpose: int, address: Any) -> Any:
        if self.target.scheme in _HTTP and not self.requests.may_connect():
            return pycurl.SOCKET_BAD
        try:
            word = self._policy.refusal(address.addr[0]) if self._proxy is None else None
            if word is not None:
                self.refused = word
                return pycurl.SOCKET_BAD
            made = socket.socket(address.family, address.socktype, address.protocol)
            made.dup().close()  # pycurl duplicates it, and does not report a failure
            self.opened += 1
            return made
        except OSError as error:
            self.starved = error.errno in NO_DESCRIPTOR
            self.no_socket = error.strerror or str(error)
            return pycurl.SOCKET_BAD

    # --- bypassing libcurl

    def _could_go_straight(self, head: Head) -> bool:
        """Return whether only plain bytes of a declared length remain, and enough of them."""
        if head.length is None or not FROM + WORTH <= head.length <= self._limit:
            return False
        plain = self.target.scheme == "http" and self._proxy is None
        seen = "transfer-encoding" in head.headers or OF_THE_MESSAGE in head.headers  # not plain bytes
        return plain and not seen and not self.rate and hasattr(self.sink, "room")

    def _look_up(self) -> None:
        """Handle reaching the mark: the size limit, or the offset at which to bypass libcurl."""
        if self.received > self._limit:
            raise overrun(self.head, self.target.host, self.received, self._max) or _EnoughError
        if self._straight is not None:
            self._straight.rest()
            raise Reasoned("length_mismatch", f"{self.target.host}: libcurl delivered bytes while it was paused")
        self._mark = min(self._limit, self.received + FROM)
        asyncio.get_running_loop().call_soon(self._leave_libcurl, self._done)  # not inside libcurl's callback

    def _leave_libcurl(self, run: asyncio.Future[None] | None) -> None:
        """Receive the rest without libcurl, if the sink provides memory and libcurl has no buffered bytes."""
        if run is None or self._done is not run or self.held or self._fault is not None or self._straight is not None:
            return
        if self._left() < WORTH or not has_room(cast("Open", self.sink)):
            return
        easy = self.easy
        if easy.getinfo(pycurl.INFO_HTTP_VERSION) not in _PLAIN_VERSIONS:
            return
        if easy.getinfo(pycurl.CONTENT_LENGTH_DOWNLOAD_T) != self.received + self._left():
            return
        try:
            straight = DirectReceive(easy.getinfo(pycurl.ACTIVESOCKET), cast("Open", self.sink), self._receive)
        except OSError:  # no descriptor left: libcurl continues with its own
            return
        if straight.taken() != self._all_bytes():
            straight.close()
            return
        easy.pause(pycurl.PAUSE_RECV)
        self._mark = -1  # any byte that libcurl delivers from here on is an error
        self._straight = straight
        straight.go_on()

    def _left(self) -> int:
        assert self.head is not None and self.head.length is not None
        return self.head.length - self.received

    def _all_bytes(self) -> int:
        return sum(map(len, self.lines)) + self.received

    def _receive(self) -> None:
        try:
            whole = self._receive_once()
        except BaseException as error:  # noqa: BLE001  `finished` raises it to the caller
            self._fault, whole = error, False
        if whole or self._fault is not None:
            self._leave()
            self.spent = True
            self.finished(0, "")

    def _receive_once(self) -> bool:
        """Receive the available bytes; return True when the body is complete."""
        straight, left = self._straight, self._left()
        assert straight is not None
        room = straight.sink.room()  # an exception here is the sink's, not the network's
        assert room is not None  # checked before the bypass began
        try:
            count = straight.receive(room[:left])
        except OSError as error:
            raise self._cut(pycurl.E_RECV_ERROR, f"Recv failure: {error.strerror}") from None
        if count is None:
            return False
        if not count:
            raise self._cut(pycurl.E_PARTIAL_FILE, f"end of response with {left} bytes missing")
        self.received += count
        if not straight.sink.filled(count):
            self.held = True
            straight.rest()
        if count == left and straight.strayed(self._all_bytes()):
            raise Reasoned("length_mismatch", f"{self.target.host}: another reader consumed bytes of this connection")
        return count == left

    def _cut(self, code: int, message: str) -> Reasoned:
        return failure(code, message, host=self.target.host, scheme=self.target.scheme, begun=True)

    # --- the head

    def _begin(self) -> None:
        """Parse the head and decide how to handle the body."""
        self.head = head = self._read_head()
        if head.status in (200, 206):
            if head.encoding is not None and self.sink is not None:
                check_coding(head, self.target.host, self._limits.decode)
            check_range(head, self.target.host, self.ask, self._max)
            if self.sink is None:
                return
            self._limit = self._mark = self._body_limit(head)
            if self._could_go_straight(head):
                self._mark = FROM
            self.sink.resume = partial(self._resume, self._done)
            self._take = self.sink.write
            if head.encoding is not None:
                self._decoder = Decoder(head, self.target.host, self.sink.write, self._max)
                self.head, self._take = self._decoder.head, self._decoder.write
            elif OF_THE_MESSAGE in head.headers:
                self._take = checked_write(head, self.target.host, self.sink.write)
            self.sink.begin(self.head)
        elif head.status not in REDIRECTS:
            self._take = self._keep

    def _read_head(self) -> Head:
        if sum(map(len, self.lines)) > self._limits.max_header_bytes:
            raise Reasoned("header_too_large", f"{self.target.host}: the response headers are too large")
        tunnel = self._proxy is not None and self.target.scheme == "https"
        return parse_head(self.lines, self.target.url, self.hops, tunnel=tunnel)

    def _body_limit(self, head: Head) -> int:
        span = head.content_range.length if head.status == 206 and head.content_range else None
        return min(self._max, span if span is not None else self._max)

    def _drop(self, _data: bytes) -> None: ...

    def _keep(self, data: bytes) -> None:
        if len(self.kept) < _KEPT_BODY:
            self.kept = (self.kept + data)[:_KEPT_BODY]
