"""Tables of the user's own, written in the transaction that completes a job.

A hook gets the open transaction and the job that it completes. It runs in a savepoint: if it raises, nothing of its job is
written, and the other jobs of the batch are not touched. Errors after which the whole transaction must be run again (a
deadlock, a lost connection) are not the hook's: they are passed on, and the hook runs again with the transaction. So a hook
writes to the database and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from longshore.domain.model import JobRequest, Lease, Micros, NewArtifact
from longshore.errors import HookFailed
from longshore.ledger.records import CompletedJob, ResultArtifact, Settled
from longshore.ledger.statements import Dialect, user_statement
from longshore.ledger.transaction import Row, Tx

Hook = Callable[["UserTx", CompletedJob], object]


class UserTx:
    """The transaction as a hook sees it."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.now: Micros = tx.now
        self.dialect: Dialect = tx.dialect

    def execute(self, text: str, params: Mapping[str, Any] | None = None) -> list[Row]:
        """Run one statement with parameters by name (`:name`, on both engines) and return its rows."""
        return self._tx.execute(user_statement(text, self.dialect), dict(params or {}))


def completed_job(
    lease: Lease, request: JobRequest, settled: Settled, artifacts: tuple[NewArtifact, ...], now: Micros
) -> CompletedJob:
    """Return what a hook is told of a job."""
    results = tuple(
        ResultArtifact(
            artifact_id,
            new.artifact_type,
            new.blob.content_type,
            new.blob.size_bytes,
            new.blob.sha256,
            new.name,
            new.schema_version,
            new.metadata,
        )
        for artifact_id, new in zip(settled.artifact_ids, artifacts, strict=True)
    )
    return CompletedJob(*lease.scope, lease.job_id, request.job_type, request, results, now)


def failed(hook: Hook, error: Exception) -> HookFailed:
    """Return what a hook's exception means for its job."""
    import traceback

    trace = "".join(traceback.format_exception(error))
    name = getattr(hook, "__qualname__", type(hook).__name__)
    return HookFailed(f"on_completed ({name}) raised {type(error).__name__}", kind=type(error).__name__, trace=trace)
