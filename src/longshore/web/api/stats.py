"""Statistics of one tenant and project: jobs, stored artifacts, failures by reason and host."""

from __future__ import annotations

from longshore.web import queries
from longshore.web.api.common import Serving, router
from longshore.web.api.models import Failures, Stats
from longshore.web.security.auth import Reader
from longshore.web.serializers import View

routes = router("numbers")


@routes.get("/stats", response_model=Stats)
async def show_stats(caller: Reader, service: Serving) -> View:
    """Count jobs by status, artifacts and savings."""
    return await service.ledger.read_async(queries.stats, caller.scope)


@routes.get("/failures", response_model=Failures)
async def list_failures(caller: Reader, service: Serving) -> View:
    """Group permanent failures by reason and host."""
    return {"groups": await service.costly.run(caller.token.root_id, queries.failure_groups, caller.scope)}
