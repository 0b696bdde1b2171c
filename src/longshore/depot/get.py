"""`get`: plan, fetch, and return the result of each item. Reads rows and checks files for the whole list at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import islice
from typing import Any, Final, Protocol

from longshore.depot.depot_context import DepotContext, in_thread
from longshore.depot.parse_items import BATCH, as_request, each_of
from longshore.depot.records import Got
from longshore.depot.runner import Runner
from longshore.domain.identity.requests import Defaults
from longshore.domain.kinds import TERMINAL, Status
from longshore.domain.model import Artifact, Expect, JobRequest, Planned, Scope
from longshore.domain.policy.redaction import safe_url
from longshore.domain.run_events import Kind, Listener, RunEvent, stored_facts
from longshore.errors import Conflict
from longshore.ledger.operations.planning import Again, plan
from longshore.ledger.queries.due_work import Standing, active_due, attempts_named, results_named, standings
from longshore.worker.kinds.download.dedupe import ANEW
from longshore.worker.ledger_wait_limit import answered
from longshore.worker.replan_lost import results_and_gone
from longshore.worker.run_types import RunResult

_RESULTS: Final = frozenset({"completed", "held"})
ENDINGS: Final[dict[Status, Kind]] = {
    Status.COMPLETED: "completed",
    Status.SKIPPED: "held",
    Status.FAILED: "failed",
    Status.CANCELED: "canceled",
}
LOOK_S: Final = 0.5  # polling interval for the helpers
Begin = Callable[[Sequence[JobRequest], Sequence[Planned]], None]


class Helpers(Protocol):
    """Worker processes that run jobs of one `get` from its first batch on. Jobs that they leave are run here."""

    waited: bool  # they waited for the remaining jobs as long as allowed

    @property
    def stopped_by(self) -> str | None:
        """Return the signal that stopped them; the `get` stops, too."""

    def take(self, job_ids: Sequence[str]) -> None:
        """Assign these jobs to the helpers."""

    def finish(self) -> None:
        """Assign no more jobs, and wait until the helpers have exited."""


class Ends:
    """Passes events on, and remembers the results of jobs: `purge` may remove a job before its end is read."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener
        self.artifact_ids: dict[str, str] = {}  # by job
        self.told: set[str] = set()

    def __call__(self, event: RunEvent) -> None:
        """Note the end of a job."""
        if event.kind in ENDINGS.values() and event.job_id is not None:
            self.told.add(event.job_id)
        if event.kind in _RESULTS and event.job_id is not None:
            self.artifact_ids[event.job_id] = event.facts.get("artifact_id") or ""
        if self._listener is not None:
            self._listener(event)


