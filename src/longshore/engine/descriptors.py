"""The process's limit of open files: raised as far as allowed, and kept to."""

from __future__ import annotations

import logging
import resource
from dataclasses import replace

from longshore.domain.descriptors import share, wanted
from longshore.domain.limits import TransferSettings
from longshore.domain.settings import EngineSettings

log = logging.getLogger(__name__)


def within_the_limit(engine: EngineSettings, transfer: TransferSettings) -> tuple[EngineSettings, TransferSettings]:
    """Return both settings, with no more at once than open files allow; raise the soft limit first if it is too low."""
    limit = _raised(wanted(engine.concurrency))
    found = share(limit, concurrency=engine.concurrency, batch_items=engine.batch_items)
    if found.transfers < engine.concurrency:
        log.warning(
            "%d open files are allowed: no more than %d transfers run at once instead of %d; raise `ulimit -n`",
            limit,
            found.transfers,
            engine.concurrency,
        )
    return (
        replace(engine, concurrency=found.transfers, batch_items=found.batch_items),
        replace(transfer, concurrency=found.transfers, connections=found.connections),
    )


def _raised(needed: int) -> int:
    """Return the limit of open files, raised to what is needed if the hard limit allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return needed
    if soft >= needed:
        return soft
    best = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if best > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (best, hard))
        except (OSError, ValueError):
            return soft
    return max(soft, best)
