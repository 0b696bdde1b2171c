"""The system calls that Python's os lacks or that need care: always by directory descriptor, never through a link."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from longshore.errors import DiskFull, PublishFailed, StoreError, StoreUnavailable
from longshore.store.records import Problem

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
BLOCK: Final = 4096
_KEEP_SIZE: Final = 1
_FICLONE: Final = 0x40049409
_NO_REPLACE: Final = 1
NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})
NO_NOREPLACE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_WRITE_BEGIN: Final = 2  # SYNC_FILE_RANGE_WRITE: start, do not wait
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_REFLINK: Final = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM})
_OURS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})
# Where syncfs is known to report what failed: ext2/3/4, XFS, Btrfs, F2FS, tmpfs.
_TRUSTED: Final = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994})

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def syncfs(fd: int) -> None:
    """Make everything on the descriptor's file system durable; raise what failed since the descriptor was opened."""
    _checked(_libc.syncfs(fd))


def start_writeback(fd: int) -> None:
    """Let the kernel begin to write, without waiting; an error comes with the fsync that follows."""
    _libc.sync_file_range(fd, ctypes.c_longlong(0), ctypes.c_longlong(0), ctypes.c_uint(_WRITE_BEGIN))


def preallocate(fd: int, nbytes: int) -> bool:
    """Set blocks aside without changing the visible size; False where the file system cannot."""
    try:
        _checked(_libc.fallocate(fd, _KEEP_SIZE, ctypes.c_longlong(0), ctypes.c_longlong(nbytes)))
    except OSError as error:
        if error.errno in FULL:
            raise
        return False
    return True


def syncfs_reports(fd: int) -> bool:
    """Tell whether syncfs on this file system reports write errors: Linux 5.8, and a file system known for it."""
    major, minor = (int("".join(filter(str.isdigit, piece)) or 0) for piece in os.uname().release.split(".")[:2])
    buffer = ctypes.create_string_buffer(256)
    if _libc.fstatfs(fd, buffer) != 0:
        return False
    kind = ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ulong))[0]
    return (major, minor) >= (5, 8) and kind in _TRUSTED


def make_root(root: Path) -> None:
    """Make a private directory with all its parents, durably; nothing happens to one that exists."""
    missing = list(itertools.takewhile(lambda path: not path.exists(), (root, *root.parents)))
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)  # a mode without bits for others: no umask can add any
        fsync_path(path.parent)


def create_private(path: Path) -> BinaryIO:
    """Make a file that is its owner's alone from the first byte; debris of that name goes first."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, CREATE, 0o600), "wb")


def write_private(path: Path, data: bytes) -> None:
    """Replace a small file that is its owner's alone, whole or not at all; not made durable."""
    new = path.with_name(path.name + ".new")
    with create_private(new) as out:
        out.write(data)
    new.replace(path)


def fsync_path(path: Path) -> None:
    """Make a directory's names durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_chain(names: tuple[str, ...], parent: int) -> None:
    """Make the names of nested directories durable, from the outermost to the last."""
    for depth in range(len(names)):
        fd = open_path(names[:depth], parent)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def open_directory(name: str, parent: int, *, create: bool = False) -> int:
    """Open a directory below another without following a link; make it private if asked and missing."""
    try:
        return os.open(name, DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    return os.open(name, DIRECTORY, dir_fd=parent)


def open_path(names: tuple[str, ...], parent: int, *, create: bool = False) -> int:
    """Open a directory several levels below another, each level without following a link."""
    fd = os.dup(parent)
    for name in names:
        try:
            below = open_directory(name, fd, create=create)
        finally:
            os.close(fd)
        fd = below
    return fd


def directories(parent: int, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """Give the directories below one, open while they are looked at; files, links and hidden names are passed over."""
    for name in sorted(os.listdir(parent)):
        if name.startswith("."):
            continue
        try:
            fd = os.open(name, DIRECTORY, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                continue
            raise
        try:
            yield (*path, name), fd
        finally:
            os.close(fd)


def write_all(fd: int, data: bytes | memoryview, offset: int = 0) -> None:
    """Write it all, however often the kernel takes less."""
    done = os.pwrite(fd, data, offset)
    if done == len(data):
        return
    view = memoryview(data)
    while done < len(view):
        step = os.pwrite(fd, view[done:], offset + done)
        if step == 0:
            raise OSError(errno.EIO, "a write of nothing")
        done += step


def rename_noreplace(source: str, source_dir: int, target: str, target_dir: int) -> None:
    """Move a name without replacing another, where the file system has no links."""
    _checked(_libc.renameat2(source_dir, source.encode(), target_dir, target.encode(), ctypes.c_uint(_NO_REPLACE)))


def reflink(target: int, source: int) -> bool:
    """Share the source's blocks, where the file system can."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NO_REFLINK:
            return False
        raise
    return True


def exists(name: str, parent: int) -> bool:
    """Tell whether a directory has a name."""
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def unlink(name: str, parent: int) -> bool:
    """Remove a name; False if it was gone."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def told(doing: str) -> Iterator[None]:
    """Turn what the system says inside into one of our errors."""
    try:
        yield
    except OSError as error:
        raise typed(error, doing) from error


def unreadable(error: OSError) -> Problem:
    """Return that a blob cannot be read; raise what may pass by itself (no descriptors or memory left)."""
    if error.errno in _OURS:
        raise error
    return Problem.UNREADABLE


def typed(error: OSError, doing: str) -> StoreError:
    """Say as one of our errors what the system said."""
    text = f"{doing}: {os.strerror(error.errno) if error.errno else error}"
    if error.errno in FULL:
        return DiskFull(text, hint="make room; work goes on by itself")
    if error.errno in _OURS:
        return StoreUnavailable(text)
    return PublishFailed(text)
