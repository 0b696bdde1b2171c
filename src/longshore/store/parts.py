"""A part: bytes on their way in, private to one job and one epoch, in a directory of their own.

Only bytes that a durable `facts.json` names count after a restart. The body is fsynced first, then the facts are replaced
whole; so the facts never promise more than the disk holds. Starting over removes the facts, durably, before the first
byte of another version is written.

The facts also hold what the next attempt must not have to believe: which answer the bytes belong to (asked and final URL,
validators, and the header fields that the verdict reads), and the hash of the durable bytes, so that a bit that flips on
disk between two attempts makes the part worthless instead of the result wrong.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from stat import S_ISREG
from time import monotonic
from typing import Any, Final

from longshore import failpoints
from longshore.domain.model import Scope, Validators
from longshore.errors import DiskFull, PublishFailed
from longshore.store import disk, names
from longshore.store.room import Reservation

BODY: Final = "body"
FACTS: Final = "facts.json"
NO_VALIDATORS: Final = Validators()
_NEW_FACTS: Final = "facts.new"
COPY_BYTES: Final = 1 << 20
failpoints.declare(
    "part.open", "part.write", "part.fsync", "part.facts", "part.rename", "part.dirsync", "part.restart", "part.adopt"
)


@dataclass(frozen=True, slots=True)
class PartFacts:
    """What is known for certain about a part."""

    scope: Scope
    job_id: str
    epoch: int
    url: str | None = None
    final_url: str | None = None
    validators: Validators = NO_VALIDATORS
    total: int | None = None
    durable_bytes: int = 0
    sha256: str | None = None  # of the durable bytes
    headers: Mapping[str, str] | None = None  # of the answer: what its verdict needs; None in parts of older programs
    delimited: bool = True  # the end of the body could be told from a cut

    @property
    def answered(self) -> str | None:
        """Return the Date of the answer that brought the validators: it says whether a modification date is strong."""
        return None if self.headers is None else self.headers.get("date")

    def as_json(self) -> bytes:
        """Write it for the disk."""
        known: dict[str, Any] = {
            "v": 1,
            "tenant_id": self.scope.tenant_id,
            "project_id": self.scope.project_id,
            "job_id": self.job_id,
            "epoch": self.epoch,
            "url": self.url,
            "final_url": self.final_url,
            "etag": self.validators.etag,
            "last_modified": self.validators.last_modified,
            "total": self.total,
            "durable_bytes": self.durable_bytes,
            "sha256": self.sha256,
            "headers": None if self.headers is None else dict(self.headers),
            "delimited": self.delimited,
        }
        return json.dumps(known).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> PartFacts:
        """Read what `as_json` wrote; anything else is a ValueError."""
        known = json.loads(raw)
        if not isinstance(known, dict) or known.get("v") != 1:
            raise ValueError("not the facts of a part")
        try:
            return cls(
                Scope(known["tenant_id"], known["project_id"]),
                known["job_id"],
                int(known["epoch"]),
                known["url"],
                known["final_url"],
                Validators(known["etag"], known["last_modified"]),
                known["total"],
                int(known["durable_bytes"]),
                known.get("sha256"),
                known.get("headers"),
                known.get("delimited", True),
            )
        except (KeyError, TypeError) as error:
            raise ValueError("not the facts of a part") from error


def read_facts(directory: int) -> PartFacts | None:
    """Read the facts in a part's directory; None if there are none that can be trusted."""
    try:
        with os.fdopen(os.open(FACTS, disk.READ, dir_fd=directory), "rb") as file:
            facts = PartFacts.from_json(file.read(1 << 20))
        stat = os.stat(BODY, dir_fd=directory, follow_symlinks=False)
    except (OSError, ValueError):
        return None
    return facts if S_ISREG(stat.st_mode) and stat.st_size >= facts.durable_bytes else None


