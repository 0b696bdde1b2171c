"""Backup and restore of ledger and store together, while work goes on.

The ledger's snapshot is taken first, the files after it: whatever the snapshot names was published before, so the files
of a backup are never older than its rows. A second backup to the same place only copies what is new.

A backup is as private as the depot, from its first byte: it has the same URLs and hashes of tokens. The note comes first and
says whose directory this is, so that one which stopped half-way can go on and a foreign one is left alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from longshore import failpoints
from longshore.config.load import check_place
from longshore.domain.model import Scope
from longshore.errors import BadInput, BlobDamaged, Damaged, NoDepot, NotFound, PublishFailed
from longshore.store import LocalStore, disk
from longshore.store.proof import problem_with

if TYPE_CHECKING:
    from longshore.store import Store, StoreSettings

log = logging.getLogger(__name__)
LEDGER: Final = "ledger.db"
STORE: Final = "store"
NOTE: Final = "backup.json"
FORM: Final = 1  # of a backup, as its note says
_UNBORN_NOTE: Final = NOTE + ".new"
_WHERE_TO: Final = "name an empty directory or an earlier backup"
_CHUNK: Final = 1 << 20
_BLOBS: Final = "SELECT tenant_id, project_id, sha256, byte_size, storage_pointer FROM blobs"
failpoints.declare("backup.ledger", "backup.blob", "backup.end", "restore.ledger", "restore.blob", "restore.end")


@dataclass(slots=True)
class Copied:
    """What a backup or a restore moved, and what it could not."""

    blobs: int = 0
    bytes: int = 0
    there: int = 0  # from an earlier backup
    missing: int = 0  # rows whose bytes are gone
    damaged: int = 0  # rows whose bytes are others
    problems: list[tuple[str, str]] = field(default_factory=list)  # SHA-256 and what is wrong with it

    def lost(self, sha256: str, *, damaged: bool) -> None:
        """Count a blob that could not be copied."""
        self.damaged += damaged
        self.missing += not damaged
        self.problems.append((sha256, "damaged" if damaged else "missing"))


def backup(
    ledger: Path,
    store: Store,
    target: Path,
    *,
    now: int,
    outside: Sequence[Path] = (),
    note: Callable[[Copied], None] | None = None,
) -> Copied:
    """Copy a consistent pair to a directory; it can be repeated, and carries on where it stopped.

    The target must be outside of what is copied, and empty or an earlier backup.
    """
    if not ledger.exists():
        raise NoDepot(f"there is no ledger at {ledger}")
    _claim(target, outside)
    _snapshot(ledger, target / "ledger.new")
    failpoints.hit("backup.ledger")
    copied = Copied()
    for scope, sha256, size, pointer in _blobs(target / "ledger.new"):
        _copy_blob(store, scope, sha256, size, pointer, target / STORE / pointer, copied)
        failpoints.hit("backup.blob")
        if note is not None:
            note(copied)
    os.sync()
    os.replace(target / "ledger.new", target / LEDGER)
    body = {"made_at": now, "blobs": copied.blobs + copied.there, "missing": copied.missing, "damaged": copied.damaged}
    _write_note(target, body)
    failpoints.hit("backup.end")
    return copied


def restore(
    source: Path, depot: Path, settings: StoreSettings, *, note: Callable[[Copied], None] | None = None
) -> Copied:
    """Bring a backup back into a directory that has no depot yet; the ledger comes last, so a half restore is none."""
    _check_source(source)
    if (depot / LEDGER).exists():
        raise BadInput(f"there is a depot at {depot}", hint="restore into an empty directory: name it with --depot")
    _check(source / LEDGER)
    LocalStore(depot / STORE, settings).close()  # begun, with all its marks, before a ledger says that it has something
    copied = Copied()
    for _, sha256, size, pointer in _blobs(source / LEDGER):
        found = source / STORE / pointer
        if found.is_file() and not found.is_symlink():
            _copy_file(found, depot / STORE / pointer, sha256, size, copied)
        else:
            copied.lost(sha256, damaged=False)
        failpoints.hit("restore.blob")
        if note is not None:
            note(copied)
    os.sync()
    with open(source / LEDGER, "rb") as ledger, disk.create_private(depot / "ledger.new") as out:
        shutil.copyfileobj(ledger, out, _CHUNK)
    failpoints.hit("restore.ledger")
    os.sync()
    os.replace(depot / "ledger.new", depot / LEDGER)
    failpoints.hit("restore.end")
    return copied


def _claim(target: Path, outside: Sequence[Path]) -> None:
    """Make sure that a directory is ours to write a backup to, and say so in it."""
    check_place("backup", str(target))
    place = target.resolve()
    for inside in outside:
        if place.is_relative_to(inside.resolve()):
            raise BadInput(
                f"{target} is inside of what is to be copied ({inside})", hint="name a directory outside of the depot"
            )
    if target.exists() and not target.is_dir():
        raise BadInput(f"{target} is not a directory", hint=_WHERE_TO)
    disk.make_root(target)
    if _is_backup(target):
        return
    if foreign := sorted(set(os.listdir(target)) - {_UNBORN_NOTE}):
        raise BadInput(f"{target} holds something else: {foreign[0]}", hint=_WHERE_TO)
    _write_note(target, {})


def _check_source(source: Path) -> None:
    check_place("backup", str(source))
    if not _is_backup(source):
        raise BadInput(f"{source} is no backup", hint="name a directory that `longshore backup` wrote")
    if not (source / LEDGER).exists():
        raise BadInput(f"the backup at {source} stopped before its end", hint="run `longshore backup` to it again")


def _is_backup(directory: Path) -> bool:
    """Tell whether the note of a backup is there and says what it should."""
    try:
        note = json.loads((directory / NOTE).read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
        return False
    return isinstance(note, dict) and note.get("longshore_backup") == FORM


def _write_note(target: Path, facts: dict[str, int]) -> None:
    with disk.create_private(target / _UNBORN_NOTE) as out:
        out.write(json.dumps({"longshore_backup": FORM, **facts}).encode())
        out.flush()
        os.fsync(out.fileno())
    os.replace(target / _UNBORN_NOTE, target / NOTE)
    disk.fsync_path(target)


def _snapshot(ledger: Path, target: Path) -> None:
    """Copy the ledger as it stands at one moment, writers going on."""
    import apsw

    from longshore.ledger.connection import is_frozen
    from longshore.ledger.frozen import open_frozen

    disk.create_private(target).close()  # SQLite gives its journal the same mode
    if is_frozen(ledger):
        source = open_frozen(ledger)
    else:
        source = apsw.Connection(str(ledger), flags=apsw.SQLITE_OPEN_READONLY)
        source.set_busy_timeout(60_000)
    copy = apsw.Connection(str(target))
    try:
        with copy.backup("main", source, "main") as work:
            while not work.done:
                work.step(4_096)
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, complete in itself
    except apsw.Error as error:
        raise Damaged(f"the ledger cannot be copied: {error}") from error
    finally:
        copy.close()
        source.close()


def _check(ledger: Path) -> None:
    import apsw

    connection = apsw.Connection(str(ledger), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        if (found := connection.execute("PRAGMA quick_check(1)").get) != "ok":
            raise Damaged(f"the ledger of this backup is damaged: {found}")
    except apsw.Error as error:
        raise Damaged(f"the ledger of this backup is damaged: {error}") from error
    finally:
        connection.close()


def _blobs(ledger: Path) -> Iterator[tuple[Scope, str, int, str]]:
    import apsw

    connection = apsw.Connection(str(ledger), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for tenant, project, sha256, size, pointer in connection.execute(_BLOBS):
            if pointer.startswith("/") or ".." in pointer.split("/"):
                raise Damaged("a pointer of this ledger leads out of the store")
            yield Scope(tenant, project), sha256, size, pointer
    finally:
        connection.close()


def _copy_blob(store: Store, scope: Scope, sha256: str, size: int, pointer: str, target: Path, copied: Copied) -> None:
    if _is_there(target, sha256, size, copied):
        return
    try:
        with store.open(scope, pointer) as source:
            _write_blob(source, target, sha256, copied)
    except NotFound:
        copied.lost(sha256, damaged=False)
    except (PublishFailed, BlobDamaged):  # not a file, or unreadable
        copied.lost(sha256, damaged=True)


def _copy_file(found: Path, target: Path, sha256: str, size: int, copied: Copied) -> None:
    if _is_there(target, sha256, size, copied):
        return
    with open(found, "rb", buffering=0) as source:
        _write_blob(source, target, sha256, copied)


def _is_there(target: Path, sha256: str, size: int, copied: Copied) -> bool:
    """Tell whether an earlier run wrote these very bytes; they are read, because a copy is kept for its bytes."""
    try:
        with open(target, "rb", buffering=0) as file:
            sound = problem_with(file, sha256, size) is None
    except OSError:  # not there, or unreadable: written anew
        return False
    copied.there += sound
    if not sound:
        log.warning("%s is damaged; it is written again", target)
    return sound


def _write_blob(source: object, target: Path, sha256: str, copied: Copied) -> None:
    """Copy while hashing; a name appears only for bytes that are right."""
    disk.make_root(target.parent)
    temporary = target.with_name(f".{target.name}.new")
    digest, size = hashlib.sha256(), 0
    with disk.create_private(temporary) as out:
        while piece := source.read(_CHUNK):  # type: ignore[attr-defined]
            digest.update(piece)
            out.write(piece)
            size += len(piece)
    if digest.hexdigest() != sha256:
        temporary.unlink()
        copied.lost(sha256, damaged=True)
        return
    os.chmod(temporary, 0o440)
    os.replace(temporary, target)
    copied.blobs += 1
    copied.bytes += size
