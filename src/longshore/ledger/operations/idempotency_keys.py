"""Idempotency keys of API requests: the same key again gives the first answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from longshore.domain.model import Scope
from longshore.errors import Conflict
from longshore.ledger.transaction import Row, Tx


class KeyReused(Conflict):
    """The Idempotency-Key was used for another request."""


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
