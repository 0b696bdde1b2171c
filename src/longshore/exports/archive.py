"""Purge: write down what is over, make that durable, then forget it. In this order, chunk by chunk, at any time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longshore import failpoints
from longshore.domain.model import Micros, Scope
from longshore.domain.states import TERMINAL
from longshore.errors import BadInput
from longshore.exports.manifest import WRITERS
from longshore.exports.rows import ManifestRow
from longshore.exports.source import row_of
from longshore.ledger import Ledger
from longshore.ledger.manifest import entries_of, purge, purgeable
from longshore.store import disk

failpoints.declare("purge.archive", "purge.archived")
CHUNK = 20_000  # jobs per archive file: the most that a crash can leave archived and not yet forgotten
BATCH = 200  # jobs per transaction, so that claims never wait long
REST_S = 0.25  # the longest pause between two of them


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
    done = Purged()
    for chunk in _chunks(ledger, scope, before):
        named = [job_id for chain in chunk for job_id in chain]
        done.jobs += len(named)
        if not dry_run:
            done.files.append(_archive(ledger, scope, named, target, form))
            failpoints.hit("purge.archived")
            gone = 0
            for batch in _batches(chunk):
                _step_back(ledger.write, purge, scope, batch, before=before)
                gone += len(batch)
                if note is not None:
                    note(gone)
    return done


def _batches(chunk: list[list[str]]) -> Iterator[list[str]]:
    """Cut between chains, so that a crash leaves none half forgotten; only one that is too long itself is cut."""
    batch: list[str] = []
    for chain in chunk:
        if batch and len(batch) + len(chain) > BATCH:
            yield batch
            batch = []
        batch += chain
        while len(batch) > BATCH:  # the newest first: whatever points to one of the rest is gone by then
            yield batch[:BATCH]
            batch = batch[BATCH:]
    if batch:
        yield batch


def _step_back(write: Callable[..., object], *arguments: Any, **named: Any) -> None:
    """Write, then leave the ledger to others for as long as that took: a file's lock knows no turn."""
    began = time.monotonic()
    write(*arguments, **named)
    time.sleep(min(REST_S, time.monotonic() - began))


def _chunks(ledger: Ledger, scope: Scope, before: Micros) -> Iterator[list[list[str]]]:
    """Name what may go, a file's worth at a time; only jobs that are over are looked at."""
    found: list[list[str]] = []
    for status in sorted(TERMINAL):
        edge: int | None = 0
        while edge is not None:
            page, edge = ledger.read(purgeable, scope, status, before=before, edge=edge)
            found += page
            if sum(map(len, found)) >= CHUNK:
                yield found
                found = []
    if found:
        yield found


def _archive(ledger: Ledger, scope: Scope, chunk: list[str], target: Path, form: str) -> Path:
    """Write one archive file whole: a name appears only when its bytes are durable."""
    disk.make_root(target)  # private, as the ledger that these rows come from
    path = target / f"{scope.tenant_id}-{scope.project_id}-{chunk[0]}.{form}".replace("/", "_")
    temporary = path.with_name(path.name + ".new")
    with disk.create_private(temporary) as out:
        WRITERS[form](_rows(ledger, scope, chunk), out)
        out.flush()
        failpoints.hit("purge.archive")
        os.fsync(out.fileno())
    os.replace(temporary, path)
    disk.fsync_path(target)
    return path


def _rows(ledger: Ledger, scope: Scope, chunk: list[str]) -> Iterator[ManifestRow]:
    for start in range(0, len(chunk), BATCH):
        for entry in ledger.read(entries_of, scope, chunk[start : start + BATCH]):
            yield row_of(entry)
