"""Small words that the store's tests share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from longshore.domain.model import Blob, Scope
from longshore.domain.settings import QuotaSettings, Settings
from longshore.store import Part, Staged, Store

SCOPE = Scope("acme", "corpus")
NO_FLOOR = Settings(quota=QuotaSettings(free_bytes_min=0))  # for disks that are small on purpose


def staged(body: bytes, job_id: str = "job-1", epoch: int = 1, scope: Scope = SCOPE) -> Staged:
    return Staged(scope, job_id, epoch, hashlib.sha256(body).hexdigest(), len(body), "text/plain", body)


def of_part(part: Part) -> Staged:
    facts = part.facts
    return Staged(facts.scope, facts.job_id, facts.epoch, part.sha256, part.size_bytes, "text/plain", part)


def publish(store: Store, *items: Staged) -> list[Blob]:
    assert store.stage(items) == [None] * len(items)
    blobs = linked(store, items)
    store.clean(items)
    return blobs


def linked(store: Store, items: Sequence[Staged]) -> list[Blob]:
    blobs = []
    for outcome in store.link(items):
        assert isinstance(outcome, Blob), outcome
        blobs.append(outcome)
    return blobs


def files_below(root: Path) -> list[str]:
    """Name every file but locks and sums of reservations."""
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if path.name != "lock" and path.suffix != ".sum")


def wrong_blobs(root: Path) -> list[str]:
    """Name the blobs below a local store whose bytes are not what their name says, read by nobody's code of ours."""
    blobs = root.glob("[!.]*/*/??/*")
    return [str(path) for path in blobs if hashlib.sha256(path.read_bytes()).hexdigest() != path.name[:64]]
