"""Quarantine: blobs and bodies that are damaged, unreferenced or rejected, each with a note beside it."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator
from typing import Any, Final

from longshore import failpoints
from longshore.domain.model import Scope
from longshore.store import blob_names
from longshore.store.durability import filesystem
from longshore.store.records import Quarantined
from longshore.store.staging.parts import Part

MOST_BODIES: Final = 200  # kept for inspection; the oldest are removed first
LARGEST_BODY: Final = 64 << 20
_BODY: Final = "body."
failpoints.declare("quarantine.note", "quarantine.rename", "quarantine.restore")


class Quarantine:
    """A directory of the staging area."""

    def __init__(self, directory: int) -> None:
        self._fd = directory

    def take(
        self, scope: Scope, name: str, parent: int, *, why: str, pointer: str | None = None, at: int | None = None
    ) -> str:
        """Move a file to quarantine. With `pointer` it can be restored."""
        target = f"{name}.{uuid.uuid4().hex[:12]}"
        self._write_note(target, {"scope": list(scope), "pointer": pointer, "why": why, "at": at or now_us()})
        failpoints.hit("quarantine.rename")
        os.rename(name, target, src_dir_fd=parent, dst_dir_fd=self._fd)
        os.fsync(self._fd)
        return target

    def keep_body(self, scope: Scope, job_id: str, epoch: int, body: bytes | Part, why: str) -> str | None:
        """Keep a body that failed validation, a part by a second link; the caller still disposes of the part."""
        size = len(body) if isinstance(body, bytes) else body.size_bytes
        if size > LARGEST_BODY:
            return None
        target = _BODY + uuid.uuid4().hex
        try:
            self._make_room()
            if isinstance(body, bytes):
                fd = os.open(target, filesystem.CREATE, 0o400, dir_fd=self._fd)
                try:
                    filesystem.write_all(fd, body)
                finally:
                    os.close(fd)
            else:
                body.link_to(target, self._fd)
            self._write_note(
                target, {"scope": list(scope), "job_id": job_id, "epoch": epoch, "why": why, "at": now_us()}
            )
        except OSError:  # best effort: it never affects the job's outcome
            return None
        return target

    def _make_room(self) -> None:
        bodies = [name for name in os.listdir(self._fd) if name.startswith(_BODY) and not name.endswith(".json")]
        if len(bodies) < MOST_BODIES:
            return
        oldest = min(bodies, key=lambda name: os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mtime_ns)
        self._remove(oldest)

    def _write_note(self, target: str, note: dict[str, Any]) -> None:
        failpoints.hit("quarantine.note")
        fd = os.open(target + ".json", filesystem.CREATE, 0o600, dir_fd=self._fd)
        try:
            filesystem.write_all(fd, json.dumps(note).encode())
            os.fsync(fd)
        finally:
            os.close(fd)

    def _read_note(self, name: str) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            with filesystem.open_regular(name + ".json", self._fd) as file:
                note = json.loads(file.read(1 << 16))
                if isinstance(note, dict):
                    return note
        return {}

    def everything(self) -> Iterator[Quarantined]:
        """Yield every quarantined item that has a note."""
        for name in sorted(os.listdir(self._fd)):
            if name.endswith(".json"):
                continue
            note = self._read_note(name)
            with contextlib.suppress(KeyError, TypeError, ValueError, FileNotFoundError):
                size = os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_size
                sha256 = name[:64] if blob_names.is_blob(name[:64]) else None
                why = str(note.get("why", ""))
                yield Quarantined(Scope(*note["scope"]), name, sha256, size, int(note["at"]), why)

    def pointer_of(self, scope: Scope, name: str) -> str | None:
        """Return the original pointer of a quarantined item of this scope; None if it is missing."""
        note = self._read_note(name) if "/" not in name else {}
        pointer = note.get("pointer")
        ours = note.get("scope") == list(scope) and isinstance(pointer, str)
        return pointer if ours and name in os.listdir(self._fd) else None

    def give_back(self, name: str, file: str, directory: int) -> None:
        """Restore an item under its old name, unless that name is in use."""
        failpoints.hit("quarantine.restore")
        try:
            os.link(name, file, src_dir_fd=self._fd, dst_dir_fd=directory, follow_symlinks=False)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in filesystem.NO_LINKS:
                raise
            if not filesystem.exists(file, directory):  # a race is harmless: the same name has the same bytes
                os.rename(name, file, src_dir_fd=self._fd, dst_dir_fd=directory)

    def forget(self, scope: Scope, name: str) -> None:
        """Remove an item of this scope permanently."""
        if "/" not in name and self._read_note(name).get("scope") == list(scope):
            self._remove(name)

    def _remove(self, name: str) -> None:
        """Remove an item, then its note: an item without a note would never be removed."""
        for one in (name, name + ".json"):
            filesystem.remove_tree(one, self._fd)


def now_us() -> int:
    """Return the wall-clock time in microseconds."""
    return time.time_ns() // 1000