class Part:
    """The open part of one attempt. Writing is for one thread at a time."""

    def __init__(
        self, directory: int, facts: PartFacts, *, settle: Callable[[], None], forget: Callable[[], None]
    ) -> None:
        failpoints.hit("part.open")
        self._directory = directory  # ours to close
        self._settle: Callable[[], None] | None = settle  # makes the directory's own name durable
        self._forget = forget  # removes the directory with all it holds
        self.facts = facts
        try:
            self.fd = os.open(BODY, disk.CREATE, 0o600, dir_fd=directory)
        except BaseException:
            os.close(directory)
            raise
        self.direct_fd = self._open_direct()
        self._hash = hashlib.sha256()
        self.size_bytes = 0  # written and hashed, in order
        self.head = b""
        self._reservation: Reservation | None = None
        self.fsync_s = 0.0

    def _open_direct(self) -> int | None:
        try:
            return os.open(BODY, os.O_WRONLY | os.O_DIRECT | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._directory)
        except OSError:
            return None  # tmpfs and others refuse: the page cache does it

    @property
    def reservation(self) -> Reservation | None:
        """The room that was set aside for these bytes; a new one gives the old one back."""
        return self._reservation

    @reservation.setter
    def reservation(self, room: Reservation | None) -> None:
        old, self._reservation = self._reservation, room
        if old is not None:
            old.release()

    @property
    def durable_bytes(self) -> int:
        """How many bytes a restart could rely on."""
        return self.facts.durable_bytes

    @property
    def sha256(self) -> str:
        """The hash of everything hashed so far."""
        return self._hash.hexdigest()

    @property
    def closed(self) -> bool:
        """Whether the descriptors are gone."""
        return self.fd < 0

    def begin(
        self,
        *,
        url: str,
        final_url: str | None = None,
        validators: Validators | None = None,
        total: int | None = None,
        headers: Mapping[str, str] | None = None,
        delimited: bool = True,
        preallocate: int = 0,
    ) -> None:
        """Set what identifies these bytes, before any of them counts; set blocks aside if asked."""
        self.facts = replace(
            self.facts,
            url=url,
            final_url=final_url,
            validators=validators or NO_VALIDATORS,
            total=total,
            headers=headers,
            delimited=delimited,
        )
        if preallocate > self.size_bytes:
            try:
                disk.preallocate(self.fd, preallocate)
            except OSError as error:
                raise disk.typed(error, f"setting {preallocate} bytes aside") from error

    def write(self, data: bytes | memoryview) -> None:
        """Append: hash and write in the calling thread."""
        self.write_at(data, self.size_bytes)
        self.hashed(data)

    def write_at(self, data: bytes | memoryview, offset: int, *, direct: bool = False) -> None:
        """Write at an offset, without hashing."""
        failpoints.hit("part.write")
        try:
            if not (direct and self._write_direct(data, offset)):
                disk.write_all(self.fd, data, offset)
        except OSError as error:
            told = disk.typed(error, "writing a part")
            if isinstance(told, DiskFull) and self._reservation is not None:
                told = self._reservation.outgrown(told)
            raise told from error
        if self._reservation is not None:
            self._reservation.used(len(data))

    def _write_direct(self, data: bytes | memoryview, offset: int) -> bool:
        """Write past the page cache; False, from now on, where the device takes no such writes."""
        if self.direct_fd is None:
            return False
        try:
            disk.write_all(self.direct_fd, data, offset)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            os.close(self.direct_fd)
            self.direct_fd = None
            return False
        return True

    def hashed(self, data: bytes | memoryview) -> None:
        """Take the next bytes into the hash, in order."""
        if len(self.head) < names.HEAD_BYTES:
            self.head += bytes(data[: names.HEAD_BYTES - len(self.head)])
        self._hash.update(data)
        self.size_bytes += len(data)

    def hash_to(self, end: int) -> None:
        """Read on from what is hashed to `end` (bytes that came out of order) and hash it."""
        while self.size_bytes < end:
            piece = os.pread(self.fd, min(COPY_BYTES, end - self.size_bytes), self.size_bytes)
            if not piece:
                raise PublishFailed("a part is shorter than what was written to it")
            self.hashed(piece)

    def read_back(self, offset: int, nbytes: int) -> bytes:
        """Give bytes that were written before (the last block of an adopted prefix)."""
        piece = os.pread(self.fd, nbytes, offset)
        if len(piece) != nbytes:
            raise PublishFailed("a part is shorter than what was written to it")
        return piece

    def cut(self, nbytes: int) -> None:
        """Cut padding and blocks set aside: the file is as long as its body."""
        try:
            os.ftruncate(self.fd, nbytes)
        except OSError as error:
            raise disk.typed(error, "cutting a part to size") from error

    def checkpoint(self, upto: int | None = None, sha256: str | None = None) -> int:
        """Make everything up to an offset, whose hash is given with it, count after a restart.

        Without an offset: everything that was written and hashed. After an error the part is gone.
        """
        durable, proof = (self.size_bytes, self.sha256) if upto is None else (upto, sha256)
        started = monotonic()
        try:
            failpoints.hit("part.fsync")
            os.fsync(self.fd)
            self._write_facts(replace(self.facts, durable_bytes=durable, sha256=proof))
        except OSError as error:
            self.discard()
            raise disk.typed(error, "making a part durable") from error
        self.fsync_s += monotonic() - started
        return durable

    def _write_facts(self, facts: PartFacts) -> None:
        failpoints.hit("part.facts")
        disk.unlink(_NEW_FACTS, self._directory)
        fd = os.open(_NEW_FACTS, disk.CREATE, 0o600, dir_fd=self._directory)
        try:
            disk.write_all(fd, facts.as_json())
            os.fsync(fd)
        finally:
            os.close(fd)
        failpoints.hit("part.rename")
        os.rename(_NEW_FACTS, FACTS, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        failpoints.hit("part.dirsync")
        os.fsync(self._directory)
        if self._settle is not None:
            self._settle()
            self._settle = None
        self.facts = facts

    def restart(self) -> None:
        """Start over with another version: what was promised is taken back, durably, before anything is written."""
        failpoints.hit("part.restart")
        try:
            if disk.unlink(FACTS, self._directory):
                os.fsync(self._directory)
            os.ftruncate(self.fd, 0)
        except OSError as error:
            self.discard()
            raise disk.typed(error, "starting a part over") from error
        self.facts = replace(
            self.facts, durable_bytes=0, sha256=None, validators=NO_VALIDATORS, total=None, headers=None, delimited=True
        )
        self._hash, self.size_bytes, self.head = hashlib.sha256(), 0, b""

    def adopt(self, older: int, facts: PartFacts) -> bool:
        """Copy an older epoch's durable prefix while hashing it; False (and empty) if it is not what was written."""
        failpoints.hit("part.adopt")
        try:
            source = os.open(BODY, disk.READ, dir_fd=older)
        except OSError:
            return False
        try:
            self._copy(source, facts.durable_bytes)
        except OSError:
            self.restart()
            return False
        finally:
            os.close(source)
        if self.sha256 != facts.sha256:  # a bit flipped on disk, or an older program did not say
            self.restart()
            return False
        self.facts = replace(facts, epoch=self.facts.epoch, durable_bytes=0)
        self.checkpoint()
        return True

    def take_from(self, source: int) -> None:
        """Fill this part with a foreign file: share its blocks where that works, else copy, hashing either way."""
        size = os.fstat(source).st_size
        try:
            if disk.reflink(self.fd, source):
                self.hash_to(size)
            else:
                self._copy(source, size)
        except OSError as error:
            raise disk.typed(error, "taking a file in") from error

    def _copy(self, source: int, nbytes: int) -> None:
        while self.size_bytes < nbytes:
            piece = os.pread(source, min(COPY_BYTES, nbytes - self.size_bytes), self.size_bytes)
            if not piece:
                raise OSError("shorter than its facts")
            self.write(piece)

    def seal(self) -> None:
        """Make the body read-only, just before it is made durable."""
        os.fchmod(self.fd, 0o444)

    def link_to(self, name: str, parent: int) -> None:
        """Give this very inode another name, never replacing one."""
        try:
            os.link(f"/proc/self/fd/{self.fd}", name, dst_dir_fd=parent, follow_symlinks=True)
        except FileNotFoundError:  # no /proc here
            os.link(BODY, name, src_dir_fd=self._directory, dst_dir_fd=parent, follow_symlinks=False)

    def move_to(self, name: str, parent: int, *, replace: bool = False) -> None:
        """Do the same where a file system has no links; `replace` where it cannot even rename without replacing."""
        if replace:
            os.rename(BODY, name, src_dir_fd=self._directory, dst_dir_fd=parent)
        else:
            disk.rename_noreplace(BODY, self._directory, name, parent)

    def close(self) -> None:
        """Close the descriptors and keep the files."""
        for fd in (self.fd, self.direct_fd, self._directory):
            if fd is not None and fd >= 0:
                os.close(fd)
        self.fd, self.direct_fd, self._directory = -1, None, -1
        self.reservation = None

    def discard(self) -> None:
        """Close, and remove everything."""
        self.close()
        with contextlib.suppress(OSError):  # what is left is the reconciler's
            self._forget()


def empty_part(directory: int) -> None:
    """Remove the files of a part; the facts first, so that they never stand without their body."""
    for name in (FACTS, _NEW_FACTS, BODY):
        disk.unlink(name, directory)
