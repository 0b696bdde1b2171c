"""Place a blob outside the store (`-o`, `-d`): by reflink or copy, by hard link only on request.

The file appears atomically, replaces nothing unless overwriting is allowed, and never lies outside its directory. All
bytes are hashed before the name appears: a copy while it is written, a reflink in the new file, a hard link in the
blob. A blob that does not match its hash is quarantined and never placed.

The bytes are written to an unnamed file (O_TMPFILE), which vanishes with its process. If the file system does not
support O_TMPFILE, or a file must be replaced, a temporary name is used. Its file is locked while its process lives, so
that a later process can remove the leftovers of a killed one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal

from longshore import failpoints
from longshore.domain.model import Artifact, Scope
from longshore.errors import BadInput, BlobDamaged, Conflict, StoreError
from longshore.store import blob_names
from longshore.store.api import Store
from longshore.store.durability import filesystem
from longshore.store.verify_blob import proven_pieces

Mode = Literal["reflink", "copy", "hardlink"]
_TRIES: Final = 5
_TEMPORARY = re.compile(r"\.longshore-[0-9a-f]{32}\Z")
_NO_TMPFILE: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS})
_swept: set[tuple[int, int]] = set()  # directories that this process searched for leftovers of killed processes
failpoints.declare("place.write", "place.name", "place.replace", "place.sweep")


def place(
    store: Store,
    scope: Scope,
    pointer: str,
    target: Path,
    *,
    mode: Mode = "reflink",
    overwrite: bool = False,
    inside: Path | None = None,
) -> Literal["reflink", "copy", "hardlink"]:
    """Place a blob at `target`, creating its directory if needed; return the mode that was used.

    No symbolic link between `inside` and the file is followed; `inside` itself may be one.
    """
    name = target.name
    if not name or name in (".", "..") or "\0" in name:
        raise BadInput(f"not a file name: {target}")
    fd = _open_directory(target, inside or target.parent)
    try:
        check_replaceable(target)
        _sweep(fd)
        return _place_at(store, scope, pointer, fd, name, mode, overwrite=overwrite)
    except BlobDamaged as damaged:
        raise _set_aside(store, scope, pointer, damaged) from None
    except FileExistsError:
        raise Conflict(
            f"{target} exists already", hint="choose another name, or allow overwriting (--overwrite)"
        ) from None
    except OSError as error:
        raise _refused(target, error) from error
    finally:
        os.close(fd)


def _open_directory(target: Path, inside: Path) -> int:
    """Create and open the directory of `target`: up to `inside` as it is named, below it without following links."""
    at = inside
    if not target.is_relative_to(inside) or ".." in target.relative_to(inside).parts:
        raise BadInput(f"{target} is not inside {inside}")
    try:
        inside.mkdir(parents=True, exist_ok=True)
        fd = os.open(inside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in target.parent.relative_to(inside).parts:
            at, above = at / part, fd
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=above)
                    os.fsync(above)
                fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
            finally:
                os.close(above)
    except (FileExistsError, NotADirectoryError) as error:
        check_no_links(target, inside)
        raise BadInput(f"{at} is not a directory", hint="name another with -d, or a file with -o") from error
    except OSError as error:
        raise _refused(target, error) from error
    return fd


def check_no_links(target: Path, inside: Path) -> None:
    """Raise `BadInput` if a directory between `inside` and `target` is a symbolic link: it may lead anywhere."""
    for above in target.parents:
        if above == inside:
            return
        if above.is_symlink():
            raise BadInput(f"{above} is a symbolic link, which is not followed", hint="remove it, or name another -d")


def is_same(target: Path, artifact: Artifact, inside: Path | None = None) -> bool:
    """Return whether the file exists and has these bytes, so that a repeated command has nothing to do.

    A file that is reached by a symbolic link below `inside` is not counted.
    """
    try:
        check_no_links(target, inside or target.parent)
        if target.is_symlink() or not target.is_file() or target.stat().st_size != artifact.size_bytes:
            return False
        with target.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == artifact.sha256
    except (BadInput, OSError):
        return False


def check_replaceable(target: Path) -> None:
    """Raise `BadInput` if `target` exists and is neither a regular file nor a link to one: it is never replaced."""
    try:
        kind = os.stat(target, follow_symlinks=False).st_mode
        if stat.S_ISLNK(kind):
            kind = os.stat(target).st_mode  # the link itself is replaced; /dev/stdout is a link, too
    except OSError:
        return
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise BadInput(
            f"{target} is not a plain file", hint="`-o -` writes to stdout; for anything else name a new file"
        )


def _set_aside(store: Store, scope: Scope, pointer: str, damaged: BlobDamaged) -> BlobDamaged:
    size_bytes = 0
    with contextlib.suppress(BlobDamaged), store.open(scope, pointer) as file:
        size_bytes = file.seek(0, os.SEEK_END)
    aside = store.set_aside(scope, pointer, damaged.sha256, size_bytes, "placing: wrong_hash")
    return BlobDamaged(damaged.sha256, aside=aside is not None)


def _refused(target: Path, error: OSError) -> StoreError:
    return filesystem.typed(error, f"writing {target}")


def _place_at(
    store: Store, scope: Scope, pointer: str, directory: int, name: str, mode: Mode, *, overwrite: bool
) -> Mode:
    if not overwrite and filesystem.exists(name, directory):
        raise FileExistsError(name)  # before gigabytes are copied; the link below decides
    sha256 = blob_names.parse(scope, pointer).sha256
    failpoints.hit("place.write")
    with store.open(scope, pointer) as blob:
        local = store.path(scope, pointer) is not None
        if mode == "hardlink" and local:
            _prove(blob.fileno(), sha256)
            with contextlib.suppress(OSError):
                _name_it(blob.fileno(), name, directory, overwrite=overwrite)
                return "hardlink"
            if not overwrite and filesystem.exists(name, directory):
                raise FileExistsError(name)
            blob.seek(0)
        with _file(directory) as (target, temporary):
            done = _fill(blob, target, sha256, reflink=mode != "copy" and local)
            os.fsync(target)
            _name_it(target, name, directory, temporary, overwrite=overwrite)
    return done


def _fill(blob: BinaryIO, target: int, sha256: str, *, reflink: bool) -> Mode:
    """Fill a new file with a blob's bytes and verify their hash."""
    if reflink and filesystem.reflink(target, blob.fileno()):
        _prove(target, sha256)
        return "reflink"
    at = 0
    for piece in proven_pieces(blob, sha256):
        filesystem.write_all(target, piece, at)
        at += len(piece)
    return "copy"


