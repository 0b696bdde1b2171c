"""Reservations of disk space. Every process of the store reserves space for bytes before it receives them.

A process writes the sum of its reservations to its own file, on which it holds a lock; a file whose lock is free
belongs to a dead process and is removed. Bytes on the disk are no longer in flight: a reservation shrinks as its bytes
are written, so the available space is always the file system's free space minus all reservations.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Self

from longshore.domain.model import Scope
from longshore.domain.policy.disk_space import LEAST_BYTES, Lack, growth_lack, is_full, lack_of, never_fits
from longshore.domain.settings import QuotaSettings
from longshore.errors import DiskFull, NeverFits, OverBudget
from longshore.store.durability import filesystem

SMALL: Final = 1 << 20  # below this a reservation is not worth a lock between processes
LOOK_AGAIN: Final = 1 << 20  # bytes beyond a reservation (of a body of unknown length) between two checks of the floor
_SUM: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class TenantQuota:
    """The available space; with `need_bytes`, at the time of a reservation."""

    free_bytes: int
    reserved_bytes: int  # by all processes, as far as known
    floor_bytes: int
    need_bytes: int = 0
    tenant_left_bytes: int | None = None  # of the budget; None without one

    def check(self) -> None:
        """Raise `DiskFull` if `need_bytes` do not fit."""
        free, reserved, floor, need = self.free_bytes, self.reserved_bytes, self.floor_bytes, self.need_bytes
        if (lack := lack_of(free=free, reserved=reserved, floor=floor, need=need)) is not None:
            told = f"{free} bytes are free, {reserved} of them reserved, {floor} must stay free: {need} do not fit"
            full = DiskFull(told, hint="make room on the disk, or lower quota.free_bytes_min", lack=lack)
            full.facts = self.facts("disk_full")
            raise full

    def facts(self, decision: str = "ok") -> dict[str, int | str]:
        """Return the figures under the names that an artifact's history uses; `decision`: ok, or why not."""
        facts: dict[str, int | str] = {
            "quota_start_free": self.free_bytes,
            "quota_need": self.need_bytes,
            "quota_reserved": self.reserved_bytes,
            "quota_floor": self.floor_bytes,
            "quota_decision": decision,
        }
        if self.tenant_left_bytes is not None:
            facts["quota_tenant_left"] = self.tenant_left_bytes
        return facts

    @property
    def available_bytes(self) -> int:
        """The bytes that may still be reserved."""
        return max(0, self.free_bytes - self.reserved_bytes - self.floor_bytes)


