"""Reconcile: rows against files, files against rows, parts and small bodies against jobs, intents against both.

Rules. One leader at a time: an OS lock on this machine, a server lock where several machines share a ledger. Ages are
measured by the ledger's clock, never by file times. Nothing that may be in progress is touched: an unreferenced blob is
quarantined first and the ledger is read again after that; a process that published onto it in between had committed an
intent before, so the blob is put back. Between jobs a worker checks one slice of a large store's hashes at a time.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from longshore import failpoints
from longshore.depot.maintenance.deletion import free_deleted
from longshore.depot.maintenance.gc import UNNAMED, give_back, unnamed
from longshore.depot.maintenance.hash_slices import WHOLE, Slice, next_slice
from longshore.depot.maintenance.missing_blobs import Loss, mark_lost, told_losses
from longshore.depot.records import EVERYBODY, Report
from longshore.domain.kinds import TERMINAL
from longshore.domain.model import SECOND, Artifact, Job, Scope
from longshore.errors import Locked, NotFound, StoreError
from longshore.ledger.backends.sqlite.readonly import refusal
from longshore.ledger.operations.artifact_registry import mark_available
from longshore.ledger.operations.repair import Healed, reconcile_jobs
from longshore.ledger.queries.due_work import artifacts_between, scopes_known
from longshore.store.durability import filesystem
from longshore.worker.kinds.upload import recovery
from longshore.worker.liveness import new_owner

if TYPE_CHECKING:
    from longshore.depot.maintenance.retention import Retention
    from longshore.domain.settings import ReconcileSettings
    from longshore.ledger import Ledger
    from longshore.ledger.transaction import Tx
    from longshore.store import Store, StoredBlob

log = logging.getLogger(__name__)
T = TypeVar("T")
PAGE: Final = 500
EMPTY_FROM: Final = 100  # with this many artifacts, a store without any of their blobs is assumed to be another one
UPLOAD_AGE: Final = 24  # times the age of a stale part: a running upload has no heartbeat
_SENTENCES: Final = {
    "expired_leases": "leases had expired and were not released",
    "stale_effects": "intents of finished jobs were open",
    "forgotten_jobs": "jobs waited for nothing",
    "forgotten_lanes": "lanes did not know of their ready jobs",
    "wrong_counters": "counters were wrong",
}
failpoints.declare(
    "reconcile.begin",
    "reconcile.quarantined",
    "reconcile.restored",
    "reconcile.marked",
    "reconcile.part",
    "reconcile.uploads",
    "reconcile.end",
)


class Reconciler:
    """One pass over a depot. Blocks; run it in a thread."""

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        settings: ReconcileSettings,
        depot: Path,
        retention: Retention | None = None,
    ) -> None:
        self._ledger, self._store, self._settings, self._depot = ledger, store, settings, depot
        self._retention = retention

    def reconcile(self, dry_run: bool = False, part: Slice = WHOLE, *, store_lost: bool = False) -> Report:
        """Compare everything (or a slice of it); repair where possible unless it is a dry run."""
        report = Report()
        if self._ledger.frozen and not dry_run:
            raise refusal(self._depot / "ledger.db")
        with self._alone_here():
            failpoints.hit("reconcile.begin")
            self._parts(report, dry_run)
            with self._alone_everywhere():
                self._rows(report, dry_run)
                if not dry_run:
                    give_back(self._ledger, self._store)
                    for scope in self._ledger.read(scopes_known):
                        free_deleted(self._ledger, self._store, scope)
                self._interrupted_uploads(report, dry_run)
                self._files_without_rows(report, dry_run, part)
                self._rows_without_files(report, dry_run, part, store_lost)
                self._uploads(report, dry_run)
            failpoints.hit("reconcile.end")
        return report

    def keep_house(self, full: bool) -> Report:
        """Do a worker's periodic share: the next slice of everything, or only the cheap checks."""
        if full:
            report = self.reconcile(part=next_slice(self._ledger, self._depot))
            if self._retention is not None:
                with self._alone_here(), self._alone_everywhere():
                    self._retention.daily()
            return report
        report = Report()
        with self._alone_here():
            self._parts(report, dry_run=False)
            if self._store.backend == "local" and self._settings.start_s:
                with self._alone_everywhere():
                    self._look_at_start(report)
        return report

    def _look_at_start(self, report: Report) -> None:
        """Look for lost blobs as long as a start may take, beginning where the last start ended."""
        end, place = time.monotonic() + self._settings.start_s, self._depot / "reconcile.start.json"
        scopes = self._ledger.read(scopes_known)
        tenant, project, *after = _read_place(place)
        begin = scopes.index(Scope(tenant, project)) if Scope(tenant, project) in scopes else 0
        at = (after[0], after[1])
        for scope in [*scopes[begin:], *scopes[:begin]]:
            while page := self._ledger.read(artifacts_between, scope, WHOLE, at, PAGE):
                gone = self._gone(scope, page)
                if self._is_another(page, gone):
                    report.found_no_store()
                    return
                self._tell_lost(report, scope, [one for one in page if one.artifact_id in gone], dry_run=False)
                at = (page[-1].sha256, page[-1].artifact_id)
                if time.monotonic() >= end:
                    filesystem.write_private(place, json.dumps([*scope, *at]).encode())
                    return
            at = ("", "")
        place.unlink(missing_ok=True)

    @contextmanager
    def _alone_here(self) -> Iterator[None]:
        if self._ledger.frozen:  # read-only: nothing can change, and no lock can be taken
            yield
            return
        descriptor = os.open(self._depot / "reconcile.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _at_it("process") from None
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _alone_everywhere(self) -> Iterator[None]:
        """Become leader among all machines that share the ledger; a local ledger has only this one."""
        leading = getattr(self._ledger.backend, "leading", None)
        with leading() if leading else nullcontext(True) as mine:
            if not mine:
                raise _at_it("machine")
            yield

    # ── the ledger's own rows ──

    def _rows(self, report: Report, dry_run: bool) -> None:
        """Release expired leases, close intents of finished jobs, and recount."""
        if self._ledger.frozen:  # a dry run needs a transaction, which a read-only ledger does not allow
            return
        healed = self._undone() if dry_run else self._ledger.reconcile_jobs()
        for kind, sentence in _SENTENCES.items():
            if count := getattr(healed, kind):
                _tell(report, dry_run, kind, EVERYBODY, "ledger", f"{count} {sentence}")

    def _undone(self) -> Healed:
        """Repair in a transaction that is rolled back, to report what would be done."""
        try:
            self._ledger.write(_heal_and_take_back)
        except _TakenBack as taken:
            return taken.healed
        raise AssertionError("a transaction was not rolled back")

    def _interrupted_uploads(self, report: Report, dry_run: bool) -> None:
        """End the jobs of uploads whose process died: no worker runs them, and only a repeated upload would."""
        for scope in self._ledger.read(scopes_known):
            if not (job_ids := recovery.interrupted(self._ledger, scope, self._settings.stale_part_s)):
                continue
            if dry_run:
                ended = [recovery.EndedUpload(job_id, completed=False) for job_id in job_ids]
            else:
                ended = recovery.end_interrupted(self._ledger, self._store, scope, job_ids, new_owner())
                failpoints.hit("reconcile.uploads")
            for one in ended:
                how = "its bytes are stored" if one.completed else "its bytes were not stored; upload them again"
                message = "this upload was interrupted" + ("" if dry_run else f"; {how}")
                _tell(report, dry_run, "interrupted_upload", scope, one.job_id, message)

    # ── blobs ──

    def _files_without_rows(self, report: Report, dry_run: bool, part: Slice) -> None:
        for page in _pages(held for held in self._store.walk() if held.sha256 in part):
            report.checked += len(page)
            self._wrong_shards(report, dry_run, page)
            for held in unnamed(self._ledger, self._store, page):
                if not dry_run and not self._out_of_reach(held):
                    continue
                message = "no row names this blob" + (" (quarantined)" if not dry_run else "")
                _tell(report, dry_run, "unreferenced_blob", held.scope, held.sha256, message)

    def _wrong_shards(self, report: Report, dry_run: bool, page: list[StoredBlob]) -> None:
        for held in page:
            try:
                done = self._store.rehome(held, UNNAMED, dry_run=dry_run)
            except StoreError as error:
                log.warning("blob %s is in the wrong shard and stays there: %s", held.sha256, error)
                continue
            if done is not None:
                message = f"the blob was in a shard that is not its own: {done}"
                _tell(report, dry_run, "wrong_shard", held.scope, held.sha256, message)

    def _out_of_reach(self, held: StoredBlob) -> bool:
        """Quarantine an unreferenced blob; put it back if the ledger refers to it by now."""
        name = self._store.quarantine(held.scope, held.pointer, UNNAMED, at=self._ledger.now())
        failpoints.hit("reconcile.quarantined")
        if name is None:
            return False
        if unnamed(self._ledger, self._store, [held]):
            return True
        self._store.restore(held.scope, name)
        failpoints.hit("reconcile.restored")
        return False

    def _rows_without_files(self, report: Report, dry_run: bool, part: Slice, store_lost: bool) -> None:
        """Report every artifact whose bytes are lost, in this and every later pass, and plan to fetch them again."""
        for scope in self._ledger.read(scopes_known):
            for page in self._artifacts(scope, part):
                gone = self._gone(scope, page)
                if not store_lost and not report.checked and self._is_another(page, gone):
                    report.found_no_store()
                    return
                self._tell_lost(report, scope, [one for one in page if one.artifact_id in gone], dry_run)
                back = [one for one in page if one.availability == "missing" and one.artifact_id not in gone]
                self._tell_back(report, scope, back, dry_run)

    def _is_another(self, page: list[Artifact], gone: set[str]) -> bool:
        """Return whether this cannot be the store that these artifacts were published to."""
        if not any(one.availability == "available" for one in page if one.artifact_id in gone):
            return False  # reported and marked before
        return self._store.blank() or EMPTY_FROM <= len(gone) == len(page)

    def _tell_lost(self, report: Report, scope: Scope, lost: list[Artifact], dry_run: bool) -> None:
        if not lost:
            return
        losses: list[Loss] = (
            self._ledger.read(told_losses, scope, lost) if dry_run else self._ledger.write(mark_lost, scope, lost)
        )
        failpoints.hit("reconcile.marked")
        for loss in losses:
            message = f"the bytes of this artifact are gone; {loss.what_now}"
            report.found("missing_blob", scope, loss.artifact_id, message, remedy=loss.remedy)

    def _tell_back(self, report: Report, scope: Scope, back: list[Artifact], dry_run: bool) -> None:
        right = [one for one in back if self._store.check(scope, one.pointer, one.sha256, one.size_bytes) is None]
        if not dry_run:
            self._ledger.write(mark_available, scope, [one.artifact_id for one in right])
        for one in right:
            _tell(report, dry_run, "returned_blob", scope, one.artifact_id, "the bytes are back")

    def _artifacts(self, scope: Scope, part: Slice) -> Iterator[list[Artifact]]:
        after = ("", "")
        while page := self._ledger.read(artifacts_between, scope, part, after, PAGE):
            yield page
            after = (page[-1].sha256, page[-1].artifact_id)

    def _gone(self, scope: Scope, page: list[Artifact]) -> set[str]:
        sizes = self._store.sizes(scope, [one.pointer for one in page])
        return {one.artifact_id for one, size in zip(page, sizes, strict=True) if size != one.size_bytes}

    # ── parts ──

    def _parts(self, report: Report, dry_run: bool) -> None:
        now = self._ledger.now()
        sightings = Sightings(self._depot / "reconcile.seen.json")
        for facts in list(self._store.parts()):
            job = self._job(facts.scope, facts.job_id)
            if job is not None and job.status not in TERMINAL:
                continue
            since = job.updated_at if job else sightings.first(f"{facts.job_id}.{facts.epoch}", now)
            if now - since < self._settings.stale_part_s * SECOND:
                continue
            if not dry_run:
                self._store.drop_part(facts)
                failpoints.hit("reconcile.part")
            _tell(report, dry_run, "stale_part", facts.scope, facts.job_id, f"part of epoch {facts.epoch}")
        if not self._ledger.frozen:
            sightings.save()

    def _uploads(self, report: Report, dry_run: bool) -> None:
        """Abort unfinished uploads to an object store; they take space, and no listing shows them."""
        if dry_run:
            return
        try:
            count = self._store.collect(UPLOAD_AGE * self._settings.stale_part_s)
        except StoreError as error:  # not every server lists them, and not every key may
            log.warning("unfinished uploads could not be listed: %s", error)
            return
        if count:
            message = f"{count} unfinished uploads were aborted"
            report.found("unfinished_upload", EVERYBODY, "store", message, healed=True)

    def _job(self, scope: Scope, job_id: str) -> Job | None:
        try:
            return self._ledger.job(scope, job_id)
        except NotFound:
            return None


class Sightings:
    """First sight, by the ledger's clock, of files whose age no row records. A running upload has no job."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._now: dict[str, int] = {}
        try:
            self._before: dict[str, int] = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            self._before = {}

    def first(self, name: str, now: int) -> int:
        """Return when this was first seen."""
        self._now[name] = seen = int(self._before.get(name, now))
        return seen

    def save(self) -> None:
        """Keep the entries seen in this pass and drop the others."""
        if self._now != self._before:
            filesystem.write_private(self._path, json.dumps(self._now).encode())


def _tell(report: Report, dry_run: bool, kind: str, scope: Scope, subject: str, message: str) -> None:
    """Record a finding as repaired, or as repairable."""
    remedy = "`longshore reconcile` without --dry-run repairs this"
    report.found(kind, scope, subject, message, healed=not dry_run, remedy=remedy)


def _read_place(path: Path) -> list[str]:
    """Return where the last look ended: tenant, project, hash and artifact; the begin if that is not known."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        found = None
    good = isinstance(found, list) and len(found) == 4 and all(isinstance(one, str) for one in found)
    return found if good else ["", "", "", ""]


def _pages(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while page := list(islice(iterator, PAGE)):
        yield page


class _TakenBack(Exception):
    """Carries the result of a dry run out of its transaction, which is rolled back."""

    def __init__(self, healed: Healed) -> None:
        super().__init__("taken back")
        self.healed = healed


def _heal_and_take_back(tx: Tx) -> None:
    raise _TakenBack(reconcile_jobs(tx))


def _at_it(who: str) -> Locked:
    return Locked(f"another {who} reconciles this depot", hint="it will be done soon; nothing to do")
