"""Files of FTP and SFTP servers: the same line, with an own way to say who asks, where to start and what came.

libcurl believes an FTP server's SIZE, and the number in its reply to RETR: it stops after that many bytes and reports success,
however many were to come. So libcurl is told to ignore lengths, SIZE and REST are sent by us right before RETR, and what came
is compared with SIZE (or, without it, with the number in the reply to RETR) here. Where a server names no length, the end of
the file cannot be told from a cut, and the answer says so. Of an SFTP file libcurl reads as much as the server's own stat
says, and reports an earlier end.

What a refusal means is decided by the reply itself and the command that it answers: libcurl has one code for a file that does
not exist, one that is busy and a server that closes. A control connection is used for one file: after a failure libcurl would
go on with whatever state it was left in, such as ASCII mode, in which bytes change.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote_to_bytes

import pycurl

from longshore.domain.ftp_replies import refusal
from longshore.domain.heads import Head
from longshore.domain.limits import Credential
from longshore.domain.model import Validators
from longshore.domain.ranges import ContentRange
from longshore.domain.redaction import safe_text
from longshore.domain.redirects import Target
from longshore.errors import Reasoned
from longshore.transfer.asks import Ask, Sink
from longshore.transfer.header_lines import HeaderLine, as_bytes
from longshore.transfer.line import Line
from longshore.transfer.trust import known_hosts_file

_CHANGED = re.compile(rb"213 (\d{14})")
_SIZE = re.compile(rb"213 (\d{1,18})\s*\Z")
_REPLY = re.compile(rb"\d{3} ")
_FINAL = re.compile(rb"([1-5]\d\d) ")
_COMMAND_SENT = 2  # libcurl's CURLINFO_HEADER_OUT
_TRANSFER = re.compile(rb"1(?:25|50) .*\((\d{1,18}) bytes", re.IGNORECASE)


class RemoteFile(Line):
    """A line for one file. It is used once: its options are its own."""

    _size: int | None = None  # of an SFTP file, as libcurl knows it before the first byte
    _over = False  # libcurl answers questions only outside its callbacks
    _verb = ""  # the last command that was sent; empty: none yet
    _asked_at = 0  # how many lines had come then
    _binary_at: int | None = None  # how many lines had come when TYPE I was sent

    def identify(self, target: Target, credential: Credential | None) -> None:
        """Say who asks, and which host keys are believed."""
        easy = self.easy
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
        easy.setopt(pycurl.SSH_KNOWNHOSTS, as_bytes(known_hosts_file(self._settings.known_hosts)))
        easy.setopt(pycurl.SSH_KEYFUNCTION, self._host_key)
        if credential is not None and credential.key_file is not None:
            easy.setopt(pycurl.SSH_AUTH_TYPES, pycurl.SSH_AUTH_PUBLICKEY)
            easy.setopt(pycurl.SSH_PRIVATE_KEYFILE, as_bytes(credential.key_file))
        else:  # never a key or an agent that nobody configured
            easy.setopt(pycurl.SSH_AUTH_TYPES, pycurl.SSH_AUTH_PASSWORD | pycurl.SSH_AUTH_KEYBOARD)

    def run(
        self,
        ask: Ask,
        target: Target,
        headers: list[HeaderLine],
        *,
        sink: Sink | None,
        hops: tuple[str, ...],
        max_bytes: int,
        fresh: bool = False,
    ) -> asyncio.Future[None]:
        """Ask for the file from `ask.start`."""
        if ask.end is not None:
            self.easy.setopt(pycurl.RANGE, f"{ask.start}-{ask.end}")
        elif target.scheme != "sftp" and sink is not None:
            self._ask_ftp(target, ask.start)
        elif ask.start:
            self.easy.setopt(pycurl.RESUME_FROM_LARGE, ask.start)
        return super().run(ask, target, [], sink=sink, hops=hops, max_bytes=max_bytes, fresh=fresh)

    def _ask_ftp(self, target: Target, start: int) -> None:
        """Ask for the size and say where to start, because libcurl does neither when it ignores lengths."""
        name = unquote_to_bytes(target.url.split("/", 3)[3]).rpartition(b"/")[2]
        commands = [b"*SIZE " + name]  # the star: a server need not know it
        if start:
            commands.append(b"REST %d" % start)
        self.easy.setopt(pycurl.IGNORE_CONTENT_LENGTH, 1)
        self.easy.setopt(pycurl.PREQUOTE, commands)

    def _note_command(self, kind: int, data: bytes) -> None:
        """Remember which command the next replies belong to; never its argument, which may be a password."""
        if kind != _COMMAND_SENT or data.startswith(b"QUIT"):
            return
        self._verb, self._asked_at = data.split(None, 1)[0].decode("latin-1"), len(self.lines)
        if self._verb == "TYPE":
            self._binary_at = self._asked_at if data.strip() == b"TYPE I" else None

    def _is_binary(self) -> bool:
        """Tell whether the server said that it sends bytes as they are."""
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
        refused.facts["status"] = status  # it answered: a host that refuses is not silent
        return refused

    def finished(self, code: int, message: str) -> None:
        """Take libcurl's verdict; a file without bytes is read now."""
        self._over = True
        super().finished(code, message)

    def _conclude(self, code: int, message: str) -> None:
        super()._conclude(code, message)
        declared = self.head.length if self.head is not None else None
        if self.sink is not None and declared is not None and self.received < declared:
            raise Reasoned("truncated", f"{self.target.host}: {self.received} of {declared} bytes")

    def _body_limit(self, head: Head) -> int:
        """Return how many bytes may come: one more than declared is a mismatch."""
        return self._max if head.length is None else min(self._max, head.length)

    def _sized(self, expected: int, _received: int, _up: int, _sent: int) -> int:
        if expected > 0:
            self._size = expected
        return 0

    def _host_key(self, _known: Any, _found: Any, match: int) -> int:
        if match == pycurl.KHMATCH_OK:
            return int(pycurl.KHSTAT_FINE)
        if match == pycurl.KHMATCH_MISSING and self._settings.host_keys == "accept_new":
            return int(pycurl.KHSTAT_FINE_ADD_TO_FILE)
        return int(pycurl.KHSTAT_REJECT)

    def _read_head(self) -> Head:
        """Make a head of what such a server says: a size and perhaps a time."""
        if self.sink is not None and self.target.scheme != "sftp" and not self._is_binary():
            raise Reasoned("protocol_error", f"{self.target.host}: the server did not agree to send bytes as they are")
        length, span = self._remaining(), None
        if self.ask.ranged:
            if not length:  # without a size nobody can tell what a part is a part of
                raise Reasoned("bad_range", f"{self.target.host}: the server does not say how long the file is")
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
        """Return how many bytes are to come, as far as the server says."""
        if self.ask.end is None and self.target.scheme != "sftp":
            return self._remaining_ftp()
        if self._size is not None:
            return self._size
        if self._over:
            known = int(self.easy.getinfo(pycurl.CONTENT_LENGTH_DOWNLOAD_T))
            return known if known >= 0 else None
        return None

    def _remaining_ftp(self) -> int | None:
        if (size := self._size_reply()) is not None:
            return max(0, size - self.ask.start)
        if self.ask.start:
            return None
        return next((int(match[1]) for line in reversed(self.lines) if (match := _TRANSFER.match(line))), None)

    def _size_reply(self) -> int | None:
        """Return what SIZE was answered: the last reply before those to REST and RETR, and no other line like it."""
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
