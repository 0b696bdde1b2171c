"""Consumers of the change feed: acknowledge and forget."""

from __future__ import annotations

from longshore.domain.model import Scope
from longshore.errors import BadInput
from longshore.ledger.queries.feed import check_consumer, feed_position
from longshore.ledger.queries.lookup import scope_values
from longshore.ledger.transaction import Tx


def feed_ack(tx: Tx, scope: Scope, consumer: str, cursor: int) -> int:
    """Acknowledge everything up to a cursor; return where the consumer stands. A cursor never goes back."""
    where = scope_values(tx, scope)
    (end,) = tx.one("feed_end") or (0,)
    if type(cursor) is not int or not 0 <= cursor <= end:
        raise BadInput(
            f"not a cursor of this feed: {str(cursor)[:40]}", hint="acknowledge what a change names as cursor"
        )
    tx.many("feed_ack", [(where["tenant_id"], where["project_id"], check_consumer(consumer), cursor, tx.now)])
    return feed_position(tx, scope, consumer)


def feed_forget(tx: Tx, scope: Scope, consumer: str) -> bool:
    """Forget a consumer: its next read begins at the first change. Return whether it was known."""
    return tx.run("feed_forget", consumer=check_consumer(consumer), **scope_values(tx, scope)) > 0
