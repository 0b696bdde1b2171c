"""`get --dry-run`: show the plan without executing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longshore.cli.options import Call
from longshore.cli.output.event_output import refused_text
from longshore.cli.output.writer import say
from longshore.cli.run_command import OK, SOME_FAILED
from longshore.domain.kinds import TERMINAL, Status
from longshore.domain.policy.redaction import LONGEST, safe_url, shortened
from longshore.errors import NoDepot

if TYPE_CHECKING:
    from longshore.domain.model import JobRequest, Planned

BATCH = 1_000


def preview(call: Call, requests: list[JobRequest], refused: dict[str, int], *, refresh: bool) -> int:
    """Report for each request whether it is new, stored, in progress or to be retried."""
    known = _known(call, requests)
    counts: dict[str, int] = {}
    for request, planned in zip(requests, known, strict=True):
        plan = decision(planned, refresh=refresh)
        counts[plan] = counts.get(plan, 0) + 1
        url = safe_url(request.url or "")
        if call.json:
            job_id = planned.job_id if planned else None
            call.output.record("preview", {"url": url, "plan": plan, "job_id": job_id}, flush=False)
        else:
            call.output.text(f"{plan:<10} {shortened(url, LONGEST)}")
    if call.json:
        call.output.record("summary", {"dry_run": True, "items": len(requests), **counts, **refused})
    elif call.verbosity >= 0:
        say(
            ", ".join(f"{count} {plan}" for plan, count in counts.items())
            + refused_text(refused)
            + "; nothing was done"
        )
    return SOME_FAILED if refused["refused"] else OK


def decision(planned: Planned | None, *, refresh: bool) -> str:
    """Return the action that `get` would take for a request."""
    if planned is None:
        return "fetch"
    if planned.status not in TERMINAL:
        return "in_flight"
    if planned.status in {Status.FAILED, Status.CANCELED}:
        return "try_again"
    return "refresh" if refresh else "held"


def _known(call: Call, requests: list[JobRequest]) -> list[Planned | None]:
    from longshore.ledger.operations.planning import preview as look

    try:
        with call.ledger() as ledger:
            known: list[Planned | None] = []
            for start in range(0, len(requests), BATCH):
                known += ledger.read(look, call.scope, requests[start : start + BATCH])
            return known
    except NoDepot:
        return [None] * len(requests)
