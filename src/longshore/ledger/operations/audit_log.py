"""The audit log: who did what, and when old entries and request keys are forgotten."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from longshore.domain.model import Micros, Scope
from longshore.ledger.transaction import Tx

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
    """Add a line to the audit log."""
    tx.enter(scope.tenant_id)
    tx.run(
        "audit_insert",
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


def forget_old(tx: Tx, scope: Scope, *, audit_before: Micros, keys_before: Micros, many: int = 5_000) -> int:
    """Drop some lines of the audit log and remembered requests from before a moment; give how many went."""
    tx.enter(scope.tenant_id)
    named = {"tenant_id": scope.tenant_id, "project_id": scope.project_id, "many": many}
    gone = tx.run("audit_forget", before=audit_before, **named)
    return gone + tx.run("request_keys_forget", before=keys_before, **named)
