"""Webhooks: endpoints to which changes are sent, each a consumer of the change feed.

The feed is the outbox: a change is in it when the transaction that made it is committed. An endpoint's position moves only
after it has accepted a change, or after the last attempt, with a dead letter in the same transaction.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from longshore.domain.model import Micros, Scope
from longshore.domain.webhooks import check_kinds, check_url, consumer_of, new_secret
from longshore.errors import NotFound
from longshore.ledger.ids import new_id
from longshore.ledger.operations.feed_consumers import feed_ack, feed_forget
from longshore.ledger.queries.lookup import checked_limit, scope_values
from longshore.ledger.rows import encoded
from longshore.ledger.transaction import Tx

SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Webhook:
    """An endpoint. Its secret is not shown by `repr`."""

    webhook_id: str
    url: str
    secret: _Hidden
    kinds: tuple[str, ...]
    created_at: Micros
    attempts: int
    next_at: Micros
    reason: str | None
    disabled_at: Micros | None


class _Hidden(str):
    """A text that does not show in logs and errors."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'…'"


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that was given up."""

    message_id: str
    body: str
    reason: str
    failed_at: Micros


def add_webhook(tx: Tx, scope: Scope, url: str, kinds: tuple[str, ...] = (), *, from_start: bool = False) -> Webhook:
    """Add an endpoint for changes from now on, or for all there are; its secret is in the answer."""
    where, webhook_id = scope_values(tx, scope), new_id(tx.now)
    secret, wanted = new_secret(), check_kinds(kinds)
    tx.run(
        "webhook_add",
        webhook_id=webhook_id,
        url=check_url(url),
        secret=secret,
        kinds=encoded(wanted),
        now=tx.now,
        **where,
    )
    (end,) = tx.one("feed_end") or (0,)
    feed_ack(tx, scope, consumer_of(webhook_id), 0 if from_start else int(end))
    return Webhook(webhook_id, url, _Hidden(secret), wanted, tx.now, 0, 0, None, None)


def webhooks(tx: Tx, scope: Scope) -> list[Webhook]:
    """Return the endpoints of a project."""
    rows = tx.all("webhook_list", **scope_values(tx, scope))
    return [
        Webhook(webhook_id, url, _Hidden(secret), tuple(json.loads(kinds)), *rest)
        for webhook_id, url, secret, kinds, *rest in rows
    ]


def webhook_scopes(tx: Tx) -> list[Scope]:
    """Return the projects with endpoints that may be sent something now, of all tenants."""
    return [Scope(*row) for row in tx.all("webhook_scopes", now=tx.now)]


def remove_webhook(tx: Tx, scope: Scope, webhook_id: str) -> None:
    """Remove an endpoint with its dead letters, or raise NotFound."""
    if not tx.run("webhook_remove", webhook_id=webhook_id, **scope_values(tx, scope)):
        raise NotFound(f"webhook {webhook_id[:80]} not found", hint="`longshore webhooks list` lists them")
    feed_forget(tx, scope, consumer_of(webhook_id))


def claim_webhook(tx: Tx, scope: Scope, webhook_id: str, hold_s: float) -> bool:
    """Keep other processes from sending to an endpoint for so long; return False if another one does."""
    until = tx.now + int(hold_s * SECOND)
    return tx.run("webhook_claim", webhook_id=webhook_id, now=tx.now, until=until, **scope_values(tx, scope)) > 0


def webhook_sent(tx: Tx, scope: Scope, webhook_id: str, cursor: int, hold_s: float) -> None:
    """Record that an endpoint has everything up to a cursor; go on holding it, or release it with 0."""
    if _note(tx, scope, webhook_id, next_at=tx.now + int(hold_s * SECOND)):  # it may be removed meanwhile
        feed_ack(tx, scope, consumer_of(webhook_id), cursor)


def webhook_refused(
    tx: Tx, scope: Scope, webhook_id: str, reason: str, attempts: int, wait_s: float, *, gone: bool = False
) -> None:
    """Record a failed attempt; the next one is after `wait_s`, or never if the endpoint is gone."""
    disabled_at = tx.now if gone else None
    next_at = tx.now + int(wait_s * SECOND)
    _note(tx, scope, webhook_id, next_at=next_at, attempts=attempts, reason=reason, disabled_at=disabled_at)


def webhook_given_up(
    tx: Tx, scope: Scope, webhook_id: str, cursor: int, message_id: str, body: str, reason: str
) -> None:
    """Keep a message as a dead letter, and go on with the next one."""
    told = {"message_id": message_id, "body": body, "reason": reason, "now": tx.now}
    if not _note(tx, scope, webhook_id, next_at=tx.now, reason=reason):
        raise NotFound(f"webhook {webhook_id[:80]} not found")
    tx.run("webhook_give_up", webhook_id=webhook_id, **told, **scope_values(tx, scope))
    feed_ack(tx, scope, consumer_of(webhook_id), cursor)


def _note(tx: Tx, scope: Scope, webhook_id: str, *, next_at: Micros, **given: Any) -> int:
    told = {"attempts": 0, "reason": None, "disabled_at": None} | given
    return tx.run("webhook_note", webhook_id=webhook_id, next_at=next_at, **told, **scope_values(tx, scope))


def dead_letters(tx: Tx, scope: Scope, webhook_id: str, limit: int = 1_000) -> list[Letter]:
    """Return the oldest messages that were given up."""
    where = scope_values(tx, scope)
    rows = tx.all("webhook_dead", webhook_id=webhook_id, many=checked_limit(limit), **where)
    return [Letter(*row) for row in rows]


def forget_letter(tx: Tx, scope: Scope, webhook_id: str, message_id: str) -> None:
    """Drop a dead letter that was delivered after all."""
    tx.run("webhook_forget_dead", webhook_id=webhook_id, message_id=message_id, **scope_values(tx, scope))
