"""Statistics of one tenant and project: jobs, stored artifacts, failures by reason and host, runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from longshore.ledger.queries import runs
from longshore.web import queries
from longshore.web.api.common import After, Limit, Serving, problems, router
from longshore.web.api.models import Failures, RunOut, RunsPage, Stats
from longshore.web.security.auth import Reader
from longshore.web.serializers import View, run_view

routes = router("numbers")
RunId = Annotated[str | None, Query(max_length=1024)]


@routes.get("/stats", response_model=Stats)
async def show_stats(caller: Reader, service: Serving) -> View:
    """Count jobs by status, artifacts and savings."""
    return await service.ledger.read_async(queries.stats, caller.scope)


@routes.get("/failures", response_model=Failures)
async def list_failures(caller: Reader, service: Serving, run_id: RunId = None) -> View:
    """Group permanent failures by reason and host, of one run or of all."""
    groups = await service.costly.run(caller.token.root_id, queries.failure_groups, caller.scope, run_id)
    return {"groups": groups}


@routes.get("/runs", response_model=RunsPage)
async def list_runs(caller: Reader, service: Serving, limit: Limit, after: After = None) -> View:
    """List runs, newest first: jobs by status, bytes of their results, begin and end."""
    edge = None if after is None else service.cursors.read(caller.scope, after)
    page = await service.costly.run(caller.token.root_id, runs.runs, caller.scope, after=edge, limit=limit)
    following = service.next_cursor(caller.scope, None if page.next is None else str(page.next))
    return {"runs": [run_view(one) for one in page.items], "next": following}


@routes.get("/runs/{run_id}", response_model=RunOut, responses=problems(404))
async def show_run(
    run_id: Annotated[str, Path(min_length=1, max_length=1024)], caller: Reader, service: Serving
) -> View:
    """Show one run."""
    return run_view(await service.costly.run(caller.token.root_id, runs.run, caller.scope, run_id))
