"""The blob directories of a local store: where a blob is stored and how it is looked up."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Final

from longshore import failpoints
from longshore.domain.model import Scope
from longshore.errors import NotFound, StoreError
from longshore.store import blob_names
from longshore.store.durability import filesystem
from longshore.store.durability.barriers import Barrier
from longshore.store.hashed_scopes import read_note, write_note
from longshore.store.local.layout import LAYOUT, LAYOUT_FILE, found_layout, wanted_layout
from longshore.store.ownership import claim_directory
from longshore.store.records import StoredBlob

COUNT_AGAIN_S: Final = 60.0
Shard = tuple[Scope, str]
failpoints.declare("link.mkdir")


class BlobDirectories:
    """`<root>/<tenant>/<project>/<shard>/<sha256><ext>`, opened by descriptor, never through a symbolic link."""

    def __init__(self, root: Path, width: int, ledger_id: str | None = None) -> None:
        self.root = root
        self.width = width
        filesystem.make_root(root)
        self.fd = os.open(root, filesystem.DIRECTORY)
        try:
            self._check_layout()
            if ledger_id is not None:
                claim_directory(self.fd, str(root), ledger_id)
        except BaseException:
            os.close(self.fd)
            raise
        self.settled: set[Shard] = set()  # directories whose own names are known to be durable
        self.doubted: set[Shard] = set()  # directories whose last barrier failed
        self._counted: dict[str, tuple[float, int]] = {}

    def _check_layout(self) -> None:
        wanted = wanted_layout(self.width)
        try:
            found = found_layout(self.fd)
        except FileNotFoundError:
            self._write_layout(wanted)
            return
        if found != wanted:
            raise self._misfit(found)

    def _misfit(self, found: object) -> StoreError:
        """Return an error that describes the problem with the layout file and its remedy."""
        match found:
            case {"layout": int(layout), "shard_width": int(width)} if layout == LAYOUT:
                return StoreError(
                    f"the store at {self.root} was made with shard.width = {width}, not {self.width}",
                    hint=f"set shard.width = {width}, or copy the store with `longshore store copy`",
                )
            case {"layout": int(layout)} if layout > LAYOUT:
                return StoreError(
                    f"the store at {self.root} has layout {layout}; this program knows {LAYOUT}",
                    hint="use the newer program that made it",
                )
        return StoreError(
            f"{self.root / LAYOUT_FILE} is damaged",
            hint="remove it: it is written again, with shard.width as it is set now (if that was never changed: 2)",
        )

    def _write_layout(self, wanted: dict[str, int]) -> None:
        name = f"{LAYOUT_FILE}.{uuid.uuid4().hex}"
        fd = os.open(name, filesystem.CREATE, 0o600, dir_fd=self.fd)
        try:
            filesystem.write_all(fd, json.dumps(wanted).encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(name, LAYOUT_FILE, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        os.fsync(self.fd)

    def open_project(self, scope: Scope, barrier: Barrier, fresh: set[Shard]) -> int:
        """Open a project's directory; until its own name is known to be durable, its parents join the barrier."""
        path = (blob_names.encode(scope.tenant_id), blob_names.encode(scope.project_id))
        if (scope, "") in self.settled:
            with contextlib.suppress(FileNotFoundError):
                return filesystem.open_path(path, self.fd)
        failpoints.hit("link.mkdir")
        doubted = (scope, "") in self.doubted
        fd = os.dup(self.fd)
        for name in path:
            try:
                if doubted:
                    _dirty(fd)
                below = filesystem.open_directory(name, fd, create=True)
            except OSError:
                os.close(fd)
                raise
            barrier.take(fd)
            fd = below
        try:
            write_note(scope, fd)
        except OSError:
            os.close(fd)
            raise
        fresh.add((scope, ""))
        return fd

    def open_shard(self, project: int, scope: Scope, shard: str, barrier: Barrier, fresh: set[Shard]) -> int:
        """Open a shard below its project's directory, which joins the barrier while the shard may be new."""
        if not shard:
            return os.dup(project)
        if (scope, shard) in self.settled:
            with contextlib.suppress(FileNotFoundError):
                return os.open(shard, filesystem.DIRECTORY, dir_fd=project)
        failpoints.hit("link.mkdir")
        parent = os.dup(project)
        try:
            directory = filesystem.open_directory(shard, project, create=True)
        except OSError:
            os.close(parent)
            raise
        try:
            if (scope, shard) in self.doubted:
                _dirty(parent)
                _dirty(directory)
        except OSError:
            os.close(parent)
            os.close(directory)
            raise
        barrier.take(parent)  # after the directory entry exists: a barrier may begin at once
        fresh.add((scope, shard))
        return directory

    def trust(self, fresh: set[Shard]) -> None:
        """Remember directories whose barrier has succeeded."""
        self.settled |= fresh
        self.doubted -= fresh

    def doubt(self, shards: set[Shard]) -> None:
        """Remember directories whose barrier failed.

        The kernel reports a write error once and then marks the directory clean. So a name in it counts as durable only
        after the directory was modified and synced again, together with its parents.
        """
        self.settled -= shards
        self.doubted |= shards

    @contextlib.contextmanager
    def at(self, scope: Scope, pointer: str) -> Iterator[tuple[int, str]]:
        """Open the directory of a blob and yield it with the blob's file name."""
        place = blob_names.parse(scope, pointer)
        directory = self._opened(place)
        if directory is None:
            raise NotFound(f"blob {place.sha256} is not in the store")
        try:
            yield directory, place.file
        except FileNotFoundError:
            raise NotFound(f"blob {place.sha256} is not in the store") from None
        except OSError as error:
            raise filesystem.typed(error, f"blob {place.sha256}") from error
        finally:
            os.close(directory)

    def _opened(self, place: blob_names.Place) -> int | None:
        """Open the directory of a blob; None if it is missing, or if a link or a file has its name."""
        try:
            return filesystem.open_path(tuple(filter(None, place[:3])), self.fd)
        except OSError as error:
            if error.errno in filesystem.ABSENT:
                return None
            raise filesystem.typed(error, f"blob {place.sha256}") from error

    def look_up(self, scope: Scope, sha256: str) -> tuple[str, int] | None:
        """Find a blob by its hash: pointer and size."""
        width = self.width
        wanted = blob_names.place(scope, blob_names.check_sha256(sha256), "", width)
        directory = self._opened(wanted)
        if directory is None:
            return None
        try:
            for ext in itertools.chain(blob_names.EXTENSIONS, _other_extensions(directory, sha256)):
                with contextlib.suppress(FileNotFoundError):
                    stat = os.stat(sha256 + ext, dir_fd=directory, follow_symlinks=False)
                    if S_ISREG(stat.st_mode):
                        return blob_names.place(scope, sha256, ext, width).pointer, stat.st_size
        finally:
            os.close(directory)
        return None

    def walk(self) -> Iterator[StoredBlob]:
        """Yield every blob of every tenant."""
        with filesystem.told("walking the store"):
            for (tenant,), fd in filesystem.directories(self.fd):
                yield from self._walk_tenant(tenant, fd)

    def _walk_tenant(self, tenant: str, tenant_fd: int) -> Iterator[StoredBlob]:
        for path, fd in filesystem.directories(tenant_fd, (tenant,)):
            scope = read_note(path, fd)
            shards = filesystem.directories(fd) if self.width else [((), os.dup(fd))]
            for shard, directory in shards:
                for entry in os.scandir(directory):
                    if not blob_names.is_blob(entry.name) or not entry.is_file(follow_symlinks=False):
                        continue
                    stat = entry.stat(follow_symlinks=False)
                    pointer = "/".join((*path, *shard, entry.name))
                    yield StoredBlob(scope, entry.name[:64], stat.st_size, pointer, stat.st_mtime_ns // 1000)
                if not self.width:
                    os.close(directory)

    def count(self, tenant_id: str) -> int:
        """Return a tenant's stored bytes: counted by an occasional walk, and updated in between."""
        known = self._counted.get(tenant_id)
        if known is None or time.monotonic() - known[0] > COUNT_AGAIN_S:
            try:
                fd = filesystem.open_directory(blob_names.encode(tenant_id), self.fd)
            except FileNotFoundError:
                return 0
            try:
                total = sum(held.size_bytes for held in self._walk_tenant(blob_names.encode(tenant_id), fd))
            finally:
                os.close(fd)
            known = self._counted[tenant_id] = (time.monotonic(), total)
        return known[1]

    def add_to_count(self, tenant_id: str, nbytes: int) -> None:
        """Add published bytes to the count."""
        known = self._counted.get(tenant_id)
        if known is not None:
            self._counted[tenant_id] = (known[0], known[1] + nbytes)

    def close(self) -> None:
        """Release all resources."""
        os.close(self.fd)


def _dirty(directory: int) -> None:
    """Modify a directory, so that the next fsync has to write it."""
    name = f".dirty-{uuid.uuid4().hex}"
    os.close(os.open(name, filesystem.CREATE, 0o600, dir_fd=directory))
    try:
        filesystem.unlink(name, directory)
    except OSError:
        with contextlib.suppress(OSError):
            filesystem.unlink(name, directory)  # try again: otherwise the file would stay among the blobs
        raise


def _other_extensions(directory: int, sha256: str) -> Iterator[str]:
    yield from (name[64:] for name in os.listdir(directory) if name.startswith(sha256))
