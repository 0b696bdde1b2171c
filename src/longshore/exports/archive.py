"""Purge: write down what is over, make that durable, then forget it. In this order, chunk by chunk, at any time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from longshore import failpoints
from longshore.domain.model import Micros, Scope
from longshore.errors import BadInput
from longshore.exports.manifest import WRITERS
from longshore.exports.rows import ManifestRow
from longshore.exports.source import row_of
from longshore.ledger import Ledger
from longshore.ledger.manifest import entries, purge, purgeable

failpoints.declare("purge.archive", "purge.archived")
CHUNK = 20_000  # jobs per archive file: the most that a crash can leave archived and not yet forgotten
BATCH = 500  # jobs per transaction, so that claims never wait long


@dataclass(slots=True)
class Purged:
    """What a purge did, or would do."""

    jobs: int = 0
    files: list[Path] = field(default_factory=list)


def retire(
    ledger: Ledger,
    scope: Scope,
    *,
    before: Micros,
    target: Path,
    form: str = "parquet",
    dry_run: bool = False,
    note: Callable[[int], None] | None = None,
) -> Purged:
    """Archive and forget the jobs of a scope that were over before a time and that nothing points to."""
    if form not in ("parquet", "csv", "jsonl"):
        raise BadInput(f"an archive is parquet, csv or jsonl, not {form!r}")
    done, after = Purged(), ""
    while chunk := _chunk(ledger, scope, before, after):
        after = chunk[-1]
        done.jobs += len(chunk)
        if not dry_run:
            done.files.append(_archive(ledger, scope, chunk, target, form))
            failpoints.hit("purge.archived")
            for start in range(0, len(chunk), BATCH):
                ledger.write(purge, scope, chunk[start : start + BATCH], before=before)
                if note is not None:
                    note(min(start + BATCH, len(chunk)))
    return done


def _chunk(ledger: Ledger, scope: Scope, before: Micros, after: str) -> list[str]:
    found: list[str] = []
    while len(found) < CHUNK:
        page = ledger.read(purgeable, scope, before=before, after=found[-1] if found else after, many=2_000)
        found += page
        if len(page) < 2_000:
            break
    return found


def _archive(ledger: Ledger, scope: Scope, chunk: list[str], target: Path, form: str) -> Path:
    """Write one archive file whole: a name appears only when its bytes are durable."""
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"{scope.tenant_id}-{scope.project_id}-{chunk[0]}.{form}".replace("/", "_")
    temporary = path.with_name(path.name + ".new")
    with open(temporary, "wb") as out:
        WRITERS[form](_rows(ledger, scope, chunk), out)
        out.flush()
        failpoints.hit("purge.archive")
        os.fsync(out.fileno())
    os.replace(temporary, path)
    directory = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return path


def _rows(ledger: Ledger, scope: Scope, chunk: list[str]) -> Iterator[ManifestRow]:
    wanted, after = set(chunk), ""
    first, last = chunk[0], chunk[-1]
    after = first[:-1]  # the page begins just before the first
    while page := ledger.read(entries, scope, after=after, many=1_000):
        after = page[-1].job_id
        for entry in page:
            if entry.job_id in wanted:
                yield row_of(entry)
        if after >= last:
            break
