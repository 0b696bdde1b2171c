"""The change feed: which artifacts are new, changed or gone since a position.

Problem: a search index or a mirror must follow a depot, and a crash of either must not lose a
change. Polling by time loses what was committed late; comparing everything costs too much.

The feed reads the events of the project, which each change writes in its own transaction: nothing is written twice, and a
small download pays nothing for it. Numbers of events follow the commits (on PostgreSQL, events of open transactions are held
back), so a reader that has read up to a number has read everything below it. A `completed` event stands for the artifacts of its
job, as they are at the time of reading: one that was deleted since is left out, because its own event follows. The events
that the feed needs outlive a purge: a job whose artifact exists is never purged, and `artifact_deleted` is kept.

A consumer that stores each `new` and `changed` artifact under its id, and removes each `gone` one, equals the depot when it
has read everything. Changes come at least once and in order; applying one twice does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from longshore.domain.model import Artifact, Micros, Scope
from longshore.errors import BadInput
from longshore.ledger.queries.history import Event, events_after
from longshore.ledger.queries.lookup import scope_values
from longshore.ledger.rows import artifact_of, encoded
from longshore.ledger.transaction import Row, Tx

MADE: Final = "completed"
MARKED: Final = ("artifact_missing", "artifact_available")
GONE: Final = "artifact_deleted"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
Kind = Literal["new", "changed", "gone"]


@dataclass(frozen=True, slots=True)
class Change:
    """One artifact that is new, changed or gone.

    `changed` is a newer version of a URL (`artifact.previous_id` names the one before, which still exists), or an artifact
    whose bytes were lost or found again (`artifact.availability`).
    """

    kind: Kind
    cursor: int  # acknowledging it acknowledges this change and all before it
    at: Micros
    artifact_id: str
    artifact_type: str
    sha256: str
    artifact: Artifact | None = None  # None if it is gone
    url: str | None = None
    work_id: str | None = None


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Some changes, and the position after them; `more` says whether there may be others at once."""

    changes: list[Change]
    cursor: int
    more: bool


@dataclass(frozen=True, slots=True)
class Consumer:
    """Where a consumer stands."""

    name: str
    cursor: int
    behind: bool  # whether events follow; they need not be changes
    created_at: Micros
    updated_at: Micros


def check_consumer(name: object) -> str:
    """Return the name of a consumer; raise BadInput if it is not one."""
    if not isinstance(name, str) or not NAME.match(name):
        raise BadInput(f"a consumer is named by 1 to 100 letters, digits, '.', '_' and '-', not {str(name)[:120]!r}")
    return name


def feed_position(tx: Tx, scope: Scope, consumer: str) -> int:
    """Return what a consumer has acknowledged; 0 if it never did."""
    (seq,) = tx.one("feed_position", consumer=check_consumer(consumer), **scope_values(tx, scope)) or (0,)
    return int(seq)


def feed_consumers(tx: Tx, scope: Scope) -> list[Consumer]:
    """Return the consumers of a project by name."""
    where = scope_values(tx, scope)
    (last,) = tx.one("last_event", **where) or (None,)
    rows = tx.all("feed_list", **where)
    return [Consumer(name, int(seq), seq < (last or 0), created, updated) for name, seq, created, updated in rows]


def feed_after(tx: Tx, scope: Scope, seq: int, limit: int = 500) -> FeedPage:
    """Return the changes among the next `limit` events after a position."""
    events = events_after(tx, scope, seq, limit)
    where = scope_values(tx, scope)
    made = _made(tx, where, [one.job_id for one in events if one.kind == MADE and one.job_id])
    marked = _marked(tx, where, [_artifact(one) for one in events if one.kind in MARKED])
    gone = _gone(tx, where, [_artifact(one) for one in events if one.kind == GONE])
    changes: list[Change] = []
    for one in events:
        if one.kind == MADE:
            changes += _of_made(one, made.get(one.job_id or "", ()))
        elif one.kind in MARKED and (row := marked.get(_artifact(one))):
            changes.append(_change("changed", one.seq, one.at, row))
        elif one.kind == GONE and (told := gone.get(_artifact(one))):
            changes.append(Change("gone", one.seq, one.at, *told))
    return FeedPage(changes, events[-1].seq if events else seq, len(events) == limit)


def _of_made(event: Event, rows: Sequence[Row]) -> list[Change]:
    """Return the changes of one event; only the last acknowledges the event."""
    last = len(rows) - 1
    return [
        _change("changed" if artifact_of(row[:-2]).previous_id else "new", event.seq - (place < last), event.at, row)
        for place, row in enumerate(rows)
    ]


def _change(kind: Kind, cursor: int, at: Micros, row: Row) -> Change:
    artifact = artifact_of(row[:-2])
    return Change(kind, cursor, at, artifact.artifact_id, artifact.artifact_type, artifact.sha256, artifact, *row[-2:])


def _made(tx: Tx, where: dict[str, str], job_ids: list[str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in tx.all("feed_made", job_ids=encoded(job_ids), **where) if job_ids else ():
        found.setdefault(artifact_of(row[:-2]).created_by_job_id or "", []).append(row)
    return found


def _marked(tx: Tx, where: dict[str, str], artifact_ids: list[str]) -> dict[str, Row]:
    rows = tx.all("feed_named", artifact_ids=encoded(artifact_ids), **where) if artifact_ids else ()
    return {artifact_of(row[:-2]).artifact_id: row for row in rows}


def _gone(tx: Tx, where: dict[str, str], artifact_ids: list[str]) -> dict[str, Row]:
    rows = tx.all("feed_gone", artifact_ids=encoded(artifact_ids), **where) if artifact_ids else ()
    return {row[0]: row for row in rows}


def _artifact(event: Event) -> str:
    return str(event.facts.get("artifact", ""))


def origins(tx: Tx, scope: Scope, artifact_ids: Sequence[str]) -> dict[str, tuple[str | None, str | None]]:
    """Return the URL and the work of artifacts, as the jobs that made them had them."""
    rows = _marked(tx, scope_values(tx, scope), list(artifact_ids))
    return {artifact_id: (row[-2], row[-1]) for artifact_id, row in rows.items()}
