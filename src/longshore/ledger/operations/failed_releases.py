"""Releases of a book that failed for good: starting one of them again is refused unless the caller insists.

A release is known by its info hashes and by a hash of its source, so the same torrent is recognised by another link.
"""

from __future__ import annotations

import hashlib
from typing import Final

from longshore.domain.model import Scope
from longshore.domain.reasons import Kind, reason_named
from longshore.domain.torrents.model import Identity, TorrentRequest
from longshore.errors import Conflict
from longshore.ledger.rows import encoded
from longshore.ledger.transaction import Tx

OTHER_CAUSES: Final = frozenset({"missing_external_job", "not_adopted", "canceled"})


def releases_of(source: str | None, *identities: Identity) -> list[str]:
    """Return the names by which a release is remembered."""
    names = [name for identity in identities for name in (identity.v1, identity.v2) if name]
    if source:
        names.append("source:" + hashlib.sha256(source.encode()).hexdigest())
    return list(dict.fromkeys(names))


def check_release(tx: Tx, request: TorrentRequest) -> None:
    """Raise `Conflict` if this release of the book failed before."""
    if request.again:
        return
    where = {**request.scope._asdict(), "book_id": request.book_id, "media_type": request.media_type}
    found = tx.one("release_known", releases=encoded(releases_of(request.source, request.identity)), **where)
    if found is not None:
        job_id, reason, message = found
        raise Conflict(
            f"this release failed before for the {request.media_type} of book {request.book_id} (job {job_id}): {reason}"
            + (f": {message}" if message else ""),
            job_id=job_id,
            hint="choose another release, or insist: `longshore torrent add --again`, `again` over HTTP and in Python",
        )


def release_failed(
    tx: Tx, scope: Scope, book: tuple[str, str], releases: list[str], job_id: str, reason: str, message: str
) -> None:
    """Remember that a release failed, if the release is to blame, not a host or the user who removed it from the client."""
    if reason in OTHER_CAUSES or reason_named(reason).kind not in (Kind.PERMANENT, Kind.POLICY):
        return
    tx.many("release_failed", [(*scope, *book, name, job_id, reason, message, tx.now) for name in releases])


def release_succeeded(tx: Tx, scope: Scope, book: tuple[str, str], releases: list[str]) -> None:
    """Forget earlier failures of a release."""
    tx.many("release_forgiven", [(*scope, *book, name) for name in releases])
