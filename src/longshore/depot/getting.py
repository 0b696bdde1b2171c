"""`get`: plan, work, and say for each item what it came to. Reads and looks at files for the whole list at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from longshore.depot.records import Got
from longshore.depot.requests import BATCH, as_request
from longshore.depot.working import Working
from longshore.domain.model import Artifact, Job, JobRequest, Planned, Scope
from longshore.domain.notes import Kind, Listener, Note, held_facts
from longshore.domain.redaction import safe_url
from longshore.domain.states import TERMINAL, Status
from longshore.engine.known import ANEW
from longshore.engine.lost import results_and_gone
from longshore.engine.questions import attempts_named, jobs_named, results_named
from longshore.ledger.planning import Again, plan


class Getting(Working):
    """Verbs that end with bytes in hand."""

    async def get(
        self,
        items: Iterable[Any],
        *,
        scope: Scope | None = None,
        refresh: bool = False,
        force: bool = False,
        max_wait_s: float | None = None,
        on_note: Listener | None = None,
        handle_signals: bool = False,
    ) -> list[Got]:
        """Have these things: what is held is not asked for again, the rest is fetched and verified.

        `refresh` asks the servers whether anything changed; `force` fetches anew whatever they say.
        """
        where = scope or self.scope
        requests = [as_request(item) for item in items]
        if force:
            requests = [replace(request, params={**request.params, **ANEW}) for request in requests]
        planned, held = await self._planned(where, requests, again="always" if refresh or force else "failed")
        over = {one.job_id for one in planned if one.status in TERMINAL}
        waiting = tuple(dict.fromkeys(one.job_id for one in planned if one.job_id not in over))
        if waiting:
            pairs = [pair for pair in zip(requests, planned, strict=True) if pair[1].job_id not in over]
            self._tell_planned([pair[0] for pair in pairs], [pair[1] for pair in pairs], on_note or self.on_note)
            await self.run(
                scope=where, job_ids=waiting, max_wait_s=max_wait_s, on_note=on_note, handle_signals=handle_signals
            )
        got = await self._outcomes(where, requests, planned, over, held)
        self._tell_over(where, [one for one in got if one.job_id in over], on_note or self.on_note)
        return got

    async def _planned(
        self, scope: Scope, requests: Sequence[JobRequest], *, again: Again
    ) -> tuple[list[Planned], dict[str, Artifact]]:
        """Plan; a completed job whose bytes are gone, or are not those asked for now, gets a successor.

        Gives what is held, by job, too.
        """
        planned: list[Planned] = []
        left = iter(requests)
        while batch := list(islice(left, BATCH)):
            planned += await self.ledger.soon(plan, scope, batch, again=again)
        done = [one.job_id for one in planned if one.status in {Status.COMPLETED, Status.SKIPPED}]
        held = await self._held(scope, done) if done else {}
        lost = set(done).difference(held)
        other = await self._other_bytes(scope, requests, planned)
        places = [place for place, one in enumerate(planned) if one.job_id in lost or place in other]
        if places:
            anew = await self.ledger.soon(plan, scope, [requests[place] for place in places], again="always")
            for place, one in zip(places, anew, strict=True):
                planned[place] = one
        return planned, held

    async def _other_bytes(self, scope: Scope, requests: Sequence[JobRequest], planned: Sequence[Planned]) -> set[int]:
        """Tell where bytes with another digest are held than the one asked for now: they are no answer."""
        asked = {
            place: request.expect.sha256
            for place, (request, one) in enumerate(zip(requests, planned, strict=True))
            if request.expect.sha256 and one.status in {Status.COMPLETED, Status.SKIPPED}
        }
        if not asked:
            return set()
        results = await self.ledger.read_soon(results_named, scope, [planned[place].job_id for place in asked])
        held = {place: {one.sha256 for one in results.get(planned[place].job_id, ())} for place in asked}
        return {place for place, sha256 in asked.items() if sha256 not in held[place]}

    async def _held(self, scope: Scope, job_ids: Sequence[str]) -> dict[str, Artifact]:
        """Give what completed jobs hold, as far as it is there; what is lost is marked so."""
        results, gone = await self._thread(results_and_gone, self.ledger, self.store.sizes, scope, job_ids)
        there = {job_id: [one for one in found if one.artifact_id not in gone] for job_id, found in results.items()}
        return {job_id: found[0] for job_id, found in there.items() if found}

    async def _outcomes(
        self,
        scope: Scope,
        requests: Sequence[JobRequest],
        planned: Sequence[Planned],
        over: set[str],
        held: dict[str, Artifact],
    ) -> list[Got]:
        """Tell of each item what it came to; of what was held before nothing more is read than the number of attempts."""
        ids = list(dict.fromkeys(one.job_id for one in planned if one.job_id not in held))
        jobs = await self.ledger.read_soon(jobs_named, scope, ids) if ids else {}
        results = await self.ledger.read_soon(results_named, scope, ids) if ids else {}
        attempts = await self.ledger.read_soon(attempts_named, scope, list(held)) if held else {}
        return [
            self._got_before(request, one, held[one.job_id], attempts.get(one.job_id, 0))
            if one.job_id in held
            else self._got(jobs[one.job_id], results.get(one.job_id, ()), one.job_id in over)
            for request, one in zip(requests, planned, strict=True)
        ]

    def _got_before(self, request: JobRequest, planned: Planned, held: Artifact, attempts: int) -> Got:
        path = self.store.path(held.scope, held.pointer)
        return Got(planned.job_id, request.url, planned.status, True, held, path, attempts=attempts)

    def _got(self, job: Job, results: Sequence[Artifact], over: bool) -> Got:
        done = job.status in {Status.COMPLETED, Status.SKIPPED}
        artifact = next((one for one in results if done and one.availability == "available"), None)
        return Got(
            job_id=job.job_id,
            url=job.request.url,
            status=job.status,
            held_before=artifact is not None and (over or job.status is Status.SKIPPED),
            artifact=artifact,
            path=self.store.path(job.scope, artifact.pointer) if artifact else None,
            reason=None if done else job.reason,
            message=None if done else job.message,
            attempts=job.attempts,
        )

    def _tell_over(self, scope: Scope, over: Sequence[Got], listener: Listener | None) -> None:
        """Report what was over before this call: held, or failed for good."""
        if listener is None:
            return
        now = self.ledger.now()
        for got in over:
            kind: Kind = "held" if got.artifact else "failed"
            listener(Note(kind, now, scope, got.job_id, safe_url(got.url or ""), facts_of(got)))


def facts_of(got: Got) -> dict[str, Any]:
    """Give the fields of a `held` line, or of a `failed` one."""
    held = got.artifact
    if held is None:
        return {"reason": got.reason, "message": got.message, "attempts": got.attempts}
    path = str(got.path) if got.path else None
    return held_facts(held.artifact_id, held.sha256, held.size_bytes, path, got.attempts)
