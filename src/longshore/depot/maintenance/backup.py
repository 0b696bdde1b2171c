"""Backup and restore of ledger and store together, while workers run.

The ledger's snapshot is taken first, the files after it: every blob that the snapshot names was published before, so
the files of a backup are never older than its rows. A second backup to the same place copies only new blobs.

A backup is as private as the depot, from its first byte: it has the same URLs and hashes of tokens. The note is written
first and identifies the directory, so that an interrupted backup can continue and a foreign directory is left alone.

The ledger is only copied, never opened by its schema: a backup before `migrate` works. The configuration and the archives
of purged jobs are copied, too. A restored configuration that names a ledger or a store elsewhere is put beside, because
the restored depot has both inside.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tomllib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from longshore import failpoints
from longshore.config import CONFIG_FILE
from longshore.config.load import check_place
from longshore.depot.maintenance.retention import ARCHIVE
from longshore.domain.model import Scope
from longshore.errors import (
    BadInput,
    BlobDamaged,
    Damaged,
    NoDepot,
    NotFound,
    PublishFailed,
)
from longshore.ledger.maintenance import snapshot
from longshore.store import LocalStore, blob_names
from longshore.store.durability import filesystem
from longshore.store.verify_blob import problem_with

if TYPE_CHECKING:
    from longshore.domain.settings import Settings
    from longshore.store import Store

log = logging.getLogger(__name__)
LEDGER: Final = "ledger.db"
STORE: Final = "store"
NOTE: Final = "backup.json"
FORM: Final = 1  # format version of a backup, in its note
_UNBORN_NOTE: Final = NOTE + ".new"
_WHERE_TO: Final = "name an empty directory or an earlier backup"
_CHUNK: Final = 1 << 20
failpoints.declare("backup.ledger", "backup.blob", "backup.end", "restore.ledger", "restore.blob", "restore.end")


@dataclass(slots=True)
class BackupResult:
    """What a backup or a restore copied, and what it could not copy."""

    blobs: int = 0
    bytes: int = 0
    there: int = 0  # from an earlier backup
    missing: int = 0  # rows whose blob is missing
    damaged: int = 0  # rows whose blob is damaged
    problems: list[tuple[str, str]] = field(default_factory=list)  # SHA-256 and problem
    revoked: int = 0  # tokens of a restored ledger
    drift: list[str] = field(default_factory=list)  # differences of its schema, where the caller allows them

    def lost(self, sha256: str, *, damaged: bool) -> None:
        """Count a blob that could not be copied."""
        self.damaged += damaged
        self.missing += not damaged
        self.problems.append((sha256, "damaged" if damaged else "missing"))


def backup(
    ledger: Path,
    open_store: Callable[[Path], Store],
    target: Path,
    *,
    now: int,
    depot: Path,
    outside: Sequence[Path] = (),
    note: Callable[[BackupResult], None] | None = None,
) -> BackupResult:
    """Copy a consistent pair to a directory; it can be repeated, and resumes where it stopped.

    The target must be outside the depot, and empty or an earlier backup. `open_store` opens the store of the snapshot at
    a path.
    """
    if not ledger.exists():
        raise NoDepot(f"no ledger at {ledger}")
    _claim(target, outside)
    snapshot.take(ledger, target / "ledger.new")
    failpoints.hit("backup.ledger")
    copied = BackupResult()
    with closing(open_store(target / "ledger.new")) as store:
        for scope, sha256, size, pointer in snapshot.blobs(target / "ledger.new"):
            _copy_blob(store, scope, sha256, size, pointer, target / STORE / pointer, copied)
            failpoints.hit("backup.blob")
            if note is not None:
                note(copied)
    _copy_plain(depot / CONFIG_FILE, target / CONFIG_FILE)
    for archive in sorted((depot / ARCHIVE).glob("*")):
        _copy_plain(archive, target / ARCHIVE / archive.name)
    os.sync()
    os.replace(target / "ledger.new", target / LEDGER)
    body = {"made_at": now, "blobs": copied.blobs + copied.there, "missing": copied.missing, "damaged": copied.damaged}
    _write_note(target, body)
    failpoints.hit("backup.end")
    return copied


def restore(
    source: Path,
    depot: Path,
    settings: Settings,
    *,
    now: int,
    keep_tokens: bool = False,
    allow_drift: bool = False,
    note: Callable[[BackupResult], None] | None = None,
) -> BackupResult:
    """Restore a backup into a directory without a depot; the ledger comes last, so a partial restore is not a depot.

    Tokens are revoked unless `keep_tokens`: the backup may be older than a revocation. A schema that the program would not
    make is refused unless `allow_drift`: a trigger in it would run in the new depot.
    """
    _check_source(source)
    if (depot / LEDGER).exists():
        raise BadInput(f"a depot exists at {depot}", hint="restore into an empty directory: name it with --depot")
    snapshot.check(source / LEDGER)
    drift = _checked_schema(source / LEDGER, allow_drift=allow_drift)
    owner = snapshot.ledger_id(source / LEDGER)
    LocalStore(
        depot / STORE, settings, ledger_id=owner
    ).close()  # the store is initialized before a ledger refers to it
    copied = BackupResult(drift=drift)
    for scope, sha256, size, pointer in snapshot.blobs(source / LEDGER):
        _check_pointer(scope, sha256, pointer)
        found = source / STORE / pointer
        if found.is_file() and not _leads_through_link(source / STORE, pointer):
            _copy_file(found, depot / STORE / pointer, sha256, size, copied)
        else:
            copied.lost(sha256, damaged=False)
        failpoints.hit("restore.blob")
        if note is not None:
            note(copied)
    _copy_plain(source / CONFIG_FILE, depot / _config_name(source / CONFIG_FILE))
    for archive in sorted((source / ARCHIVE).glob("*")):
        _copy_plain(archive, depot / ARCHIVE / archive.name)
    os.sync()
    with open(source / LEDGER, "rb") as ledger, filesystem.create_private(depot / "ledger.new") as out:
        shutil.copyfileobj(ledger, out, _CHUNK)
    if not keep_tokens:
        copied.revoked = snapshot.revoke_tokens(depot / "ledger.new", now)
    failpoints.hit("restore.ledger")
    os.sync()
    os.replace(depot / "ledger.new", depot / LEDGER)
    failpoints.hit("restore.end")
    return copied


def _claim(target: Path, outside: Sequence[Path]) -> None:
    """Check that a directory may be used for a backup, and write the note."""
    check_place("backup", str(target))
    place = target.resolve()
    for inside in outside:
        if place.is_relative_to(inside.resolve()):
            raise BadInput(
                f"{target} is inside the depot that is to be copied ({inside})",
                hint="name a directory outside of the depot",
            )
    if target.exists() and not target.is_dir():
        raise BadInput(f"{target} is not a directory", hint=_WHERE_TO)
    filesystem.make_root(target)
    if _is_backup(target):
        return
    if foreign := sorted(set(os.listdir(target)) - {_UNBORN_NOTE}):
        raise BadInput(f"{target} holds something else: {foreign[0]}", hint=_WHERE_TO)
    _write_note(target, {})


def _checked_schema(ledger: Path, *, allow_drift: bool) -> list[str]:
    if (found := snapshot.drift(ledger)) and not allow_drift:
        raise Damaged(
            f"the ledger of this backup has another schema than the program makes: {'; '.join(found[:10])}",
            hint="if you made these changes yourself, restore with --allow-drift; nothing was restored",
        )
    return found


def _check_pointer(scope: Scope, sha256: str, pointer: str) -> None:
    """Raise `Damaged` unless a pointer is the name of this blob: another name could be one of the store's own files."""
    try:
        sound = blob_names.parse(scope, pointer).sha256 == sha256
    except NotFound:
        sound = False
    if not sound:
        raise Damaged(f"a pointer of the ledger in this backup is not the name of a blob: {pointer[:80]!r}")


