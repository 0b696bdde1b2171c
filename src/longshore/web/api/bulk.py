"""One action on many jobs: on named ones, or on all that match when their number is the expected one."""

from __future__ import annotations

from typing import Literal

from longshore.domain.model import Scope
from longshore.ledger import control, listing, tokens
from longshore.ledger.tx import Tx
from longshore.web.models import BulkIn
from longshore.web.problems import Problem
from longshore.web.service import Service
from longshore.web.views import View

SHOWN = 1000
MOST = 100_000  # in one transaction

Act = Literal["retry", "cancel"]


class CountChanged(Problem):
    """Another number of jobs matches than the caller has seen."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(
            409,
            "count_changed",
            f"{actual} jobs match now, not {expected}; look again before you act on them",
            expected_count=expected,
            actual_count=actual,
        )


async def act_on_all(service: Service, scope: Scope, body: BulkIn, act: Act) -> View:
    """Retry or cancel; looking and acting are one transaction, so the expected count cannot be overtaken."""
    if (body.filter is None) == (body.job_ids is None):
        raise Problem(422, "bad_input", "name either a filter or job_ids")
    if body.filter is not None and body.expected_count is None:
        raise Problem(422, "bad_input", "a filter needs expected_count: the number of jobs that you have seen matching")
    done: list[str] = await service.ledger.soon(_act, scope, body, act)
    if act == "retry":
        service.wake()
    return {"count": len(done), "job_ids": done[:SHOWN]}


def _act(tx: Tx, scope: Scope, body: BulkIn, act: Act) -> list[str]:
    if body.job_ids is not None:
        which = list(dict.fromkeys(body.job_ids))
    else:
        assert body.filter is not None
        assert body.expected_count is not None
        wanted = listing.JobFilter(**body.filter.model_dump(exclude={"current"}))
        which = listing.matching_ids(tx, scope, wanted, at_most=MOST + 1)
        if body.filter.current:
            which = tokens.current_ids(tx, scope, which)
        if len(which) > MOST:
            raise Problem(422, "too_many", f"more than {MOST} jobs match; narrow the filter")
        if len(which) != body.expected_count:
            raise CountChanged(body.expected_count, len(which))
    if act == "cancel":
        result = control.cancel(tx, scope, which)
        return [*result.canceled, *result.requested]
    return [planned.job_id for planned in control.retry(tx, scope, which) if planned.created] if which else []
