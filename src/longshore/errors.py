"""The tree of our errors. Whatever leaves a module of ours is one of these; foreign exceptions do not cross.

LongshoreError
├── BadInput (ValueError)         what the caller gave is wrong; nothing was changed
│   └── NotAUrl                   an argument that is no URL at all
├── InvalidTransition (RuntimeError)
├── LeaseLost                     a fenced write found another epoch, an expired lease or no lease
├── Conflict                      another active job or another request holds the place
├── NotFound
├── EffectInDoubt                 an opaque effect whose outcome nobody can know
├── ResultTooLarge (BadInput)     a result is stored whole or refused
├── LedgerError                   the ledger cannot be used
│   ├── NoDepot                   exit 10
│   ├── Locked                    exit 11, maintenance
│   ├── SchemaMismatch            exit 12, newer or older than the program
│   ├── Damaged                   exit 5, refused and never "repaired"
│   └── Unavailable               may pass by itself: server away, disk full
│       └── WaitedEnough          exit 4, it was waited for as long as allowed
├── StoreError                    each has a `reason` of domain.reasons
│   ├── PublishFailed             the part is gone; the bytes must come again
│   ├── BlobDamaged               exit 5, a stored blob does not have the bytes that its name promises
│   ├── DiskFull                  no room for these bytes now
│   │   └── NeverFits             more than the file system may hold
│   ├── OverBudget                the tenant's budget does not allow them
│   └── StoreUnavailable          may pass by itself
│       └── NoStore               exit 5, the ledger has artifacts and their store is not there
├── NotPermitted                  exit 6
└── Reasoned                      one item failed for a reason of domain.reasons
"""

from __future__ import annotations

from typing import Any


class LongshoreError(Exception):
    """Something went wrong, and we can say what."""

    exit_code = 1
    hint: str | None = None

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message or self.__doc__)
        if hint is not None:
            self.hint = hint


class BadInput(LongshoreError, ValueError):
    """The input is not acceptable; nothing was changed."""

    exit_code = 2


class NotAUrl(BadInput):
    """The argument is no URL."""


class ResultTooLarge(BadInput):
    """The result is larger than the ledger keeps; store it as an artifact instead."""


class InvalidTransition(LongshoreError, RuntimeError):
    """The job may not go from its stage to the wanted one."""


class LeaseLost(LongshoreError, RuntimeError):
    """The lease is no longer ours; nothing was written."""


class Conflict(LongshoreError):
    """Something else holds this place."""

    def __init__(self, message: str | None = None, *, job_id: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.job_id = job_id


class NotFound(LongshoreError):
    """There is no such thing here."""


class EffectInDoubt(LongshoreError):
    """The effect may or may not have happened; it is never repeated silently."""


class LedgerError(LongshoreError):
    """The ledger cannot be used."""


class NoDepot(LedgerError):
    """There is no depot here."""

    exit_code = 10
    hint = "make one with `longshore get URL` or `longshore add FILE`, or name it with --depot"


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
    """The ledger does not answer now; it may later."""


class WaitedEnough(Unavailable):
    """The ledger was waited for as long as was allowed."""

    exit_code = 4


class StoreError(LongshoreError):
    """The store cannot be used."""

    reason = "disk_error"


class PublishFailed(StoreError):
    """The bytes could not be made durable; they must come again."""


class BlobDamaged(StoreError):
    """A stored blob does not have the bytes that its name promises."""

    exit_code = 5
    hint = "`longshore get URL` fetches it again; without a URL, `longshore put` the same file"

    def __init__(self, sha256: str, *, aside: bool = False) -> None:
        moved = "; it was moved to quarantine" if aside else ""
        super().__init__(f"the stored blob {sha256} is damaged{moved}")
        self.sha256 = sha256


class DiskFull(StoreError):
    """There is no room on the store's disk."""

    reason = "disk_full"

    def __init__(self, message: str | None = None, *, hint: str | None = None, lack: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.lack = lack  # a word of domain.space; None: not known where it happened


class NeverFits(DiskFull):
    """The bytes are more than the whole file system may hold."""

    reason = "too_large"


class OverBudget(StoreError):
    """The tenant's budget does not allow this."""

    reason = "quota_exceeded"
    exit_code = 3


class StoreUnavailable(StoreError):
    """The store does not answer now; it may later."""

    reason = "store_unavailable"


class NoStore(StoreUnavailable):
    """The ledger says that bytes are held, and there is no store."""

    exit_code = 5
    hint = (
        "mount it or put it back, or name its place with --store; if it is lost for good, `longshore reconcile --store-lost` begins a new"
        " one and plans what can be fetched again"
    )


class NotPermitted(LongshoreError):
    """The token or the role does not allow this."""

    exit_code = 6


class Reasoned(LongshoreError):
    """One item failed, for one reason of the vocabulary."""

    def __init__(
        self, reason: str, message: str, *, retry_after_s: float | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.host: str | None = None  # where the job should wait, if that is another host than its own
        self.at: str | None = None  # the host that was being asked
        self.final = False  # definite this time, whatever the reason usually means
        self.blameless = False  # our own choice: says nothing about the host
        self.kept: Any = None  # what is durable of the body that it cut short (`store.PartFacts`)
        self.walk: Any = None  # how the job's candidates stand (`engine.walking.Ended`)
        self.facts: dict[str, Any] = {}  # telemetry of the attempt that it ended
