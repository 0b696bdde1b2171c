"""FTP and SFTP transfers: an easy handle with its own authentication, start offset and length check.

libcurl trusts an FTP server's SIZE and the number in its reply to RETR: it stops after that many bytes and reports
success, even if the server would send more. So libcurl is configured to ignore lengths, this module sends SIZE and
REST right before RETR, and compares the received bytes with SIZE (or, without it, with the number in the reply to
RETR). If a server does not report a length, a complete file cannot be distinguished from a truncated one, and the
`Answer` records that. For SFTP, libcurl reads as many bytes as the server's stat reports, and fails on an earlier end.

The reason for an error is derived from the reply and the command that it belongs to: libcurl uses one code for a
missing file, a busy file and a server that closes. A control connection is used for one file only: after a failure
libcurl would continue in the previous state, such as ASCII mode, which changes bytes.

Each transfer runs in a thread (`file_threads`). libcurl's callbacks run in that thread: they write `lines`, the
commands and the size, and read nothing that the event loop writes. The loop reads these when bytes of the body arrive
(the thread waits meanwhile), when the transfer is over, and in the watchdog.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote_to_bytes

import pycurl

from longshore.domain.model import Validators
from longshore.domain.policy.network import NetworkPolicy
from longshore.domain.policy.redaction import safe_text
from longshore.domain.settings import Settings
from longshore.domain.transfer.credentials import Credential
from longshore.domain.transfer.ftp_replies import disowns, refusal
from longshore.domain.transfer.ranges import ContentRange
from longshore.domain.transfer.redirects import Target
from longshore.domain.transfer.response_head import Head
from longshore.errors import Reasoned
from longshore.transfer.api import FetchRequest, Sink
from longshore.transfer.easy_handle import EasyHandle
from longshore.transfer.ftp_threads import FileThreads, OpenSockets
from longshore.transfer.header_lines import HeaderLine, as_bytes
from longshore.transfer.rate_limit import RateLimit
from longshore.transfer.tls import known_host_name, known_hosts_file, learn_host_key

_CHANGED = re.compile(rb"213 (\d{14})")
_SIZE = re.compile(rb"213 (\d{1,18})\s*\Z")
_REPLY = re.compile(rb"\d{3} ")
_FINAL = re.compile(rb"([1-5]\d\d) ")
_COMMAND_SENT = 2  # libcurl's CURLINFO_HEADER_OUT
FINAL_REPLY_S = 10.0  # upper limit of the wait for the server's last reply, when the body is complete
_TRANSFER = re.compile(rb"1(?:25|50) .*\((\d{1,18}) bytes", re.IGNORECASE)


class RemoteFile(EasyHandle):
    """An easy handle for one file at a time. Only an SFTP handle is reused, for the same host and credentials."""

    def __init__(
        self, reactor: FileThreads, settings: Settings, policy: NetworkPolicy, ca_file: str | None, rate: RateLimit
    ) -> None:
        self.sockets = OpenSockets()
        self.keeps_connection = False
        self.flush: Callable[[], bool] = bool
        self.identity: tuple[str, Credential | None] = ("", None)
        self._threads = reactor
        super().__init__(reactor, settings, policy, ca_file, rate)
        self.sockets.watch(self.easy, self._note_closed_socket)

    def _clear(self) -> None:
        super()._clear()
        self._size: int | None = None  # of an SFTP file, as libcurl knows it before the first byte
        self._verb = ""  # the last command that was sent; empty: none yet
        self._commands = 0  # sent so far
        self._asked_at = 0  # number of reply lines at that time
        self._binary_at: int | None = None  # number of reply lines when TYPE I was sent
        self._data_over_at = 0.0  # when libcurl closed the data connection and began to wait for the final reply
        self.peer = (0, "")  # the number of new connections, and the address

    def identify(self, target: Target, credential: Credential | None) -> None:
        """Set the credentials and the trusted host keys."""
        easy = self.easy
        self.identity = (target.host, credential)
        self.keeps_connection = target.scheme == "sftp"
        if credential is not None:
            easy.setopt(pycurl.USERNAME, as_bytes(credential.username or ""))
            easy.setopt(pycurl.PASSWORD, as_bytes(credential.password or ""))
        easy.setopt(pycurl.OPT_FILETIME, 1)
        easy.setopt(pycurl.NOPROGRESS, 0)
        easy.setopt(pycurl.XFERINFOFUNCTION, self._sized)
        if target.scheme != "sftp":
            easy.setopt(pycurl.FRESH_CONNECT, 1)
            easy.setopt(pycurl.FORBID_REUSE, 1)
            easy.setopt(pycurl.VERBOSE, 1)
            easy.setopt(pycurl.DEBUGFUNCTION, self._note_command)
            return
        easy.setopt(pycurl.SSH_KNOWNHOSTS, as_bytes(known_hosts_file(self._network.known_hosts)))
        easy.setopt(pycurl.SSH_KEYFUNCTION, self._host_key)
        if credential is not None and credential.key_file is not None:
            easy.setopt(pycurl.SSH_AUTH_TYPES, pycurl.SSH_AUTH_PUBLICKEY)
            easy.setopt(pycurl.SSH_PRIVATE_KEYFILE, as_bytes(credential.key_file))
        else:  # never an SSH key or agent that is not configured
            easy.setopt(pycurl.SSH_AUTH_TYPES, pycurl.SSH_AUTH_PASSWORD | pycurl.SSH_AUTH_KEYBOARD)

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
        """Request the file from offset `ask.start`."""
        self.easy.unsetopt(pycurl.RANGE)
        self.easy.setopt(pycurl.RESUME_FROM_LARGE, 0)
        if ask.end is not None:
            self.easy.setopt(pycurl.RANGE, f"{ask.start}-{ask.end}")
        elif target.scheme != "sftp" and sink is not None:
            self._ask_ftp(target, ask.start)
        elif ask.start:
            self.easy.setopt(pycurl.RESUME_FROM_LARGE, ask.start)
        return super().run(ask, target, [], sink=sink, hops=hops, max_bytes=max_bytes, fresh=fresh)

    def _ask_ftp(self, target: Target, start: int) -> None:
        """Send SIZE and REST, because libcurl sends neither when it ignores lengths."""
        name = unquote_to_bytes(target.url.split("/", 3)[3]).rpartition(b"/")[2]
        commands = [b"*SIZE " + name]  # the star: the command may fail
        if start:
            commands.append(b"REST %d" % start)
        self.easy.setopt(pycurl.IGNORE_CONTENT_LENGTH, 1)
        self.easy.setopt(pycurl.PREQUOTE, commands)

    def _note_command(self, kind: int, data: bytes) -> None:
        """Remember which command the next replies belong to; never its argument, which may be a password."""
        if kind != _COMMAND_SENT or data.startswith(b"QUIT"):
            return
        self._commands += 1
        self._verb, self._asked_at = data.split(None, 1)[0].decode("latin-1"), len(self.lines)
        if self._verb == "TYPE":
            self._binary_at = self._asked_at if data.strip() == b"TYPE I" else None

    def progress(self) -> int:
        """Return a number that grows with each byte, with each command and with the end of the data.

        The number of commands is bounded.
        """
        return self.received + self._commands + (self._data_over_at > 0)

    def _is_binary(self) -> bool:
        """Return whether the server confirmed binary mode (TYPE I)."""
        if self._binary_at is None:
            return False
        reply = next((line for line in self.lines[self._binary_at :] if _FINAL.match(line)), b"")
        return reply.startswith(b"2")

    def _failure(self, code: int, message: str) -> Reasoned:
        found = super()._failure(code, message)
        replies = [line for line in self.lines[self._asked_at :] if _FINAL.match(line)]
        if self.target.scheme == "sftp" or self.starved or self.no_socket or not replies:
            return found
        begun = any(line.startswith(b"1") for line in replies)
        reason = refusal(self._verb, status := int(replies[-1][:3]), begun=begun)
        if reason is None:
            return found
        said = safe_text(replies[-1].decode("latin-1").strip(), limit=200)
        to = f" to {self._verb}" if self._verb else ""
        refused = Reasoned(reason, f"{self.target.host}: the server answered{to}: {said}")
        refused.facts["status"] = status  # the host has responded
        refused.disowned = found.disowned or (begun and disowns(status))
        return refused

    def receive(self, data: bytes) -> int | None:
        """Take bytes of the body, on the event loop."""
        return self._write(data)

    def note_result(self) -> None:
        """Read the result from the handle; an empty SFTP file has a size only now."""
        easy = self.easy
        self.peer = (easy.getinfo(pycurl.NUM_CONNECTS), easy.getinfo(pycurl.PRIMARY_IP))
        known = int(easy.getinfo(pycurl.CONTENT_LENGTH_DOWNLOAD_T))
        if self._size is None and known >= 0:
            self._size = known

    def close(self) -> None:
        """Close the handle permanently, without waiting for the server."""
        self._leave()
        if self.keeps_connection:  # otherwise its thread closes it
            self._threads.discard(self)

    def late_reply(self, now: float) -> Reasoned | None:
        """Return the error for an FTP server that has sent the data, but not the reply after it."""
        began, allowed = self._data_over_at, self._last_reply_s()
        if not began or now - began < allowed:
            return None
        late = Reasoned("too_slow", f"{self.target.host}: no reply after the data for {allowed:g} s")
        late.disowned = True
        return late

    def is_whole(self, now: float) -> bool:
        """Return whether an SFTP file is complete and the server does not answer the request to close it."""
        if self.target.scheme != "sftp" or self.head is None or self.held:
            return False
        return self.received == self.head.length and now - self.moved[0] >= self._last_reply_s()

    def _last_reply_s(self) -> float:
        return min(self._limits.stall_s or FINAL_REPLY_S, FINAL_REPLY_S)

    def _note_closed_socket(self) -> None:
        """Note the end of the data: after RETR, the data connection is the first socket that libcurl closes."""
        if self._verb == "RETR" and not self._data_over_at:
            self.flush()
            self._data_over_at = time.monotonic()

    def _conclude(self, code: int, message: str) -> None:
        super()._conclude(code, message)
        declared = self.head.length if self.head is not None else None
        if self.sink is not None and declared is not None and self.received < declared:
            raise Reasoned("truncated", f"{self.target.host}: {self.received} of {declared} bytes")

    def _body_limit(self, head: Head) -> int:
        """Return the maximum number of bytes; more than the declared length is a mismatch."""
        return self._max if head.length is None else min(self._max, head.length)

    def _sized(self, expected: int, _received: int, _up: int, _sent: int) -> int:
        """Record the size that libcurl reports, and hand bytes over; end a transfer that was dropped."""
        if expected > 0:
            self._size = expected
        return int(not self.flush())

    def _about_to_send(self, peer: str, own: str, peer_port: int, own_port: int) -> int:
        self.peer = (self.opened, peer)
        return super()._about_to_send(peer, own, peer_port, own_port)

    def _host_key(self, _known: Any, found: Any, match: int) -> int:
        """Decide about a server's key. libcurl would rewrite the whole file for a new one, and lose another thread's."""
        accepted = match == pycurl.KHMATCH_OK
        if match == pycurl.KHMATCH_MISSING and self._network.host_keys == "accept_new":
            name = known_host_name(self.target.hostname, self.target.host)
            accepted = learn_host_key(known_hosts_file(self._network.known_hosts), name, found.key)
        return int(pycurl.KHSTAT_FINE if accepted else pycurl.KHSTAT_REJECT)

    def _read_head(self) -> Head:
        """Build a head from the server's replies: a size and perhaps a modification time."""
        if self.sink is not None and self.target.scheme != "sftp" and not self._is_binary():
            raise Reasoned("protocol_error", f"{self.target.host}: the server did not confirm binary mode")
        length, span = self._remaining(), None
        if self.ask.ranged:
            if not length:  # a range cannot be verified without the total size
                raise Reasoned("bad_range", f"{self.target.host}: the server does not report the file's size")
            end = self.ask.start + length
            span = ContentRange(self.ask.start, end - 1, end if self.ask.end is None else None)
        return Head(
            status=206 if self.ask.ranged else 200,
            url=self.target.url,
            headers={},
            validators=Validators(last_modified=self._changed()),
            length=length,
            content_range=span,
            delimited=length is not None,
        )

    def _remaining(self) -> int | None:
        """Return the number of remaining bytes, if the server reports it."""
        if self.ask.end is None and self.target.scheme != "sftp":
            return self._remaining_ftp()
        return self._size

    def _remaining_ftp(self) -> int | None:
        if (size := self._size_reply()) is not None:
            return max(0, size - self.ask.start)
        if self.ask.start:
            return None
        return next((int(match[1]) for line in reversed(self.lines) if (match := _TRANSFER.match(line))), None)

    def _size_reply(self) -> int | None:
        """Return the reply to SIZE: the last one before the replies to REST and RETR; ignore similar lines."""
        replies = [line for line in self.lines if _REPLY.match(line)]
        if self.sink is not None:
            begun = [at for at, line in enumerate(replies) if line.startswith((b"150", b"125"))]
            replies = replies[: begun[-1]] if begun else []
        while replies and replies[-1].startswith(b"350"):
            replies.pop()
        match = _SIZE.match(replies[-1]) if replies else None
        return int(match[1]) if match else None

    def _changed(self) -> str | None:
        for line in self.lines:
            if match := _CHANGED.match(line):
                with contextlib.suppress(ValueError):
                    moment = datetime.strptime(match[1].decode(), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
                    return format_datetime(moment, usegmt=True)
        return None
