"""A hostile HTTP/1.1 origin on real sockets, scripted per path.

    with Origin() as origin:
        origin.add("/a.pdf", Thing(stamped(1, 100_000)))
        origin.add("/b", cut(Thing(b"x" * 1000), 300), Thing(b"x" * 1000))    # first request, every later one
        fetch(origin.url("/b"))
        assert origin.count("/b") == 2

A behaviour is a callable `(request, wire)`; several for one path are played in order and the last one repeats.
One thread per connection; port 0; any loopback address (`Origin("127.0.0.2")`). Closing ends whatever still hangs.
"""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from tests.support.wire import Hangup, Request, Wire, check_stamps, stamped

__all__ = ["Hangup", "Origin", "Request", "Thing", "Wire", "check_stamps", "stamped"]  # and every behaviour, by name

LAST_MODIFIED = "Mon, 06 Jan 2025 10:00:00 GMT"
DATE = "Tue, 07 Jan 2025 10:00:00 GMT"
Behaviour = Callable[[Request, Wire], None]


@dataclass(frozen=True)
class Thing:
    """An honest object: ranges, If-Range, If-None-Match, HEAD, as the RFC says; the switches take honesty away."""

    body: bytes = b"hello, longshore\n"
    etag: str | None = '"v1"'
    last_modified: str | None = None
    content_type: str | None = "application/octet-stream"
    ranges: bool = True  # False: Range is ignored, the answer is 200
    head: int = 200  # the status that HEAD gets
    extra: Mapping[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, str | None]:
        """Headers that every answer about this object has."""
        return {
            "Date": DATE,
            "ETag": self.etag,
            "Last-Modified": self.last_modified,
            "Content-Type": self.content_type,
            "Accept-Ranges": "bytes" if self.ranges else None,
            **self.extra,
        }

    def unchanged(self, request: Request) -> bool:
        """Tell whether If-Range (when sent) still holds."""
        condition = request.headers.get("if-range")
        return condition is None or condition in (self.etag, self.last_modified)

    def span(self, request: Request) -> tuple[int, int] | None:
        """Give what a 206 would carry, or None for a 200."""
        return request.wanted(len(self.body)) if self.ranges and self.unchanged(request) else None

    def __call__(self, request: Request, wire: Wire) -> None:
        total = len(self.body)
        if request.method == "HEAD":
            length = str(total) if self.head == 200 else "9"
            wire.answer(self.head, {**self.facts(), "Content-Length": length})
            return
        if self.etag and request.headers.get("if-none-match") == self.etag:
            wire.answer(304, self.facts())
            return
        span = self.span(request)
        if span is None:
            wire.answer(200, {**self.facts(), "Content-Length": str(total)}, self.body)
        elif span[0] >= total:
            wire.answer(416, {**self.facts(), "Content-Range": f"bytes */{total}", "Content-Length": "0"})
        else:
            wire.answer(206, partial(self, *span), self.body[span[0] : span[1] + 1])


def partial(thing: Thing, first: int, last: int, total: int | str | None = None) -> dict[str, str | None]:
    """Headers of a 206 for that span."""
    whole = len(thing.body) if total is None else total
    return {**thing.facts(), "Content-Range": f"bytes {first}-{last}/{whole}", "Content-Length": str(last - first + 1)}


def honest(thing: Thing, request: Request) -> tuple[int, dict[str, str | None], bytes]:
    """Status, headers and body of the honest answer to a GET."""
    span = thing.span(request)
    if span is None or span[0] >= len(thing.body):
        return 200, {**thing.facts(), "Content-Length": str(len(thing.body))}, thing.body
    return 206, partial(thing, *span), thing.body[span[0] : span[1] + 1]


# --- behaviours: whole answers


