"""System calls that Python's os lacks or that need care: by directory descriptor, never through a symbolic link."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO, Final

from longshore.domain.policy.disk_space import Lack
from longshore.errors import DiskFull, NeverFits, PublishFailed, StoreError, StoreUnavailable
from longshore.store.records import Problem

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
READ: Final = (
    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)  # opening a FIFO does not block, and reading it returns nothing
BLOCK: Final = 4096
_KEEP_SIZE: Final = 1
_PUNCH_HOLE: Final = 2
_FICLONE: Final = 0x40049409
_NO_REPLACE: Final = 1
ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})  # no directory: nothing, or a link or a file
NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})
NO_NOREPLACE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_WRITE_BEGIN: Final = 2  # SYNC_FILE_RANGE_WRITE: start, do not wait
IRREGULAR: Final = frozenset({errno.EINVAL, errno.ELOOP, errno.ENXIO})  # `open_regular`: not a regular file
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_REFLINK: Final = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM})
_OURS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})
# File systems on which syncfs is known to report write errors: ext2/3/4, XFS, Btrfs, F2FS, tmpfs.
_TRUSTED: Final = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994})

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def syncfs(fd: int) -> None:
    """Make the descriptor's file system durable; raise a write error that occurred since the descriptor was opened."""
    _checked(_libc.syncfs(fd))


def start_writeback(fd: int) -> None:
    """Start write-back without waiting for it; the fsync that follows reports any error."""
    _libc.sync_file_range(fd, ctypes.c_longlong(0), ctypes.c_longlong(0), ctypes.c_uint(_WRITE_BEGIN))


def preallocate(fd: int, nbytes: int) -> bool:
    """Preallocate blocks without changing the visible size; return False if the file system cannot."""
    try:
        _checked(_libc.fallocate(fd, _KEEP_SIZE, ctypes.c_longlong(0), ctypes.c_longlong(nbytes)))
    except OSError as error:
        if error.errno in FULL:
            raise
        return False
    return True


def punch_hole(fd: int, offset: int, nbytes: int) -> None:
    """Free the blocks of a range, which then reads as zeros; raise `OSError` if the file system cannot."""
    mode = _KEEP_SIZE | _PUNCH_HOLE
    _checked(_libc.fallocate(fd, mode, ctypes.c_longlong(offset), ctypes.c_longlong(nbytes)))


def syncfs_reports(fd: int) -> bool:
    """Return whether syncfs on this file system reports write errors: Linux 5.8, and a file system known for it."""
    major, minor = (int("".join(filter(str.isdigit, piece)) or 0) for piece in os.uname().release.split(".")[:2])
    buffer = ctypes.create_string_buffer(256)
    if _libc.fstatfs(fd, buffer) != 0:
        return False
    kind = ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ulong))[0]
    return (major, minor) >= (5, 8) and kind in _TRUSTED


def make_root(root: Path) -> None:
    """Create a private directory with all its parents, durably; leave an existing one unchanged."""
    missing = list(itertools.takewhile(lambda path: not path.exists(), (root, *root.parents)))
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)  # a mode without bits for others: no umask can add any
        fsync_path(path.parent)


def create_private(path: Path) -> BinaryIO:
    """Create a file that only its owner can ever read; remove an old file of that name first."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, CREATE, 0o600), "wb")


def write_private(path: Path, data: bytes) -> None:
    """Replace a small private file atomically, but not durably."""
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
    """Yield the subdirectories, each open during its iteration; skip files, links and hidden names."""
    for name in sorted(os.listdir(parent)):
        if name.startswith("."):
            continue
        try:
            fd = os.open(name, DIRECTORY, dir_fd=parent)
        except OSError as error:
            if error.errno in ABSENT:
                continue
            raise
        try:
            yield (*path, name), fd
        finally:
            os.close(fd)


def write_all(fd: int, data: bytes | memoryview, offset: int = 0) -> None:
    """Write all of the data, repeating short writes."""
    done = os.pwrite(fd, data, offset)
    if done == len(data):
        return
    view = memoryview(data)
    while done < len(view):
        step = os.pwrite(fd, view[done:], offset + done)
        if step == 0:
            raise OSError(errno.EIO, "a write of nothing")
        done += step


def open_regular(name: str, parent: int) -> BinaryIO:
    """Open a regular file for reading; raise `OSError` for anything else (a link, a device, an idle FIFO)."""
    fd = os.open(name, READ, dir_fd=parent)
    if not S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return os.fdopen(fd, "rb")


def rename_new(source: str, target: str, parent: int) -> None:
    """Rename a file, or raise `FileExistsError` if the target exists; use a hard link if the file system has them."""
    try:
        os.link(source, target, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
        return
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
    try:
        rename_noreplace(source, parent, target, parent)
    except OSError as error:
        if error.errno not in NO_NOREPLACE:
            raise
        if exists(target, parent):  # last resort: it does not exclude a race between two callers
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(source, target, src_dir_fd=parent, dst_dir_fd=parent)


def rename_noreplace(source: str, source_dir: int, target: str, target_dir: int) -> None:
    """Rename without replacing the target, on file systems without hard links."""
    _checked(_libc.renameat2(source_dir, source.encode(), target_dir, target.encode(), ctypes.c_uint(_NO_REPLACE)))


def reflink(target: int, source: int) -> bool:
    """Share the source's blocks; return False if the file system cannot."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NO_REFLINK:
            return False
        raise
    return True


def exists(name: str, parent: int) -> bool:
    """Return whether a name exists in a directory."""
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def is_directory(name: str, parent: int) -> bool:
    """Return whether a name is a directory, not a link to one."""
    try:
        return S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def unlink(name: str, parent: int) -> bool:
    """Remove a name; return False if it was already gone."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return False
    return True


def remove_tree(name: str, parent: int) -> None:
    """Remove a name, and if it is a directory everything below it; never follow a link."""
    try:
        unlink(name, parent)
    except (IsADirectoryError, PermissionError):  # POSIX allows EPERM for a directory
        if not is_directory(name, parent):
            raise
        shutil.rmtree(name, dir_fd=parent)


@contextlib.contextmanager
def told(doing: str) -> Iterator[None]:
    """Convert an `OSError` raised in the block to a `StoreError`."""
    try:
        yield
    except OSError as error:
        raise typed(error, doing) from error


def unreadable(error: OSError) -> Problem:
    """Return `Problem.UNREADABLE`; re-raise errors that may be transient (no descriptors or memory left)."""
    if error.errno in _OURS:
        raise error
    return Problem.UNREADABLE


def typed(error: OSError, doing: str) -> StoreError:
    """Convert an `OSError` to a `StoreError`."""
    text = f"{doing}: {os.strerror(error.errno) if error.errno else error}"
    if error.errno in FULL:
        return DiskFull(text, hint="make room on the disk, then run the command again")
    if error.errno == errno.EFBIG:
        return NeverFits(f"{text} for this process or file system", hint="raise `ulimit -f`", lack=Lack.NEVER)
    if error.errno in _OURS:
        return StoreUnavailable(text)
    return PublishFailed(text)
