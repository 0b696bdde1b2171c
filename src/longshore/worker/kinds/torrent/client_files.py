"""The client's finished files, opened from here: below the mapped directory, never through a link, never a device."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from longshore.domain.settings import QbittorrentSettings
from longshore.domain.torrents.model import check_relative, map_path
from longshore.errors import BadInput, LongshoreError, Reasoned
from longshore.worker.kinds.torrent.client import ClientFile

READ_BYTES: Final = 1 << 20
HEAD_BYTES: Final = 4096
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotVisible(LongshoreError):
    """The client's file cannot be seen from here, or is not whole here yet."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What one reading of a file found."""

    sha256: str
    size_bytes: int
    head: bytes


def wanted(files: Sequence[ClientFile]) -> list[ClientFile]:
    """Return the files that were asked for; all of them must be whole."""
    chosen = [file for file in files if file.wanted]
    if not chosen or any(file.progress < 1 for file in chosen):
        raise NotVisible("the client does not have all wanted files yet")
    return chosen


def place_of(settings: QbittorrentSettings, save_path: str, name: str) -> tuple[str, tuple[str, ...]]:
    """Return where a file of the client lies here: a directory of the configuration and the steps below it."""
    root, below = map_path(save_path, settings.path_map)
    if not os.path.isabs(root):
        raise NotVisible(f"the client saves to {save_path!r}, which is not a path on this machine")
    try:
        steps = check_relative(below) if below else ()
        return root, steps + check_relative(name)
    except BadInput as error:
        raise Reasoned("unsafe_path", str(error)) from None


@contextlib.contextmanager
def opened(settings: QbittorrentSettings, save_path: str, file: ClientFile) -> Iterator[int]:
    """Open one file for reading, step by step, and check that it is a plain file of the expected size."""
    root, steps = place_of(settings, save_path, file.name)
    theirs, ours = f"{save_path}/{file.name}", "/".join((root.rstrip("/"), *steps))
    try:
        fd = _walk(root, steps)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise Reasoned("unsafe_path", f"there is a symbolic link in the client's files: {ours!r}") from None
        raise NotVisible(_not_here(theirs, ours, os.strerror(error.errno or 0))) from None
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise Reasoned("unsafe_path", f"the client's file is not a regular file: {ours!r}")
        if facts.st_size != file.size_bytes:
            has = f"it has {facts.st_size} bytes here and {file.size_bytes} at the client"
            raise NotVisible(_not_here(theirs, ours, has))
        yield fd
    finally:
        os.close(fd)


def _not_here(theirs: str, ours: str, why: str) -> str:
    where = f"mapped to {ours!r}" if theirs != ours else "looked for at the same path here"
    return f"the client's file {theirs!r}, {where}, cannot be used: {why}"


def _walk(root: str, steps: tuple[str, ...]) -> int:
    fd = os.open(root, _DIRECTORY)
    try:
        for step in steps[:-1]:
            below = _step(step, fd)
            os.close(fd)
            fd = below
        return os.open(steps[-1], _FILE, dir_fd=fd)
    finally:
        os.close(fd)


def _step(name: str, parent: int) -> int:
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except NotADirectoryError:
        # The kernel says the same of a link and of a file; only a link is refused for good.
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


def _read(fd: int, at: int) -> bytes:
    try:
        return os.pread(fd, READ_BYTES, at)
    except OSError as error:  # a bad disk, or a network drive that went away
        why = os.strerror(error.errno or 0)
        raise NotVisible(f"the client's file cannot be read at byte {at}: {why}") from None


def digest(fd: int, *, each: Callable[[bytes], None] | None = None) -> Digest:
    """Read a file once from its beginning; refuse one that changed meanwhile."""
    before = os.fstat(fd)
    hashing, size, head = hashlib.sha256(), 0, b""
    while piece := _read(fd, size):
        if not size:
            head = piece[:HEAD_BYTES]
        hashing.update(piece)
        size += len(piece)
        if each is not None:
            each(piece)
    after = os.fstat(fd)
    if size != before.st_size or (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise NotVisible("the client's file changed while it was read")
    return Digest(hashing.hexdigest(), size, head)
