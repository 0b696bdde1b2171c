"""The publish protocol: how received bytes become a blob. Downloads, custom results, uploads and torrent imports use it.

    1. stage    the bytes are durable under a private name              store.stage
    2. intent   the ledger has a FINALIZE intent with their SHA-256     ledger.begin
    3. link     the blob appears under its SHA-256, whole and durable   store.link
    4. settle   artifact, job and effect in one transaction             ledger.settle
    5. clean    the private name goes                                   store.clean

Problem: bytes and rows live in two systems that share no transaction, and the process may die between any two steps.

Invariant: a name in the store's final directories has bytes with that SHA-256, and an available artifact has a blob. So
the file comes first and the row second: a crash may leave a blob without a row, never a row without a blob.

Order: 1 and 2 may run side by side, because neither is visible to others; 3 must come after both. Linking before 1 could
show a blob whose bytes are lost by a power cut. Linking before 2 would leave a blob that no row names: reconcile would
collect it while its job is about to register it, and the next attempt could not adopt it instead of fetching it again.
After a crash between 3 and 4 the next attempt finds the intent and adopts the blob. 5 comes last, so that a link that
turns out not to be durable can be repeated.

Not done: registering first and linking later (a reader could see an artifact without bytes), and a rename from staging
(the private name would be gone before the row exists, and two jobs with the same bytes would need one owner).

`Publisher` (publisher.py) does this for batches in the event loop, `publish_now` for one body in a thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from longshore import failpoints
from longshore.domain.model import Blob, Lease
from longshore.errors import LongshoreError
from longshore.ledger.operations.effects import begin
from longshore.ledger.records import Intent

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Staged, Store

FINALIZE: Final = "FINALIZE"
NO_RECORD: Final[Mapping[str, Any]] = MappingProxyType({})
failpoints.declare("publish.begin", "publish.staged", "publish.intents", "publish.linked", "publish.clean")


def finalize_intent(lease: Lease, staged: Staged, record: Mapping[str, Any]) -> Intent:
    """Return the intent of one publish; `record` is what adoption needs after a crash: type, validators, final URL."""
    request = {"sha256": staged.sha256, "size_bytes": staged.size_bytes, **record}
    key = finalize_key(lease.job_id, staged.sha256)
    return Intent(lease, FINALIZE, key, "verifiable", staged.sha256, request)


def finalize_key(job_id: str, sha256: str) -> str:
    """Return `op_key("FINALIZE", job_id, sha256=sha256)` without its checks: it is needed once per file."""
    text = f'{{"job":"{job_id}","kind":"FINALIZE","sha256":"{sha256}","v":1}}'
    return hashlib.sha256(text.encode()).hexdigest()


def write_intents(tx: Any, intents: Sequence[Intent]) -> list[LongshoreError | None]:
    """Write intents in one transaction, which also moves their jobs to the finalized stage and frees the hosts' slots."""
    return [begun if isinstance(begun, LongshoreError) else None for begun in begin(tx, intents)]


def publish_now(
    ledger: Ledger, store: Store, lease: Lease, staged: Staged, record: Mapping[str, Any] = NO_RECORD
) -> Blob:
    """Publish one body and return its blob; raise what prevented it. Blocks: run it in a thread."""
    (no_bytes,) = store.stage([staged])
    if no_bytes is not None:
        raise no_bytes
    (no_intent,) = ledger.write(write_intents, [finalize_intent(lease, staged, record)])
    if no_intent is not None:
        raise no_intent
    failpoints.hit("publish.intents")
    (blob,) = store.link([staged])
    if not isinstance(blob, Blob):
        raise blob
    return blob
