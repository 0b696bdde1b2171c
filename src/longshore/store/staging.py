"""The staging area: parts, small bodies on their way, quarantine and reservations. Always on this machine's disk.

parts/<tenant>/<project>/<job>/<epoch>/{body,facts.json}
small/<tenant>/<project>/<job>.<epoch>.<sha256>        whole bodies between `stage` and `clean`
quarantine/                                           what was found damaged, and why
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
from longshore.errors import BadInput, StoreUnavailable
from longshore.store import disk, names
from longshore.store.parts import BODY, Part, PartFacts, empty_part, read_facts
from longshore.store.pump import Buffers, Pump
from longshore.store.quarantine import Quarantine
from longshore.store.room import Rooms
from longshore.store.scopes import read_note, write_note
from longshore.store.settings import StoreSettings
from longshore.threads import Threads

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
    """Who cleans up after an older epoch removed the empty directory under our hands."""


class Staging:
    """The waiting room of one store on one machine."""

    def __init__(self, parent: int, name: str, settings: StoreSettings, used_bytes: Callable[[str], int]) -> None:
        self._parent, self._name = os.dup(parent), name
        self._mending = threading.Lock()
        self.fd = disk.open_directory(name, parent, create=True)
        self.areas = {area: disk.open_directory(area, self.fd, create=True) for area in AREAS}
        os.fsync(self.fd)
        os.fsync(parent)
        self.settings = settings
        self.quarantine = Quarantine(self.areas["quarantine"])
        self.rooms = Rooms(self.areas["room"], settings.quota, used_bytes)
        self._pool = Threads(PUMP_THREADS, "longshore-pump")
        self._buffers = Buffers()

    def mend(self) -> bool:
        """Make directories again that were deleted under us, behind the same descriptors; return whether any were."""
        with self._mending:
            mended = self._reopened(self.fd, self._name, self._parent)
            for area, fd in self.areas.items():
                mended |= self._reopened(fd, area, self.fd)
        if mended:
            log.warning("%s was deleted under a running process, and was made again", self._name)
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
        new = disk.open_directory(name, parent, create=True)
        os.dup2(new, fd, inheritable=False)
        os.close(new)
        os.fsync(parent)
        return True

    def part(self, scope: Scope, job_id: str, epoch: int, adopt: PartFacts | None) -> Part:
        """Make a part in a directory of its own; what a former try of the same epoch left is removed."""
        for _ in range(100):
            with contextlib.suppress(_Swept):
                return self._part(scope, job_id, epoch, adopt)
        raise StoreUnavailable("a part's directory is removed again and again")

    def _part(self, scope: Scope, job_id: str, epoch: int, adopt: PartFacts | None) -> Part:
        failpoints.hit("part.create")
        path = (*self._job_path(scope, job_id), str(epoch))
        try:
            job, directory = self._open_new(scope, path)
            with _closing(job):
                part = Part(
                    directory,
                    PartFacts(scope, job_id, epoch),
                    settle=partial(disk.fsync_chain, path, self.areas["parts"]),
                    forget=partial(self.drop, scope, job_id, epoch),
                )
                try:
                    if adopt is not None and adopt.durable_bytes:
                        self._adopt(part, job, adopt)
                except BaseException:
                    part.close()
                    raise
        except OSError as error:
            raise disk.typed(error, "making a part") from error
        return part

    def _open_new(self, scope: Scope, path: tuple[str, ...]) -> tuple[int, int]:
        """Make and open the directories of a job and of its new epoch."""
        try:
            os.close(self._open_scope("parts", scope, create=True))
            job = disk.open_path(path[:-1], self.areas["parts"], create=True)
            try:
                self._drop_epoch(job, path[-1])
                return job, disk.open_directory(path[-1], job, create=True)
            except BaseException:
                os.close(job)
                raise
        except FileNotFoundError:
            self.mend()
            raise _Swept from None

    def _adopt(self, part: Part, job: int, adopt: PartFacts) -> None:
        if (adopt.scope, adopt.job_id) != (part.facts.scope, part.facts.job_id) or adopt.epoch >= part.facts.epoch:
            raise BadInput("a part is adopted by a later epoch of its own job only")
        try:
            older = disk.open_directory(str(adopt.epoch), job)
        except FileNotFoundError:
            return
        try:
            part.adopt(older, adopt)
        finally:
            os.close(older)
        self._drop_epoch(job, str(adopt.epoch))

    def old_part(self, scope: Scope, job_id: str) -> PartFacts | None:
        """Find the newest part of a job with durable bytes."""
        found = [facts for facts in self._facts_of(scope, job_id) if facts.durable_bytes]
        return max(found, key=lambda facts: facts.epoch, default=None)

    def parts(self) -> Iterator[PartFacts]:
        """Give every part; one without facts counts as having nothing durable."""
        for scope, job in self._in_scopes(self.areas["parts"]):
            yield from self._facts_of(scope, names.decode(job))

    def _facts_of(self, scope: Scope, job_id: str) -> Iterator[PartFacts]:
        try:
            job = disk.open_path(self._job_path(scope, job_id), self.areas["parts"])
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
        directory = disk.open_directory(epoch, job)
        try:
            facts = read_facts(directory)
        finally:
            os.close(directory)
        return facts if facts is not None and facts.epoch == int(epoch) else None

    def drop_part(self, facts: PartFacts) -> None:
        """Remove a part and the directories that it leaves empty."""
        self.drop(facts.scope, facts.job_id, facts.epoch)

    def drop(self, scope: Scope, job_id: str, epoch: int) -> None:
        """Remove the part of one epoch, if there is one."""
        failpoints.hit("part.drop")
        path = self._job_path(scope, job_id)
        try:
            project = disk.open_path(path[:2], self.areas["parts"])
        except FileNotFoundError:
            return
        try:
            with contextlib.suppress(FileNotFoundError):
                job = disk.open_directory(path[2], project)
                try:
                    self._drop_epoch(job, str(epoch))
                finally:
                    os.close(job)
                with contextlib.suppress(OSError):  # another epoch's part is still there
                    os.rmdir(path[2], dir_fd=project)
        finally:
            os.close(project)

    def _drop_epoch(self, job: int, epoch: str) -> None:
        try:
            directory = disk.open_directory(epoch, job)
        except FileNotFoundError:
            return
        try:
            empty_part(directory)
        finally:
            os.close(directory)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(epoch, dir_fd=job)

    def pump(self, part: Part, resume: Callable[[], object] | None) -> Pump:
        """Make a pump on the shared threads and buffers."""
        return Pump(part, self._pool, self._buffers, resume)

    def preallocation(self, total: int | None, ceiling: int) -> int:
        """Say how much to set aside for a body that claims to have `total` bytes: never more than was reserved."""
        if not self.settings.preallocate or total is None or total < self.settings.preallocate_min_size_bytes:
            return 0
        return min(total, ceiling)

    def small(self, scope: Scope, *, create: bool = True) -> int:
        """Open the directory of a scope's small bodies."""
        return self._open_scope("small", scope, create=create)

    def _open_scope(self, area: str, scope: Scope, *, create: bool) -> int:
        path = (names.encode(scope.tenant_id), names.encode(scope.project_id))
        try:
            fd = disk.open_path(path, self.areas[area], create=create)
        except FileNotFoundError:
            if not create or not self.mend():
                raise
            fd = disk.open_path(path, self.areas[area], create=create)
        try:
            if create:
                write_note(scope, fd)
        except OSError:
            os.close(fd)
            raise
        return fd

    def smalls(self) -> Iterator[tuple[Scope, str, int, str]]:
        """Give scope, job, epoch and hash of every small body that waits."""
        for scope, name in self._in_scopes(self.areas["small"]):
            if found := _SMALL.match(name):
                job_id, epoch, sha256 = found.groups()
                yield scope, names.decode(job_id), int(epoch), sha256

    @staticmethod
    def small_name(job_id: str, epoch: int, sha256: str) -> str:
        """Name a small body that waits."""
        return f"{names.encode(job_id)}.{epoch}.{sha256}"

    def read_small(self, scope: Scope, job_id: str, sha256: str) -> bytes | None:
        """Read a small body that some epoch of a job left."""
        for name, directory in self._smalls_of(scope, job_id):
            if name.endswith(sha256):
                with os.fdopen(os.open(name, disk.READ, dir_fd=directory), "rb") as file:
                    return file.read()
        return None

    def drop_smalls(self, scope: Scope, job_id: str, epoch: int) -> None:
        """Remove the small bodies that one epoch of a job left."""
        for name, directory in self._smalls_of(scope, job_id):
            if name.rsplit(".", 2)[1] == str(epoch):
                disk.unlink(name, directory)

    def _smalls_of(self, scope: Scope, job_id: str) -> Iterator[tuple[str, int]]:
        try:
            directory = self.small(scope, create=False)
        except FileNotFoundError:
            return
        try:
            for name in os.listdir(directory):
                found = _SMALL.match(name)
                if found and found[1] == names.encode(job_id):
                    yield name, directory
        finally:
            os.close(directory)

    def whole_parts(self, scope: Scope, job_id: str, size_bytes: int) -> list[PartFacts]:
        """Give parts whose body has the wanted size, durable or not: only for who compares the hash."""
        path = self._job_path(scope, job_id)
        found = []
        for facts in self._facts_of(scope, job_id):
            with contextlib.suppress(OSError):
                directory = disk.open_path((*path, str(facts.epoch)), self.areas["parts"])
                try:
                    stat = os.stat(BODY, dir_fd=directory, follow_symlinks=False)
                finally:
                    os.close(directory)
                if S_ISREG(stat.st_mode) and stat.st_size == size_bytes:
                    found.append(replace(facts, durable_bytes=size_bytes))
        return sorted(found, key=lambda facts: -facts.epoch)

    @staticmethod
    def _job_path(scope: Scope, job_id: str) -> tuple[str, str, str]:
        return names.encode(scope.tenant_id), names.encode(scope.project_id), names.encode(job_id)

    @staticmethod
    def _in_scopes(area: int) -> Iterator[tuple[Scope, str]]:
        for path, tenant in disk.directories(area):
            for whole, project in disk.directories(tenant, path):
                scope = read_note(whole, project)
                for name in sorted(os.listdir(project)):
                    if not name.startswith("."):
                        yield scope, name

    def close(self) -> None:
        """Stop the threads, take our reservations away, close."""
        self._pool.shutdown()
        self.rooms.close()
        for fd in (*self.areas.values(), self.fd, self._parent):
            os.close(fd)
