"""`longshore token`: create, list and revoke API tokens."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from longshore.cli.audited import entry
from longshore.cli.options import Call, common
from longshore.cli.output.writer import moment, say
from longshore.cli.time_spans import seconds
from longshore.domain.policy.tokens import SCOPES, Token
from longshore.ledger.operations import audit_log

if TYPE_CHECKING:
    from longshore.ledger.transaction import Tx


@click.group("token")
def command() -> None:
    """Tokens of the API and the dashboard: bound to one tenant and project, stored as hashes."""


@command.command("create")
@click.option(
    "--scope", "--scopes", "scopes", multiple=True, metavar="SCOPE",
    help="read, write, admin or metrics; repeatable or comma-separated [default: read,write].",
)  # fmt: skip
@click.option("--name", default="", help="Label for the token.")
@click.option("--expires", metavar="SPAN", help="Lifetime: 12h, 30d … [default: unlimited].")
@common
def create(call: Call, scopes: tuple[str, ...], name: str, expires: str | None) -> int:
    """Create a token and print it. It is shown only once.

    read sees the tenant's jobs and artifacts, write also submits, retries and cancels, admin is the depot's operator
    (hosts, tokens, system), metrics reads /metrics only.
    """
    from longshore.ledger.operations import tokens

    wanted = [word.strip() for item in scopes for word in item.split(",") if word.strip()] or ["read", "write"]
    if unknown := sorted(set(wanted) - SCOPES.keys()):
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(SCOPES)}", param_hint="--scope")
    expires_s = seconds(expires) if expires else None

    def made(tx: Tx) -> tuple[str, Token]:
        secret, token = tokens.create_token(tx, call.scope, wanted, name=name, expires_s=expires_s)
        audit_log.audit(tx, call.scope, entry("token", token.token_id, tokens.noted("create token", token)))
        return secret, token

    with call.ledger(create=True) as ledger:
        secret, token = ledger.write(made)
    if call.json:
        call.output.record("token", {"token": secret, **facts(token)})
    else:
        call.output.text(secret)
        say(f"token {token.token_id} for {call.scope.tenant_id}/{call.scope.project_id}: {', '.join(sorted(wanted))}")
        say("keep it: only its hash is stored, and it is not shown again")
    return 0


@command.command("list")
@click.option("--sessions", is_flag=True, help="List open dashboard sessions instead; `token revoke` closes one.")
@common
def list_(call: Call, *, sessions: bool) -> int:
    """List tokens, never their secrets."""
    from longshore.ledger import Ledger
    from longshore.ledger.operations import tokens

    with Ledger.open(call.settings.ledger) as ledger:
        found: list[Token] = ledger.read(tokens.list_sessions if sessions else tokens.list_tokens)
    if call.json:
        for token in found:
            call.output.record("token", facts(token))
        return 0
    headings = ["id", "tenant/project", "scopes", "state", "last used", "name"]
    call.output.table(headings, [_row(token) for token in found])
    return 0


@command.command("revoke")
@click.argument("token_id")
@common
def revoke(call: Call, token_id: str) -> int:
    """Revoke a token and the dashboard sessions it opened."""
    from longshore.ledger import Ledger
    from longshore.ledger.operations import tokens

    def closed(tx: Tx) -> None:
        token = tokens.revoke_token(tx, token_id)
        audit_log.audit(tx, call.scope, entry("token", token_id, tokens.noted("revoke token", token)))

    with Ledger.open(call.settings.ledger) as ledger:
        ledger.write(closed)
    if call.json:
        call.output.record("revoked", {"token_id": token_id})
    else:
        say(f"revoked {token_id}")
    return 0


def facts(token: Token) -> dict[str, Any]:
    """Return the public fields of a token."""
    return {
        "token_id": token.token_id,
        "name": token.name,
        "tenant_id": token.scope.tenant_id,
        "project_id": token.scope.project_id,
        "scopes": sorted(token.scopes),
        "created_at": moment(token.created_at),
        "expires_at": _moment(token.expires_at),
        "revoked_at": _moment(token.revoked_at),
        "last_used_at": _moment(token.last_used_at),
    }


def _moment(at: int | None) -> str | None:
    return None if at is None else moment(at)


def _row(token: Token) -> tuple[object, ...]:
    state = "valid"
    if token.revoked_at:
        state = "revoked"
    elif token.expires_at:
        over = not token.alive(time.time_ns() // 1000)
        state = f"{'expired' if over else 'until'} {moment(token.expires_at)}"
    place = f"{token.scope.tenant_id}/{token.scope.project_id}"
    return (
        token.token_id,
        place,
        ",".join(sorted(token.scopes)),
        state,
        _moment(token.last_used_at) or "never",
        token.name,
    )
