"""Submit and replay jobs of custom types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from longshore.depot.depot_context import DepotContext, in_thread
from longshore.depot.runner import Runner
from longshore.domain.kinds import TERMINAL, Status
from longshore.domain.model import Artifact, JobRequest, Planned, Scope
from longshore.errors import BadInput
from longshore.ledger.operations.planning import plan
from longshore.worker.kinds.custom import known_types
from longshore.worker.kinds.custom.job_types import own_key
from longshore.worker.replan_lost import results_and_gone


class Key(Enum):
    """The key of a job that names none."""

    DERIVED = "derived from the inputs, the parameters and the version of the type"


class Submitter:
    """Plans jobs of custom types."""

    def __init__(self, depot: DepotContext, runner: Runner) -> None:
        self._depot, self._runner = depot, runner

    async def submit(
        self,
        job_type: str,
        *,
        inputs: Sequence[str | Artifact] = (),
        params: Mapping[str, Any] | None = None,
        key: str | Key | None = Key.DERIVED,
        scope: Scope | None = None,
        priority: int = 0,
        run_id: str | None = None,
        request_id: str | None = None,
    ) -> Planned:
        """Plan a job of a declared type; the same inputs, parameters and version are the same job.

        A `key` of your own identifies the job instead. If the same work was done under another key, the job ends as
        `skipped` with the results of that job. With `key=None`, every call is a new job that runs.
        """
        if params is not None and not isinstance(params, Mapping):
            raise BadInput(f"params is a mapping of names to values, not {type(params).__name__}")
        where = scope or self._depot.scope
        kind = known_types().get(job_type)
        if kind is None:
            raise BadInput(f"no handler for jobs of type {job_type!r} is declared here")
        artifacts = [await self._artifact(where, one) for one in inputs]
        if key is Key.DERIVED:
            key = own_key(where, job_type, [one.sha256 for one in artifacts], dict(params or {}))
        request = JobRequest(
            job_type=job_type,
            key=key,
            params=dict(params or {}),
            inputs=tuple(one.artifact_id for one in artifacts),
            priority=priority,
            max_attempts=kind.max_attempts,
            run_id=run_id,
            request_id=request_id,
        )
        planned = (await self._depot.ledger.write_async(plan, where, [request], again="failed"))[0]
        if planned.status in {Status.COMPLETED, Status.SKIPPED} and await self._results_lost(where, planned.job_id):
            planned = (await self._depot.ledger.write_async(plan, where, [request], again="always"))[0]
        self._runner.notify()
        return planned

    async def _results_lost(self, scope: Scope, job_id: str) -> bool:
        """Return whether results of a job are lost, and mark them as missing."""
        _, gone = await in_thread(results_and_gone, self._depot.ledger, self._depot.store.sizes, scope, [job_id])
        return bool(gone)

    async def replay(self, job_id: str, *, scope: Scope | None = None) -> Planned:
        """Run a job again from its stored inputs, as a new job linked to the old one."""
        where = scope or self._depot.scope
        job = await in_thread(self._depot.ledger.job, where, job_id)
        if job.status not in TERMINAL:
            raise BadInput(f"job {job_id} is {job.status}: only finished jobs can be replayed")
        inputs = await in_thread(lambda: self._depot.ledger.results(where, job_id, role="input"))
        request = replace(job.request, retry_of=job_id, inputs=tuple(one.artifact_id for one in inputs))
        planned = (await self._depot.ledger.write_async(plan, where, [request], again="always"))[0]
        self._runner.notify()
        return planned

    async def _artifact(self, scope: Scope, one: str | Artifact) -> Artifact:
        return one if isinstance(one, Artifact) else await in_thread(self._depot.ledger.artifact, scope, one)
