"""Acts of the command line in the audit log: who did what, written in the same transaction as the act."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from longshore.domain.scope import Scope
    from longshore.ledger import Ledger
    from longshore.ledger.operations.audit_log import NewEntry
    from longshore.ledger.transaction import Tx

T = TypeVar("T")
NAMED = 20  # ids in a line


def entry(action: str, target: str, detail: dict[str, Any]) -> NewEntry:
    """Return the line of an act on the command line."""
    import getpass

    from longshore.ledger.operations.audit_log import NewEntry

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in a container
        user = str(os.getuid())
    return NewEntry("command line", action, target, "local", {**detail, "user": user})


def act(
    ledger: Ledger,
    scope: Scope,
    action: str,
    verb: Callable[..., T],
    *args: Any,
    note: Callable[[T], dict[str, Any]],
    **kw: Any,
) -> T:
    """Run a verb and write its line in one transaction."""
    from longshore.ledger.operations.audit_log import audit

    def acting(tx: Tx) -> T:
        result = verb(tx, *args, **kw)
        audit(tx, scope, entry(action, "", {"act": action, **note(result)}))
        return result

    return ledger.write(acting)


def note(ledger: Ledger, scope: Scope, action: str, detail: dict[str, Any]) -> None:
    """Write the line of an act that takes many transactions, before the first of them."""
    from longshore.ledger.operations.audit_log import audit

    ledger.write(audit, scope, entry(action, "", {"act": action, **detail}))


def of_jobs(job_ids: list[str]) -> dict[str, Any]:
    """Return what a line says of the jobs that were named."""
    return {"chosen": len(job_ids), "job_ids": job_ids[:NAMED]}
