"""The log line of every failure: the debug id of a failed job leads to it."""

from __future__ import annotations

import logging

from longshore.domain.identity.keys import debug_id_of
from longshore.domain.policy.redaction import safe_text

log = logging.getLogger(__name__)


def logged(job_id: str, epoch: int, reason: str, message: str, given: str | None = None) -> str:
    """Log why a job failed and return its debug id; `given`: a more detailed line, with a traceback, has it already.

    The id follows from job and epoch, so a transaction that is run again logs the same one.
    """
    debug_id = given or debug_id_of(job_id, epoch)
    log.info("debug id %s: job %s failed, %s: %s", debug_id, job_id, reason, safe_text(message, limit=2_000))
    return debug_id
