"""From an exception to a reason of the vocabulary. What nobody foresaw is `internal_error`, with a debug id for the log."""

from __future__ import annotations

import errno
import logging
import secrets
from dataclasses import replace
from typing import Final

from longshore.domain.endings import Mishap
from longshore.engine.own.hands import HandlerError
from longshore.errors import (
    DiskFull,
    EffectInDoubt,
    LedgerError,
    NotFound,
    Reasoned,
    StoreError,
)

log = logging.getLogger(__name__)
_NO_THREAD: Final = "can't start new thread"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def mishap_of(error: BaseException) -> Mishap:
    """Say what an attempt's exception means."""
    match error:
        case Reasoned():
            return _reasoned(error)
        case HandlerError():
            debug_id = secrets.token_hex(6)
            log.error("handler error %s\n%s", debug_id, error.trace)
            return Mishap("handler_error", f"{error.kind}; see the log under {debug_id}", debug_id=debug_id)
        case EffectInDoubt():
            return Mishap("in_doubt", str(error))
        case DiskFull():
            return Mishap(error.reason, str(error), lack=error.lack)
        case StoreError():
            return Mishap(error.reason, str(error))
        case LedgerError():
            return Mishap("store_unavailable", f"the ledger: {error}")
        case NotFound():
            return Mishap("input_missing", str(error))
        case _ if is_want(error):
            return Mishap("too_few_resources", str(error) or "no memory left")
        case OSError():
            return Mishap("disk_full" if error.errno in _FULL else "disk_error", error.strerror or str(error))
        case _:
            return _unforeseen(error)


def is_want(error: BaseException) -> bool:
    """Tell whether the system refused a thread or memory; says nothing about the job."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_THREAD in str(error))


def _reasoned(error: Reasoned) -> Mishap:
    mishap = Mishap(error.reason, str(error), retry_after_s=error.retry_after_s, host=error.host, facts=error.facts)
    walk = error.walk
    if walk is None:
        return mishap
    return replace(mishap, final=walk.final, trail=walk.trail, blames=walk.blames, gain=walk.gain)


def _unforeseen(error: BaseException) -> Mishap:
    debug_id = secrets.token_hex(6)
    log.error("internal error %s", debug_id, exc_info=error)
    return Mishap("internal_error", f"{type(error).__name__}; see the log under {debug_id}", debug_id=debug_id)
