"""Verbs of the service: tokens, the audit log, remembered request keys, and numbers for its pages."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from longshore.domain.identity.keys import check_text
from longshore.domain.model import SECOND, Micros, Scope
from longshore.domain.policy.tokens import API_PREFIX, SESSION_PREFIX, Token, check_scopes, secret_hash
from longshore.errors import NotFound
from longshore.ledger.ids import new_id
from longshore.ledger.named_rows import TokenRow
from longshore.ledger.rows import check_scope
from longshore.ledger.transaction import Row, Tx


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


def list_sessions(tx: Tx, limit: int = 1000) -> list[Token]:
    """List the dashboard sessions that still open something, newest first, with the name of the token they were opened with."""
    return [_token(row) for row in tx.all("session_list", now=tx.now, limit=limit)]


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
