"""Purge: archive finished jobs, make the archive durable, then delete them from the ledger, chunk by chunk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longshore import failpoints
from longshore.domain.kinds import TERMINAL, Status
from longshore.domain.model import Micros, Scope
from longshore.errors import BadInput
from longshore.exports.manifest import WRITERS
from longshore.exports.manifest_rows import ManifestRow
from longshore.exports.read_ledger import row_of
from longshore.ledger import Ledger
from longshore.ledger.operations.purging import forget_history, purge, purgeable, with_history
from longshore.ledger.queries.manifest import entries_of
from longshore.store.durability import filesystem

failpoints.declare("purge.archive", "purge.archived")
CHUNK = 20_000  # jobs per archive file: at most this many are archived but not deleted after a crash
BATCH = 200  # jobs per transaction, so that claims never wait long
REST_S = 0.25  # the longest pause between two transactions


@dataclass(slots=True)
class Purged:
    """The result of a purge or of its dry run."""

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
    """Archive and delete the unreferenced jobs of a scope that finished before a given time."""
    if form not in ("parquet", "csv", "jsonl"):
        raise BadInput(f"the archive format must be parquet, csv or jsonl, not {form!r}")
    done = Purged()
    for chunk in _chunks(ledger, purgeable, scope, sorted(TERMINAL), before):
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


def retire_history(
    ledger: Ledger, scope: Scope, *, before: Micros, target: Path, form: str = "parquet", dry_run: bool = False
) -> Purged:
    """Archive the history of completed jobs and delete it; their rows, results and provenance stay."""
    done = Purged()
    for chunk in _chunks(ledger, with_history, scope, [Status.COMPLETED], before):
        named = [job_id for (job_id,) in chunk]
        done.jobs += len(named)
        if not dry_run:
            done.files.append(_archive(ledger, scope, named, target, form, mark="-history"))
            failpoints.hit("purge.archived")
            for batch in _batches(chunk):
                _step_back(ledger.write, forget_history, scope, batch, before=before)
    return done


def _batches(chunk: list[list[str]]) -> Iterator[list[str]]:
    """Split between retry chains, so that a crash never leaves part of one; split only a chain that exceeds a batch."""
    batch: list[str] = []
    for chain in chunk:
        if batch and len(batch) + len(chain) > BATCH:
            yield batch
            batch = []
        batch += chain
        while len(batch) > BATCH:  # the newest first: jobs that refer to the remaining ones are deleted before them
            yield batch[:BATCH]
            batch = batch[BATCH:]
    if batch:
        yield batch


def _step_back(write: Callable[..., object], *arguments: Any, **named: Any) -> None:
    """Call `write`, then sleep as long as it took (at most `REST_S`), because SQLite's file lock is not fair."""
    began = time.monotonic()
    write(*arguments, **named)
    time.sleep(min(REST_S, time.monotonic() - began))


def _chunks(
    ledger: Ledger, page_of: Callable[..., Any], scope: Scope, statuses: Iterable[Status], before: Micros
) -> Iterator[list[list[str]]]:
    """Yield what can go, one archive file at a time; read only finished jobs."""
    found: list[list[str]] = []
    for status in statuses:
        edge: int | None = 0
        while edge is not None:
            page, edge = ledger.read(page_of, scope, status, before=before, edge=edge)
            found += page
            if sum(map(len, found)) >= CHUNK:
                yield found
                found = []
    if found:
        yield found


def _archive(ledger: Ledger, scope: Scope, chunk: list[str], target: Path, form: str, mark: str = "") -> Path:
    """Write one archive file atomically: its name appears only when its bytes are durable."""
    filesystem.make_root(target)  # private, like the ledger of these rows
    path = target / f"{scope.tenant_id}-{scope.project_id}-{chunk[0]}{mark}.{form}".replace("/", "_")
    temporary = path.with_name(path.name + ".new")
    with filesystem.create_private(temporary) as out:
        WRITERS[form](_rows(ledger, scope, chunk), out)
        out.flush()
        failpoints.hit("purge.archive")
        os.fsync(out.fileno())
    os.replace(temporary, path)
    filesystem.fsync_path(target)
    return path


def _rows(ledger: Ledger, scope: Scope, chunk: list[str]) -> Iterator[ManifestRow]:
    for start in range(0, len(chunk), BATCH):
        for entry in ledger.read(entries_of, scope, chunk[start : start + BATCH]):
            yield row_of(entry)