def status(code: int, body: bytes = b"no\n", **headers: str) -> Behaviour:
    """Answer with a bare status; `Retry_After="3"` becomes `Retry-After: 3`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    def behave(request: Request, wire: Wire) -> None:
        content = b"" if request.method == "HEAD" else body
        wire.answer(code, {"Content-Type": "text/plain", "Content-Length": str(len(body)), **named}, content)

    return behave


def redirect(location: str | None, code: int = 302, **headers: str) -> Behaviour:
    """Send the client elsewhere (None: a redirect without Location)."""
    named: dict[str, str | None] = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request, wire: wire.answer(code, {"Location": location, "Content-Length": "0", **named})


def raw(data: bytes, then: str = "hangup") -> Behaviour:
    """Send exactly these bytes, then `hangup`, `reset`, `hang` or `keep` the connection."""

    def behave(request: Request, wire: Wire) -> None:
        wire.send(data)
        if then != "keep":
            getattr(wire, then)()

    return behave


def answer(code: int, headers: Mapping[str, str | None], body: bytes = b"", then: str = "keep") -> Behaviour:
    """Send an answer made of exactly these parts; nothing is added."""

    def behave(request: Request, wire: Wire) -> None:
        wire.answer(code, headers, body)
        if then != "keep":
            getattr(wire, then)()

    return behave


def silent() -> Behaviour:
    """Take the request and never answer."""
    return lambda _request, wire: wire.hang()


def header_bomb(size: int, *, lines: bool = True) -> Behaviour:
    """Send `size` bytes of headers, as many lines or as one."""

    def behave(request: Request, wire: Wire) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\n")
        if lines:
            line = b"X-Filler: " + b"a" * 1012 + b"\r\n"
            for _ in range(size // len(line)):
                wire.send(line)
        else:
            wire.send(b"X-Filler: ")
            for _ in range(size // 65_536 + 1):
                wire.send(b"a" * 65_536)
        wire.send(b"\r\nContent-Length: 0\r\n\r\n")

    return behave


def endless(declared: int | None = None) -> Behaviour:
    """Send a body that never ends; with a declared length, or chunked."""

    def behave(request: Request, wire: Wire) -> None:
        length = str(declared) if declared is not None else None
        coding = "chunked" if declared is None else None
        wire.answer(200, {"Content-Length": length, "Transfer-Encoding": coding})
        block = b"\0" * 65_536
        while not wire.stopping.is_set():
            wire.send(block if declared is not None else b"10000\r\n" + block + b"\r\n")
        raise Hangup

    return behave


# --- behaviours: an honest object, sent badly


def cut(thing: Thing, after: int, how: str = "hangup") -> Behaviour:
    """Declare everything, send `after` bytes of this answer, then `hangup`, `reset` or `hang` (a stall)."""

    def behave(request: Request, wire: Wire) -> None:
        code, headers, body = honest(thing, request)
        wire.answer(code, headers, body[:after])
        getattr(wire, how)()

    return behave


def overlong(thing: Thing, extra: bytes) -> Behaviour:
    """Send more than was declared."""

    def behave(request: Request, wire: Wire) -> None:
        code, headers, body = honest(thing, request)
        wire.answer(code, headers, body + extra)
        wire.hangup()

    return behave


def drip(thing: Thing, step: int, every_s: float) -> Behaviour:
    """Send `step` bytes every `every_s` seconds."""

    def behave(request: Request, wire: Wire) -> None:
        code, headers, body = honest(thing, request)
        wire.answer(code, headers)
        for at in range(0, len(body), step):
            wire.send(body[at : at + step])
            wire.wait(every_s)

    return behave


def chunked(thing: Thing, step: int = 1000, *, end: bytes = b"0\r\n\r\n", code: int | None = None) -> Behaviour:
    """Send with chunked coding; `end=b""` leaves the last chunk out."""

    def behave(request: Request, wire: Wire) -> None:
        plain, headers, body = honest(thing, request)
        wire.answer(code or plain, {**headers, "Content-Length": None, "Transfer-Encoding": "chunked"})
        for at in range(0, len(body), step):
            piece = body[at : at + step]
            wire.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        wire.send(end)
        if end != b"0\r\n\r\n":
            wire.hangup()

    return behave


def close_delimited(thing: Thing, after: int | None = None) -> Behaviour:
    """Send without any length and end by closing, after `after` bytes if given."""

    def behave(request: Request, wire: Wire) -> None:
        wire.answer(200, {**thing.facts(), "Connection": "close"}, thing.body[:after])
        wire.hangup()

    return behave


def encoded(thing: Thing, label: str = "gzip", body: bytes | None = None) -> Behaviour:
    """Answer encoded, whatever was asked."""

    def behave(request: Request, wire: Wire) -> None:
        code, headers, plain = honest(thing, request)
        data = gzip.compress(plain, mtime=0) if body is None else body
        wire.answer(code, {**headers, "Content-Encoding": label, "Content-Length": str(len(data))}, data)

    return behave


# --- behaviours: ranges answered wrongly


def bad_range(thing: Thing, how: str) -> Behaviour:
    """Answer a Range request with a 206 that is wrong in one way.

    `start` `end` `short` `longer` `total` `star_total` `no_header` `unit` `etag` `weak_etag` `no_etag` `garbage` `multipart`
    """

    def behave(request: Request, wire: Wire) -> None:
        span = thing.span(request)
        if span is None:
            thing(request, wire)
            return
        headers, body = _spoil(thing, how, *span)
        wire.answer(206, headers, body)

    return behave


def _spoil(thing: Thing, how: str, first: int, last: int) -> tuple[dict[str, str | None], bytes]:
    total = len(thing.body)
    body = thing.body[first : last + 1]
    right = partial(thing, first, last)
    if how == "start":
        return partial(thing, first - 1, last), thing.body[first - 1 : last + 1]
    if how == "end":
        return {**right, "Content-Range": f"bytes {first}-{last - 7}/{total}"}, body
    if how == "short":
        middle = (first + last) // 2
        return partial(thing, first, middle), thing.body[first : middle + 1]
    if how == "longer":
        return {**right, "Content-Length": str(len(body) + 5)}, body + b"extra"
    if how == "multipart":
        head = f"--b\r\nContent-Type: text/plain\r\nContent-Range: bytes {first}-{last}/{total}\r\n\r\n"
        body = head.encode() + body + b"\r\n--b--\r\n"
        kind = "multipart/byteranges; boundary=b"
        return {**right, "Content-Range": None, "Content-Type": kind, "Content-Length": str(len(body))}, body
    changes: dict[str, dict[str, str | None]] = {
        "total": {"Content-Range": f"bytes {first}-{last}/{total + 10}"},
        "star_total": {"Content-Range": f"bytes {first}-{last}/*"},
        "no_header": {"Content-Range": None},
        "unit": {"Content-Range": f"items {first}-{last}/{total}"},
        "garbage": {"Content-Range": "bytes ?"},
        "etag": {"ETag": '"another"'},
        "weak_etag": {"ETag": f"W/{thing.etag}"},
        "no_etag": {"ETag": None},
    }
    return {**right, **changes[how]}, body


def partial_to_plain(thing: Thing, first: int, last: int) -> Behaviour:
    """Answer 206 although nobody asked for a range."""
    return lambda _request, wire: wire.answer(206, partial(thing, first, last), thing.body[first : last + 1])


def unsatisfiable(thing: Thing, total: int | None) -> Behaviour:
    """Answer a Range request with 416, `*/total`, or bare when None; anything else honestly."""

    def behave(request: Request, wire: Wire) -> None:
        if "range" not in request.headers:
            thing(request, wire)
            return
        value = None if total is None else f"bytes */{total}"
        wire.answer(416, {**thing.facts(), "Content-Range": value, "Content-Length": "0"})

    return behave


def on_range(plain: Behaviour, ranged: Behaviour) -> Behaviour:
    """Behave one way to plain requests and another way to ranged ones."""
    return lambda request, wire: (ranged if "range" in request.headers else plain)(request, wire)


def on_head(head: Behaviour, other: Behaviour) -> Behaviour:
    """Behave one way to HEAD and another way to the rest."""
    return lambda request, wire: (head if request.method == "HEAD" else other)(request, wire)


class Gate:
    """Hold a body after some bytes until the test opens the gate: `reached` says that the bytes are out."""

    def __init__(self, thing: Thing, after: int) -> None:
        self.thing = thing
        self.after = after
        self.reached = threading.Event()
        self.opened = threading.Event()

    def open(self) -> None:
        self.opened.set()

    def __call__(self, request: Request, wire: Wire) -> None:
        if request.method == "HEAD":
            self.thing(request, wire)
            return
        code, headers, body = honest(self.thing, request)
        wire.answer(code, headers, body[: self.after])
        self.reached.set()
        while not self.opened.wait(0.02):
            wire.wait(0)
        wire.send(body[self.after :])


def versions(*things: Thing) -> list[Behaviour]:
    """Give every request the next version (the last one repeats): an object that changes under us."""
    return list(things)


# --- the server


class Origin:
    """The server; `requests` is everything that was asked, in order of arrival."""

    def __init__(self, host: str = "127.0.0.1", *, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.host = host
        self.tls = tls
        self.requests: list[Request] = []
        self.connections = 0
        self._routes: dict[str, list[Behaviour]] = {}
        self._played: dict[str, int] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._open: set[socket.socket] = set()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((host, port))
        self._listener.listen(512)
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name="origin", daemon=True)
        self._acceptor.start()

    @property
    def netloc(self) -> str:
        """Host and port, as politeness counts them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def url(self, path: str = "/") -> str:
        return f"{'https' if self.tls else 'http'}://{self.netloc}{path}"

    def add(self, path: str, *behaviours: Behaviour) -> str:
        """Script a path (replacing what it did) and return its URL; the last behaviour repeats."""
        with self._lock:
            self._routes[path] = list(behaviours)
            self._played[path] = 0
        return self.url(path)

    def count(self, path: str, method: str | None = None) -> int:
        """Count the requests for a path."""
        return sum(r.path == path and method in (None, r.method) for r in list(self.requests))

    def seen(self, path: str) -> list[Request]:
        return [r for r in list(self.requests) if r.path == path]

    def close(self) -> None:
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            sockets = list(self._open)
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._acceptor.join(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                sock, peer = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock, peer[:2]), name="origin-peer", daemon=True).start()

    def _serve(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError, Hangup, ValueError):
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True)
            with self._lock:
                self._open.add(sock)
            wire = Wire(sock, self._stopping)
            for request in _requests(sock, peer):
                self._behaviour(request)(request, wire)
        with self._lock:
            self._open.discard(sock)
        sock.close()

    def _behaviour(self, request: Request) -> Behaviour:
        with self._lock:
            self.requests.append(request)
            script = self._routes.get(request.path)
            if not script:
                return status(404)
            at = self._played[request.path]
            self._played[request.path] = at + 1
            return script[min(at, len(script) - 1)]


def _requests(sock: socket.socket, peer: tuple[str, int]) -> Iterator[Request]:
    buffer = b""
    while True:
        while b"\r\n\r\n" not in buffer:
            data = sock.recv(65_536)
            if not data:
                return
            buffer += data
        head, _, buffer = buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _version = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        yield Request(method, target, headers, peer)


def other_version(thing: Thing, version: int, etag: str | None = '"v2"') -> Thing:
    """The same object, replaced: other stamps, other validators."""
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(1_736_200_000 + 100 * version))
    return replace(
        thing,
        body=stamped(version, len(thing.body)),
        etag=etag if thing.etag is None or not thing.etag.startswith("W/") else 'W/"v2"',
        last_modified=later if thing.last_modified else None,
    )
