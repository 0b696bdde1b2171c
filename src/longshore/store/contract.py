"""What every store does, and the records it hands over. `open_store` makes one; nobody else needs to know which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from longshore.domain.model import Blob, Scope
from longshore.errors import StoreError
from longshore.store.parts import Part, PartFacts
from longshore.store.pump import Pump
from longshore.store.records import Held, Problem, Quarantined
from longshore.store.room import Reservation, Room


@dataclass(slots=True)
class Staged:
    """Bytes on their way from a job to their name. The store keeps its own notes in `staged_as`."""

    scope: Scope
    job_id: str
    epoch: int
    sha256: str
    size_bytes: int
    content_type: str
    body: bytes | Part
    ext: str | None = None  # None: derived from the bytes, so that one hash has one name
    staged_as: str | None = field(default=None, repr=False, compare=False)
    fsync_s: float = field(default=0.0, compare=False)  # what its barriers took, shared by the whole batch
    room: Room | None = field(default=None, repr=False, compare=False)  # what there was when it asked for room


class Store(Protocol):
    """A place for blobs, with a local waiting room for parts. All methods block; run them in a thread."""

    backend: str

    def old_part(self, scope: Scope, job_id: str) -> PartFacts | None:
        """Give the newest part with durable bytes that an earlier epoch left on this machine."""

    def part(self, scope: Scope, job_id: str, epoch: int, *, adopt: PartFacts | None = None) -> Part:
        """Make a private part; with `adopt`, begin with a copy of the older part's durable prefix."""

    def pump(self, part: Part, resume: Callable[[], object] | None = None) -> Pump:
        """Make the pump that carries a large body into its part."""

    def stage(self, items: Sequence[Staged]) -> list[StoreError | None]:
        """Make every item durable under a private name, with one barrier for all of them."""

    def link(self, items: Sequence[Staged]) -> list[Blob | StoreError]:
        """Publish staged items under their hashes without replacing anything, with one barrier for all of them."""

    def clean(self, items: Sequence[Staged]) -> None:
        """Forget the private names, after the registering transaction (or instead of it)."""

    def recover(
        self, scope: Scope, job_id: str, epoch: int, *, sha256: str, size_bytes: int, content_type: str
    ) -> Blob | None:
        """Finish what a dead epoch meant to publish: find the blob, or publish its part if that is whole."""

    def path(self, scope: Scope, pointer: str) -> Path | None:
        """Name the blob's file, where the store has files."""

    def open(self, scope: Scope, pointer: str) -> BinaryIO:
        """Open a blob for reading, with random access."""

    def stat(self, scope: Scope, sha256: str) -> Blob | None:
        """Find a blob by its hash."""

    def sizes(self, scope: Scope, pointers: Sequence[str]) -> list[int | None]:
        """Give the size of each blob, or None where there is none: one call for a whole list."""

    def check(self, scope: Scope, pointer: str, sha256: str, size_bytes: int) -> Problem | None:
        """Read a blob whole and say what is wrong with it."""

    def prove(self, blob: Blob, scope: Scope, found_by: str, *, unreadable_too: bool = False) -> bool:
        """Read a blob whole before it is trusted; one that is damaged is quarantined and logged."""

    def set_aside(self, scope: Scope, pointer: str, sha256: str, size_bytes: int, why: str) -> str | None:
        """Quarantine a damaged blob and log it; None if it was gone, or replaced by a sound one meanwhile."""

    def walk(self) -> Iterator[Held]:
        """Give every blob of every tenant."""

    def blank(self) -> bool:
        """Tell whether there is no trace of a blob, not even of one that was deleted by hand."""

    def parts(self) -> Iterator[PartFacts]:
        """Give every part on this machine."""

    def drop_part(self, facts: PartFacts) -> None:
        """Remove a part that nobody will come back to."""

    def remove(self, scope: Scope, pointer: str) -> bool:
        """Remove a blob that no row points to; False if it was gone."""

    def preallocation(self, total: int | None, ceiling: int) -> int:
        """Say how many bytes `Part.begin` may set aside for a body that claims `total`, of `ceiling` reserved."""

    def quarantine_body(self, scope: Scope, job_id: str, epoch: int, body: bytes | Part, why: str) -> str | None:
        """Keep a body that failed its verdict, for a person to look at; None where it could not be kept."""

    def quarantine(self, scope: Scope, pointer: str, why: str, *, at: int | None = None) -> str | None:
        """Move a blob out of reach and give its name there; None if it was gone. `at` is now unless told."""

    def quarantined(self) -> Iterator[Quarantined]:
        """Give everything in quarantine, of every tenant."""

    def restore(self, scope: Scope, name: str) -> bool:
        """Put a quarantined blob back under its name; False if it is not there. What has the name by now stays."""

    def forget(self, scope: Scope, name: str) -> None:
        """Remove something from quarantine for good."""

    def collect(self, older_than_s: float = 86_400.0) -> int:
        """Remove what dead writers left where no listing shows it; give the number."""

    def reserve(self, scope: Scope, nbytes: int) -> Reservation:
        """Set room aside for bytes to come, or raise `DiskFull` or `OverBudget`."""

    def room(self) -> Room:
        """Say how much room there is."""

    def full(self) -> str | None:
        """Return why nothing can be written on this machine's disk now; None if something can."""

    def count_by(self, used_bytes: Callable[[str], int], limit_bytes: Callable[[str], int] | None = None) -> None:
        """Let somebody who knows better say how many bytes a tenant holds, and may hold."""

    def close(self) -> None:
        """Let go of descriptors and threads."""
