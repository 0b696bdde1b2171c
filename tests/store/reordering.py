"""A model of what a file system may keep after a crash, by the letter of POSIX and no better.

Record the calls of a run; then, for every moment of it, every call that no barrier covered yet may or may not have
reached the disk, in any combination. `states` rebuilds each such disk. A file's bytes are covered by fsync of the file
or syncfs; a name is covered by fsync of its directory or syncfs, and by nothing else.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from longshore.store.durability import filesystem

MOST = 11  # uncovered calls of which every combination is tried; beyond it none, all, each alone, each missing, pairs


@dataclass(frozen=True)
class Call:
    kind: str  # name | unname | write | cut
    inode: int  # of the file
    directory: int = 0
    name: str = ""
    offset: int = 0
    data: bytes = b""
    size: int = 0
    moved_from: tuple[int, str] | None = None


@dataclass
class Trace:
    """Calls, barriers and promises in the order in which they happened."""

    root: int
    events: list[tuple[str, Any]] = field(default_factory=list)

    def call(self, **facts: Any) -> None:
        self.events.append(("call", Call(**facts)))

    def promise(self, what: Any) -> None:
        self.events.append(("promise", what))


@dataclass
class Disk:
    """What is there after the crash: directories by inode, bytes by inode."""

    names: dict[int, dict[str, int]]
    bytes_of: dict[int, bytearray]
    root: int

    def read(self, path: str) -> bytes | None:
        inode = self.root
        for name in path.split("/"):
            found = self.names.get(inode, {}).get(name)
            if found is None:
                return None
            inode = found
        return bytes(self.bytes_of.get(inode, b""))

    def files(self, inode: int | None = None, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        inode = self.root if inode is None else inode
        for name, child in self.names.get(inode, {}).items():
            if child in self.names:
                yield from self.files(child, f"{prefix}{name}/")
            else:
                yield prefix + name, bytes(self.bytes_of.get(child, b""))


def record(monkeypatch: pytest.MonkeyPatch, root: str) -> Trace:
    """Listen to every call of this process that changes a file system."""
    trace = Trace(os.stat(root).st_ino)
    _patch_names(monkeypatch, trace)
    _patch_bytes(monkeypatch, trace)
    return trace


def _inode(fd: int | None) -> int:
    assert fd is not None, "the store works with directory descriptors"
    return os.fstat(fd).st_ino


def _patch_names(monkeypatch: pytest.MonkeyPatch, trace: Trace) -> None:
    real_open, real_mkdir, real_link = os.open, os.mkdir, os.link
    real_unlink, real_rename, real_rmdir = os.unlink, os.rename, os.rmdir

    def _open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        fd = real_open(path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_CREAT and flags & os.O_EXCL:
            trace.call(kind="name", inode=_inode(fd), directory=_inode(dir_fd), name=path)
        return fd

    def _mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        real_mkdir(path, mode, dir_fd=dir_fd)
        inode = os.stat(path, dir_fd=dir_fd).st_ino
        trace.call(kind="name", inode=inode, directory=_inode(dir_fd), name=path, size=-1)

    def _link(src: Any, dst: Any, **where: Any) -> None:
        real_link(src, dst, **where)
        inode = os.stat(dst, dir_fd=where["dst_dir_fd"], follow_symlinks=False).st_ino
        trace.call(kind="name", inode=inode, directory=_inode(where["dst_dir_fd"]), name=dst)

    def _unlink(path: Any, *, dir_fd: int | None = None) -> None:
        real_unlink(path, dir_fd=dir_fd)
        trace.call(kind="unname", inode=0, directory=_inode(dir_fd), name=path)

    def _rmdir(path: Any, *, dir_fd: int | None = None) -> None:
        real_rmdir(path, dir_fd=dir_fd)
        trace.call(kind="unname", inode=0, directory=_inode(dir_fd), name=path)

    def _rename(src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        inode = os.stat(src, dir_fd=src_dir_fd, follow_symlinks=False).st_ino
        real_rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        moved = (_inode(src_dir_fd), src)
        trace.call(kind="name", inode=inode, directory=_inode(dst_dir_fd), name=dst, moved_from=moved)

    for name, stand_in in {
        "open": _open,
        "mkdir": _mkdir,
        "link": _link,
        "unlink": _unlink,
        "rmdir": _rmdir,
        "rename": _rename,
    }.items():
        monkeypatch.setattr(os, name, stand_in)


def _patch_bytes(monkeypatch: pytest.MonkeyPatch, trace: Trace) -> None:
    real_pwrite, real_cut, real_fsync, real_syncfs = os.pwrite, os.ftruncate, os.fsync, filesystem.syncfs

    def _pwrite(fd: int, data: Any, offset: int) -> int:
        done = real_pwrite(fd, data, offset)
        trace.call(kind="write", inode=_inode(fd), offset=offset, data=bytes(data[:done]))
        return done

    def _cut(fd: int, size: int) -> None:
        real_cut(fd, size)
        trace.call(kind="cut", inode=_inode(fd), size=size)

    def _fsync(fd: int) -> None:
        inode = _inode(fd)
        real_fsync(fd)
        trace.events.append(("fsync", inode))

    def _syncfs(fd: int) -> None:
        real_syncfs(fd)
        trace.events.append(("syncfs", None))

    monkeypatch.setattr(os, "pwrite", _pwrite)
    monkeypatch.setattr(os, "ftruncate", _cut)
    monkeypatch.setattr(os, "fsync", _fsync)
    monkeypatch.setattr(filesystem, "syncfs", _syncfs)


def _covered(call: Call, by: tuple[str, Any]) -> bool:
    if by[0] == "syncfs":
        return True
    if by[0] != "fsync":
        return False
    return bool(by[1] == (call.directory if call.kind in ("name", "unname") else call.inode))


def states(trace: Trace) -> Iterator[tuple[Disk, list[Any], str]]:
    """Give every disk that a crash may leave, what had been promised by then, and where in the trace it was."""
    for moment in range(1, len(trace.events) + 1):
        if moment < len(trace.events) and trace.events[moment - 1][0] == "call" and trace.events[moment][0] == "call":
            continue  # the next moment's combinations contain this one's
        past = trace.events[:moment]
        calls = [(index, event) for index, (kind, event) in enumerate(past) if kind == "call"]
        loose = [index for index, call in calls if not any(_covered(call, later) for later in past[index + 1 :])]
        promised = [what for kind, what in past if kind == "promise"]
        for lost in _choices(loose):
            kept = [call for index, call in calls if index not in lost]
            yield _replay(kept, trace.root), promised, f"event {moment}, lost {sorted(lost)}"


def _choices(loose: list[int]) -> Iterator[frozenset[int]]:
    if len(loose) <= MOST:
        for count in range(len(loose) + 1):
            yield from map(frozenset, itertools.combinations(loose, count))
        return
    everything = frozenset(loose)
    yield frozenset()
    yield everything
    for one in loose:
        yield frozenset([one])
        yield everything - {one}
    for pair in itertools.combinations(loose, 2):
        yield frozenset(pair)
        yield everything - set(pair)


def _replay(calls: list[Call], root: int) -> Disk:
    after = Disk({root: {}}, {}, root)
    handlers: dict[str, Callable[[Disk, Call], None]] = {
        "name": _do_name,
        "unname": _do_unname,
        "write": _do_write,
        "cut": _do_cut,
    }
    for call in calls:
        handlers[call.kind](after, call)
    return after


def _do_name(after: Disk, call: Call) -> None:
    if call.size == -1:
        after.names.setdefault(call.inode, {})
    after.names.setdefault(call.directory, {})[call.name] = call.inode
    if call.moved_from is not None:
        after.names.get(call.moved_from[0], {}).pop(call.moved_from[1], None)


def _do_unname(after: Disk, call: Call) -> None:
    after.names.get(call.directory, {}).pop(call.name, None)


def _do_write(after: Disk, call: Call) -> None:
    held = after.bytes_of.setdefault(call.inode, bytearray())
    if len(held) < call.offset + len(call.data):
        held.extend(bytes(call.offset + len(call.data) - len(held)))
    held[call.offset : call.offset + len(call.data)] = call.data


def _do_cut(after: Disk, call: Call) -> None:
    held = after.bytes_of.setdefault(call.inode, bytearray())
    del held[call.size :]
    held.extend(bytes(call.size - len(held)))
