"""One action on many jobs: on named ones, or on all matches if their number is as expected."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from longshore.domain.kinds import Status
from longshore.domain.model import Scope
from longshore.domain.policy.redaction import safe_field
from longshore.ledger.operations import cancel_retry
from longshore.ledger.queries import listing, lookup
from longshore.ledger.transaction import Tx
from longshore.web.api.models import BulkIn
from longshore.web.problems import Problem
from longshore.web.security.auth import Caller
from longshore.web.security.auth import act as audited
from longshore.web.serializers import View
from longshore.web.service import Service

SHOWN = 1000
NOTED = 20  # ids in an entry of the audit log
MOST = 100_000  # in one transaction

Act = Literal["retry", "cancel"]
FITS: Final[dict[Act, frozenset[Status]]] = {
    "retry": frozenset({Status.FAILED, Status.CANCELED}),
    "cancel": frozenset({Status.PENDING, Status.PROCESSING}),
}


class CountChanged(Problem):
    """The number of matching jobs differs from the expected count."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(
            409,
            "count_changed",
            f"{actual} jobs match now, not {expected}; list them again before you act on them",
            expected_count=expected,
            actual_count=actual,
        )


def named(body: BulkIn) -> View:
    """Return the selected jobs for the audit log."""
    if body.filter is None:
        chosen = body.job_ids or []
        return {"chosen": len(chosen), "job_ids": chosen[:NOTED]}
    given = body.filter.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return {"filter": {name: safe_field(value) if isinstance(value, str) else value for name, value in given.items()}}


def fitting_ids(tx: Tx, scope: Scope, wanted: listing.JobFilter, act: Act) -> list[str]:
    """Count the matching jobs that the action would change, for the confirmation."""
    statuses = tuple(status for status in wanted.wanted_statuses() if status in FITS[act])
    if not statuses:
        return []
    which = listing.matching_ids(tx, scope, replace(wanted, status=None, statuses=statuses), at_most=MOST + 1)
    return lookup.current_ids(tx, scope, which) if act == "retry" and len(which) <= MOST else which


async def act_on_all(service: Service, caller: Caller, body: BulkIn, act: Act, *, only_fitting: bool = False) -> View:
    """Retry or cancel; count and action are one transaction, so that the count cannot change in between.

    The count covers all matches or, for a page that displayed it, only the jobs that the action changes.
    """
    if (body.filter is None) == (body.job_ids is None):
        raise Problem(422, "bad_input", "name either a filter or job_ids")
    if body.filter is not None and body.expected_count is None:
        raise Problem(422, "bad_input", "a filter needs expected_count: the number of matching jobs that you saw")
    caller.noted.update(act=act, **named(body))
    done = await audited(
        service, caller, _act, caller.scope, body, act, only_fitting, note=lambda done: {"count": len(done)}
    )
    if act == "retry":
        service.wake()
    return {"count": len(done), "job_ids": done[:SHOWN]}


def _act(tx: Tx, scope: Scope, body: BulkIn, act: Act, only_fitting: bool) -> list[str]:
    if body.job_ids is not None:
        which = list(dict.fromkeys(body.job_ids))
    else:
        assert body.filter is not None
        assert body.expected_count is not None
        wanted = listing.JobFilter(**body.filter.model_dump(exclude={"current"}))
        fits = fitting_ids(tx, scope, wanted, act) if only_fitting else None
        which = listing.matching_ids(tx, scope, wanted, at_most=MOST + 1) if fits is None else fits
        if body.filter.current:
            which = lookup.current_ids(tx, scope, which)
        if len(which) > MOST:
            raise Problem(422, "too_many", f"more than {MOST} jobs match; narrow the filter")
        if len(which) != body.expected_count:
            raise CountChanged(body.expected_count, len(which))
    if act == "cancel":
        result = cancel_retry.cancel(tx, scope, which)
        return [*result.canceled, *result.requested]
    return [planned.job_id for planned in cancel_retry.retry(tx, scope, which) if planned.created] if which else []
