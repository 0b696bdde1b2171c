"""A part: an incomplete body, private to one job and one epoch, in its own directory.

Only bytes that a durable `facts.json` records count after a restart. The body is fsynced first, then the facts are
replaced atomically, so the facts never cover more bytes than the disk holds. Starting over removes the facts, durably,
before the first byte of another version is written.

A later epoch never continues in the file of an earlier one, because a process that lost its lease may still write to it.
It copies the durable prefix; the older part stays whole until the copy is durable. If the disk has no room for a second
copy, the bytes are moved piece by piece: first the older body loses its name, so that no process can publish it, then
each piece is freed as soon as it is copied. A crash in between costs the bytes, never the disk.

The facts also identify the response that the bytes belong to (requested and final URL, validators, and the header
fields that validation reads), and contain the hash of the durable bytes. If a bit flips on disk between two attempts,
the part is discarded; the result is never wrong.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from stat import S_ISREG
from time import monotonic
from typing import Final

from longshore import failpoints
from longshore.domain.model import Validators
from longshore.errors import DiskFull, PublishFailed
from longshore.store import blob_names
from longshore.store.durability import filesystem
from longshore.store.staging.part_facts import NO_VALIDATORS, PartFacts
from longshore.store.staging.reservations import Reservation

BODY: Final = "body"
FACTS: Final = "facts.json"
_NEW_FACTS: Final = "facts.new"
COPY_BYTES: Final = 1 << 20
failpoints.declare(
    "part.open",
    "part.write",
    "part.fsync",
    "part.facts",
    "part.rename",
    "part.dirsync",
    "part.restart",
    "part.adopt",
    "part.move",
)


def read_facts(directory: int) -> PartFacts | None:
    """Read the facts in a part's directory; return None if they are missing or invalid."""
    try:
        with filesystem.open_regular(FACTS, directory) as file:
            facts = PartFacts.from_json(file.read(1 << 20))
        stat = os.stat(BODY, dir_fd=directory, follow_symlinks=False)
    except (OSError, ValueError, RecursionError):  # RecursionError: damaged into deeply nested JSON
        return None
    return facts if S_ISREG(stat.st_mode) and stat.st_size >= facts.durable_bytes else None


