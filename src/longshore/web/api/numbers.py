"""Numbers of one tenant and project: counts, what is held, failures by reason and host."""

from __future__ import annotations

from longshore.web import stories
from longshore.web.access import Reader
from longshore.web.api.routing import Serving, router
from longshore.web.models import Failures, Stats
from longshore.web.views import View

routes = router("numbers")


@routes.get("/stats", response_model=Stats)
async def show_stats(caller: Reader, service: Serving) -> View:
    """Count jobs by status, artifacts and savings."""
    return await service.ledger.read_soon(stories.stats, caller.scope)


@routes.get("/failures", response_model=Failures)
async def list_failures(caller: Reader, service: Serving) -> View:
    """Group what failed for good by reason and host."""
    return {"groups": await service.ledger.read_soon(stories.failure_groups, caller.scope)}
