"""Reconcile: rows against files, files against rows, parts and small bodies against jobs, intents against both.

Rules. One leader at a time, by an OS lock. Age is told by the ledger's clock, never by a file's times. Nothing that may be
on its way is touched: a blob without a row is moved to quarantine first and the ledger is read again after that; whoever
published onto it in between had committed an intent before, so it is put back.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from longshore import failpoints
from longshore.depot.collecting import UNNAMED, give_back
from longshore.depot.records import Report
from longshore.depot.verifying import all_artifacts
from longshore.domain.model import SECOND, Artifact, Job, Scope
from longshore.domain.states import TERMINAL
from longshore.engine.questions import referenced, scopes_known
from longshore.errors import Locked, NotFound
from longshore.ledger.registry import mark_available

if TYPE_CHECKING:
    from longshore.domain.settings import ReconcileSettings
    from longshore.ledger import Ledger
    from longshore.store import Held, Store

T = TypeVar("T")
PAGE: Final = 500
failpoints.declare("reconcile.begin", "reconcile.quarantined", "reconcile.restored", "reconcile.part", "reconcile.end")


class Reconciler:
    """One pass over a depot. Blocks; run it in a thread."""

    def __init__(self, ledger: Ledger, store: Store, settings: ReconcileSettings, depot: Path) -> None:
        self._ledger, self._store, self._settings, self._depot = ledger, store, settings, depot

    def reconcile(self, dry_run: bool = False) -> Report:
        """Compare everything with everything; heal what can be healed unless it is a dry run."""
        report = Report()
        with self._leader():
            failpoints.hit("reconcile.begin")
            if not dry_run:
                give_back(self._ledger, self._store)
            self._files_without_rows(report, dry_run)
            self._rows_without_files(report, dry_run)
            self._parts(report, dry_run)
            if not dry_run:
                self._ledger.cleanup_stale_leases()
                self._ledger.cleanup_stale_ops()
            failpoints.hit("reconcile.end")
        return report

    def keep_house(self, full: bool) -> Report:
        """Do what a worker does beside its work: everything, or only what costs little however large the store is."""
        if full:
            return self.reconcile()
        report = Report()
        with self._leader():
            self._parts(report, dry_run=False)
        return report

    @contextmanager
    def _leader(self) -> Iterator[None]:
        descriptor = os.open(self._depot / "reconcile.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise Locked("another process reconciles this depot", hint="it will be done soon; nothing to do") from None
        finally:
            os.close(descriptor)

    # ── blobs ──

    def _files_without_rows(self, report: Report, dry_run: bool) -> None:
        for page in _pages(self._store.walk()):
            report.checked += len(page)
            for held in self._unknown(page):
                if not dry_run and not self._out_of_reach(held):
                    continue
                message = "no row names this blob" + (" (quarantined)" if not dry_run else "")
                report.found("unreferenced_blob", held.scope, held.sha256, message, healed=not dry_run)

    def _unknown(self, page: list[Held]) -> list[Held]:
        by_scope: dict[Scope, list[Held]] = {}
        for held in page:
            by_scope.setdefault(held.scope, []).append(held)
        unknown = []
        for scope, group in by_scope.items():
            named = self._ledger.read(referenced, scope, [held.sha256 for held in group])
            unknown += [held for held in group if held.sha256 not in named]
        return unknown

    def _out_of_reach(self, held: Held) -> bool:
        """Move an unreferenced blob away; put it back if the ledger names it by now."""
        name = self._store.quarantine(held.scope, held.pointer, UNNAMED, at=self._ledger.now())
        failpoints.hit("reconcile.quarantined")
        if name is None:
            return False
        if self._unknown([held]):
            return True
        self._store.restore(held.scope, name)
        failpoints.hit("reconcile.restored")
        return False

    def _rows_without_files(self, report: Report, dry_run: bool) -> None:
        for scope in self._ledger.read(scopes_known):
            for page in _pages(all_artifacts(self._ledger, scope)):
                lost = [one for one in page if one.availability == "available" and not self._exists(one)]
                back = [one for one in page if one.availability == "missing" and self._exists(one)]
                for one in lost:
                    report.found("missing_blob", scope, one.artifact_id, "the bytes of this artifact are gone")
                if not dry_run:
                    self._ledger.mark_missing(scope, [one.artifact_id for one in lost])
                    self._ledger.write(mark_available, scope, [one.artifact_id for one in back])

    def _exists(self, artifact: Artifact) -> bool:
        blob = self._store.stat(artifact.scope, artifact.sha256)
        return blob is not None and blob.size_bytes == artifact.size_bytes

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
            report.found("stale_part", facts.scope, facts.job_id, f"part of epoch {facts.epoch}", healed=not dry_run)
        sightings.save()

    def _job(self, scope: Scope, job_id: str) -> Job | None:
        try:
            return self._ledger.job(scope, job_id)
        except NotFound:
            return None


class Sightings:
    """When things that no row tells the age of were first seen, by the ledger's clock. An upload on its way has no job."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._now: dict[str, int] = {}
        try:
            self._before: dict[str, int] = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            self._before = {}

    def first(self, name: str, now: int) -> int:
        """Tell when this was first seen."""
        self._now[name] = seen = int(self._before.get(name, now))
        return seen

    def save(self) -> None:
        """Keep what was seen this time and forget the rest."""
        if self._now != self._before:
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(self._now), "utf-8")
            new.replace(self._path)


def _pages(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while page := list(islice(iterator, PAGE)):
        yield page
