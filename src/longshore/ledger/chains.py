"""Jobs that were made from each other (`retry_of`, `reuse_of_job_id`) are forgotten together: first who points, then whom.

A job whose retry is forgotten alone would look like one that was tried again and came to something.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from longshore.domain.model import Scope
from longshore.ledger.rows import encoded
from longshore.ledger.tx import Row, Tx

SLICE: Final = 200  # jobs whose links are followed at a time
MOST: Final = 50_000  # rows above one slice; what more point to waits for a purge that finds fewer of them
Place = tuple[str, int]  # status and number: the order in which pages are read


@dataclass(slots=True)
class _Web:
    """Who points to whom, as far as it was followed."""

    above: dict[str, set[str]] = field(default_factory=dict)  # those that point to a job
    places: dict[str, Place] = field(default_factory=dict)
    staying: set[str] = field(default_factory=set)


def chains(tx: Tx, scope: Scope, before: int, ends: Sequence[Row]) -> list[list[str]]:
    """Give each of a page's jobs with the older ones that go with it, in the order in which they can go.

    A job that several point to goes with the one of them that is read last: so it is named once, whatever the pages.
    """
    given = {row[0]: [row[0]] for row in ends}
    linked = [row for row in ends if row[3] is not None or row[4] is not None]
    for start in range(0, len(linked), SLICE):
        some = linked[start : start + SLICE]
        end_at: dict[Place, str] = {(row[1], int(row[2])): row[0] for row in some}
        older = _older(tx, scope, before, some)
        for job_id, last in _in_order(_followed(tx, scope, before, older)):
            if job_id in older and last in end_at:
                given[end_at[last]].append(job_id)
    return list(given.values())


def _older(tx: Tx, scope: Scope, before: int, ends: Iterable[Row]) -> set[str]:
    """Follow the links down to jobs that are over, old and unused themselves."""
    found: set[str] = set()
    wanted = {job_id for row in ends for job_id in row[3:5] if job_id is not None}
    while wanted:
        rows = tx.all("purge_older", job_ids=encoded(sorted(wanted)), before=before, **scope._asdict())
        found |= {row[0] for row in rows}
        wanted = {job_id for row in rows for job_id in row[1:3] if job_id is not None} - found
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
        edge = {row[1] for row in rows if row[4]} - web.above.keys() - edge
    return web


def _in_order(web: _Web) -> list[tuple[str, Place]]:
    """Give jobs that may go, after all that point to them, each with the place of the last end above it."""
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
    """Leave out of jobs that are to go those to which one points that is not to go, and whom those point to."""
    left = {row[0] for row in rows}
    pointing = tx.all("purge_pointing", job_ids=encoded(sorted(left)), before=before, many=MOST, **scope._asdict())
    while kept := {row[0] for row in pointing if row[0] in left and row[1] not in left}:
        left -= kept
    return [row for row in rows if row[0] in left]
