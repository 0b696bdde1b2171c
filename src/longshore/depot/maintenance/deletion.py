"""Delete artifacts with their bytes, in batches; go on with a deletion that was interrupted.

The rows of a batch are deleted first (`ledger.operations.deleting`), then its bytes: a blob goes to quarantine, the ledger is
read again, and the blob comes back if an artifact or an open intent refers to these bytes by now. Otherwise it is removed at
once. So bytes that are being published at this moment are never lost, and deleted bytes do not wait for a grace period.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from longshore import failpoints
from longshore.domain.model import Artifact, Micros, Scope
from longshore.errors import StoreError
from longshore.ledger.ids import floor_id
from longshore.ledger.operations.deleting import SHARED, By, Unfreed, delete_artifacts, note_freed, unfreed
from longshore.ledger.queries.due_work import referenced
from longshore.ledger.queries.listing import ArtifactFilter

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Store

log = logging.getLogger(__name__)
BATCH: Final = 200
PAGE: Final = 1_000
DELETED: Final = "deleted"  # in quarantine
failpoints.declare("delete.rows", "delete.quarantined", "delete.removed", "delete.freed")


@dataclass(slots=True)
class Deletion:
    """The result of a deletion."""

    artifact_ids: list[str] = field(default_factory=list)
    bytes: int = 0  # that nothing refers to any more
    used: dict[str, str] = field(default_factory=dict)  # not deleted: inputs, each with an unfinished job
    unknown: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)  # bytes that could not be removed now, each with the reason


def delete(ledger: Ledger, store: Store, scope: Scope, artifact_ids: Iterable[str], by: By) -> Deletion:
    """Delete artifacts; finish deletions that were interrupted before."""
    done = Deletion(failed=free_deleted(ledger, store, scope))
    ids = iter(dict.fromkeys(artifact_ids))
    while batch := list(islice(ids, BATCH)):
        part = ledger.write(delete_artifacts, scope, batch, by)
        failpoints.hit("delete.rows")
        done.artifact_ids += part.artifact_ids
        done.bytes += part.bytes
        done.used |= part.used
        done.unknown += part.unknown
        done.failed += free_deleted(ledger, store, scope)
    return done


def free_deleted(ledger: Ledger, store: Store, scope: Scope) -> list[str]:
    """Remove the bytes of deleted artifacts; return why some could not be removed."""
    failed: dict[str, str] = {}
    while waiting := [one for one in ledger.read(unfreed, scope, PAGE) if one.sha256 not in failed]:
        aside = _set_aside_before(store, scope)
        for one in waiting:
            try:
                freed_at = SHARED if _free(ledger, store, scope, one, aside.get(one.sha256)) else ledger.now()
            except StoreError as error:
                log.warning("the bytes of deleted artifact(s) %s cannot be removed: %s", one.sha256, error)
                failed[one.sha256] = f"{one.sha256}: {error}"
            else:
                ledger.write(note_freed, scope, [one.sha256], freed_at)
                failpoints.hit("delete.freed")
    return list(failed.values())


def _set_aside_before(store: Store, scope: Scope) -> dict[str, str]:
    """Return what an interrupted deletion left in quarantine."""
    found = (old for old in store.quarantined() if old.scope == scope and old.why == DELETED)
    return {str(old.sha256): old.name for old in found}


def _free(ledger: Ledger, store: Store, scope: Scope, one: Unfreed, aside: str | None) -> bool:
    """Remove one blob; return whether it stays because something refers to its bytes again."""
    if aside is None and ledger.read(referenced, scope, [one.sha256]):
        return True
    name = aside or store.quarantine(scope, one.pointer, DELETED, at=ledger.now())
    failpoints.hit("delete.quarantined")
    if name is None:
        return False
    if ledger.read(referenced, scope, [one.sha256]):
        store.restore(scope, name)
        return True
    store.forget(scope, name)
    failpoints.hit("delete.removed")
    return False


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which artifacts to delete: named ones, results of jobs, or all that match."""

    artifact_ids: tuple[str, ...] = ()
    job_ids: tuple[str, ...] = ()
    wanted: ArtifactFilter | None = None
    before: Micros | None = None  # only those that are older


def chosen_artifacts(ledger: Ledger, scope: Scope, chosen: Chosen) -> Iterator[Artifact]:
    """Find the artifacts to delete, each once; raise NotFound for an id that does not exist."""
    for artifact_id in dict.fromkeys(chosen.artifact_ids):
        yield ledger.artifact(scope, artifact_id)
    for job_id in dict.fromkeys(chosen.job_ids):
        ledger.job(scope, job_id)
        yield from ledger.results(scope, job_id)
    if chosen.wanted is not None:
        after = None if chosen.before is None else floor_id(chosen.before)
        while True:
            page = ledger.artifacts(scope, chosen.wanted, after=after, limit=PAGE)
            yield from page.items
            if (after := page.next) is None:
                return


def ids_and_bytes(artifacts: Iterable[Artifact]) -> tuple[list[str], int]:
    """Return the ids and the total size of artifacts, each counted once."""
    found = {one.artifact_id: one.size_bytes for one in artifacts}
    return list(found), sum(found.values())
