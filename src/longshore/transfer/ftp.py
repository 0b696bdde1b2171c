"""FTP and SFTP transfers: an easy handle with its own authentication, start offset and length check.

libcurl trusts an FTP server's SIZE and the number in its reply to RETR: it stops after that many bytes and reports
success, even if the server would send more. So libcurl is configured to ignore lengths, this module sends SIZE and
REST right before RETR, and compares the received bytes with SIZE (or, without it, with the number in the reply to
RETR). If a server does not report a length, a complete file cannot be distinguished from a truncated one, and the
`Answer` records that. For SFTP, libcurl reads as many bytes as the server's stat reports, and fails on an earlier end.

The reason for an error is derived from the reply and the command that it belongs to: libcurl uses one code for a
missing file, a busy file and a server that closes. A control connection is used for one file only: after a failure
libcurl would continue in the previous state, such as ASCII mode, which changes bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote_to_bytes

import pycurl

from longshore.domain.model import Validators
from longshore.domain.policy.redaction import safe_text
from longshore.domain.transfer.credentials import Credential
from longshore.domain.transfer.ftp_replies import disowns, refusal
from longshore.domain.transfer.ranges import ContentRange
from longshore.domain.transfer.redirects import Target
from longshore.domain.transfer.response_head import Head
from longshore.errors import Reasoned
from longshore.transfer.easy_handle import EasyHandle
from longshore.transfer.header_lines import HeaderLine, as_bytes
from longshore.transfer.request import FetchRequest, Sink
from longshore.transfer.tls import known_hosts_file

_CHANGED = re.compile(rb"213 (\d{14})")
_SIZE = re.compile(rb"213 (\d{1,18})\s*\Z")
_REPLY = re.compile(rb"\d{3} ")
_FINAL = re.compile(rb"([1-5]\d\d) ")
_COMMAND_SENT = 2  # libcurl's CURLINFO_HEADER_OUT
FINAL_REPLY_S = 10.0  # upper limit: all other transfers of the process are blocked meanwhile
_TRANSFER = re.compile(rb"1(?:25|50) .*\((\d{1,18}) bytes", re.IGNORECASE)


class RemoteFile(EasyHandle):
    """An easy handle for one file. It is not reused, because its options differ."""

    _size: int | None = None  # of an SFTP file, as libcurl knows it before the first byte
    _over = False  # libcurl can be queried only outside its callbacks
    _verb = ""  # the last command that was sent; empty: none yet
    _commands = 0  # sent so far
    _asked_at = 0  # number of reply lines at that time
    _entered_at = 0.0  # when the current call into libcurl began
    _binary_at: int | None = None  # number of reply lines when TYPE I was sent

    def identify(self, target: Target, credential: Credential | None) -> None:
        """Set the credentials and the trusted host keys."""
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
        """Return a number that grows with each byte and each command; the number of commands is bounded."""
        return self.received + self._commands

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

    def finished(self, code: int, message: str) -> None:
        """Handle libcurl's result; an empty file has not run `_begin` yet."""
        self._over = True
        super().finished(code, message)

    def _conclude(self, code: int, message: str) -> None:
        super()._conclude(code, message)
        declared = self.head.length if self.head is not None else None
        if self.sink is not None and declared is not None and self.received < declared:
            raise Reasoned("truncated", f"{self.target.host}: {self.received} of {declared} bytes")

    def _body_limit(self, head: Head) -> int:
        """Return the maximum number of bytes; more than the declared length is a mismatch."""
        return self._max if head.length is None else min(self._max, head.length)

    def _sized(self, expected: int, _received: int, _up: int, _sent: int) -> int:
        """Record the size that libcurl reports, and abort its wait for the final reply if that takes too long.

        libcurl waits for that reply inside one call, up to a minute, and blocks the event loop with all other
        transfers. This progress callback is the only Python code that runs meanwhile.
        """
        if expected > 0:
            self._size = expected
        if self.target.scheme == "sftp" or self._fault is not None:
            return 0
        waited, allowed = (
            self._inside_libcurl_s(),
            max(1.0, min(self._limits.stall_s or FINAL_REPLY_S, FINAL_REPLY_S)),
        )
        if waited < allowed:
            return 0
        self._fault = late = Reasoned("too_slow", f"{self.target.host}: no reply after the data for {allowed:g} s")
        late.disowned = True
        return 1

    def _inside_libcurl_s(self) -> float:
        """Return for how long the current call into libcurl has been running."""
        now = time.monotonic()
        if not self._entered_at:
            self._entered_at = now
            asyncio.get_running_loop().call_soon(self._came_back)
        return now - self._entered_at

    def _came_back(self) -> None:
        self._entered_at = 0.0

    def _host_key(self, _known: Any, _found: Any, match: int) -> int:
        if match == pycurl.KHMATCH_OK:
            return int(pycurl.KHSTAT_FINE)
        if match == pycurl.KHMATCH_MISSING and self._network.host_keys == "accept_new":
            return int(pycurl.KHSTAT_FINE_ADD_TO_FILE)
        return int(pycurl.KHSTAT_REJECT)

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
