"""`get`: plan, work, and say for each item what it came to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from longshore.depot.records import Got
from longshore.depot.requests import as_request
from longshore.depot.working import Working
from longshore.domain.model import Artifact, Job, JobRequest, Planned, Scope
from longshore.domain.notes import Listener, Note
from longshore.domain.redaction import safe_url
from longshore.domain.states import TERMINAL, Status
from longshore.ledger.lookup import job, results
from longshore.ledger.planning import plan
from longshore.ledger.registry import mark_missing


class Getting(Working):
    """Verbs that end with bytes in hand."""

    async def get(
        self,
        items: Iterable[Any],
        *,
        scope: Scope | None = None,
        refresh: bool = False,
        max_wait_s: float | None = None,
        on_note: Listener | None = None,
        handle_signals: bool = False,
    ) -> list[Got]:
        """Have these things: what is held is not asked for again (unless `refresh`), the rest is fetched and verified."""
        where = scope or self.scope
        requests = [as_request(item) for item in items]
        planned = await self._planned(where, requests, refresh=refresh)
        held = {one.job_id for one in planned if one.status in TERMINAL}
        waiting = [one.job_id for one in planned if one.status not in TERMINAL]
        if waiting:
            await self.run(
                scope=where, job_ids=waiting, max_wait_s=max_wait_s, on_note=on_note, handle_signals=handle_signals
            )
        got = [await self._outcome(where, one.job_id, held_before=one.job_id in held) for one in planned]
        for one in got:
            if one.job_id in held:
                self._tell_held(where, one, on_note)
        return got

    async def _planned(self, scope: Scope, requests: Sequence[JobRequest], *, refresh: bool) -> list[Planned]:
        """Plan; a completed job whose bytes are gone, or that must be looked at again, gets a successor."""
        planned = await self.ledger.soon(plan, scope, requests, again="always" if refresh else "failed")
        again = [
            place
            for place, one in enumerate(planned)
            if not refresh and one.status is Status.COMPLETED and not await self._still_there(scope, one.job_id)
        ]
        if again:
            anew = await self.ledger.soon(plan, scope, [requests[place] for place in again], again="always")
            for place, one in zip(again, anew, strict=True):
                planned[place] = one
        return planned

    async def _still_there(self, scope: Scope, job_id: str) -> bool:
        """Check that a completed job's results exist; what is lost is marked so."""
        artifacts = await self.ledger.read_soon(results, scope, job_id)
        lost = [one.artifact_id for one in artifacts if not await self._thread(self._exists, scope, one)]
        if lost:
            await self.ledger.soon(mark_missing, scope, lost)
        return not lost and all(one.availability == "available" for one in artifacts)

    def _exists(self, scope: Scope, artifact: Artifact) -> bool:
        blob = self.store.stat(scope, artifact.sha256)
        return blob is not None and blob.size_bytes == artifact.size_bytes

    async def _outcome(self, scope: Scope, job_id: str, *, held_before: bool) -> Got:
        row = await self.ledger.read_soon(job, scope, job_id)
        artifacts = await self._results_of(scope, row)
        artifact = artifacts[0] if artifacts else None
        return Got(
            job_id=row.job_id,
            url=row.request.url,
            status=row.status,
            held_before=held_before or row.status is Status.SKIPPED,
            artifact=artifact,
            path=self.store.path(scope, artifact.pointer) if artifact else None,
            reason=row.reason if row.status is not Status.COMPLETED else None,
            message=row.message if row.status is not Status.COMPLETED else None,
            attempts=row.attempts,
        )

    async def _results_of(self, scope: Scope, row: Job) -> list[Artifact]:
        """A skipped job's results are those of the job it reuses."""
        if row.status not in {Status.COMPLETED, Status.SKIPPED}:
            return []
        found = await self.ledger.read_soon(results, scope, row.job_id)
        if not found and row.reuse_of_job_id:
            found = await self.ledger.read_soon(results, scope, row.reuse_of_job_id)
        return [one for one in found if one.availability == "available"]

    def _tell_held(self, scope: Scope, got: Got, on_note: Listener | None) -> None:
        listener = on_note or self.on_note
        if listener is None:
            return
        now = self.ledger.now()
        url = safe_url(got.url or "")
        if got.artifact is None:
            facts: dict[str, Any] = {"reason": got.reason, "message": got.message, "attempts": got.attempts}
            listener(Note("failed", now, scope, got.job_id, url, facts))
            return
        facts = {
            "artifact_id": got.artifact.artifact_id,
            "sha256": got.artifact.sha256,
            "size_bytes": got.artifact.size_bytes,
            **({"path": str(got.path)} if got.path else {}),
            "deduplicated": False,
            "resumed_from_bytes": 0,
            "attempts": got.attempts,
        }
        listener(Note("held", now, scope, got.job_id, url, facts))