class Part:
    """The open part of one attempt. Writing is for one thread at a time."""

    def __init__(
        self, directory: int, facts: PartFacts, *, settle: Callable[[], None], forget: Callable[[], None]
    ) -> None:
        failpoints.hit("part.open")
        self._directory = directory  # closed by this object
        self._settle: Callable[[], None] | None = settle  # makes the directory's own name durable
        self._forget = forget  # removes the directory with all it holds
        self.facts = facts
        try:
            self.fd = os.open(BODY, filesystem.CREATE, 0o600, dir_fd=directory)
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
            return None  # tmpfs and others refuse O_DIRECT: use the page cache

    @property
    def reservation(self) -> Reservation | None:
        """The space reserved for these bytes; setting a new reservation releases the old one."""
        return self._reservation

    @reservation.setter
    def reservation(self, room: Reservation | None) -> None:
        old, self._reservation = self._reservation, room
        if old is not None:
            old.release()

    @property
    def durable_bytes(self) -> int:
        """The number of bytes that survive a restart."""
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
        caller: str = "",
        preallocate: int = 0,
    ) -> None:
        """Set the facts that identify these bytes, before the first checkpoint; preallocate blocks on request."""
        self.facts = replace(
            self.facts,
            url=url,
            final_url=final_url,
            validators=validators or NO_VALIDATORS,
            total=total,
            headers=headers,
            delimited=delimited,
            caller=caller,
        )
        if preallocate > self.size_bytes:
            try:
                filesystem.preallocate(self.fd, preallocate)
            except OSError as error:
                raise filesystem.typed(error, f"setting {preallocate} bytes aside") from error

    def write(self, data: bytes | memoryview) -> None:
        """Append: hash and write in the calling thread."""
        self.write_at(data, self.size_bytes)
        self.hashed(data)

    def write_at(self, data: bytes | memoryview, offset: int, *, direct: bool = False) -> None:
        """Write at an offset, without hashing."""
        failpoints.hit("part.write")
        try:
            if not (direct and self._write_direct(data, offset)):
                filesystem.write_all(self.fd, data, offset)
        except OSError as error:
            told = filesystem.typed(error, "writing a part")
            if isinstance(told, DiskFull) and self._reservation is not None:
                told = self._reservation.outgrown(told)
            raise told from error
        if self._reservation is not None:
            self._reservation.used(len(data))

    def _write_direct(self, data: bytes | memoryview, offset: int) -> bool:
        """Write with O_DIRECT; return False, and stop trying, if the device refuses it."""
        if self.direct_fd is None:
            return False
        try:
            filesystem.write_all(self.direct_fd, data, offset)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            os.close(self.direct_fd)
            self.direct_fd = None
            return False
        return True

    def hashed(self, data: bytes | memoryview) -> None:
        """Add the next bytes to the hash, in order."""
        if len(self.head) < blob_names.HEAD_BYTES:
            self.head += bytes(data[: blob_names.HEAD_BYTES - len(self.head)])
        self._hash.update(data)
        self.size_bytes += len(data)

    def hash_to(self, end: int) -> None:
        """Read the bytes from the hashed prefix up to `end` (they arrived out of order) and hash them."""
        while self.size_bytes < end:
            piece = os.pread(self.fd, min(COPY_BYTES, end - self.size_bytes), self.size_bytes)
            if not piece:
                raise PublishFailed("a part is shorter than what was written to it")
            self.hashed(piece)

    def read_back(self, offset: int, nbytes: int) -> bytes:
        """Return bytes that were written before (the last block of an adopted prefix)."""
        piece = os.pread(self.fd, nbytes, offset)
        if len(piece) != nbytes:
            raise PublishFailed("a part is shorter than what was written to it")
        return piece

    def cut(self, nbytes: int) -> None:
        """Truncate padding and preallocated blocks, so that the file is as long as its body."""
        try:
            os.ftruncate(self.fd, nbytes)
        except OSError as error:
            raise filesystem.typed(error, "cutting a part to size") from error

    def checkpoint(self, upto: int | None = None, sha256: str | None = None) -> int:
        """Make all bytes up to an offset durable, together with their hash.

        Without an offset, this covers everything that was written and hashed. After an error the part is unusable.
        """
        durable, proof = (self.size_bytes, self.sha256) if upto is None else (upto, sha256)
        started = monotonic()
        try:
            failpoints.hit("part.fsync")
            os.fsync(self.fd)
            self._write_facts(replace(self.facts, durable_bytes=durable, sha256=proof))
        except OSError as error:
            self.discard()
            raise filesystem.typed(error, "making a part durable") from error
        self.fsync_s += monotonic() - started
        return durable

    def _write_facts(self, facts: PartFacts) -> None:
        failpoints.hit("part.facts")
        filesystem.unlink(_NEW_FACTS, self._directory)
        fd = os.open(_NEW_FACTS, filesystem.CREATE, 0o600, dir_fd=self._directory)
        try:
            filesystem.write_all(fd, facts.as_json())
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
        """Start over with another version: remove the facts, durably, before anything is written."""
        failpoints.hit("part.restart")
        try:
            if filesystem.unlink(FACTS, self._directory):
                os.fsync(self._directory)
            os.ftruncate(self.fd, 0)
        except OSError as error:
            self.discard()
            raise filesystem.typed(error, "starting a part over") from error
        self.facts = replace(
            self.facts, durable_bytes=0, sha256=None, validators=NO_VALIDATORS, total=None, headers=None, delimited=True
        )
        self._hash, self.size_bytes, self.head = hashlib.sha256(), 0, b""

    def adopt(self, older: int, facts: PartFacts, *, move: bool = False) -> bool:
        """Copy or move an older epoch's durable prefix while hashing it; return False, and stay empty, if the hash differs."""
        failpoints.hit("part.adopt")
        try:
            source = take_body(older) if move else os.open(BODY, filesystem.READ, dir_fd=older)
        except OSError:
            return False
        try:
            if move:
                self._move(source, facts.durable_bytes)
            else:
                self._copy(source, facts.durable_bytes)
        except OSError:
            self.restart()
            return False
        finally:
            os.close(source)
        if self.sha256 != facts.sha256:  # a bit flipped on disk, or an older version did not record the hash
            self.restart()
            return False
        self.facts = replace(facts, epoch=self.facts.epoch, durable_bytes=0)
        self.checkpoint()
        return True

    def take_from(self, source: int) -> None:
        """Fill this part with a foreign file, by reflink if possible, otherwise by copy; hash it either way."""
        size = os.fstat(source).st_size
        try:
            if filesystem.reflink(self.fd, source):
                self.hash_to(size)
            else:
                self._copy(source, size)
        except OSError as error:
            raise filesystem.typed(error, "taking a file in") from error

    def _copy(self, source: int, nbytes: int) -> None:
        while self.size_bytes < nbytes:
            piece = os.pread(source, min(COPY_BYTES, nbytes - self.size_bytes), self.size_bytes)
            if not piece:
                raise OSError("shorter than its facts")
            self.write(piece)

    def _move(self, source: int, nbytes: int) -> None:
        """Copy a body that has no name any more, and free each piece that is copied."""
        os.ftruncate(source, nbytes)  # free what lies behind the durable bytes, and preallocated blocks
        while self.size_bytes < nbytes:
            failpoints.hit("part.move")
            start = self.size_bytes
            self._copy(source, min(nbytes, start + COPY_BYTES))
            filesystem.punch_hole(source, start, self.size_bytes - start)

    def seal(self) -> None:
        """Make the body read-only, just before it is made durable."""
        os.fchmod(self.fd, 0o444)

    def link_to(self, name: str, parent: int) -> None:
        """Link this inode to another name, without replacing an existing one."""
        try:
            os.link(f"/proc/self/fd/{self.fd}", name, dst_dir_fd=parent, follow_symlinks=True)
        except FileNotFoundError:  # no /proc here
            os.link(BODY, name, src_dir_fd=self._directory, dst_dir_fd=parent, follow_symlinks=False)

    def move_to(self, name: str, parent: int, *, replace: bool = False) -> None:
        """Rename the body, on file systems without hard links; `replace` if they lack RENAME_NOREPLACE, too."""
        if replace:
            os.rename(BODY, name, src_dir_fd=self._directory, dst_dir_fd=parent)
        else:
            filesystem.rename_noreplace(BODY, self._directory, name, parent)

    def close(self) -> None:
        """Close the descriptors and keep the files."""
        for fd in (self.fd, self.direct_fd, self._directory):
            if fd is not None and fd >= 0:
                os.close(fd)
        self.fd, self.direct_fd, self._directory = -1, None, -1
        self.reservation = None

    def discard(self) -> None:
        """Close the descriptors and remove the files."""
        self.close()
        with contextlib.suppress(OSError):  # the reconciler removes leftovers
            self._forget()


def empty_part(directory: int) -> None:
    """Remove the files of a part; the facts first, so that they never exist without their body."""
    for name in (FACTS, _NEW_FACTS, BODY):
        filesystem.unlink(name, directory)


def take_body(directory: int) -> int:
    """Remove the names of a part and return its open body; raise `OSError` if the body has another name as well.

    A body without a name cannot be linked again, so no process can publish it, even if it still has it open. A body with
    another name is published; its bytes must not be touched.
    """
    sealed = os.open(BODY, filesystem.READ, dir_fd=directory)
    try:
        os.fchmod(sealed, 0o600)  # a whole body is read-only
        body = os.open(BODY, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    finally:
        os.close(sealed)
    try:
        empty_part(directory)
        if os.fstat(body).st_nlink:  # published, maybe in this moment by a process that lost its lease
            os.fchmod(body, 0o444)
            raise OSError(errno.EMLINK, "the body has another name")
    except BaseException:
        os.close(body)
        raise
    return body
