"""The common code of remote stores: parts are local files, blobs are remote objects whose key is their pointer.

An object is created atomically, and its name is its hash. So it does not need a temporary name, and writing the same
object twice is harmless. `stage` makes the parts durable locally; `link` uploads the objects.
"""

from __future__ import annotations

import io
import os
import re
import time
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol

from longshore import failpoints
from longshore.domain.model import Blob, Scope
from longshore.domain.settings import Settings
from longshore.errors import NotFound, PublishFailed, StoreError, StoreUnavailable
from longshore.store import blob_names
from longshore.store.api import Staged
from longshore.store.base_store import BaseStore, check_part, extension_of, note_barrier, tell_damaged
from longshore.store.durability import filesystem
from longshore.store.durability.barriers import Barriers
from longshore.store.hashed_scopes import ScopeNotes
from longshore.store.ownership import OWNER, claim_objects
from longshore.store.records import Problem, Quarantined, StoredBlob
from longshore.store.staging.area import Staging
from longshore.store.staging.parts import BODY, Part
from longshore.store.staging.quarantine import now_us
from longshore.store.verify_blob import problem_with

THREADS: Final = 16
READ_AHEAD: Final = 4 << 20
COUNT_AGAIN_S: Final = 60.0
QUARANTINE: Final = ".quarantine/"
WHY_BYTES: Final = 90  # limit of the reason in a quarantine key: some stores limit names to 255 bytes
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]{1,100}/[\w!#$&^.+-]{1,100}\Z", re.ASCII)
failpoints.declare("put.object", "put.done", "put.damaged", "delete.object")


class Found(NamedTuple):
    """An object in a listing."""

    key: str
    size_bytes: int
    modified_at: int


class Objects(Protocol):
    """The interface of a backend. Errors are `StoreError`; a missing object is None, False or `NotFound`."""

    backend: str

    def put(self, key: str, body: bytes | Part, content_type: str, *, aside: str | None = None) -> bool:
        """Create an object atomically and durably; return False if it exists.

        With `aside`, keep the existing object under that key and replace it: the original key never disappears.
        """

    def size(self, key: str) -> int | None:
        """Return an object's size."""

    def read(self, key: str, start: int, end: int) -> bytes:
        """Return a range of an object's bytes."""

    def list(self, prefix: str) -> Iterator[Found]:
        """Yield every object whose key begins with `prefix`, in order."""

    def move(self, key: str, target: str) -> bool:
        """Move an object to another key."""

    def delete(self, key: str) -> bool:
        """Remove an object."""

    def collect(self, older_than_s: float) -> int:
        """Remove leftovers of dead writers that no listing shows; return their number."""

    def close(self) -> None:
        """Release all resources."""


class ObjectFile(io.RawIOBase):
    """A readable file object over a remote object, with random access."""

    def __init__(self, size: int, read: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size = size
        self._read = read
        self._at = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read from the current position into a buffer."""
        end = min(self._size, self._at + len(buffer))
        if self._at >= end:
            return 0
        try:
            data = self._read(self._at, end)
        except NotFound:  # the object or a piece of it is missing: report an early end, which readers detect
            return 0
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class RemoteStore(BaseStore):
    """A store with remote blobs and local parts."""

    def __init__(self, objects: Objects, parts: Path, settings: Settings, ledger_id: str | None = None) -> None:
        self.objects = objects
        self.backend = objects.backend
        self.settings = settings
        self._to_claim = ledger_id
        try:
            self._claim()
        except StoreUnavailable:
            pass  # claimed before the first change
        except BaseException:
            objects.close()
            raise
        try:
            filesystem.make_root(parts)
            self._fd = os.open(parts, filesystem.DIRECTORY)
            self.staging = Staging(self._fd, ".staging", settings, self._count)
        except OSError as error:
            raise filesystem.typed(error, f"opening the parts at {parts}") from error
        self._barriers = Barriers(self._fd)
        self._pool = ThreadPoolExecutor(THREADS, "longshore-put")
        self._notes = ScopeNotes(objects.put, objects.read, objects.size)
        self._counted: dict[str, tuple[float, int]] = {}

    def _claim(self) -> None:
        """Claim the store for this ledger, once, before the first change."""
        if self._to_claim is None:
            return
        try:
            claim_objects(self.objects, self._to_claim)
        except NotFound as error:
            raise StoreUnavailable(f"{error}: the bucket or the table is missing") from None
        self._to_claim = None

    def stage(self, items: Sequence[Staged]) -> list[StoreError | None]:
        """Make the parts durable locally; a small body becomes durable when it is uploaded."""
        results = self.admitted(items, here=False)
        with self._barriers.open(0, "stage.barrier") as barrier:
            for index, item in enumerate(items):
                if results[index] is not None:
                    continue
                try:
                    blob_names.check_sha256(item.sha256)
                    if isinstance(item.body, Part):
                        check_part(item, item.body)
                        barrier.cover(item.body.fd)
                    elif len(item.body) != item.size_bytes:
                        raise PublishFailed("the body is not as long as was announced")
                    item.staged_as = BODY
                except StoreError as error:
                    results[index] = error
            try:
                barrier.wait()
            except OSError as error:
                self.clean(items)
                return [PublishFailed(f"the batch could not be made durable: {error.strerror}") for _ in items]
            note_barrier(items, barrier.elapsed_s)
        return results

    def link(self, items: Sequence[Staged]) -> list[Blob | StoreError]:
        """Upload the objects concurrently; verify and keep one that already exists."""
        return list(self._pool.map(self._link_one, items))

    def _link_one(self, item: Staged) -> Blob | StoreError:
        if item.staged_as is None:
            return PublishFailed("not staged")
        try:
            self._claim()
            place = blob_names.place(item.scope, item.sha256, extension_of(item), self.settings.shard.width)
            self._notes.keep(item.scope)
            held = self._put(place.pointer, item)
        except StoreError as error:
            return error
        except NotFound as error:
            return StoreUnavailable(f"{error}: the bucket or the table is missing")
        except OSError as error:
            return filesystem.typed(error, "reading a part")
        if not held:
            self._add_to_count(item.scope.tenant_id, item.size_bytes)
        return Blob(item.sha256, item.size_bytes, place.pointer, self.backend, item.content_type, held)

    def _put(self, key: str, item: Staged) -> bool:
        """Put one object; return True if the same bytes were already stored."""
        aside = None
        for _ in range(3):
            failpoints.hit("put.object")
            if self.objects.put(key, item.body, _plain_type(item.content_type), aside=aside):
                failpoints.hit("put.done")
                return False
            if self.objects.size(key) is None:
                continue  # removed in between
            problem = self._problem(item.scope, key, item.sha256, item.size_bytes)
            if problem is None:
                return True
            failpoints.hit("put.damaged")
            why = f"fresh bytes: {problem}"
            aside = QUARANTINE + _quarantine_name(key, None, why)
            tell_damaged(item.sha256, why, aside)
        raise StoreUnavailable(f"blob {item.sha256} could not be put: other processes are writing it")

    def set_aside(self, scope: Scope, pointer: str, sha256: str, size_bytes: int, why: str) -> str | None:
        """See `Store`. Read the moved object again: if it is intact, it had replaced the damaged one and is moved back.

        The hash decides: the size may be that of a truncated object that was replaced meanwhile.
        """
        found_bytes = self.objects.size(pointer)
        if found_bytes is None or self._problem(scope, pointer, sha256, found_bytes) in (None, Problem.MISSING):
            return None
        failpoints.hit("put.damaged")
        name = self.quarantine(scope, pointer, why)
        if name is None:
            return None
        moved = QUARANTINE + name
        size = self.objects.size(moved) or 0
        raw = ObjectFile(size, lambda start, end: self.objects.read(moved, start, end))
        if problem_with(io.BufferedReader(raw, READ_AHEAD), sha256, size) is None:
            self.restore(scope, name)
            return None
        tell_damaged(sha256, why, name)
        return name

    def clean(self, items: Sequence[Staged]) -> None:
        """Remove the parts, after the registering transaction or when it is abandoned."""
        for item in items:
            failpoints.hit("clean.unlink")
            if isinstance(item.body, Part):
                item.body.discard()
            item.staged_as = None

    def find(self, scope: Scope, sha256: str, content_type: str) -> Blob | None:
        """Find a blob by its hash."""
        wanted = blob_names.place(scope, blob_names.check_sha256(sha256), "", self.settings.shard.width).pointer
        found = next(self.objects.list(wanted), None)
        if found is None:
            return None
        return Blob(sha256, found.size_bytes, found.key, self.backend, content_type, deduplicated=True)

    def stat(self, scope: Scope, sha256: str) -> Blob | None:
        """Find a blob by its hash."""
        return self.find(scope, sha256, "application/octet-stream")

    def sizes(self, scope: Scope, pointers: Sequence[str]) -> list[int | None]:
        """Return the size of each blob, or None for a missing one."""

        def size(pointer: str) -> int | None:
            try:
                return self.objects.size(blob_names.parse(scope, pointer).pointer)
            except NotFound:
                return None

        return list(self._pool.map(size, pointers))

    def path(self, scope: Scope, pointer: str) -> Path | None:
        """Return None: a remote store does not have local files."""
        blob_names.parse(scope, pointer)
        return None

    def open(self, scope: Scope, pointer: str) -> BinaryIO:
        """Open a blob for reading, with random access."""
        place = blob_names.parse(scope, pointer)
        size = self.objects.size(place.pointer)
        if size is None:
            raise NotFound(f"blob {place.sha256} is not in the store")
        raw = ObjectFile(size, lambda start, end: self.objects.read(place.pointer, start, end))
        return io.BufferedReader(raw, READ_AHEAD)

    def walk(self) -> Iterator[StoredBlob]:
        """Yield every blob of every tenant."""
        self._claim()
        for found in self.objects.list(""):
            pieces = found.key.split("/")
            if found.key.startswith(".") or len(pieces) < 3 or not blob_names.is_blob(pieces[-1]):
                continue
            scope = self._notes.read(pieces[0], pieces[1])
            yield StoredBlob(scope, pieces[-1][:64], found.size_bytes, found.key, found.modified_at)

    def blank(self) -> bool:
        """Return whether the store has neither blobs nor traces of deleted ones."""
        return all(found.key == OWNER for found in islice(self.objects.list(""), 2))

    def remove(self, scope: Scope, pointer: str) -> bool:
        """Remove an unreferenced blob; return False if it was already gone."""
        self._claim()
        failpoints.hit("delete.object")
        try:
            return self.objects.delete(blob_names.parse(scope, pointer).pointer)
        except NotFound:
            return False

    def quarantine(self, scope: Scope, pointer: str, why: str, *, at: int | None = None) -> str | None:
        """Move a blob to quarantine and return its name there; None if it was gone."""
        self._claim()
        try:
            key = blob_names.parse(scope, pointer).pointer
        except NotFound:
            return None
        name = _quarantine_name(key, at, why)
        return name if self.objects.move(key, QUARANTINE + name) else None

    def quarantined(self) -> Iterator[Quarantined]:
        """Yield everything in quarantine: remote blobs, and rejected bodies on this machine."""
        yield from self.staging.quarantine.everything()
        for found in self.objects.list(QUARANTINE):
            name = found.key.removeprefix(QUARANTINE)
            pieces = name.split("/")
            at, why = _quarantine_note(name)
            scope = self._notes.read(pieces[0], pieces[1])
            yield Quarantined(scope, name, pieces[-1][:64], found.size_bytes, at, why)

    def restore(self, scope: Scope, name: str) -> bool:
        """Restore a quarantined blob under its name, without replacing a newer blob."""
        self._claim()
        try:
            key = blob_names.parse(scope, name.rpartition(".")[0]).pointer
        except NotFound:
            return False
        if self.objects.size(key) is not None:
            return self.objects.delete(QUARANTINE + name)
        return self.objects.move(QUARANTINE + name, key)

    def forget(self, scope: Scope, name: str) -> None:
        """Remove an item from quarantine permanently."""
        self._claim()
        try:
            blob_names.parse(scope, name.rpartition(".")[0])
        except NotFound:
            with filesystem.told(f"removing {name} from quarantine"):
                self.staging.quarantine.forget(scope, name)
            return
        self.objects.delete(QUARANTINE + name)

    def collect(self, older_than_s: float = 86_400.0) -> int:
        """Remove leftovers of dead writers (unfinished multipart uploads); return their number."""
        return self.objects.collect(older_than_s)

    def _count(self, tenant_id: str) -> int:
        known = self._counted.get(tenant_id)
        if known is None or time.monotonic() - known[0] > COUNT_AGAIN_S:
            total = sum(found.size_bytes for found in self.objects.list(blob_names.encode(tenant_id) + "/"))
            known = self._counted[tenant_id] = (time.monotonic(), total)
        return known[1]

    def _add_to_count(self, tenant_id: str, nbytes: int) -> None:
        known = self._counted.get(tenant_id)
        if known is not None:
            self._counted[tenant_id] = (known[0], known[1] + nbytes)

    def close(self) -> None:
        """Release all resources."""
        self._pool.shutdown()
        self._barriers.close()
        self.staging.close()
        os.close(self._fd)
        self.objects.close()


def _plain_type(content_type: str) -> str:
    """Return a media type that every backend accepts; the ledger keeps the one that the server sent."""
    return content_type if _MEDIA_TYPE.match(content_type) else "application/octet-stream"


def _quarantine_name(key: str, at: int | None, why: str) -> str:
    """Return a quarantine key that contains the time and the reason, so that a crash cannot separate them."""
    told = urlsafe_b64encode(why.encode(errors="replace")[:WHY_BYTES]).decode().rstrip("=")
    return f"{key}.{at or now_us():x}-{uuid.uuid4().hex[:12]}-{told}"


def _quarantine_note(name: str) -> tuple[int, str]:
    """Parse the time and reason from a quarantine key."""
    at, _, rest = name.rpartition(".")[2].partition("-")
    told = rest.partition("-")[2]
    return int(at, 16), urlsafe_b64decode(told + "=" * (-len(told) % 4)).decode(errors="replace")