class Reservation:
    """Space reserved for incoming bytes."""

    def __init__(self, owner: Reservations, tenant_id: str, nbytes: int, shared: int, room: TenantQuota) -> None:
        self._owner = owner
        self._tenant_id = tenant_id
        self.nbytes = self._announced = nbytes
        self.room = room  # the available space at the start
        self._left = shared
        self._written = 0
        self._look_at = LOOK_AGAIN

    def used(self, nbytes: int) -> None:
        """Record bytes that were written to the disk; check the limits for bytes beyond the reservation."""
        step = min(nbytes, self._left)
        self._left -= step
        self._owner.give_back(step)
        self._written += nbytes
        if self._written > self.nbytes:
            self._grow()

    def _grow(self) -> None:
        """Extend the reservation to unannounced bytes, which also count against the tenant's budget."""
        self._owner.grow(self._tenant_id, self._written - self.nbytes)
        self.nbytes = self._written
        if self._written >= self._look_at:
            self._look_at = self._written + LOOK_AGAIN
            try:
                self._owner.check_floor()
            except DiskFull as error:
                raise self.outgrown(error) from None

    def outgrown(self, error: DiskFull) -> DiskFull:
        """Set whether this body's unannounced bytes or other data filled the disk, and return the error."""
        unannounced = max(0, self._written - self._announced)
        if unannounced:
            error.lack = self._owner.growth_lack(unannounced)
        return error

    def release(self) -> None:
        """Release the rest of the reservation."""
        self._owner.give_back(self._left, self._tenant_id, self.nbytes)
        self._left, self.nbytes = 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Reservations:
    """The reservations of this process, and the sum over all processes."""

    def __init__(self, directory: int, settings: QuotaSettings, used_bytes: Callable[[str], int]) -> None:
        self._directory = directory
        self.settings = settings
        self.used_bytes = used_bytes  # returns a tenant's stored bytes
        self.limit_bytes: Callable[[str], int] = lambda _tenant: settings.tenant_bytes
        self._lock = threading.Lock()
        self._in_flight = 0
        self._others_seen = 0
        self._by_tenant: dict[str, int] = {}
        self._name = f"{uuid.uuid4().hex}.sum"
        self._fd: int | None = None

    def reserve(self, scope: Scope, nbytes: int) -> Reservation:
        """Reserve space, or raise the error that explains the refusal, before anything is written."""
        need = int(nbytes * self.settings.margin_factor)
        with self._lock:
            left = self._check_budget(scope.tenant_id, nbytes)
            if need >= SMALL:
                self._check_capacity(nbytes)
            if need < SMALL:
                room = self._check_free(need, self._in_flight, left)
                shared = 0
            else:
                with self._alone():
                    self._others_seen = self._others()
                    room = self._check_free(need, self._in_flight + self._others_seen, left)
                    self._in_flight += need
                    self._write_sum()
                shared = need
            self._by_tenant[scope.tenant_id] = self._by_tenant.get(scope.tenant_id, 0) + nbytes
        return Reservation(self, scope.tenant_id, nbytes, shared, room)

    def grow(self, tenant_id: str, nbytes: int) -> None:
        """Subtract bytes that are already written from a tenant's budget, or raise `OverBudget`."""
        with self._lock:
            self._check_budget(tenant_id, nbytes)
            self._by_tenant[tenant_id] = self._by_tenant.get(tenant_id, 0) + nbytes

    def look(self) -> TenantQuota:
        """Return the available space as known without the inter-process lock."""
        return TenantQuota(self._free(), self._in_flight + self._others_seen, self.settings.free_bytes_min)

    def check_floor(self, need: int = 0, taken: int = 0) -> None:
        """Raise `DiskFull` if `need` would leave less than the floor; `taken`: bytes of earlier items of the batch."""
        self._check_free(need, taken)

    def budget_left(self, tenant_id: str) -> int | None:
        """Return how many bytes a tenant may still add; None without a limit."""
        limit = self.limit_bytes(tenant_id)
        if not limit:
            return None
        with self._lock:
            return limit - self.used_bytes(tenant_id) - self._by_tenant.get(tenant_id, 0)

    def room(self) -> TenantQuota:
        """Return the available space, with the reservations of all processes."""
        with self._lock, self._alone():
            return TenantQuota(self._free(), self._in_flight + self._others(), self.settings.free_bytes_min)

    def give_back(self, nbytes: int, tenant_id: str | None = None, budget: int = 0) -> None:
        """Subtract bytes from the sums."""
        with self._lock:
            if nbytes:
                self._in_flight -= nbytes
                self._write_sum()
            if tenant_id is not None:
                left = self._by_tenant.get(tenant_id, 0) - budget
                self._by_tenant[tenant_id] = left
                if left <= 0:
                    del self._by_tenant[tenant_id]

    def _check_budget(self, tenant_id: str, nbytes: int) -> int | None:
        """Return how many bytes the tenant may still add; None without a limit."""
        limit = self.limit_bytes(tenant_id)
        if not limit:
            return None
        used = self.used_bytes(tenant_id) + self._by_tenant.get(tenant_id, 0)
        if used + nbytes > limit:
            over = OverBudget(
                f"the tenant holds {used} of {limit} bytes; {nbytes} more are too many",
                hint="raise quota.tenant_bytes or purge",
            )
            room = TenantQuota(self._free(), self._in_flight, self.settings.free_bytes_min, nbytes, limit - used)
            over.facts = room.facts(over.reason)
            raise over
        return limit - used

    def _check_free(self, need: int, in_flight: int, left: int | None = None) -> TenantQuota:
        room = TenantQuota(self._free(), in_flight, self.settings.free_bytes_min, need, left)
        room.check()
        return room

    def _check_capacity(self, nbytes: int) -> None:
        """Raise `NeverFits` if the empty file system could not hold this."""
        stat = os.statvfs(self._directory)
        capacity = (stat.f_blocks - (stat.f_bfree - stat.f_bavail)) * stat.f_frsize
        floor = self.settings.free_bytes_min
        if never_fits(nbytes, capacity=capacity, floor=floor):
            never = NeverFits(
                f"{nbytes} bytes never fit: the file system holds {capacity}, and {floor} must stay free",
                hint="put the store on a larger disk",
                lack=Lack.NEVER,
            )
            never.facts = TenantQuota(self._free(), self._in_flight, floor, nbytes).facts(never.reason)
            raise never

    def growth_lack(self, written: int) -> Lack:
        """Return whether a body with `written` unannounced bytes filled the disk, or other data did."""
        return growth_lack(free=self._free(), floor=self.settings.free_bytes_min, written=written)

    def full(self) -> str | None:
        """Return why nothing can be written now; None if writing works. Try a small file, because the free bytes do not
        show quotas, nor on every file system a lack of inodes."""
        free, floor = self._free(), self.settings.free_bytes_min
        if is_full(free, floor):
            return f"{free} bytes are free, {floor} must stay free"
        name = f".probe-{uuid.uuid4().hex}"
        try:
            fd = os.open(name, filesystem.CREATE, 0o600, dir_fd=self._directory)
            try:
                filesystem.preallocate(fd, LEAST_BYTES)
            finally:
                os.close(fd)
                filesystem.unlink(name, self._directory)
        except OSError as error:
            if error.errno in filesystem.FULL:
                return os.strerror(error.errno or 0)
        return None

    def _free(self) -> int:
        stat = os.statvfs(self._directory)
        return stat.f_bavail * stat.f_frsize

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        fd = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._directory)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _write_sum(self) -> None:
        if self._fd is None:
            self._fd = os.open(self._name, filesystem.CREATE, 0o600, dir_fd=self._directory)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        os.pwrite(self._fd, _SUM.pack(max(0, self._in_flight)), 0)

    def _others(self) -> int:
        return sum(self._sum_of(name) for name in os.listdir(self._directory) if name.endswith(".sum"))

    def _sum_of(self, name: str) -> int:
        if name == self._name:
            return 0
        try:
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._directory)
        except FileNotFoundError:
            return 0
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                filesystem.unlink(name, self._directory)  # its process is gone
                return 0
            raw = os.pread(fd, _SUM.size, 0)
            return int(_SUM.unpack(raw)[0]) if len(raw) == _SUM.size else 0
        finally:
            os.close(fd)

    def close(self) -> None:
        """Remove this process's file."""
        if self._fd is not None:
            filesystem.unlink(self._name, self._directory)
            os.close(self._fd)
            self._fd = None
