"""The loop that keeps torrent jobs and the client in step.

One cycle: the jobs that waited longest → one query by ids → one more for those not found (a hybrid changes its id) →
a verdict for each → one transaction for all notes. Adding and importing go on beside the cycle, one task per job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from longshore import failpoints
from longshore.domain.model import Lease, Scope
from longshore.domain.states import ACTIVE, Status
from longshore.domain.torrent_sync import Act, Rules, Verdict, at_rest, import_failed, judge
from longshore.domain.torrents import Meaning, QbittorrentSettings, Seen, job_tag, main_file, meaning_of
from longshore.errors import LeaseLost, LongshoreError, Reasoned, StoreError, Unavailable
from longshore.ledger.leasing import renew
from longshore.ledger.torrents import (
    INTERRUPTED,
    Noted,
    complete_torrent,
    hold_torrents,
    lease_import,
    note_torrents,
    release_import,
    retire_torrent,
)
from longshore.ledger.tracking import Tracked, active_torrents, due_torrents
from longshore.torrents.canceling import let_go
from longshore.torrents.client import Client, ClientAway, ClientFile
from longshore.torrents.enqueue import Enqueue, Fetch, Overtaken
from longshore.torrents.files import NotVisible, opened, wanted
from longshore.torrents.importing import Import

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Store

log = logging.getLogger(__name__)
IMPORTS: Final = 2  # files read at once: a disk has one head, and the loop is not in a hurry
ADDS: Final = 8
failpoints.declare("torrent.cycle", "torrent.import.leased", "torrent.import.before", "torrent.import.after")


@dataclass(slots=True)
class Cycle:
    """What one cycle came to."""

    polled: int = 0
    missing: int = 0
    failed: int = 0
    away: str | None = None
    hint: str | None = None  # what helps against that
    completed: list[str] = field(default_factory=list)  # by the imports that ended since the cycle before


class Sync:
    """Keeps the jobs of one ledger in step with one client. One per event loop."""

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        client: Client,
        fetch: Fetch,
        settings: QbittorrentSettings,
        *,
        owner: str,
        lease_ttl_s: float = 120.0,
        lease_renew_s: float = 40.0,
    ) -> None:
        self.ledger, self.store, self.client, self.settings = ledger, store, client, settings
        self.owner, self._ttl_s, self._renew_s = owner, lease_ttl_s, lease_renew_s
        self._enqueue = Enqueue(ledger, client, fetch, settings)
        self._busy: dict[tuple[Scope, str], asyncio.Task[ClientAway | None]] = {}
        self._imports = asyncio.Semaphore(IMPORTS)
        self._adds = asyncio.Semaphore(ADDS)
        self._held = False
        self._completed: list[str] = []

    async def cycle(self) -> Cycle:
        """Poll the next jobs once. The client's silence concludes nothing and stops every clock."""
        failpoints.hit("torrent.cycle")
        due = await self.ledger.read_soon(due_torrents, self.settings.batch)
        jobs = [job for job in due if (job.scope, job.job_id) not in self._busy]
        report = Cycle(polled=len(jobs), completed=self.take_completed())
        if not due:
            return report
        try:
            seen = await self._look(jobs)
        except ClientAway as error:
            report.away, report.hint = str(error), error.hint
            await self._hold()
            return report
        self._held = False
        rules = Rules.of(self.settings, await self.ledger.read_soon(active_torrents))
        notes = [note for job, found in zip(jobs, seen, strict=True) if (note := self._decide(job, found, rules))]
        pairs = zip(jobs, seen, strict=True)
        report.missing = sum(found is None and job.watch.added_at is not None for job, found in pairs)
        report.failed = sum(note.reason is not None for note in notes)
        # Those with something under way move to the end too: a hundred slow adds must not hold the others up.
        await self.ledger.soon(note_torrents, notes, due)
        return report

    async def _hold(self) -> None:
        if not self._held:
            await self.ledger.soon(hold_torrents)
            self._held = True

    async def _look(self, jobs: list[Tracked]) -> list[Seen | None]:
        """Find each job's torrent by its ids; for the ones not found, once more by tag and hash among all of ours."""
        if not jobs:
            return []
        ids = sorted({id_ for job in jobs for id_ in _ids(job)})
        index = _index(await asyncio.to_thread(self.client.by_ids, ids))
        if not ids or any(_match(job, index) is None and job.watch.added_at is not None for job in jobs):
            foreign = any(job.watch.foreign for job in jobs if _match(job, index) is None)
            ask = self.client.everything if foreign else self.client.ours
            index = _index(await asyncio.to_thread(ask)) | index
        return [_match(job, index) for job in jobs]

    def _decide(self, job: Tracked, found: Seen | None, rules: Rules) -> Noted | None:
        """Judge one job; give what is to be written, or start what takes longer."""
        if job.status not in ACTIVE or job.cancel_requested_at is not None:
            self._start(job, self._leave(job, found))
            return None
        if found is not None and job.watch.added_at and not job.watch.seen_at and job_tag(job.job_id) not in found.tags:
            self._start(job, self._enqueue.adopt(job, job.watch, found))  # somebody else's add was faster than ours
            return None
        verdict = judge(job.stage, job.watch, found, self.ledger.now(), rules, held=job.held)
        match verdict.act:
            case Act.ADD:
                self._start(job, self._add(job, verdict))
                return None
            case Act.IMPORT if found is not None:
                self._start(job, self._take(job, verdict, found))
                return None
            case Act.FAIL:
                return _noted(job, verdict, found)
            case Act.RESTART if found is not None:
                self._start(job, self._restart(job, verdict, found))
                return None
        broken = found is not None and meaning_of(found.state)[0] is Meaning.BROKEN
        if found is not None and broken and verdict.watch.note is None:
            self._start(job, self._explain(job, verdict, found))
            return None
        return _noted(job, verdict, found)

    async def _write(self, notes: list[Noted]) -> None:
        if notes:
            await self.ledger.soon(note_torrents, notes)

    def _start(self, job: Tracked, work: Coroutine[Any, Any, None]) -> None:
        name = (job.scope, job.job_id)
        task = asyncio.get_running_loop().create_task(self._guarded(job, work))
        self._busy[name] = task
        task.add_done_callback(lambda _: self._busy.pop(name, None))

    async def _guarded(self, job: Tracked, work: Awaitable[None]) -> ClientAway | None:
        """Whatever goes wrong with one job is that job's, and the next cycle looks again; a silent client is told."""
        try:
            await work
        except ClientAway as error:
            log.info("job %s waits: %s", job.job_id, error)
            await self._hold()
            return error
        except (Overtaken, LeaseLost):
            log.debug("job %s was written by somebody else", job.job_id)
        except LongshoreError as error:
            log.warning("job %s: %s", job.job_id, error)
        except Exception:  # ours to mend, but one job's trouble stops no other
            log.exception("job %s: unexpected", job.job_id)
        return None

    async def now(self, job: Tracked) -> ClientAway | None:
        """Hand one job's torrent over at once; whatever prevents it is left to the loop."""
        return await self._guarded(job, self._enqueue.run(job, job.watch))

    def take_completed(self) -> list[str]:
        """Give the jobs that were completed since the last time somebody asked."""
        completed, self._completed = self._completed, []
        return completed

    async def drain(self) -> None:
        """Wait for everything that was started."""
        while self._busy:
            await asyncio.wait(list(self._busy.values()))

    async def stop(self) -> None:
        """Stop what is under way; all of it can be done again."""
        for task in list(self._busy.values()):
            task.cancel()
        await asyncio.gather(*self._busy.values(), return_exceptions=True)

    async def _add(self, job: Tracked, verdict: Verdict) -> None:
        async with self._adds:
            await self._enqueue.run(job, verdict.watch)

    async def _leave(self, job: Tracked, found: Seen | None) -> None:
        if job.status in ACTIVE or (job.status is Status.CANCELED and job.released_at is None):
            await let_go(self.ledger, self.client, job, found)
        else:
            await self.ledger.soon(retire_torrent, job)

    async def _restart(self, job: Tracked, verdict: Verdict, found: Seen) -> None:
        await self._write([_noted(job, verdict, found)])
        await asyncio.to_thread(self.client.start, found.id)

    async def _explain(self, job: Tracked, verdict: Verdict, found: Seen) -> None:
        """Keep the client's own words for the error; they stand in its log only."""
        words = await asyncio.to_thread(self.client.last_error, found.name)
        watch = replace(verdict.watch, note=words or f"the client reports {verdict.watch.substate}")
        await self._write([_noted(job, replace(verdict, watch=watch), found)])

    async def _take(self, job: Tracked, verdict: Verdict, found: Seen) -> None:
        """Import a finished torrent: look whether its files are here, lease, take them, complete."""
        files = await asyncio.to_thread(self.client.files, found.id)
        if files is None:
            return  # gone between two questions: the next poll starts the clock
        try:
            chosen = wanted(files)
            await asyncio.to_thread(self._try, found.save_path, chosen)
        except NotVisible as error:
            watch = replace(verdict.watch, substate="waiting for files", note=str(error))
            await self._write([_noted(job, replace(verdict, watch=watch, stage="downloading"), found)])
            return
        except Reasoned as error:
            await self._write([_noted(job, replace(verdict, reason=error.reason, message=str(error)), found)])
            return
        async with self._imports:
            lease = await self.ledger.soon(lease_import, job, self.owner, self._ttl_s)
            if lease is None:
                raise Overtaken
            failpoints.hit("torrent.import.leased")
            await self._import(lease, verdict, found, chosen)

    def _try(self, save_path: str, files: list[ClientFile]) -> None:
        """Open every file once: no lease is taken for what cannot be seen."""
        for file in files:
            with opened(self.settings, save_path, file):
                pass

    async def _import(self, lease: Lease, verdict: Verdict, found: Seen, chosen: list[ClientFile]) -> None:
        lost = threading.Event()
        beat = asyncio.get_running_loop().create_task(self._heartbeat(lease, lost))
        work = Import(self.ledger, self.store, self.settings, lease, lost)
        try:
            artifacts = await _in_thread(work.take, lost, found.save_path, chosen)
            failpoints.hit("torrent.import.before")
            main = main_file(lease.job.request.media_type or "", [(file.name, file.size_bytes) for file in chosen])
            path = self.store.path(lease.scope, artifacts[main].blob.pointer)
            storage_path = str(path) if path is not None else artifacts[main].blob.pointer
            await self.ledger.soon(
                complete_torrent, lease, artifacts, main=main, storage_path=storage_path, watch=at_rest(verdict.watch)
            )
            failpoints.hit("torrent.import.after")
            self._completed.append(lease.job_id)
        except (NotVisible, StoreError, Reasoned, Unavailable) as error:
            watch = import_failed(verdict.watch, str(error), self.ledger.now(), Rules.of(self.settings, 1))
            await self.ledger.soon(release_import, lease, watch, getattr(error, "reason", "path_unmapped"))
        except asyncio.CancelledError:
            with contextlib.suppress(LongshoreError):
                await self.ledger.soon(release_import, lease, verdict.watch, INTERRUPTED)
            raise
        finally:
            lost.set()
            beat.cancel()

    async def _heartbeat(self, lease: Lease, lost: threading.Event) -> None:
        while True:
            await asyncio.sleep(self._renew_s)
            with contextlib.suppress(Unavailable):
                renewed = await self.ledger.soon(renew, [lease], self._ttl_s)
                if renewed.lost or renewed.canceled:
                    lost.set()
                    return


