"""The audit log: who did what, and when old entries and request keys are forgotten."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from longshore.domain.model import Micros, Scope
from longshore.domain.policy.audit_chain import START, ChainEnd, Line, closed, follow
from longshore.ledger.transaction import Tx

PAGE: Final = 5_000
LAST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class NewEntry:
    """A line for the audit log."""

    token_id: str
    action: str
    target: str
    remote: str
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the audit log."""

    seq: int
    at: Micros
    token_id: str
    action: str
    target: str
    remote: str
    detail: dict[str, Any]
    name: str = ""  # of the token


def audit(tx: Tx, scope: Scope, entry: NewEntry) -> None:
    """Add a line to the audit log: last in its transaction, because on PostgreSQL it holds the end of the chain."""
    tx.enter(scope.tenant_id)
    tx.run(
        "audit_append",
        tenant_id=scope.tenant_id,
        project_id=scope.project_id,
        at=tx.now,
        token_id=entry.token_id,
        action=entry.action,
        target=entry.target,
        detail=json.dumps(entry.detail),
        remote=entry.remote,
    )


def audit_entries(tx: Tx, scope: Scope, before: int | None = None, limit: int = 100) -> list[Entry]:
    """Read the audit log, newest first."""
    tx.enter(scope.tenant_id)
    rows = tx.all(
        "audit_list",
        tenant_id=scope.tenant_id,
        project_id=scope.project_id,
        before=LAST if before is None else before,
        limit=limit,
    )
    return [
        Entry(seq, at, token_id or "", action, target or "", remote or "", json.loads(detail or "{}"), name or "")
        for seq, at, token_id, action, target, detail, remote, name in rows
    ]


def check_chain(tx: Tx, scope: Scope) -> ChainEnd:
    """Follow the chain of one project and return its end, or where it breaks."""
    tx.enter(scope.tenant_id)
    named = {"tenant_id": scope.tenant_id, "project_id": scope.project_id}
    number, last, forgotten, forgotten_hash = tx.one("audit_head", **named) or (0, START, 0, START)
    end = ChainEnd(forgotten, forgotten_hash)
    after = -1
    while not end.broken and (rows := tx.all("audit_chain", after=after, limit=PAGE, **named)):
        follow(end, [Line(row[0], row[1], (row[0], *row[2:])) for row in rows])
        after = rows[-1][0] or 0
    return closed(end, number, last)


def audit_scopes(tx: Tx) -> list[Scope]:
    """List the projects that have lines in the audit log."""
    return [Scope(tenant_id, project_id) for tenant_id, project_id in tx.all("audit_scopes")]


def forget_lines(tx: Tx, scope: Scope, *, before: Micros, many: int = 5_000) -> int:
    """Drop the oldest lines of the audit log from before a moment, some at a time; return how many."""
    tx.enter(scope.tenant_id)
    named = {"tenant_id": scope.tenant_id, "project_id": scope.project_id, "before": before, "many": many}
    if tx.dialect == "postgres":
        (gone,) = tx.one("audit_forget", **named) or (0,)
        return int(gone)
    tx.run("audit_forget_mark", **named)
    return tx.run("audit_forget", tenant_id=scope.tenant_id, project_id=scope.project_id)


def forget_keys(tx: Tx, scope: Scope, *, before: Micros, many: int = 5_000) -> int:
    """Drop some remembered requests from before a moment; return how many."""
    tx.enter(scope.tenant_id)
    return tx.run(
        "request_keys_forget", tenant_id=scope.tenant_id, project_id=scope.project_id, before=before, many=many
    )
