"""Which old jobs can be purged together, and in which order.

Problem: jobs point to each other: a retry to the job it repeats (`retry_of`), a skipped job to the one whose result it
uses (`reuse_of_job_id`). The database refuses to delete a job that another one points to. And a job whose retry is purged
alone would read as one that was tried again and succeeded.

Invariant: a job goes only after every job that points to it, or not at all. A job that is not over, not old enough or
still used by an artifact or an asset stays, and with it everything that it points to, directly or through others.

Order: purging reads pages of jobs that nothing points to (`ends`). From these the links are followed down to the older
jobs, then up again to everything that points to one of those: there may be others than the ones we came from. This
is a graph without cycles, because a job points only to jobs that ended before it did; it is walked from the top, and a
job becomes ready when all that point to it went before (Kahn's algorithm). A job below several ends is named with the one
that the pages reach last, so it is named once, whatever the size of the pages. The links of 200 ends are followed at a
time; above 50,000 rows the slice waits for a later purge.

Not done: ON DELETE CASCADE (it would delete jobs that are not old enough), and a recursive query for the whole table (its
memory and its lock time grow with the table instead of with the page).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from longshore.domain.model import Scope
from longshore.ledger.named_rows import PurgeRow
from longshore.ledger.rows import encoded
from longshore.ledger.transaction import Row, Tx

SLICE: Final = 200  # jobs whose links are followed at a time
MOST: Final = 50_000  # rows above one slice; what more point to waits for a purge that finds fewer of them
Place = tuple[str, int]  # status and number: the order in which pages are read


@dataclass(slots=True)
class _Web:
    """The links between jobs that have been followed so far."""

    above: dict[str, set[str]] = field(default_factory=dict)  # those that point to a job
    places: dict[str, Place] = field(default_factory=dict)
    staying: set[str] = field(default_factory=set)


def chains(tx: Tx, scope: Scope, before: int, ends: Sequence[Row]) -> list[list[str]]:
    """Return each of a page's jobs with the older ones that go with it, in the order in which they can go.

    A job that several point to goes with the one of them that is read last: so it is named once, whatever the pages.
    """
    rows = [PurgeRow._make(end) for end in ends]
    given = {row.job_id: [row.job_id] for row in rows}
    linked = [row for row in rows if row.retry_of is not None or row.reuse_of_job_id is not None]
    for start in range(0, len(linked), SLICE):
        some = linked[start : start + SLICE]
        end_at: dict[Place, str] = {(row.status, int(row.seq)): row.job_id for row in some}
        older = _older(tx, scope, before, some)
        for job_id, last in _in_order(_followed(tx, scope, before, older)):
            if job_id in older and last in end_at:
                given[end_at[last]].append(job_id)
    return list(given.values())


def _older(tx: Tx, scope: Scope, before: int, ends: Iterable[PurgeRow]) -> set[str]:
    """Follow the links down to jobs that are over, old and unused themselves."""
    found: set[str] = set()
    wanted = {job_id for row in ends for job_id in (row.retry_of, row.reuse_of_job_id) if job_id is not None}
    while wanted:
        rows = tx.all("purge_older", job_ids=encoded(sorted(wanted)), before=before, **scope._asdict())
        found |= {job_id for job_id, _, _ in rows}
        wanted = {job_id for _, *links in rows for job_id in links if job_id is not None} - found
    return found


def _followed(tx: Tx, scope: Scope, before: int, older: set[str]) -> _Web:
    """Follow the links up again, to all that point to one of these: there may be others than those we came from."""
    web, edge = _Web(), older
    while edge:
        rows = tx.all("purge_pointing", job_ids=encoded(sorted(edge)), before=before, many=MOST + 1, **scope._asdict())
        if len(rows) + len(web.places) > MOST:
            web.staying |= older
            return web
        for below, job_id, status, number, free in rows:
            web.above.setdefault(below, set()).add(job_id)
            web.places[job_id] = (status, int(number))
            if not free:
                web.staying.add(job_id)
        edge = {job_id for _, job_id, _, _, free in rows if free} - web.above.keys() - edge
    return web


def _in_order(web: _Web) -> list[tuple[str, Place]]:
    """Return jobs that may go, after all that point to them, each with the place of the last end above it."""
    waiting = {below: set(above) for below, above in web.above.items()}
    below_of: dict[str, list[str]] = {}
    for below, above in web.above.items():
        for job_id in above:
            below_of.setdefault(job_id, []).append(below)
    ready = [job_id for job_id in web.places if job_id not in web.above and job_id not in web.staying]
    last = {job_id: web.places[job_id] for job_id in ready}
    order = []
    for job_id in ready:  # grows as it goes
        for below in below_of.get(job_id, ()):
            last[below] = max(last.get(below, last[job_id]), last[job_id])
            waiting[below].discard(job_id)
            if not waiting[below] and below not in web.staying:
                ready.append(below)
                order.append((below, last[below]))
    return order


def unpointed(tx: Tx, scope: Scope, before: int, rows: list[Row]) -> list[Row]:
    """Return the rows that can be purged: without jobs that a kept job links to, directly or through other jobs."""
    left = {job_id for job_id, *_ in rows}
    pointing = tx.all("purge_pointing", job_ids=encoded(sorted(left)), before=before, many=MOST, **scope._asdict())
    while kept := {below for below, job_id, *_ in pointing if below in left and job_id not in left}:
        left -= kept
    return [(job_id, status) for job_id, status in rows if job_id in left]
