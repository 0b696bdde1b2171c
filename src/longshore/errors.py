"""The exception hierarchy. Modules raise only these; exceptions of other libraries are translated.

LongshoreError
├── BadInput (ValueError)         what the caller gave is wrong; nothing was changed
│   └── NotAUrl                   an argument that is not a URL
├── InvalidTransition (RuntimeError)
├── LeaseLost                     a fenced write found another epoch, an expired lease or no lease
├── Conflict                      another active job or request has the same key
├── NotFound
├── HookFailed                    a user's `on_completed` raised; its job is tried again
├── EffectInDoubt                 an opaque effect whose outcome cannot be determined
├── ResultTooLarge (BadInput)     a result is stored whole or refused
├── LedgerError                   the ledger cannot be used
│   ├── NoDepot                   exit 10
│   ├── Locked                    exit 11, maintenance
│   ├── SchemaMismatch            exit 12, newer or older than the program
│   ├── Damaged                   exit 5, refused and never "repaired"
│   └── Unavailable               temporary: server down, disk full
│       └── WaitedEnough          exit 4, the ledger was unavailable for the allowed time
├── StoreError                    each has a `reason` of domain.reasons
│   ├── PublishFailed             the part is lost; the bytes must be fetched again
│   ├── BlobDamaged               exit 5, a stored blob does not have the bytes that its name promises
│   ├── DiskFull                  no space for these bytes now
│   │   └── NeverFits             more than the file system may hold
│   ├── OverBudget                the tenant's budget does not allow them
│   └── StoreUnavailable          temporary
│       └── NoStore               exit 5, the ledger has artifacts, but their store is missing
├── NotPermitted                  exit 6
└── Reasoned                      one item failed for a reason of domain.reasons
"""

from __future__ import annotations

import errno
from typing import Any


class LongshoreError(Exception):
    """Base class of all expected errors."""

    exit_code = 1
    hint: str | None = None

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message or self.__doc__)
        if hint is not None:
            self.hint = hint


class BadInput(LongshoreError, ValueError):
    """The input is invalid; nothing was changed."""

    exit_code = 2


class NotAUrl(BadInput):
    """The argument is not a URL."""


class ResultTooLarge(BadInput):
    """The result is larger than the ledger keeps; store it as an artifact instead."""


class InvalidTransition(LongshoreError, RuntimeError):
    """The stage transition is not allowed."""


class LeaseLost(LongshoreError, RuntimeError):
    """The lease was lost; nothing was written."""


class Conflict(LongshoreError):
    """The request conflicts with the current state, for example with another active job."""

    def __init__(self, message: str | None = None, *, job_id: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.job_id = job_id


class NotFound(LongshoreError):
    """The item does not exist."""


class HookFailed(LongshoreError):
    """A hook on the completion of a job raised; nothing of the job was written."""

    reason = "handler_error"

    def __init__(self, message: str, *, kind: str, trace: str) -> None:
        super().__init__(message)
        self.kind, self.trace = kind, trace


class EffectInDoubt(LongshoreError):
    """The effect may or may not have happened; it is never repeated silently."""


class LedgerError(LongshoreError):
    """The ledger cannot be used."""


class NoDepot(LedgerError):
    """No depot exists at this path."""

    exit_code = 10
    hint = "create one with `longshore get URL` or `longshore add FILE`, or name it with --depot"


class Locked(LedgerError):
    """The depot is locked for maintenance."""

    exit_code = 11


class SchemaMismatch(LedgerError):
    """The ledger's schema does not fit this program."""

    exit_code = 12


class Damaged(LedgerError):
    """The ledger is damaged; it is refused, not repaired."""

    exit_code = 5


class Unavailable(LedgerError):
    """The ledger is temporarily unavailable."""


class WaitedEnough(Unavailable):
    """The ledger was unavailable for the allowed time."""

    exit_code = 4


class StoreError(LongshoreError):
    """The store cannot be used."""

    reason = "disk_error"

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.facts: dict[str, Any] = {}  # telemetry of the failed attempt: of a refusal its figures


class PublishFailed(StoreError):
    """The bytes could not be made durable; they must be fetched again."""


class BlobDamaged(StoreError):
    """A stored blob does not have the bytes that its name promises."""

    exit_code = 5
    hint = "`longshore get URL` fetches it again; without a URL, `longshore put` the same file"

    def __init__(self, sha256: str, *, aside: bool = False) -> None:
        moved = "; it was moved to quarantine" if aside else ""
        super().__init__(f"the stored blob {sha256} is damaged{moved}")
        self.sha256 = sha256


class DiskFull(StoreError):
    """The store's disk is full."""

    reason = "disk_full"

    def __init__(self, message: str | None = None, *, hint: str | None = None, lack: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.lack = lack  # a value of domain.space; None: unknown


class NeverFits(DiskFull):
    """The bytes are more than the whole file system may hold."""

    reason = "too_large"


class OverBudget(StoreError):
    """The tenant's budget does not allow this."""

    reason = "quota_exceeded"
    exit_code = 3


class StoreUnavailable(StoreError):
    """The store is temporarily unavailable."""

    reason = "store_unavailable"


class NoStore(StoreUnavailable):
    """The ledger has artifacts, but their store is missing."""

    exit_code = 5
    hint = (
        "mount it or put it back, or name its place with --store; if it is lost for good, `longshore reconcile --store-lost` begins a new"
        " one and plans what can be fetched again"
    )


class ForeignStore(StoreError):
    """The store belongs to another ledger."""

    exit_code = 2
    hint = (
        "give each ledger a store of its own (--store); if the other ledger is gone for good, remove `.ledger.json` from the store:"
        " the next ledger that opens it becomes its owner, and quarantines what it does not know"
    )


class NotPermitted(LongshoreError):
    """The token or the role does not allow this."""

    exit_code = 6


class Reasoned(LongshoreError):
    """One item failed with one of the defined reasons."""

    def __init__(
        self, reason: str, message: str, *, retry_after_s: float | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.host: str | None = None  # the host to wait for, if it is not the job's own
        self.at: str | None = None  # the host of the failed request
        self.final = False  # permanent this time, even if the reason is usually transient
        self.blameless = False  # caused on this side: does not count against the host
        self.disowned = False  # the server invalidated bytes it had sent: none of them may be kept
        self.kept: Any = None  # the durable part of the interrupted body (`store.PartFacts`)
        self.resumed = False  # the interrupted answer continued bytes that were durable before
        self.walk: Any = None  # the state of the job's candidates (`worker.kinds.download`)
        self.facts: dict[str, Any] = {}  # telemetry of the failed attempt


def is_want(error: BaseException) -> bool:
    """Return whether the system refused a thread or memory; says nothing about the job."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, SystemError):  # CPython could not even make the MemoryError
        return "without exception set" in str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    )
