"""The interface of every store, and the records it returns. `open_store` chooses the backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from longshore.domain.model import Blob, Scope
from longshore.errors import StoreError
from longshore.store.records import Problem, Quarantined, StoredBlob
from longshore.store.staging.part_facts import PartFacts
from longshore.store.staging.part_writer import PartWriter
from longshore.store.staging.parts import Part
from longshore.store.staging.reservations import Reservation, TenantQuota


@dataclass(slots=True)
class Staged:
    """A body that is being published. The store keeps its own state in `staged_as`."""

    scope: Scope
    job_id: str
    epoch: int
    sha256: str
    size_bytes: int
    content_type: str
    body: bytes | Part
    ext: str | None = None  # None: derived from the bytes, so that one hash has one name
    staged_as: str | None = field(default=None, repr=False, compare=False)
    fsync_s: float = field(default=0.0, compare=False)  # time spent in fsync barriers, shared by the whole batch
    room: TenantQuota | None = field(default=None, repr=False, compare=False)  # the space found at reservation time


class Store(Protocol):
    """A blob store with a local staging area for parts. All methods block; run them in a thread."""

    backend: str

    def old_part(self, scope: Scope, job_id: str) -> PartFacts | None:
        """Return the newest part with durable bytes that an earlier epoch left on this machine."""

    def part(self, scope: Scope, job_id: str, epoch: int, *, adopt: PartFacts | None = None) -> Part:
        """Make a private part; with `adopt`, begin with a copy of the older part's durable prefix."""

    def pump(self, part: Part, resume: Callable[[], object] | None = None) -> PartWriter:
        """Return a writer that hashes a large body and writes it to its part."""

    def stage(self, items: Sequence[Staged]) -> list[StoreError | None]:
        """Make every item durable under a private name, with one barrier for all of them."""

    def link(self, items: Sequence[Staged]) -> list[Blob | StoreError]:
        """Publish staged items under their hashes without replacing anything, with one barrier for all of them."""

    def clean(self, items: Sequence[Staged]) -> None:
        """Remove the private names, after the registering transaction or when it is abandoned."""

    def recover(
        self, scope: Scope, job_id: str, epoch: int, *, sha256: str, size_bytes: int, content_type: str
    ) -> Blob | None:
        """Finish the publication that a dead epoch began: find the blob, or publish its part if that is complete."""

    def path(self, scope: Scope, pointer: str) -> Path | None:
        """Return the blob's file, where the store has files."""

    def open(self, scope: Scope, pointer: str) -> BinaryIO:
        """Open a blob for reading, with random access."""

    def stat(self, scope: Scope, sha256: str) -> Blob | None:
        """Find a blob by its hash."""

    def sizes(self, scope: Scope, pointers: Sequence[str]) -> list[int | None]:
        """Return the size of each blob, or None for a missing one, in one call for the whole list."""

    def check(self, scope: Scope, pointer: str, sha256: str, size_bytes: int) -> Problem | None:
        """Read a whole blob and return the problem found, if any."""

    def prove(self, blob: Blob, scope: Scope, found_by: str, *, unreadable_too: bool = False) -> bool:
        """Read a whole blob before it is trusted; quarantine and log a damaged one."""

    def set_aside(self, scope: Scope, pointer: str, sha256: str, size_bytes: int, why: str) -> str | None:
        """Quarantine a damaged blob and log it; return None if it is missing or an intact one has replaced it."""

    def walk(self) -> Iterator[StoredBlob]:
        """Return every blob of every tenant."""

    def blank(self) -> bool:
        """Return whether the store has neither blobs nor traces of deleted ones."""

    def parts(self) -> Iterator[PartFacts]:
        """Return every part on this machine."""

    def part_bytes(self, facts: PartFacts) -> int:
        """Return how many bytes a part takes on the disk."""

    def drop_part(self, facts: PartFacts) -> None:
        """Remove a part that no attempt will resume."""

    def remove(self, scope: Scope, pointer: str) -> bool:
        """Remove an unreferenced blob; return False if it was already gone."""

    def preallocation(self, total: int | None, ceiling: int) -> int:
        """Return how many bytes `Part.begin` may preallocate for a body of `total` bytes, at most `ceiling`."""

    def quarantine_body(self, scope: Scope, job_id: str, epoch: int, body: bytes | Part, why: str) -> str | None:
        """Keep a body that failed validation, for inspection; return None if it could not be kept."""

    def quarantine(self, scope: Scope, pointer: str, why: str, *, at: int | None = None) -> str | None:
        """Move a blob to quarantine and return its name there; None if it was gone. `at` defaults to now."""

    def rehome(self, held: StoredBlob, why: str, *, dry_run: bool = False) -> str | None:
        """Move a blob that is in the wrong shard to its own; return what was done, None if it is in its own."""

    def quarantined(self) -> Iterator[Quarantined]:
        """Return everything in quarantine, of every tenant."""

    def restore(self, scope: Scope, name: str) -> bool:
        """Restore a quarantined blob under its name, without replacing a newer blob; return False if it is missing."""

    def forget(self, scope: Scope, name: str) -> None:
        """Remove an item from quarantine permanently."""

    def collect(self, older_than_s: float = 86_400.0) -> int:
        """Remove leftovers of dead writers that no listing shows; return their number."""

    def reserve(self, scope: Scope, nbytes: int) -> Reservation:
        """Reserve space for incoming bytes, or raise `DiskFull` or `OverBudget`."""

    def reserve_for_part(
        self, scope: Scope, job_id: str, epoch: int, nbytes: int | None, *, keep: PartFacts | None = None
    ) -> Reservation:
        """Reserve space for a body. If it does not fit, or its length is unknown, drop the parts of earlier epochs."""

    def room(self) -> TenantQuota:
        """Return the available space."""

    def full(self) -> str | None:
        """Return why nothing can be written on this machine's disk now; None if something can."""

    def count_by(self, used_bytes: Callable[[str], int], limit_bytes: Callable[[str], int] | None = None) -> None:
        """Set the callbacks that return a tenant's usage and limit."""

    def close(self) -> None:
        """Close the descriptors and stop the threads."""
