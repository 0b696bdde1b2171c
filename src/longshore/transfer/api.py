"""Types shared by the worker and the transfer layer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from longshore.domain.transfer.ranges import range_header
from longshore.domain.transfer.response_head import Head


@dataclass(slots=True)  # not frozen: one is made for every request, and freezing costs three times as much
class FetchRequest:
    """A URL to fetch or probe, with its options."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()  # sent only to the URL's own origin
    tenant: str = ""  # whose credentials are sent; requests with secrets share no connection with another tenant's
    start: int = 0
    end: int | None = None  # inclusive
    if_range: str | None = None
    if_none_match: str | None = None
    if_modified_since: str | None = None
    max_bytes: int | None = None  # of the whole object; None: the setting
    deadline_s: float | None = None
    on_hop: Callable[[str], Awaitable[bool]] | None = None  # requests a slot of another host
    on_sent: Callable[[str], None] | None = None  # gets the host to which a request is about to be sent
    cancel: asyncio.Event | None = None  # cancelling the task does the same, and is cheaper

    def sent(self, host: str) -> None:
        """Report that there is a connection to this host, and the request goes out."""
        if self.on_sent is not None:
            self.on_sent(host)

    @property
    def ranged(self) -> bool:
        """Return whether the request is for a range of the object."""
        return self.start > 0 or self.end is not None

    @property
    def conditional(self) -> bool:
        """Return whether the request allows a 304."""
        return self.if_none_match is not None or self.if_modified_since is not None

    def conditions(self) -> list[str]:
        """Return the range and conditional header lines."""
        lines = []
        if self.ranged:
            lines.append(f"Range: {range_header(self.start, self.end)}")
            if self.if_range is not None:
                lines.append(f"If-Range: {self.if_range}")
        if self.if_none_match is not None:
            lines.append(f"If-None-Match: {self.if_none_match}")
        if self.if_modified_since is not None:
            lines.append(f"If-Modified-Since: {self.if_modified_since}")
        return lines


class Sink(Protocol):
    """The receiver of a body. The methods run on the event loop, for HTTP inside libcurl's callbacks, and must not block."""

    resume: Callable[[], None]  # set by the transfer before `begin`; call it on the loop after `write` returned False

    def begin(self, head: Head) -> None:
        """Take the head of a 200 or 206 before its body. Raise `Reasoned` to stop without reading the body."""

    def write(self, data: bytes) -> bool:
        """Take the bytes; False pauses the transfer (these bytes are taken) until `resume` is called."""


@dataclass(slots=True)
class Answer:
    """The result of a transfer. A requested 304 or 416 is a result without a body."""

    head: Head
    received_bytes: int  # of this body, on the wire
    elapsed_s: float
    new_connections: int
    address: str  # of the peer


class Discard:
    """A sink that discards the body."""

    resume: Callable[[], None]

    def begin(self, head: Head) -> None:
        """Accept any head."""

    def write(self, data: bytes) -> bool:
        """Drop the bytes."""
        return True


class Memory:
    """A sink that keeps the body, up to a limit that `Ask.max_bytes` sets."""

    resume: Callable[[], None]

    def __init__(self) -> None:
        self.head: Head | None = None
        self.pieces: list[bytes] = []

    def begin(self, head: Head) -> None:
        """Discard the previous body."""
        self.head = head
        self.pieces.clear()

    def write(self, data: bytes) -> bool:
        """Keep the bytes."""
        self.pieces.append(data)
        return True

    @property
    def body(self) -> bytes:
        """The received bytes."""
        return b"".join(self.pieces)
