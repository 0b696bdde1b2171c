"""The staging area: parts, small bodies, quarantine and reservations. Always on this machine's disk.

parts/<tenant>/<project>/<job>/<epoch>/{body,facts.json}
small/<tenant>/<project>/<job>.<epoch>.<sha256>        whole bodies between `stage` and `clean`
quarantine/                                           damaged blobs, and the reason
room/                                                 reservations
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from stat import S_ISREG
from typing import Final

from longshore import failpoints
from longshore.domain.model import Scope
from longshore.domain.settings import Settings
from longshore.errors import BadInput, StoreUnavailable
from longshore.store import blob_names
from longshore.store.durability import filesystem
from longshore.store.hashed_scopes import read_note, write_note
from longshore.store.staging.part_facts import PartFacts
from longshore.store.staging.part_writer import Buffers, PartWriter
from longshore.store.staging.parts import BODY, Part, empty_part, read_facts
from longshore.store.staging.quarantine import Quarantine
from longshore.store.staging.reservations import Reservation, Reservations
from longshore.thread_pool import Threads

AREAS: Final = ("parts", "small", "quarantine", "room")
PUMP_THREADS: Final = 8
_SMALL = re.compile(r"(.+)\.(\d+)\.([0-9a-f]{64})\Z")
log = logging.getLogger(__name__)
failpoints.declare("part.create", "part.drop", "staging.mend")


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(fd)


class _Swept(Exception):
    """Another process that cleans up after an older epoch removed the empty directory before it was used."""


class Staging:
    """The staging area of one store on one machine."""

    def __init__(self, parent: int, name: str, settings: Settings, used_bytes: Callable[[str], int]) -> None:
        self._parent, self._name = os.dup(parent), name
        self._mending = threading.Lock()
        self.fd = filesystem.open_directory(name, parent, create=True)
        self.areas = {area: filesystem.open_directory(area, self.fd, create=True) for area in AREAS}
        os.fsync(self.fd)
        os.fsync(parent)
        self.settings = settings
        self.quarantine = Quarantine(self.areas["quarantine"])
        self.rooms = Reservations(self.areas["room"], settings.quota, used_bytes)
        self._pool = Threads(PUMP_THREADS, "longshore-pump")
        self._buffers = Buffers()

    def mend(self) -> bool:
        """Recreate directories that were deleted while in use, under the same descriptors; return whether any were."""
        with self._mending:
            mended = self._reopened(self.fd, self._name, self._parent)
            for area, fd in self.areas.items():
                mended |= self._reopened(fd, area, self.fd)
        if mended:
            log.warning("%s was deleted while in use and was recreated", self._name)
        return mended

    @staticmethod
    def _reopened(fd: int, name: str, parent: int) -> bool:
        try:
            here = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if os.path.samestat(here, os.fstat(fd)):
                return False
        except FileNotFoundError:
            pass
        failpoints.hit("staging.mend")
        new = filesystem.open_directory(name, parent, create=True)
        os.dup2(new, fd, inheritable=False)
        os.close(new)
        os.fsync(parent)
        return True

    def part(
        self, scope: Scope, job_id: str, epoch: int, adopt: PartFacts | None, copying: Reservation | None = None
    ) -> Part:
        """Create a part in its own directory; remove leftovers of an earlier attempt of the same epoch.

        An older part is adopted by a copy, for which space is reserved (`copying`); without a reservation it is moved.
        """
        for _ in range(100):
            with contextlib.suppress(_Swept):
                return self._part(scope, job_id, epoch, adopt, copying)
        raise StoreUnavailable("the directory of a part is removed repeatedly")

    def _part(
        self, scope: Scope, job_id: str, epoch: int, adopt: PartFacts | None, copying: Reservation | None
    ) -> Part:
        failpoints.hit("part.create")
        path = (*self._job_path(scope, job_id), str(epoch))
        try:
            job, directory = self._open_new(scope, path)
            with _closing(job):
                part = Part(
                    directory,
                    PartFacts(scope, job_id, epoch),
                    settle=partial(filesystem.fsync_chain, path, self.areas["parts"]),
                    forget=partial(self.drop, scope, job_id, epoch),
                )
                part.reservation = copying
                try:
                    if adopt is not None and adopt.durable_bytes:
                        self._adopt(part, job, adopt, move=copying is None)
                except BaseException:
                    part.discard()  # a half copy is of no use, and fills the disk
                    raise
        except OSError as error:
            raise filesystem.typed(error, "making a part") from error
        return part

    def _open_new(self, scope: Scope, path: tuple[str, ...]) -> tuple[int, int]:
        """Create and open the directories of a job and of its new epoch."""
        try:
            os.close(self._open_scope("parts", scope, create=True))
            job = filesystem.open_path(path[:-1], self.areas["parts"], create=True)
            try:
                self._drop_epoch(job, path[-1])
                return job, filesystem.open_directory(path[-1], job, create=True)
            except BaseException:
                os.close(job)
                raise
        except FileNotFoundError:
            self.mend()
            raise _Swept from None

    def _adopt(self, part: Part, job: int, adopt: PartFacts, *, move: bool) -> None:
        if (adopt.scope, adopt.job_id) != (part.facts.scope, part.facts.job_id) or adopt.epoch >= part.facts.epoch:
            raise BadInput("a part can be adopted only by a later epoch of the same job")
        try:
            older = filesystem.open_directory(str(adopt.epoch), job)
        except FileNotFoundError:
            return
        try:
            part.adopt(older, adopt, move=move)
        finally:
            os.close(older)
        self._drop_epoch(job, str(adopt.epoch))

    def old_part(self, scope: Scope, job_id: str) -> PartFacts | None:
        """Find the newest part of a job with durable bytes."""
        found = [facts for facts in self._facts_of(scope, job_id) if facts.durable_bytes]
        return max(found, key=lambda facts: facts.epoch, default=None)

    def parts(self) -> Iterator[PartFacts]:
        """Yield every part; a part without facts has no durable bytes."""
        for scope, job in self._in_scopes(self.areas["parts"]):
            yield from self._facts_of(scope, blob_names.decode(job))

    def _facts_of(self, scope: Scope, job_id: str) -> Iterator[PartFacts]:
        try:
            job = filesystem.open_path(self._job_path(scope, job_id), self.areas["parts"])
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            for epoch in filter(str.isdigit, os.listdir(job)):
                with contextlib.suppress(FileNotFoundError):
                    yield self._facts(job, epoch) or PartFacts(scope, job_id, int(epoch))
        finally:
            os.close(job)

    @staticmethod
    def _facts(job: int, epoch: str) -> PartFacts | None:
        directory = filesystem.open_directory(epoch, job)
        try:
            facts = read_facts(directory)
        finally:
            os.close(directory)
        return facts if facts is not None and facts.epoch == int(epoch) else None

    def drop_part(self, facts: PartFacts) -> None:
        """Remove a part and its parent directories that become empty."""
        self.drop(facts.scope, facts.job_id, facts.epoch)

    def drop(self, scope: Scope, job_id: str, epoch: int) -> None:
        """Remove the part of one epoch, if there is one."""
        failpoints.hit("part.drop")
        path = self._job_path(scope, job_id)
        try:
            project = filesystem.open_path(path[:2], self.areas["parts"])
        except FileNotFoundError:
            return
        try:
            with contextlib.suppress(FileNotFoundError):
                job = filesystem.open_directory(path[2], project)
                try:
                    self._drop_epoch(job, str(epoch))
                finally:
                    os.close(job)
                with contextlib.suppress(OSError):  # another epoch's part is still there
                    os.rmdir(path[2], dir_fd=project)
        finally:
            os.close(project)

    def drop_earlier(self, scope: Scope, job_id: str, epoch: int, keep: PartFacts | None = None) -> bool:
        """Remove the parts of a job's earlier epochs, except `keep`; return whether there were any."""
        found = [facts for facts in self._facts_of(scope, job_id) if facts.epoch < epoch]
        dropped = [facts for facts in found if keep is None or facts.epoch != keep.epoch]
        for facts in dropped:
            self.drop_part(facts)
        return bool(dropped)

    def part_bytes(self, facts: PartFacts) -> int:
        """Return how many bytes a part takes on the disk, preallocated blocks included."""
        path = (*self._job_path(facts.scope, facts.job_id), str(facts.epoch))
        try:
            directory = filesystem.open_path(path, self.areas["parts"])
        except FileNotFoundError:
            return 0
        try:
            return os.stat(BODY, dir_fd=directory, follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            return 0
        finally:
            os.close(directory)

    def _drop_epoch(self, job: int, epoch: str) -> None:
        try:
            directory = filesystem.open_directory(epoch, job)
        except FileNotFoundError:
            return
        try:
            empty_part(directory)
        finally:
            os.close(directory)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(epoch, dir_fd=job)

    def pump(self, part: Part, resume: Callable[[], object] | None) -> PartWriter:
        """Return a part writer that uses the shared threads and buffers."""
        return PartWriter(part, self._pool, self._buffers, resume)

    def preallocation(self, total: int | None, ceiling: int) -> int:
        """Return how many bytes to preallocate for a body of announced size `total`, at most the reservation."""
        if not self.settings.io.preallocate or total is None or total < self.settings.io.preallocate_min_size_bytes:
            return 0
        return min(total, ceiling)

    def small(self, scope: Scope, *, create: bool = True) -> int:
        """Open the directory of a scope's small bodies."""
        return self._open_scope("small", scope, create=create)

    def _open_scope(self, area: str, scope: Scope, *, create: bool) -> int:
        path = (blob_names.encode(scope.tenant_id), blob_names.encode(scope.project_id))
        try:
            fd = filesystem.open_path(path, self.areas[area], create=create)
        except FileNotFoundError:
            if not create or not self.mend():
                raise
            fd = filesystem.open_path(path, self.areas[area], create=create)
        try:
            if create:
                write_note(scope, fd)
        except OSError:
            os.close(fd)
            raise
        return fd

    def smalls(self) -> Iterator[tuple[Scope, str, int, str]]:
        """Yield the scope, job, epoch and hash of every staged small body."""
        for scope, name in self._in_scopes(self.areas["small"]):
            if found := _SMALL.match(name):
                job_id, epoch, sha256 = found.groups()
                yield scope, blob_names.decode(job_id), int(epoch), sha256

    @staticmethod
    def small_name(job_id: str, epoch: int, sha256: str) -> str:
        """Return the file name of a staged small body."""
        return f"{blob_names.encode(job_id)}.{epoch}.{sha256}"

    def read_small(self, scope: Scope, job_id: str, sha256: str) -> bytes | None:
        """Return a small body that any epoch of a job has staged."""
        for name, directory in self._smalls_of(scope, job_id):
            if name.endswith(sha256):
                try:
                    with filesystem.open_regular(name, directory) as file:
                        return file.read()
                except OSError as error:
                    if error.errno not in filesystem.IRREGULAR:
                        raise
        return None

    def drop_smalls(self, scope: Scope, job_id: str, epoch: int) -> None:
        """Remove the small bodies that one epoch of a job has staged."""
        for name, directory in self._smalls_of(scope, job_id):
            if name.rsplit(".", 2)[1] == str(epoch):
                filesystem.unlink(name, directory)

    def _smalls_of(self, scope: Scope, job_id: str) -> Iterator[tuple[str, int]]:
        try:
            directory = self.small(scope, create=False)
        except FileNotFoundError:
            return
        try:
            for name in os.listdir(directory):
                found = _SMALL.match(name)
                if found and found[1] == blob_names.encode(job_id):
                    yield name, directory
        finally:
            os.close(directory)

    def whole_parts(self, scope: Scope, job_id: str, size_bytes: int) -> list[PartFacts]:
        """Return parts whose body has the given size, durable or not; the caller must verify the hash."""
        path = self._job_path(scope, job_id)
        found = []
        for facts in self._facts_of(scope, job_id):
            with contextlib.suppress(OSError):
                directory = filesystem.open_path((*path, str(facts.epoch)), self.areas["parts"])
                try:
                    stat = os.stat(BODY, dir_fd=directory, follow_symlinks=False)
                finally:
                    os.close(directory)
                if S_ISREG(stat.st_mode) and stat.st_size == size_bytes:
                    found.append(replace(facts, durable_bytes=size_bytes))
        return sorted(found, key=lambda facts: -facts.epoch)

    @staticmethod
    def _job_path(scope: Scope, job_id: str) -> tuple[str, str, str]:
        return blob_names.encode(scope.tenant_id), blob_names.encode(scope.project_id), blob_names.encode(job_id)

    @staticmethod
    def _in_scopes(area: int) -> Iterator[tuple[Scope, str]]:
        for path, tenant in filesystem.directories(area):
            for whole, project in filesystem.directories(tenant, path):
                scope = read_note(whole, project)
                for name in sorted(os.listdir(project)):
                    if not name.startswith("."):
                        yield scope, name

    def close(self) -> None:
        """Stop the threads, remove this process's reservations and close the descriptors."""
        self._pool.shutdown()
        self.rooms.close()
        for fd in (*self.areas.values(), self.fd, self._parent):
            os.close(fd)