def _leads_through_link(root: Path, pointer: str) -> bool:
    pieces = pointer.split("/")
    return any(os.path.islink(root / "/".join(pieces[:n])) for n in range(len(pieces) + 1))


def _check_source(source: Path) -> None:
    check_place("backup", str(source))
    if not _is_backup(source):
        raise BadInput(f"{source} is not a backup", hint="name a directory that `longshore backup` wrote")
    if not (source / LEDGER).exists():
        raise BadInput(f"the backup at {source} stopped before its end", hint="run `longshore backup` to it again")


def _is_backup(directory: Path) -> bool:
    """Return whether a directory has a valid backup note."""
    try:
        note = json.loads((directory / NOTE).read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
        return False
    return isinstance(note, dict) and note.get("longshore_backup") == FORM


def _write_note(target: Path, facts: dict[str, int]) -> None:
    with filesystem.create_private(target / _UNBORN_NOTE) as out:
        out.write(json.dumps({"longshore_backup": FORM, **facts}).encode())
        out.flush()
        os.fsync(out.fileno())
    os.replace(target / _UNBORN_NOTE, target / NOTE)
    filesystem.fsync_path(target)


def _copy_plain(source: Path, target: Path) -> None:
    """Copy a plain file, if there is one, under its final name only when it is whole."""
    if not source.is_file() or source.is_symlink():
        return
    filesystem.make_root(target.parent)
    temporary = target.with_name(f".{target.name}.new")
    with open(source, "rb") as file, filesystem.create_private(temporary) as out:
        shutil.copyfileobj(file, out, _CHUNK)
    os.replace(temporary, target)


def _config_name(config: Path) -> str:
    """Return the name for a restored configuration: one that names a ledger or a store elsewhere must not be read."""
    try:
        places = tomllib.loads(config.read_text("utf-8")).keys() & {"ledger", "store"}
    except (FileNotFoundError, ValueError):
        places = set()
    return f"{CONFIG_FILE}.from-backup" if places else CONFIG_FILE


def _copy_blob(
    store: Store, scope: Scope, sha256: str, size: int, pointer: str, target: Path, copied: BackupResult
) -> None:
    if _is_there(target, sha256, size, copied):
        return
    try:
        with store.open(scope, pointer) as source:
            _write_blob(source, target, sha256, copied)
    except NotFound:
        copied.lost(sha256, damaged=False)
    except (PublishFailed, BlobDamaged):  # not a file, or unreadable
        copied.lost(sha256, damaged=True)


def _copy_file(found: Path, target: Path, sha256: str, size: int, copied: BackupResult) -> None:
    if _is_there(target, sha256, size, copied):
        return
    with open(found, "rb", buffering=0) as source:
        _write_blob(source, target, sha256, copied)


def _is_there(target: Path, sha256: str, size: int, copied: BackupResult) -> bool:
    """Return whether an earlier run wrote these bytes; the file is read and hashed."""
    try:
        with open(target, "rb", buffering=0) as file:
            sound = problem_with(file, sha256, size) is None
    except OSError:  # not there, or unreadable: written anew
        return False
    copied.there += sound
    if not sound:
        log.warning("%s is damaged; it is written again", target)
    return sound


def _write_blob(source: object, target: Path, sha256: str, copied: BackupResult) -> None:
    """Copy while hashing; rename only verified bytes into place."""
    filesystem.make_root(target.parent)
    temporary = target.with_name(f".{target.name}.new")
    digest, size = hashlib.sha256(), 0
    with filesystem.create_private(temporary) as out:
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
