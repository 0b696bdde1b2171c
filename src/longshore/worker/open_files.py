"""Raise the process's limit of open files as far as allowed, and stay below it."""

from __future__ import annotations

import logging
import resource

from longshore.domain.policy.open_files import Share, share, wanted
from longshore.domain.settings import Settings

log = logging.getLogger(__name__)


def within_the_limit(settings: Settings, batch_items: int) -> tuple[Settings, Share]:
    """Return the settings and the share of each user of files, with no more transfers than open files allow.

    The soft limit is raised first if it is too low.
    """
    concurrency = settings.transfer.concurrency
    limit = raised(wanted(concurrency))
    found = share(limit, concurrency=concurrency, batch_items=batch_items)
    if found.transfers < concurrency:
        log.warning(
            "%d open files are allowed: no more than %d transfers run at once instead of %d; raise `ulimit -n`",
            limit,
            found.transfers,
            concurrency,
        )
        settings = settings.replaced(transfer=settings.transfer.replaced(concurrency=found.transfers))
    return settings, found


def raised(needed: int) -> int:
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