async def _in_thread(call: Callable[..., Any], lost: threading.Event, *arguments: Any) -> Any:
    """Run in a thread; when we are cancelled, let the thread stop before we go on."""
    work = asyncio.get_running_loop().run_in_executor(None, call, *arguments)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        lost.set()
        with contextlib.suppress(LongshoreError):
            await work
        raise


def _ids(job: Tracked) -> set[str]:
    return {*job.identity.ids, *([job.external_job_id] if job.external_job_id else [])}


def _index(found: Iterable[Seen]) -> dict[str, Seen]:
    """Index torrents by everything that can name them: id, both hashes, the tags of our jobs."""
    return {name: seen for seen in found for name in {seen.id, *seen.identity.ids, *seen.tags}}


def _match(job: Tracked, index: dict[str, Seen]) -> Seen | None:
    names = (*job.identity.ids, job.external_job_id or "", job_tag(job.job_id))
    return next((index[name] for name in names if name in index), None)


def _noted(job: Tracked, verdict: Verdict, found: Seen | None) -> Noted:
    return Noted(
        job,
        verdict.watch,
        verdict.stage,
        external_job_id=found.id if found else None,
        identity=found.identity if found else job.identity,
        reason=verdict.reason,
        message=verdict.message,
    )


class Reports(Protocol):
    """Whoever wants to know how the cycles go."""

    def __call__(self, cycle: Cycle, /) -> None:
        """Take the report of one cycle."""


async def forever(sync: Sync, stop: asyncio.Event, report: Reports | None = None) -> None:
    """Cycle until told to stop; what is under way then is stopped too, and goes on with the next start."""
    away = False
    try:
        while not stop.is_set():
            try:
                cycle = await sync.cycle()
                if cycle.away and not away:
                    log.warning("%s", cycle.away)
                away = cycle.away is not None
                if report is not None:
                    report(cycle)
            except LongshoreError as error:
                log.warning("a cycle of the torrents failed: %s", error)
            except Exception:  # whoever runs this runs downloads as well
                log.exception("a cycle of the torrents failed")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), sync.settings.poll_s)
    finally:
        await sync.stop()
