"""Map exceptions to reasons. An unexpected exception is `internal_error`, logged with a debug id."""

from __future__ import annotations

import errno
import logging
import secrets
from dataclasses import replace
from typing import Final

from longshore.domain.policy.retry import Failure
from longshore.errors import (
    DiskFull,
    EffectInDoubt,
    HookFailed,
    LedgerError,
    NotFound,
    Reasoned,
    StoreError,
    is_want,
)
from longshore.worker.kinds.custom.process_pool import HandlerError

log = logging.getLogger(__name__)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def failure_of(error: BaseException) -> Failure:
    """Return what an attempt's exception means."""
    match error:
        case Reasoned():
            return _reasoned(error)
        case HandlerError():
            return _handler_error(error.kind, error.trace)
        case HookFailed():
            return _handler_error(str(error), error.trace)
        case EffectInDoubt():
            return Failure("in_doubt", str(error))
        case DiskFull():
            return Failure(error.reason, str(error), lack=error.lack, facts=error.facts)
        case StoreError():
            return Failure(error.reason, str(error), facts=error.facts)
        case LedgerError():
            return Failure("store_unavailable", f"the ledger: {error}")
        case NotFound():
            return Failure("input_missing", str(error))
        case _ if is_want(error):
            return Failure("too_few_resources", str(error) or "no memory left")
        case OSError():
            return Failure("disk_full" if error.errno in _FULL else "disk_error", error.strerror or str(error))
        case _:
            return _unforeseen(error)


def _handler_error(what: str, trace: str) -> Failure:
    debug_id = secrets.token_hex(6)
    log.error("handler error %s\n%s", debug_id, trace)
    return Failure("handler_error", f"{what}; see the log under {debug_id}", debug_id=debug_id)


def _reasoned(error: Reasoned) -> Failure:
    failure = Failure(error.reason, str(error), retry_after_s=error.retry_after_s, host=error.host, facts=error.facts)
    walk = error.walk
    if walk is None:
        return failure
    return replace(failure, final=walk.final, trail=walk.trail, blames=walk.blames, gain=walk.gain)


def _unforeseen(error: BaseException) -> Failure:
    debug_id = secrets.token_hex(6)
    log.error("internal error %s", debug_id, exc_info=error)
    return Failure("internal_error", f"{type(error).__name__}; see the log under {debug_id}", debug_id=debug_id)
