"""The base class of all stores: local parts, reservations, recovery and verification."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

from longshore.domain.model import Blob, Scope
from longshore.errors import BlobDamaged, DiskFull, NotFound, OverBudget, PublishFailed, StoreError, StoreUnavailable
from longshore.store import blob_names
from longshore.store.api import Staged
from longshore.store.durability import filesystem
from longshore.store.records import Problem, StoredBlob
from longshore.store.staging.area import Staging
from longshore.store.staging.part_facts import PartFacts
from longshore.store.staging.part_writer import PartWriter
from longshore.store.staging.parts import COPY_BYTES, Part
from longshore.store.staging.reservations import Reservation, TenantQuota
from longshore.store.verify_blob import problem_with

log = logging.getLogger(__name__)


class BaseStore:
    """Base class of all stores: parts and reservations on this disk, recovery, verification."""

    staging: Staging

    def old_part(self, scope: Scope, job_id: str) -> PartFacts | None:
        """Return the newest part with durable bytes that an earlier epoch left on this machine."""
        with filesystem.told("looking for a part"):
            return self.staging.old_part(scope, job_id)

    def part(self, scope: Scope, job_id: str, epoch: int, *, adopt: PartFacts | None = None) -> Part:
        """Make a private part; with `adopt`, begin with the older part's durable prefix.

        A caller that knows the size sets a reservation of that size. Until then the part has an empty reservation, so
        that bytes of unknown total length are checked against the limits as well.
        """
        room = self.reserve(scope, 0)
        if adopt is None:
            part = self.staging.part(scope, job_id, epoch, None)
        else:
            part = self._adopting(scope, job_id, epoch, adopt)
        part.reservation = room
        return part

    def _adopting(self, scope: Scope, job_id: str, epoch: int, adopt: PartFacts) -> Part:
        """Adopt an older part: by a copy if the disk has room for one, otherwise piece by piece, otherwise not at all."""
        try:
            with self.reserve_for_part(scope, job_id, epoch, adopt.durable_bytes, keep=adopt) as copying:
                return self.staging.part(scope, job_id, epoch, adopt, copying)
        except DiskFull:
            with contextlib.suppress(DiskFull), self.reserve(scope, COPY_BYTES):
                return self.staging.part(scope, job_id, epoch, adopt)
        log.warning("job %s starts from zero: the disk has no room to take over its part", job_id)
        self.drop_part(adopt)
        return self.staging.part(scope, job_id, epoch, None)

    def reserve_for_part(
        self, scope: Scope, job_id: str, epoch: int, nbytes: int | None, *, keep: PartFacts | None = None
    ) -> Reservation:
        """Reserve space for a body. If it does not fit, or its length is unknown, drop the parts of earlier epochs."""
        if nbytes is not None:
            with contextlib.suppress(DiskFull):
                return self.reserve(scope, nbytes)
        with filesystem.told("removing a part"):
            self.staging.drop_earlier(scope, job_id, epoch, keep)
        return self.reserve(scope, nbytes or 0)

    def part_bytes(self, facts: PartFacts) -> int:
        """Return how many bytes a part takes on the disk."""
        with filesystem.told("looking at a part"):
            return self.staging.part_bytes(facts)

    def pump(self, part: Part, resume: Callable[[], object] | None = None) -> PartWriter:
        """Return a writer that hashes a large body and writes it to its part."""
        return self.staging.pump(part, resume)

    def preallocation(self, total: int | None, ceiling: int) -> int:
        """Return how many bytes `Part.begin` may preallocate for a body of `total` bytes, at most `ceiling`."""
        return self.staging.preallocation(total, ceiling)

    def parts(self) -> Iterator[PartFacts]:
        """Yield every part on this machine, including staged small bodies."""
        with filesystem.told("listing the parts"):
            yield from self.staging.parts()
            for scope, job_id, epoch, _ in self.staging.smalls():
                yield PartFacts(scope, job_id, epoch)

    def drop_part(self, facts: PartFacts) -> None:
        """Remove the part and small bodies of one epoch of a job."""
        with filesystem.told("removing a part"):
            self.staging.drop_part(facts)
            self.staging.drop_smalls(facts.scope, facts.job_id, facts.epoch)

    def quarantine_body(self, scope: Scope, job_id: str, epoch: int, body: bytes | Part, why: str) -> str | None:
        """Keep a body that failed validation, for inspection; return None if it could not be kept."""
        return self.staging.quarantine.keep_body(scope, job_id, epoch, body, why)

    def reserve(self, scope: Scope, nbytes: int) -> Reservation:
        """Reserve space for incoming bytes, or raise `DiskFull` or `OverBudget`."""
        with filesystem.told("reserving room"):
            try:
                return self.staging.rooms.reserve(scope, nbytes)
            except FileNotFoundError:
                if not self.staging.mend():
                    raise
                return self.staging.rooms.reserve(scope, nbytes)

    def room(self) -> TenantQuota:
        """Return the available space."""
        with filesystem.told("looking for room"):
            return self.staging.rooms.room()

    def full(self) -> str | None:
        """Return why nothing can be written on this machine's disk now; None if something can."""
        with filesystem.told("looking for room"):
            return self.staging.rooms.full()

    def count_by(self, used_bytes: Callable[[str], int], limit_bytes: Callable[[str], int] | None = None) -> None:
        """Set the callbacks (the ledger's) that return a tenant's usage and limit."""
        self.staging.rooms.used_bytes = used_bytes
        if limit_bytes is not None:
            self.staging.rooms.limit_bytes = limit_bytes

    def rehome(self, held: StoredBlob, why: str, *, dry_run: bool = False) -> str | None:
        """See `Store`: only files can be in a wrong place."""
        return None

    # ── recovery and verification, built on a store's own methods ──

    def stage(self, items: Sequence[Staged]) -> list[StoreError | None]:
        """See `Store`."""
        raise NotImplementedError

    def link(self, items: Sequence[Staged]) -> list[Blob | StoreError]:
        """See `Store`."""
        raise NotImplementedError

    def clean(self, items: Sequence[Staged]) -> None:
        """See `Store`."""
        raise NotImplementedError

    def open(self, scope: Scope, pointer: str) -> BinaryIO:
        """See `Store`."""
        raise NotImplementedError

    def find(self, scope: Scope, sha256: str, content_type: str) -> Blob | None:
        """Find a blob by its hash and make sure that it is durable."""
        raise NotImplementedError

    def admitted(self, items: Sequence[Staged], *, here: bool) -> list[StoreError | None]:
        """Check free space and budgets for a batch's small bodies (parts have reservations); `here`: on this disk."""
        results: list[StoreError | None] = [None] * len(items)
        small = [(index, item) for index, item in enumerate(items) if isinstance(item.body, bytes)]
        self._note_room(items)
        if here and small:
            self._check_floor(small, results)
        left: dict[str, int | None] = {}
        for index, item in small:
            if results[index] is not None:
                continue
            tenant = item.scope.tenant_id
            if tenant not in left:
                left[tenant] = self.staging.rooms.budget_left(tenant)
            if item.room is not None and left[tenant] is not None:
                item.room = replace(item.room, tenant_left_bytes=left[tenant])
            results[index] = self._over_budget(item, left)
        return results

    def _check_floor(self, small: Sequence[tuple[int, Staged]], results: list[StoreError | None]) -> None:
        """Refuse the small bodies that do not fit; check them together first, and one by one if that fails."""
        rooms = self.staging.rooms
        with contextlib.suppress(DiskFull):
            rooms.check_floor(sum(item.size_bytes for _, item in small))
            return
        taken = 0
        for index, item in small:
            try:
                rooms.check_floor(item.size_bytes, taken)
            except DiskFull as error:
                results[index] = error
            else:
                taken += item.size_bytes

    def _note_room(self, items: Sequence[Staged]) -> None:
        """Record the free space once for all small bodies of a batch; a part recorded it when it reserved space."""
        room = self.staging.rooms.look()
        for item in items:
            reserved = item.body.reservation if isinstance(item.body, Part) else None
            item.room = reserved.room if reserved is not None else replace(room, need_bytes=item.size_bytes)

    def _over_budget(self, item: Staged, left: dict[str, int | None]) -> OverBudget | None:
        """Subtract an item from its tenant's budget, or return `OverBudget`; blobs that are already stored are free."""
        room = left[item.scope.tenant_id]
        if room is None:
            return None
        if item.size_bytes <= room:
            left[item.scope.tenant_id] = room - item.size_bytes
            return None
        if self.find(item.scope, blob_names.check_sha256(item.sha256), item.content_type) is not None:
            return None
        over = OverBudget(
            f"the tenant may add {max(0, room)} bytes; {item.size_bytes} are too many",
            hint="raise quota.tenant_bytes or purge",
        )
        looked = replace(self.staging.rooms.look(), need_bytes=item.size_bytes, tenant_left_bytes=max(0, room))
        over.facts = looked.facts(over.reason)
        return over

    def recover(
        self, scope: Scope, job_id: str, epoch: int, *, sha256: str, size_bytes: int, content_type: str
    ) -> Blob | None:
        """Finish the publication that a dead epoch began: find the blob, or publish its part if that is complete."""
        with filesystem.told("finishing what was begun"):
            return self._recovered(scope, job_id, epoch, sha256, size_bytes, content_type)

    def _recovered(
        self, scope: Scope, job_id: str, epoch: int, sha256: str, size_bytes: int, content_type: str
    ) -> Blob | None:
        held = self.find(scope, blob_names.check_sha256(sha256), content_type)
        if held is not None and self.prove(
            replace(held, size_bytes=size_bytes), scope, "adoption", unreadable_too=True
        ):
            return held
        for body in self._bodies(scope, job_id, epoch, sha256, size_bytes):
            item = Staged(scope, job_id, epoch, sha256, size_bytes, content_type, body)
            outcome = self.stage([item])[0] or self.link([item])[0]
            if isinstance(body, Part):
                body.close()
            if isinstance(outcome, StoreError):
                raise outcome
            return outcome
        return None

    def _bodies(self, scope: Scope, job_id: str, epoch: int, sha256: str, size_bytes: int) -> Iterator[bytes | Part]:
        small = self.staging.read_small(scope, job_id, sha256)
        if small is not None and hashlib.sha256(small).hexdigest() == sha256:
            yield small
        for facts in self.staging.whole_parts(scope, job_id, size_bytes):
            if facts.epoch >= epoch:
                continue
            part = self.part(scope, job_id, epoch, adopt=replace(facts, sha256=sha256))
            if part.size_bytes == size_bytes and part.sha256 == sha256:
                yield part
            else:
                part.discard()

    def check(self, scope: Scope, pointer: str, sha256: str, size_bytes: int) -> Problem | None:
        """Read a whole blob and return the problem found, if any."""
        try:
            return self._problem(scope, pointer, sha256, size_bytes)
        except StoreError:
            return Problem.UNREADABLE

    def _problem(self, scope: Scope, pointer: str, sha256: str, size_bytes: int) -> Problem | None:
        """Read a whole blob and return its problem; raise errors that may be transient (server down, EMFILE)."""
        try:
            with self.open(scope, pointer) as file:
                return problem_with(file, sha256, size_bytes)
        except NotFound:
            return Problem.MISSING
        except StoreUnavailable:
            raise
        except BlobDamaged:  # not a plain file
            return Problem.WRONG_SIZE
        except StoreError:
            return Problem.UNREADABLE
        except OSError as error:
            with filesystem.told(f"reading blob {sha256}"):
                return filesystem.unreadable(error)

    def prove(self, blob: Blob, scope: Scope, found_by: str, *, unreadable_too: bool = False) -> bool:
        """Read a whole blob before it is trusted; return False if it is missing or damaged.

        A damaged blob is quarantined and logged. An unreadable blob raises an error, unless the caller has the bytes or
        can fetch them again (`unreadable_too`): then it is quarantined as well.
        """
        problem = self._problem(scope, blob.pointer, blob.sha256, blob.size_bytes)
        if problem is Problem.UNREADABLE and not unreadable_too:
            raise StoreError(f"blob {blob.sha256} cannot be read", hint="check the disk and the kernel's log")
        if problem is not None and problem is not Problem.MISSING:
            self.set_aside(scope, blob.pointer, blob.sha256, blob.size_bytes, f"{found_by}: {problem}")
        return problem is None

    def set_aside(self, scope: Scope, pointer: str, sha256: str, size_bytes: int, why: str) -> str | None:
        """See `Store`."""
        raise NotImplementedError


