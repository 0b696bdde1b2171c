"""The local store: blobs are files named by their hash, published by a link that replaces nothing.

write → fsync → link → fsync directory → (the ledger's transaction) → unlink the private name. Each arrow is a barrier
for a whole batch. A crash between any two steps leaves the invariant intact: a name that exists has all of its bytes.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, Final

from longshore import failpoints
from longshore.domain.model import Blob, Scope
from longshore.domain.settings import Settings
from longshore.errors import BlobDamaged, NotFound, PublishFailed, StoreError
from longshore.store import blob_names
from longshore.store.api import Staged
from longshore.store.base_store import (
    BaseStore,
    check_part,
    note_barrier,
    tell_damaged,
    write_small,
)
from longshore.store.durability import filesystem
from longshore.store.durability.barriers import Barrier, Barriers
from longshore.store.local.blob_directories import BlobDirectories, Shard
from longshore.store.local.layout import any_tenant, sizes
from longshore.store.local.publish_link import REPAIR, Linker, name_in, problem_of
from longshore.store.local.shared_bytes import SharedBytes
from longshore.store.local.wrong_shards import rehome
from longshore.store.records import Problem, Quarantined, StoredBlob
from longshore.store.staging.area import Staging
from longshore.store.staging.parts import BODY, Part

log = logging.getLogger(__name__)
STAGING: Final = ".staging"
failpoints.declare("stage.write", "stage.barrier", "link.dirsync", "clean.unlink", "blob.unlink", "blob.damaged")


@dataclass(slots=True)
class _Aim:
    """The target of a batch of links."""

    barrier: Barrier
    fresh: set[Shard]
    project: int = -1
    small: int = -1
    prefix: str = ""
    shard: str = ""
    others: tuple[str, ...] = ()  # the tenant's other projects


class LocalStore(BaseStore):
    """Blobs below one directory, parts in `.staging` on the same file system."""

    backend = "local"
    rehome = rehome

    def __init__(self, root: Path, settings: Settings | None = None, *, ledger_id: str | None = None) -> None:
        self.settings = settings or Settings()
        self.root = Path(os.path.realpath(root))
        try:
            self._directories = BlobDirectories(self.root, self.settings.shard.width, ledger_id)
            self.staging = Staging(self._directories.fd, STAGING, self.settings, self._directories.count)
        except OSError as error:
            raise filesystem.typed(error, f"opening the store at {self.root}") from error
        self._check_same_file_system()
        self._barriers = Barriers(self._directories.fd)
        self._linker = Linker(self.staging)
        self._shared = SharedBytes(self._directories.fd)

    def _check_same_file_system(self) -> None:
        """Compare the devices, and try a link: a bind mount has the same device but refuses links across it."""
        same = os.fstat(self._directories.fd).st_dev == os.fstat(self.staging.fd).st_dev
        probe = f".probe-{uuid.uuid4().hex}"
        try:
            os.close(os.open(probe, filesystem.CREATE, 0o600, dir_fd=self.staging.fd))
        except OSError as error:
            if error.errno in {errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT}:
                return  # existing blobs are still readable; a later write raises the error
            raise filesystem.typed(error, f"opening the store at {self.root}") from error
        try:
            os.link(probe, probe, src_dir_fd=self.staging.fd, dst_dir_fd=self._directories.fd, follow_symlinks=False)
            filesystem.unlink(probe, self._directories.fd)
        except OSError as error:
            same = same and error.errno in filesystem.NO_LINKS
        finally:
            filesystem.unlink(probe, self.staging.fd)
        if not same:
            raise StoreError(
                f"{self.root}/{STAGING} is on another file system than {self.root}",
                hint="a part becomes a blob by a link: remove the mount",
            )

    def stage(self, items: Sequence[Staged]) -> list[StoreError | None]:
        """Make every item durable under a private name, with one barrier for all of them."""
        results = self.admitted(items, here=True)
        with self._barriers.open(len(items), "stage.barrier") as barrier:
            for scope, indices in _by_scope(items).items():
                try:
                    self._stage_scope(scope, items, indices, results, barrier)
                except OSError as error:
                    for index in indices:
                        results[index] = filesystem.typed(error, "opening the staging area")
            try:
                barrier.wait()
            except OSError as error:
                self.clean(items)
                return [PublishFailed(f"the batch could not be made durable: {error.strerror}") for _ in items]
            note_barrier(items, barrier.elapsed_s)
        return results

    def _stage_scope(
        self,
        scope: Scope,
        items: Sequence[Staged],
        indices: list[int],
        results: list[StoreError | None],
        barrier: Barrier,
    ) -> None:
        directory = self.staging.small(scope)
        try:
            for index in indices:
                if results[index] is not None:
                    continue
                try:
                    self._stage_one(items[index], directory, barrier)
                except OSError as error:
                    results[index] = filesystem.typed(error, "staging a body")
                except StoreError as error:
                    results[index] = error
        finally:
            os.close(directory)

    def _stage_one(self, item: Staged, directory: int, barrier: Barrier) -> None:
        failpoints.hit("stage.write")
        blob_names.check_sha256(item.sha256)
        body = item.body
        if isinstance(body, Part):
            check_part(item, body)
            body.seal()
            barrier.cover(body.fd)
            item.staged_as = BODY
            return
        if len(body) != item.size_bytes:
            raise PublishFailed("the body is not as long as was announced")
        barrier.take(write_small(self.staging, directory, item))

    def link(self, items: Sequence[Staged]) -> list[Blob | StoreError]:
        """Publish staged items under their hashes without replacing anything, with one barrier for all of them."""
        results: list[Blob | StoreError] = [PublishFailed("not staged") for _ in items]
        fresh: set[Shard] = set()
        with self._barriers.open(len(items), "link.dirsync") as barrier:
            for scope, indices in _by_scope(items).items():
                try:
                    self._link_scope(scope, items, indices, results, _Aim(barrier, fresh))
                except OSError as error:
                    for index in indices:
                        results[index] = filesystem.typed(error, _opening(self.root, scope, error))
            try:
                barrier.wait()
            except OSError as error:
                self._directories.doubt(
                    {(item.scope, shard) for item in items for shard in ("", self._shard(item.sha256))}
                )
                self.clean(items)
                return [PublishFailed(f"the names could not be made durable: {error.strerror}") for _ in items]
            note_barrier(items, barrier.elapsed_s)
            self._directories.trust(fresh)
        return results

    def _link_scope(
        self, scope: Scope, items: Sequence[Staged], indices: list[int], results: list[Blob | StoreError], aim: _Aim
    ) -> None:
        width = self.settings.shard.width
        aim.small = self.staging.small(scope)
        aim.prefix = blob_names.prefix(scope)
        if self.settings.dedupe.hardlink:
            aim.others = self._shared.projects(scope)
        try:
            aim.project = self._directories.open_project(scope, aim.barrier, aim.fresh)
            indices = sorted(indices, key=lambda index: items[index].sha256)
            for shard, group in itertools.groupby(indices, key=lambda index: items[index].sha256[:width]):
                self._link_shard(scope, shard, [(index, items[index]) for index in group], results, aim)
        finally:
            os.close(aim.small)
            if aim.project >= 0:
                aim.barrier.take(aim.project)

    def _link_shard(
        self, scope: Scope, shard: str, group: list[tuple[int, Staged]], results: list[Blob | StoreError], aim: _Aim
    ) -> None:
        try:
            directory = self._open_or_repair(aim.project, scope, shard, aim.barrier, aim.fresh)
        except OSError as error:
            for index, _ in group:
                results[index] = filesystem.typed(error, "opening a shard")
            return
        prefix, aim.shard = f"{aim.prefix}{shard}/" if shard else aim.prefix, shard
        for index, item in group:
            if item.staged_as is None:
                continue
            file = name_in(directory, item)
            try:
                held, action = self._publish(item, file, directory, aim)
            except OSError as error:
                results[index] = filesystem.typed(error, "publishing a blob")
                continue
            except StoreError as error:
                results[index] = error
                continue
            pointer = prefix + file
            results[index] = Blob(item.sha256, item.size_bytes, pointer, "local", item.content_type, held, action)
            if not held:
                self._directories.add_to_count(scope.tenant_id, item.size_bytes)
        aim.barrier.take(directory)

    def _open_or_repair(self, project: int, scope: Scope, shard: str, barrier: Barrier, fresh: set[Shard]) -> int:
        """Open a shard. A link or a file in its place goes to quarantine: no blob can be read or written through it."""
        try:
            return self._directories.open_shard(project, scope, shard, barrier, fresh)
        except OSError as error:
            if error.errno not in filesystem.ABSENT:
                raise
        with self._linker.alone(REPAIR):
            if not filesystem.is_directory(shard, project):
                with contextlib.suppress(FileNotFoundError):
                    name = self.staging.quarantine.take(scope, shard, project, why="in the place of a shard")
                    log.warning("%s was not a directory; it was moved to quarantine as %s", shard, name)
        return self._directories.open_shard(project, scope, shard, barrier, fresh)

    def _publish(self, item: Staged, file: str, directory: int, aim: _Aim) -> tuple[bool, str]:
        """Link an item; return whether the same bytes were already stored, and the deduplication that was done."""
        try:
            action = self._shared.link(item, aim.shard, file, directory, aim.others) if aim.others else None
            if action != "hardlink":
                self._linker.name(item, file, directory, aim.small)
        except FileExistsError:
            pass
        else:
            return False, action or "download"
        return self._held_or_replaced(item, file, directory, aim.small), "download"

    def _held_or_replaced(self, item: Staged, file: str, directory: int, small: int) -> bool:
        """Return True if the blob that has the name is intact; replace a damaged one."""
        if problem_of(file, directory, item) is None:
            return True
        with self._linker.alone(REPAIR):  # damaged: lock out other processes, then check again
            problem = problem_of(file, directory, item)
            if problem is None:
                return True
            if problem is not Problem.MISSING:
                self._take_away(item.scope, file, directory, item.sha256, f"fresh bytes: {problem}")
            try:
                self._linker.name(item, file, directory, small)
            except FileExistsError:  # another process published fresh bytes in between, with the same protocol
                if (problem := problem_of(file, directory, item)) is not None:
                    raise OSError(errno.EAGAIN, f"a damaged blob is in the way: {problem}") from None
                return True
        return False

    def _take_away(self, scope: Scope, file: str, directory: int, sha256: str, why: str) -> str | None:
        """Move a damaged blob to quarantine permanently: without its pointer it cannot be restored."""
        failpoints.hit("blob.damaged")
        try:
            name = self.staging.quarantine.take(scope, file, directory, why=why)
        except FileNotFoundError:
            return None
        tell_damaged(sha256, why, name)
        return name

    def set_aside(self, scope: Scope, pointer: str, sha256: str, size_bytes: int, why: str) -> str | None:
        """See `Store`. The repair lock protects an intact blob that has replaced the damaged one.

        The hash decides: the size may be that of a truncated file that was replaced before the lock was acquired.
        """
        try:
            with self._directories.at(scope, pointer) as (directory, file), self._linker.alone(REPAIR):
                found_bytes = os.stat(file, dir_fd=directory, follow_symlinks=False).st_size
                if self._problem(scope, pointer, sha256, found_bytes) in (None, Problem.MISSING):
                    return None
                return self._take_away(scope, file, directory, sha256, why)
        except NotFound:
            return None
        except StoreError as error:  # a read-only or failing disk: the damage must still be reported to the caller
            tell_damaged(sha256, f"{why}; {error}", None)
            return None

    def clean(self, items: Sequence[Staged]) -> None:
        """Remove the private names, after the registering transaction or when it is abandoned."""
        for scope, indices in _by_scope(items).items():
            with contextlib.suppress(OSError):  # the reconciler removes leftovers
                directory = self.staging.small(scope)
                try:
                    for index in indices:
                        self._clean_one(items[index], directory)
                finally:
                    os.close(directory)

    def _clean_one(self, item: Staged, directory: int) -> None:
        failpoints.hit("clean.unlink")
        if isinstance(item.body, Part):
            item.body.discard()
        elif item.staged_as is not None:
            filesystem.unlink(item.staged_as, directory)
        item.staged_as = None

    def find(self, scope: Scope, sha256: str, content_type: str) -> Blob | None:
        """Find a blob by its hash and make sure that its name is durable."""
        blob = self.stat(scope, sha256)
        if blob is None:
            return None
        with self._barriers.open(1, "link.dirsync") as barrier:
            fresh: set[Shard] = set()
            try:
                barrier.take(self._open_shard(scope, self._shard(sha256), barrier, fresh))
                barrier.wait()
            except OSError as error:
                self._directories.doubt({(scope, ""), (scope, self._shard(sha256))})
                raise filesystem.typed(error, "making a name durable") from error
            self._directories.trust(fresh)
        return Blob(sha256, blob.size_bytes, blob.pointer, self.backend, content_type, deduplicated=True)

    def _shard(self, sha256: str) -> str:
        return sha256[: self.settings.shard.width]

    def _open_shard(self, scope: Scope, shard: str, barrier: Barrier, fresh: set[Shard]) -> int:
        project = self._directories.open_project(scope, barrier, fresh)
        try:
            return self._open_or_repair(project, scope, shard, barrier, fresh)
        finally:
            os.close(project)

    def stat(self, scope: Scope, sha256: str) -> Blob | None:
        """Find a blob by its hash."""
        found = self._directories.look_up(scope, sha256)
        if found is None:
            return None
        pointer, size_bytes = found
        return Blob(sha256, size_bytes, pointer, self.backend, "application/octet-stream")

    def sizes(self, scope: Scope, pointers: Sequence[str]) -> list[int | None]:
        """Return the size of each blob, or None for a missing one, in one call for the whole list."""
        return sizes(self._directories.fd, scope, pointers)

    def path(self, scope: Scope, pointer: str) -> Path | None:
        """Return the blob's file."""
        return Path(
            f"{self.root}/{blob_names.parse(scope, pointer).pointer}"
        )  # joining parts takes three times as long

    def open(self, scope: Scope, pointer: str) -> BinaryIO:
        """Open a blob for reading; anything but a regular file counts as damaged."""
        with self._directories.at(scope, pointer) as (directory, file):
            fd = os.open(file, filesystem.READ | os.O_NONBLOCK, dir_fd=directory)
            if not S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise BlobDamaged(file[:64])
            return os.fdopen(fd, "rb")

    def remove(self, scope: Scope, pointer: str) -> bool:
        """Remove an unreferenced blob; return False if it was already gone."""
        failpoints.hit("blob.unlink")
        try:
            with self._directories.at(scope, pointer) as (directory, file):
                os.unlink(file, dir_fd=directory)
        except NotFound:
            return False
        return True

    def quarantine(self, scope: Scope, pointer: str, why: str, *, at: int | None = None) -> str | None:
        """Move a blob to quarantine and return its name there; None if it was gone."""
        try:
            with self._directories.at(scope, pointer) as (directory, file):
                return self.staging.quarantine.take(scope, file, directory, why=why, pointer=pointer, at=at)
        except NotFound:
            return None

    def quarantined(self) -> Iterator[Quarantined]:
        """Return everything in quarantine, of every tenant."""
        return self.staging.quarantine.everything()

    def restore(self, scope: Scope, name: str) -> bool:
        """Restore a quarantined blob under its name, without replacing a newer blob."""
        pointer = self.staging.quarantine.pointer_of(scope, name)
        if pointer is None:
            return False
        place = blob_names.parse(scope, pointer)
        with self._barriers.open(1, "link.dirsync") as barrier:
            fresh: set[Shard] = set()
            try:
                directory = self._open_shard(scope, place.shard, barrier, fresh)
                self.staging.quarantine.give_back(name, place.file, directory)
                barrier.take(directory)
                barrier.wait()
            except OSError as error:
                raise filesystem.typed(error, f"restoring blob {place.sha256}") from error
        self.staging.quarantine.forget(scope, name)
        return True

    def forget(self, scope: Scope, name: str) -> None:
        """Remove an item from quarantine permanently."""
        with filesystem.told(f"removing {name} from quarantine"):
            self.staging.quarantine.forget(scope, name)

    def collect(self, older_than_s: float = 86_400.0) -> int:
        """Return 0: `parts` and `walk` list everything that a dead writer can leave."""
        return 0

    def walk(self) -> Iterator[StoredBlob]:
        """Return every blob of every tenant."""
        return self._directories.walk()

    def blank(self) -> bool:
        """Return whether the store has neither blobs nor traces of deleted ones."""
        with filesystem.told("looking into the store"):
            return not any_tenant(self._directories.fd)

    def close(self) -> None:
        """Close the descriptors and stop the threads."""
        self._barriers.close()
        self.staging.close()
        self._directories.close()


def _opening(root: Path, scope: Scope, error: OSError) -> str:
    """Return what failed when the directory of a project was opened, with the remedy if something is in its place."""
    directory = root / blob_names.prefix(scope)
    way = "; a link or a file is in the place of one of its directories: move it away"
    return f"opening {directory}" + (way if error.errno in filesystem.ABSENT else "")


def _by_scope(items: Sequence[Staged]) -> dict[Scope, list[int]]:
    groups: dict[Scope, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        groups[item.scope].append(index)
    return groups
