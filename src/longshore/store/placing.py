"""Giving a blob a second name outside the store (`-o`, `-d`): a reflink or a copy, a hard link only on request.

The name appears whole or not at all, never replaces anything unless told, and never lies outside its directory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal

from longshore import failpoints
from longshore.domain.model import Scope
from longshore.errors import BadInput, Conflict, StoreError
from longshore.store import disk
from longshore.store.contract import Store

Mode = Literal["reflink", "copy", "hardlink"]
_COPY_BYTES: Final = 1 << 20
failpoints.declare("place.write", "place.name")


def place(
    store: Store, scope: Scope, pointer: str, target: Path, *, mode: Mode = "reflink", overwrite: bool = False
) -> Literal["reflink", "copy", "hardlink"]:
    """Put a blob at `target`, whose directory is made if missing; say how it was done."""
    directory, name = target.parent, target.name
    if not name or name in (".", "..") or "\0" in name:
        raise BadInput(f"not a file name: {target}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileExistsError, NotADirectoryError) as error:
        raise BadInput(f"{directory} is no directory", hint="name another with -d, or a file with -o") from error
    except OSError as error:
        raise _refused(target, error) from error
    try:
        return _place_at(store, scope, pointer, fd, name, mode, overwrite=overwrite)
    except FileExistsError:
        raise Conflict(
            f"{target} exists already", hint="choose another name, or allow overwriting (--overwrite)"
        ) from None
    except OSError as error:
        raise _refused(target, error) from error
    finally:
        os.close(fd)


def _refused(target: Path, error: OSError) -> StoreError:
    return disk.typed(error, f"writing {target}")


def _place_at(
    store: Store, scope: Scope, pointer: str, directory: int, name: str, mode: Mode, *, overwrite: bool
) -> Mode:
    if not overwrite and _exists(name, directory):
        raise FileExistsError(name)  # before gigabytes are copied; the link below decides
    with _temporary(directory) as temporary:
        done = _fill(store, scope, pointer, directory, temporary, mode)
        failpoints.hit("place.name")
        if overwrite:
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        else:
            _name_it(temporary, name, directory)
        os.fsync(directory)
    return done


def _name_it(temporary: str, name: str, directory: int) -> None:
    try:
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in disk.NO_LINKS:
            raise
        disk.rename_noreplace(temporary, directory, name, directory)


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def _temporary(directory: int) -> Iterator[str]:
    name = f".longshore-{uuid.uuid4().hex}"
    try:
        yield name
    finally:
        disk.unlink(name, directory)


def _fill(store: Store, scope: Scope, pointer: str, directory: int, temporary: str, mode: Mode) -> Mode:
    failpoints.hit("place.write")
    source = store.path(scope, pointer)
    if mode == "hardlink" and source is not None:
        with contextlib.suppress(OSError), store.open(scope, pointer) as file:
            os.link(f"/proc/self/fd/{file.fileno()}", temporary, dst_dir_fd=directory, follow_symlinks=True)
            return "hardlink"
    fd = os.open(temporary, disk.CREATE, 0o666, dir_fd=directory)
    with os.fdopen(fd, "wb") as target, store.open(scope, pointer) as file:
        if mode != "copy" and source is not None and disk.reflink(target.fileno(), file.fileno()):
            done: Mode = "reflink"
        else:
            _copy(file, target, local=source is not None)
            done = "copy"
        target.flush()
        os.fsync(target.fileno())
    return done


def _copy(source: BinaryIO, target: BinaryIO, *, local: bool) -> None:
    if local:
        with contextlib.suppress(OSError):
            while os.copy_file_range(source.fileno(), target.fileno(), 1 << 30):
                pass
            return
        source.seek(0)
        target.seek(0)
        target.truncate()
    shutil.copyfileobj(source, target, _COPY_BYTES)