def tell_damaged(sha256: str, why: str, name: str | None) -> None:
    """Log that a damaged blob was found, so that an operator can check the disk."""
    where = f"it was moved to quarantine as {name}" if name else "it could not be moved to quarantine"
    log.warning("blob %s is damaged (%s); %s", sha256, why, where)


def write_small(staging: Staging, directory: int, item: Staged) -> int:
    """Write a small body under its private name and return its open descriptor."""
    body = item.body
    assert isinstance(body, bytes)
    name = staging.small_name(item.job_id, item.epoch, item.sha256)
    try:
        fd = os.open(name, filesystem.CREATE, 0o444, dir_fd=directory)
    except FileExistsError:  # the same attempt stages the body again
        filesystem.unlink(name, directory)
        fd = os.open(name, filesystem.CREATE, 0o444, dir_fd=directory)
    item.staged_as = name
    try:
        filesystem.write_all(fd, body)
    except OSError:
        os.close(fd)
        with contextlib.suppress(OSError):
            filesystem.unlink(name, directory)
        raise
    return fd


def check_part(item: Staged, part: Part) -> None:
    """Raise `PublishFailed` if a part does not match its announced hash or size."""
    if part.closed or part.size_bytes != item.size_bytes or part.sha256 != item.sha256:
        raise PublishFailed("the part is not what was announced")


def note_barrier(items: Sequence[Staged], elapsed_s: float) -> None:
    """Record the duration of the batch's barrier in every item."""
    for item in items:
        item.fsync_s += elapsed_s
        if isinstance(item.body, Part):
            item.body.fsync_s += elapsed_s


def extension_of(item: Staged) -> str:
    """Return the extension of an item's name."""
    if item.ext is not None:
        return blob_names.check_extension(item.ext)
    return blob_names.extension(item.body.head if isinstance(item.body, Part) else item.body[: blob_names.HEAD_BYTES])
