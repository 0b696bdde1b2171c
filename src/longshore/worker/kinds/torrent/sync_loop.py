"""The loop that keeps torrent jobs and the client (qBittorrent) in step.

Problem: the client works for hours or days on its own, can be restarted, and other people use it. The ledger must follow
what it does, for 10,000 torrents, without one request or one lease per torrent.

Invariant: the client's silence concludes nothing. While it does not answer, all clocks (missing, stalled, metadata) stand
still; a job fails only by what the client said, or by a grace time during which the client answered. A torrent job has no
lease while the client works (`JobKind.external`): each note names the row_version that it read, and a note that lost the
race changes nothing. Only the import has a lease, because it reads and publishes bytes.

Order of a cycle: the jobs that were polled longest ago; one query by ids; one more for those not found (a hybrid torrent
changes its id); a verdict for each, by pure rules (`domain.torrents.sync_rules`); one transaction for all notes. Adding,
canceling and importing take longer and run beside the cycle, one task per job; jobs with a task are left out of the next
cycles but move to the end of the rotation. An import looks whether the files are visible, takes its lease, hashes and
publishes them (worker/publish_protocol.py), and completes the job, its asset and its book in one transaction.

Not done: a lease per torrent with a heartbeat for days (10,000 renewals per minute for work that another program does),
the client's sync API with deltas (a restart of the client invalidates them, and the full list is needed then anyway), and
moving finished files into the store (the client goes on seeding from them).
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
from longshore.domain.kinds import ACTIVE, Status
from longshore.domain.model import Lease, Scope
from longshore.domain.settings import LeaseSettings, QbittorrentSettings
from longshore.domain.torrents.model import Meaning, Seen, job_tag, main_file, meaning_of
from longshore.domain.torrents.sync_rules import Act, PollVerdict, Rules, at_rest, import_failed, judge
from longshore.errors import HookFailed, LeaseLost, LongshoreError, Reasoned, StoreError, Unavailable
from longshore.ledger.operations.torrents import (
    INTERRUPTED,
    Noted,
    complete_torrent,
    hold_torrents,
    lease_import,
    note_torrents,
    release_import,
    retire_torrent,
)
from longshore.ledger.queries.torrents import Tracked, active_torrents, due_torrents
from longshore.worker.heartbeat import Heartbeat
from longshore.worker.kinds.torrent.add_to_client import Enqueue, Fetch, Overtaken
from longshore.worker.kinds.torrent.cancel import cancel_in_client
from longshore.worker.kinds.torrent.client import Client, ClientAway, ClientFile
from longshore.worker.kinds.torrent.client_files import NotVisible, opened, wanted
from longshore.worker.kinds.torrent.import_files import Import

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Store

log = logging.getLogger(__name__)
IMPORTS: Final = 2  # files read at once: a disk has one head, and the loop is not in a hurry
ADDS: Final = 8
failpoints.declare("torrent.cycle", "torrent.import.leased", "torrent.import.before", "torrent.import.after")


@dataclass(slots=True)
class Cycle:
    """The result of one cycle."""

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
        lease: LeaseSettings | None = None,
    ) -> None:
        self.ledger, self.store, self.client, self.settings = ledger, store, client, settings
        self.owner, self._lease = owner, lease or LeaseSettings()
        self._enqueue = Enqueue(ledger, client, fetch, settings)
        self._busy: dict[tuple[Scope, str], asyncio.Task[ClientAway | None]] = {}
        self._imports = asyncio.Semaphore(IMPORTS)
        self._adds = asyncio.Semaphore(ADDS)
        self._held = False
        self._completed: list[str] = []

    async def cycle(self) -> Cycle:
        """Poll the next jobs once. The client's silence concludes nothing and stops every clock."""
        failpoints.hit("torrent.cycle")
        due = await self.ledger.read_async(due_torrents, self.settings.batch)
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
        rules = Rules.of(self.settings, await self.ledger.read_async(active_torrents))
        notes = [note for job, found in zip(jobs, seen, strict=True) if (note := self._decide(job, found, rules))]
        pairs = zip(jobs, seen, strict=True)
        report.missing = sum(found is None and job.watch.added_at is not None for job, found in pairs)
        report.failed = sum(note.reason is not None for note in notes)
        # Those with something under way move to the end too: a hundred slow adds must not hold the others up.
        await self.ledger.write_async(note_torrents, notes, due)
        return report

    async def _hold(self) -> None:
        if not self._held:
            await self.ledger.write_async(hold_torrents)
            self._held = True

    async def _look(self, jobs: list[Tracked]) -> list[Seen | None]:
        """Find each job's torrent by its ids; if that fails, by tag and hash among all torrents that we added."""
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
            self._start(job, self._enqueue.adopt(job, job.watch, found))  # another add was faster
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
            await self.ledger.write_async(note_torrents, notes)

    def _start(self, job: Tracked, work: Coroutine[Any, Any, None]) -> None:
        name = (job.scope, job.job_id)
        task = asyncio.get_running_loop().create_task(self._guarded(job, work))
        self._busy[name] = task
        task.add_done_callback(lambda _: self._busy.pop(name, None))

    async def _guarded(self, job: Tracked, work: Awaitable[None]) -> ClientAway | None:
        """Log an error of one job, so that it affects no other job; return the error if the client did not answer."""
        try:
            await work
        except ClientAway as error:
            log.info("job %s waits: %s", job.job_id, error)
            await self._hold()
            return error
        except (Overtaken, LeaseLost):
            log.debug("job %s was changed by another process", job.job_id)
        except LongshoreError as error:
            log.warning("job %s: %s", job.job_id, error)
        except Exception:  # a bug, but one job must not stop the others
            log.exception("job %s: unexpected", job.job_id)
        return None

    async def now(self, job: Tracked) -> ClientAway | None:
        """Add one job's torrent to the client at once; if that fails, the loop tries again."""
        return await self._guarded(job, self._enqueue.run(job, job.watch))

    def take_completed(self) -> list[str]:
        """Return the jobs that were completed since the last call."""
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

    async def _add(self, job: Tracked, verdict: PollVerdict) -> None:
        async with self._adds:
            await self._enqueue.run(job, verdict.watch)

    async def _leave(self, job: Tracked, found: Seen | None) -> None:
        if job.status in ACTIVE or (job.status is Status.CANCELED and job.released_at is None):
            await cancel_in_client(self.ledger, self.client, job, found)
        else:
            await self.ledger.write_async(retire_torrent, job)

    async def _restart(self, job: Tracked, verdict: PollVerdict, found: Seen) -> None:
        await self._write([_noted(job, verdict, found)])
        await asyncio.to_thread(self.client.start, found.id)

    async def _explain(self, job: Tracked, verdict: PollVerdict, found: Seen) -> None:
        """Keep the client's own words for the error; they stand in its log only."""
        words = await asyncio.to_thread(self.client.last_error, found.name)
        watch = replace(verdict.watch, note=words or f"the client reports {verdict.watch.substate}")
        await self._write([_noted(job, replace(verdict, watch=watch), found)])

    async def _take(self, job: Tracked, verdict: PollVerdict, found: Seen) -> None:
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
            lease = await self.ledger.write_async(lease_import, job, self.owner, self._lease.ttl_s)
            if lease is None:
                raise Overtaken
            failpoints.hit("torrent.import.leased")
            await self._import(lease, verdict, found, chosen)

    def _try(self, save_path: str, files: list[ClientFile]) -> None:
        """Open every file once: no lease is taken for what cannot be seen."""
        for file in files:
            with opened(self.settings, save_path, file):
                pass

    async def _import(self, lease: Lease, verdict: PollVerdict, found: Seen, chosen: list[ClientFile]) -> None:
        lost = threading.Event()
        async with Heartbeat(self.ledger, self._lease, lambda: [lease], lambda _: lost.set(), lambda _: lost.set()):
            try:
                await self._import_files(lease, lost, verdict, found, chosen)
            except (NotVisible, StoreError, Reasoned, Unavailable, HookFailed) as error:
                if isinstance(error, HookFailed):
                    log.error("job %s: %s\n%s", lease.job_id, error, error.trace)
                watch = import_failed(verdict.watch, str(error), self.ledger.now(), Rules.of(self.settings, 1))
                await self.ledger.write_async(release_import, lease, watch, getattr(error, "reason", "path_unmapped"))
            except asyncio.CancelledError:
                with contextlib.suppress(LongshoreError):
                    await self.ledger.write_async(release_import, lease, verdict.watch, INTERRUPTED)
                raise
            finally:
                lost.set()

    async def _import_files(
        self, lease: Lease, lost: threading.Event, verdict: PollVerdict, found: Seen, chosen: list[ClientFile]
    ) -> None:
        work = Import(self.ledger, self.store, self.settings, lease, lost)
        artifacts = await _in_thread(work.take, lost, found.save_path, chosen)
        failpoints.hit("torrent.import.before")
        main = main_file(lease.job.request.media_type or "", [(file.name, file.size_bytes) for file in chosen])
        path = self.store.path(lease.scope, artifacts[main].blob.pointer)
        storage_path = str(path) if path is not None else artifacts[main].blob.pointer
        await self.ledger.write_async(
            complete_torrent, lease, artifacts, main=main, storage_path=storage_path, watch=at_rest(verdict.watch)
        )
        failpoints.hit("torrent.import.after")
        self._completed.append(lease.job_id)


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


def _noted(job: Tracked, verdict: PollVerdict, found: Seen | None) -> Noted:
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
    """A callback for the result of each cycle."""

    def __call__(self, cycle: Cycle, /) -> None:
        """Take the report of one cycle."""


async def forever(sync: Sync, stop: asyncio.Event, report: Reports | None = None) -> None:
    """Run cycles until stopped. Running tasks are stopped, too, and resume at the next start."""
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
            except Exception:  # must not stop the worker, which also runs downloads
                log.exception("a cycle of the torrents failed")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), sync.settings.poll_s)
    finally:
        await sync.stop()
