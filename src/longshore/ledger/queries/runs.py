"""Runs: jobs that were planned under one name, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from longshore.domain.identity.keys import check_text
from longshore.domain.model import Micros, Scope, Status
from longshore.errors import NotFound
from longshore.ledger.queries.lookup import checked_limit, scope_values
from longshore.ledger.transaction import Tx

MOST: Final = 100_000  # names that are read to find the newest


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is now."""

    run_id: str
    jobs: dict[Status, int]
    missing: int  # failed and not tried again
    artifacts: int  # results, reused ones included
    bytes: int
    saved_bytes: int  # of the reused ones
    begun_at: Micros  # when its first job was planned
    ended_at: Micros | None  # when its last job ended; None while some wait or run
    first_seq: int


@dataclass(frozen=True, slots=True)
class RunPage:
    """Some runs, newest first, and the edge of the next page."""

    items: list[Run]
    next: int | None


def runs(tx: Tx, scope: Scope, *, after: int | None = None, limit: int = 100) -> RunPage:
    """Return a page of the runs, newest first. Reads every job of the runs that it returns."""
    where = scope_values(tx, scope)
    many = checked_limit(limit)
    found: list[tuple[int, str]] = []
    for (name,) in tx.all("run_names", many=MOST, **where):
        (seq,) = tx.one("run_first", run_id=name, **where) or (None,)
        if seq is not None and (after is None or seq < after):
            found.append((seq, name))
    found.sort(reverse=True)
    page = found[:many]
    more = page[-1][0] if len(found) > many else None
    return RunPage([_run(tx, where, name, seq) for seq, name in page], more)


def run(tx: Tx, scope: Scope, run_id: str) -> Run:
    """Return one run, or raise NotFound."""
    where = scope_values(tx, scope)
    (seq,) = tx.one("run_first", run_id=check_text("run_id", run_id), **where) or (None,)
    if seq is None:
        raise NotFound(f"run {run_id[:80]} not found", hint="`longshore runs` lists all runs")
    return _run(tx, where, run_id, seq)


def run_counts(tx: Tx, scope: Scope, run_id: str) -> dict[Status, int]:
    """Return the number of jobs of each status in a run."""
    rows = tx.all("run_counts", run_id=check_text("run_id", run_id), **scope_values(tx, scope))
    have = {status: int(count) for status, count in rows}
    return {status: have.get(status.value, 0) for status in Status}


def run_due(tx: Tx, scope: Scope, run_id: str) -> Micros | None:
    """Return when the next job of a run can be claimed; None: all of them are over."""
    due: Micros | None
    (due,) = tx.one("run_due", run_id=run_id, **scope_values(tx, scope)) or (None,)
    return due


def _run(tx: Tx, where: dict[str, str], run_id: str, seq: int) -> Run:
    jobs = dict.fromkeys(Status, 0)
    missing = artifacts = size = saved = 0
    begun: list[Micros] = []
    ended: list[Micros] = []
    for status, count, not_retried, first, last, results, held in tx.all("run_figures", run_id=run_id, **where):
        jobs[Status(status)] = int(count)
        missing, artifacts, size = missing + int(not_retried), artifacts + int(results), size + int(held or 0)
        saved = int(held or 0) if status == Status.SKIPPED else saved
        begun.append(first)
        ended.append(last)
    is_over = not jobs[Status.PENDING] and not jobs[Status.PROCESSING]
    return Run(run_id, jobs, missing, artifacts, size, saved, min(begun), max(ended) if is_over else None, seq)
