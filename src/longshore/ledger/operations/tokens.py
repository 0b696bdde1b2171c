"""Verbs of the service: tokens, the audit log, remembered request keys, and numbers for its pages."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from longshore.domain.identity.keys import check_text
from longshore.domain.model import SECOND, Micros, Scope
from longshore.domain.policy.tokens import API_PREFIX, SESSION_PREFIX, Token, check_scopes, secret_hash
from longshore.errors import Conflict, NotFound
from longshore.ledger.ids import floor_id, new_id
from longshore.ledger.named_rows import TokenRow
from longshore.ledger.rows import check_scope, encoded
from longshore.ledger.transaction import Row, Tx

LAST: Final = (1 << 63) - 1


class KeyReused(Conflict):
    """The Idempotency-Key was used for another request."""


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


def create_token(
    tx: Tx,
    scope: Scope,
    scopes: Sequence[str],
    *,
    name: str = "",
    expires_s: float | None = None,
    parent: Token | None = None,
    kind: str = "api",
) -> tuple[str, Token]:
    """Make a token and give its secret, which is stored nowhere."""
    wanted = check_scopes(scopes)
    check_scope(scope)
    check_text("name", name, limit=1024, empty=True)
    secret = (SESSION_PREFIX if kind == "session" else API_PREFIX) + secrets.token_urlsafe(32)
    expires_at = None if expires_s is None else tx.now + int(expires_s * SECOND)
    token = Token(
        token_id=new_id(tx.now),
        kind=kind,
        parent_id=parent.token_id if parent else None,
        name=name,
        scope=scope,
        scopes=wanted,
        created_at=tx.now,
        expires_at=expires_at,
        revoked_at=None,
        last_used_at=None,
    )
    tx.run(
        "token_insert",
        token_id=token.token_id,
        kind=kind,
        parent_id=token.parent_id,
        label=name,
        token_hash=secret_hash(secret),
        tenant_id=scope.tenant_id,
        project_id=scope.project_id,
        scopes=",".join(sorted(wanted)),
        created_at=tx.now,
        expires_at=expires_at,
    )
    return secret, token


def open_session(tx: Tx, parent: Token | None, scope: Scope, scopes: Sequence[str], expires_s: float) -> str:
    """Open a dashboard session; sessions that are over are forgotten on the way."""
    tx.run("token_sessions_over", now=tx.now)
    return create_token(tx, scope, scopes, name="dashboard", expires_s=expires_s, parent=parent, kind="session")[0]


def token_by_hash(tx: Tx, token_hash: str) -> Token | None:
    """Find a token; whether it is alive is the caller's question."""
    row = tx.one("token_by_hash", token_hash=token_hash)
    return _token(row) if row else None


def living_token(tx: Tx, token_hash: str) -> tuple[Token, Micros] | None:
    """Find a token that still opens something, and tell the time of that."""
    token = token_by_hash(tx, token_hash)
    return (token, tx.now) if token is not None and token.alive(tx.now) else None


def is_alive(tx: Tx, token_id: str) -> bool:
    """Return whether a token, and the one it was opened with, still open something."""
    return tx.one("token_alive", token_id=token_id, now=tx.now) is not None


def list_tokens(tx: Tx, limit: int = 1000) -> list[Token]:
    """List API tokens, newest first."""
    return [_token(row) for row in tx.all("token_list", limit=limit)]


def revoke_token(tx: Tx, token_id: str) -> Token:
    """Close a token, and with it its sessions, for good."""
    row = tx.one("token_by_id", token_id=token_id)
    if row is None:
        raise NotFound(f"token {token_id[:80]!r} not found")
    tx.run("token_revoke", token_id=token_id, now=tx.now)
    return _token(row)


def noted(act: str, token: Token) -> dict[str, Any]:
    """Return for the audit log what was done to which token."""
    place = f"{token.scope.tenant_id}/{token.scope.project_id}"
    return {"act": act, "token_id": token.token_id, "name": token.name, "for": place, "scopes": sorted(token.scopes)}


def touch_token(tx: Tx, token_id: str, at: Micros) -> None:
    """Write down when a token was used."""
    tx.run("token_touch", token_id=token_id, at=at)


def has_api_token(tx: Tx) -> bool:
    """Return whether a valid API token exists."""
    return tx.one("token_any_api", now=tx.now) is not None


def _token(columns: Row) -> Token:
    row = TokenRow._make(columns)
    return Token(
        token_id=row.token_id,
        kind=row.kind,
        parent_id=row.parent_id,
        name=row.name,
        scope=Scope(row.tenant_id, row.project_id),
        scopes=frozenset(row.scopes.split(",")),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )


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


def once(tx: Tx, scope: Scope, request_key: str, fingerprint: str, act: Callable[[Tx], Any]) -> Any:
    """Do something under a request key: the first time it is done, later the first answer is given again.

    The answer is written in the transaction that did it, so a server killed before it could answer loses nothing.
    """
    tx.enter(scope.tenant_id)
    named = {"tenant_id": scope.tenant_id, "project_id": scope.project_id, "request_key": request_key}
    if row := tx.one("request_key_find", **named):
        return _known(row, fingerprint)
    answer = act(tx)
    tx.enter(scope.tenant_id)
    if not tx.run("request_key_insert", **named, fingerprint=fingerprint, answer=json.dumps(answer), created_at=tx.now):
        # Another server took the key between our look and our write: undo ours, the caller asks again.
        raise Conflict("a request with this Idempotency-Key is under way")
    return answer


def _known(row: Row, fingerprint: str) -> Any:
    known, answer = row
    if known != fingerprint:
        raise KeyReused("this Idempotency-Key was used for another request", hint="use a new key")
    return json.loads(answer)


def forget_old(tx: Tx, scope: Scope, *, audit_before: Micros, keys_before: Micros, many: int = 5_000) -> int:
    """Drop some lines of the audit log and remembered requests from before a moment; give how many went."""
    tx.enter(scope.tenant_id)
    named = {"tenant_id": scope.tenant_id, "project_id": scope.project_id, "many": many}
    gone = tx.run("audit_forget", before=audit_before, **named)
    return gone + tx.run("request_keys_forget", before=keys_before, **named)


def held_totals(tx: Tx, scope: Scope) -> dict[str, int]:
    """Return how much is held and how much was saved, from counters."""
    tx.enter(scope.tenant_id)
    rows = tx.all("held_totals", tenant_id=scope.tenant_id, project_id=scope.project_id)
    return {name: int(n) for name, n in rows}


def arrivals(
    tx: Tx, scope: Scope, since: Callable[[Micros], Micros], slot_s: int, limit: int = 200_000
) -> tuple[Micros, list[tuple[Micros, int, int]]]:
    """Return `now` and what was registered since a moment that follows from it, as (slot begin, files, bytes)."""
    tx.enter(scope.tenant_id)
    step = slot_s * SECOND
    rows = tx.all(
        "arrivals",
        tenant_id=scope.tenant_id,
        project_id=scope.project_id,
        floor_id=floor_id(since(tx.now)),
        step=step,
        limit=limit,
    )
    return tx.now, [(slot * step, int(files), int(size or 0)) for slot, files, size in rows]


def current_ids(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> list[str]:
    """Return those of the jobs that no retry has replaced, in the given order."""
    tx.enter(scope.tenant_id)
    rows = tx.all("current_ids", job_ids=encoded(list(job_ids)), **scope._asdict()) if job_ids else []
    current = {name for name, *_ in rows}
    return [job_id for job_id in job_ids if job_id in current]
