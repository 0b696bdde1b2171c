"""Where the files of torrents belong: their books, and their paths inside the torrents."""

from __future__ import annotations

from longshore.domain.kinds import kind_of
from longshore.domain.model import Scope
from longshore.exports.file_names import Origin, Origins
from longshore.exports.manifest_rows import ManifestRow
from longshore.ledger import Ledger


def torrent_origins(ledger: Ledger, scope: Scope) -> Origins:
    """Return a function that looks a row's torrent up. The rows of one job come together: it is read once."""
    known: dict[str, dict[str, Origin]] = {}

    def origin(row: ManifestRow) -> Origin | None:
        if not kind_of(row.job_type).external or row.artifact_id is None:
            return None
        if row.job_id not in known:
            known.clear()
            known[row.job_id] = _files(ledger, scope, row.job_id)
        return known[row.job_id].get(row.artifact_id)

    return origin


def _files(ledger: Ledger, scope: Scope, job_id: str) -> dict[str, Origin]:
    request = ledger.job(scope, job_id).request
    return {
        one.artifact_id: Origin(request.book_id, request.media_type, one.metadata.get("path"))
        for one in ledger.results(scope, job_id)
    }