def _prove(fd: int, sha256: str) -> None:
    """Raise `BlobDamaged` unless the contents of an open file have the given hash."""
    with open(fd, "rb", buffering=0, closefd=False) as file:
        file.seek(0)
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise BlobDamaged(sha256)


@contextlib.contextmanager
def _file(directory: int) -> Iterator[tuple[int, str | None]]:
    """Create the file to fill: an unnamed one if possible, otherwise a locked one with a temporary name."""
    fd, temporary = _unnamed(directory), None
    if fd is None:
        fd, temporary = _locked(directory)
    try:
        yield fd, temporary
    finally:
        os.close(fd)
        if temporary is not None:
            filesystem.unlink(temporary, directory)


def _unnamed(directory: int) -> int | None:
    try:
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666, dir_fd=directory)
    except OSError as error:
        if error.errno in _NO_TMPFILE:
            return None
        raise
    if os.path.exists(f"/proc/self/fd/{fd}"):
        return fd
    os.close(fd)  # without /proc it cannot be linked to a name
    return None


def _locked(directory: int) -> tuple[int, str]:
    for _ in range(_TRIES):
        name = _new_name()
        fd = os.open(name, filesystem.CREATE, 0o666, dir_fd=directory)
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if filesystem.exists(name, directory):  # not swept away between the two
                return fd, name
        os.close(fd)
    raise StoreError("the temporary file is removed repeatedly")


def _name_it(fd: int, name: str, directory: int, temporary: str | None = None, *, overwrite: bool) -> None:
    """Link an open file to its name, durably; an existing file is kept or replaced atomically."""
    failpoints.hit("place.name")
    if overwrite:
        _replace(fd, name, directory, temporary)
    elif temporary is None:
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=directory, follow_symlinks=True)
    else:
        _name_temporary(temporary, name, directory)
    os.fsync(directory)


def _replace(fd: int, name: str, directory: int, temporary: str | None) -> None:
    for left in reversed(range(_TRIES)):
        held = temporary or _new_name()
        if temporary is None:
            os.link(f"/proc/self/fd/{fd}", held, dst_dir_fd=directory, follow_symlinks=True)
        try:
            failpoints.hit("place.replace")
            os.rename(held, name, src_dir_fd=directory, dst_dir_fd=directory)
        except FileNotFoundError:  # another process removed it as a leftover of a killed process
            if temporary is not None or not left:
                raise
        else:
            return
        finally:
            if temporary is None:
                filesystem.unlink(held, directory)  # rename does nothing if both names are links to one file


def _name_temporary(temporary: str, name: str, directory: int) -> None:
    try:
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in filesystem.NO_LINKS:
            raise
        try:
            filesystem.rename_noreplace(temporary, directory, name, directory)
        except OSError as refused:
            if refused.errno not in filesystem.NO_NOREPLACE:
                raise
            raise StoreError(
                "this file system has neither links nor renames that replace nothing",
                hint="allow overwriting (--overwrite), or name another place",
            ) from refused


def _sweep(directory: int) -> None:
    """Remove the temporary files of killed processes, once per directory."""
    place = os.fstat(directory)
    if (place.st_dev, place.st_ino) in _swept:
        return
    _swept.add((place.st_dev, place.st_ino))
    for name in filter(_TEMPORARY.match, os.listdir(directory)):
        with contextlib.suppress(OSError):
            _remove_if_left(name, directory)


def _remove_if_left(name: str, directory: int) -> None:
    """Remove a temporary file if this user owns it and no process holds its lock."""
    fd = os.open(name, filesystem.READ | os.O_NONBLOCK, dir_fd=directory)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        failpoints.hit("place.sweep")
        os.unlink(name, dir_fd=directory)
    finally:
        os.close(fd)


def _new_name() -> str:
    return f".longshore-{uuid.uuid4().hex}"