class Getter:
    """Fetches items that are not stored yet, and returns the result of each."""

    def __init__(self, depot: DepotContext, runner: Runner) -> None:
        self._depot, self._runner = depot, runner

    async def get(
        self,
        items: Iterable[Any] | JobRequest,
        *,
        scope: Scope | None = None,
        refresh: bool = False,
        force: bool = False,
        run_id: str | None = None,
        max_wait_s: float | None = None,
        on_note: Listener | None = None,
        handle_signals: bool = False,
        helpers: Helpers | None = None,
    ) -> list[Got]:
        """Fetch and verify one item or a list; items that are already stored are not requested again.

        `refresh` asks the servers whether anything changed; `force` fetches again in any case. `run_id`: the run of new
        jobs, unless their item names one.
        """
        defaults = Defaults(run_id)
        where, listener = scope or self._depot.scope, on_note or self._runner.on_note
        requests = [defaults.applied(as_request(item)) for item in each_of(items)]
        if force:
            requests = [replace(request, params={**request.params, **ANEW}) for request in requests]
        again: Again = "always" if refresh or force else "failed"
        begin = self._beginner(listener, helpers)
        planned, held = await self._planned(where, requests, again=again, begin=begin, max_wait_s=max_wait_s)
        over = {one.job_id for one in planned if one.status in TERMINAL}
        waiting = tuple(dict.fromkeys(one.job_id for one in planned if one.job_id not in over))
        before = await self._got_before(where, requests, planned, held)
        self._tell_over(where, before.values(), listener)  # at once: a display counts them
        ended: dict[str, Got] = {}
        if helpers:
            waiting, ended = await self._left_by(helpers, where, waiting)
            max_wait_s = 0.0 if helpers.waited else max_wait_s
        ends = Ends(listener)
        if waiting:
            await self._runner.run(
                scope=where, job_ids=waiting, max_wait_s=max_wait_s, on_note=ends, handle_signals=handle_signals
            )
        got = await self._outcomes(where, requests, planned, over, before | ended, ends)
        rest = {one.job_id: one for one in got if one.job_id in over and one.job_id not in before}
        self._tell_over(where, rest.values(), listener)
        if helpers is None and listener is not None:
            self._tell_others(where, {one.job_id: one for one in got if one.job_id not in over}, ends.told, listener)
        return got

    def _beginner(self, listener: Listener | None, helpers: Helpers | None) -> Begin:
        """Return the callback for each planned batch: it reports the waiting jobs and assigns them to the helpers."""
        out: set[str] = set()

        def begin(requests: Sequence[JobRequest], planned: Sequence[Planned]) -> None:
            waiting = [place for place, one in enumerate(planned) if one.status not in TERMINAL]
            self._runner.tell_planned(
                [requests[place] for place in waiting], [planned[place] for place in waiting], listener
            )
            fresh = [planned[place].job_id for place in waiting if planned[place].job_id not in out]
            if helpers and fresh:
                out.update(fresh)
                helpers.take(fresh)

        return begin

    async def _left_by(
        self, helpers: Helpers, scope: Scope, job_ids: tuple[str, ...]
    ) -> tuple[tuple[str, ...], dict[str, Got]]:
        """Wait for the helpers; return the jobs that are left for this process, and the results read so far."""
        finished = asyncio.ensure_future(in_thread(helpers.finish))
        ended = await self._ended_meanwhile(scope, job_ids, finished)
        await finished
        if helpers.stopped_by:
            self._runner.result = RunResult(stopped_by=helpers.stopped_by)
            return (), ended
        due = await self._depot.ledger.read_async(active_due, scope, job_ids)
        return (job_ids if due is not None else ()), ended

    async def _ended_meanwhile(
        self, scope: Scope, job_ids: Sequence[str], finished: asyncio.Future[None]
    ) -> dict[str, Got]:
        """Read results of the first batches while helpers run the last, so that less is left to read at the end."""
        ended: dict[str, Got] = {}
        for at in range(0, len(job_ids), BATCH):
            batch = job_ids[at : at + BATCH]
            while not finished.done() and await self._depot.ledger.read_async(active_due, scope, batch) is not None:
                await asyncio.wait([finished], timeout=LOOK_S)
            if finished.done():
                break
            ended |= await self._came_to(scope, batch, frozenset())
        return ended

    async def _planned(
        self, scope: Scope, requests: Sequence[JobRequest], *, again: Again, begin: Begin, max_wait_s: float | None
    ) -> tuple[list[Planned], dict[str, Artifact]]:
        """Plan; a completed job whose bytes are lost gets a successor. Also return the stored artifacts by job."""
        planned = await self._planned_once(scope, requests, again=again, begin=begin, max_wait_s=max_wait_s)
        done = [one.job_id for one in planned if one.status in {Status.COMPLETED, Status.SKIPPED}]
        held = (
            await answered(self._depot.ledger, max_wait_s, asyncio.ensure_future(self._held(scope, done)))
            if done
            else {}
        )
        lost = set(done).difference(held)
        places = [place for place, one in enumerate(planned) if one.job_id in lost]
        if places:
            again_asked = [requests[place] for place in places]
            anew = await answered(
                self._depot.ledger, max_wait_s, self._depot.ledger.write_async(plan, scope, again_asked, again="always")
            )
            begin(again_asked, anew)
            for place, one in zip(places, anew, strict=True):
                planned[place] = one
        return planned, held

    async def _planned_once(
        self, scope: Scope, requests: Sequence[JobRequest], *, again: Again, begin: Begin, max_wait_s: float | None
    ) -> list[Planned]:
        """Plan in batches. Duplicates are planned once, because helpers may have finished the first already."""
        same = first_places(requests)
        planned: dict[int, Planned] = {}
        left = iter(dict.fromkeys(same))
        while places := list(islice(left, BATCH)):
            batch = [requests[place] for place in places]
            jobs = await answered(
                self._depot.ledger, max_wait_s, self._depot.ledger.write_async(plan, scope, batch, again=again)
            )
            planned.update(zip(places, jobs, strict=True))
            begin(batch, jobs)
        twins = [place for place, one in enumerate(same) if one != place]
        planned |= {place: replace(planned[same[place]], created=False) for place in twins}
        begin([requests[place] for place in twins], [planned[place] for place in twins])
        return [planned[place] for place in range(len(requests))]

    async def _held(self, scope: Scope, job_ids: Sequence[str]) -> dict[str, Artifact]:
        """Return the artifacts of completed jobs whose bytes exist; mark the others as missing."""
        results, gone = await in_thread(results_and_gone, self._depot.ledger, self._depot.store.sizes, scope, job_ids)
        there = {job_id: [one for one in found if one.artifact_id not in gone] for job_id, found in results.items()}
        return {job_id: found[0] for job_id, found in there.items() if found}

    async def _outcomes(
        self,
        scope: Scope,
        requests: Sequence[JobRequest],
        planned: Sequence[Planned],
        over: set[str],
        known: dict[str, Got],
        ends: Ends,
    ) -> list[Got]:
        """Return the result of each item; `known` has those that were read already."""
        ids = [one for one in dict.fromkeys(one.job_id for one in planned) if one not in known]
        known |= await self._came_to(scope, ids, over) if ids else {}
        if lost := [one for one in ids if one not in known]:
            known |= await self._purged(scope, requests, planned, ends, lost)
        return [known[one.job_id] for one in planned]

    async def _came_to(self, scope: Scope, job_ids: Sequence[str], over: AbstractSet[str]) -> dict[str, Got]:
        """Read the state of named jobs."""
        jobs = await self._depot.ledger.read_async(standings, scope, job_ids)
        results = await self._depot.ledger.read_async(results_named, scope, job_ids)
        there = (one for one in job_ids if one in jobs)
        return {one: self._got(scope, jobs[one], results.get(one, ()), over=one in over) for one in there}

    async def _purged(
        self,
        scope: Scope,
        requests: Sequence[JobRequest],
        planned: Sequence[Planned],
        ends: Ends,
        job_ids: Sequence[str],
    ) -> dict[str, Got]:
        """Return the results of jobs that `purge` removed after their end: their artifacts remain."""
        asked = {one.job_id: request for request, one in zip(requests, planned, strict=True)}
        found: dict[str, Got] = {}
        for job_id in job_ids:
            if not (artifact_id := ends.artifact_ids.get(job_id)):
                raise Conflict(f"job {job_id} was purged before its result could be read", hint="ask again")
            artifact = await in_thread(self._depot.ledger.artifact, scope, artifact_id)
            path = self._depot.store.path(scope, artifact.pointer)
            url, work_id = asked[job_id].url, asked[job_id].work_id
            found[job_id] = Got(job_id, url, Status.COMPLETED, False, artifact, path, work_id=work_id)
        return found

    async def _got_before(
        self, scope: Scope, requests: Sequence[JobRequest], planned: Sequence[Planned], held: dict[str, Artifact]
    ) -> dict[str, Got]:
        """Return the results of items that were stored before; only the number of attempts is read."""
        attempts = await self._depot.ledger.read_async(attempts_named, scope, list(held)) if held else {}
        found: dict[str, Got] = {}
        for request, one in zip(requests, planned, strict=True):
            if (artifact := held.get(one.job_id)) is not None and one.job_id not in found:
                path, tries = self._depot.store.path(artifact.scope, artifact.pointer), attempts.get(one.job_id, 0)
                found[one.job_id] = Got(
                    one.job_id, request.url, one.status, True, artifact, path, attempts=tries, work_id=request.work_id
                )
        return found

    def _got(self, scope: Scope, job: Standing, results: Sequence[Artifact], *, over: bool) -> Got:
        done = job.status in {Status.COMPLETED, Status.SKIPPED}
        artifact = next((one for one in results if done and one.availability == "available"), None)
        return Got(
            job_id=job.job_id,
            url=job.url,
            status=job.status,
            held_before=artifact is not None and (over or job.status is Status.SKIPPED),
            artifact=artifact,
            path=self._depot.store.path(scope, artifact.pointer) if artifact else None,
            reason=None if done else job.reason,
            message=None if done else job.message,
            attempts=job.attempts,
            work_id=job.work_id,
        )

    def _tell_over(self, scope: Scope, over: Iterable[Got], listener: Listener | None) -> None:
        """Report jobs that had ended before this call: held, or failed for good."""
        if listener is None:
            return
        now = self._depot.ledger.now()
        for got in over:
            kind: Kind = "held" if got.artifact else "failed"
            listener(RunEvent(kind, now, scope, got.job_id, safe_url(got.url or ""), facts_of(got)))

    def _tell_others(self, scope: Scope, got: dict[str, Got], told: AbstractSet[str], listener: Listener) -> None:
        """Report jobs that another worker ended during this call."""
        now = self._depot.ledger.now()
        for job_id, one in got.items():
            if one.status in TERMINAL and job_id not in told:
                facts = facts_of(one) | {"why": "by another worker"}
                listener(RunEvent(ENDINGS[one.status], now, scope, job_id, safe_url(one.url or ""), facts))


def first_places(requests: Sequence[JobRequest]) -> list[int]:
    """Return for each request the place of the first one that is the same job."""
    first: dict[tuple[str, str | int, Expect], int] = {}
    return [
        first.setdefault((one.job_type, place if one.key is None else one.key, one.expect), place)
        for place, one in enumerate(requests)
    ]


def job_count(requests: Sequence[JobRequest]) -> int:
    """Count the jobs that requests make; the same request twice is one job."""
    return len(set(first_places(requests)))


def facts_of(got: Got) -> dict[str, Any]:
    """Return the fields of a `held` line, or of a `failed` one."""
    held = got.artifact
    if held is None:
        return {"reason": got.reason, "message": got.message, "attempts": got.attempts}
    path = str(got.path) if got.path else None
    return stored_facts(held.artifact_id, held.sha256, held.size_bytes, path, got.attempts)
