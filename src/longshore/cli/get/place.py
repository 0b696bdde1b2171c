"""Write results of `get` to the user's file names (`-o`, `-d`) or to stdout. A damaged blob is fetched again, once.

With `-d`, each file is placed as soon as its job is done: `PlacingMeanwhile` hears the events of the run, and a few
threads hash and copy, so that neither the event loop nor the workers wait. What it did not place (files that several
jobs of the list want under one name, and results whose event was lost) is placed at the end, in the order of the list.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from longshore.cli.get.file_names import Names
from longshore.cli.output.writer import one_line, say
from longshore.cli.run_command import DAMAGE, OK, UNEXPECTED
from longshore.depot.records import Got
from longshore.errors import BlobDamaged, Conflict, LongshoreError, NotFound
from longshore.ledger.queries.due_work import results_named, standings
from longshore.store.local.place_outside import is_same
from longshore.store.verify_blob import proven_pieces

if TYPE_CHECKING:
    from longshore.cli.options import Call
    from longshore.depot import Depot
    from longshore.domain.model import Artifact, JobRequest
    from longshore.domain.run_events import Listener, RunEvent

log = logging.getLogger(__name__)
STDOUT = "-"
THREADS: Final = 4
BATCH: Final = 256  # results in one read of the ledger, and in one turn of the threads
_RESULTS: Final = frozenset({"completed", "held"})


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of one result: its path, or the error that kept it from its path."""

    path: Path
    error: Exception | None = None

    @property
    def damaged(self) -> bool:
        """Return whether the blob is missing or damaged: it is to be fetched again."""
        return isinstance(self.error, BlobDamaged | NotFound)


class Placing:
    """Places the results of one `get`; reports each failure and continues."""

    def __init__(self, call: Call, depot: Depot, requests: Sequence[JobRequest], how: dict[str, Any]) -> None:
        self._call, self._depot, self._how = call, depot, how
        self._inside = Path(how["directory"]) if how["directory"] else None
        self.names = Names(self._inside, how["template"]) if self._inside else None
        self._given = {} if how["template"] else {request.url: request.name for request in requests if request.name}
        self.early: dict[str, Placed] = {}  # by job: placed, and told, while the run went on
        self._named: set[Path] = set()
        self.telling = threading.Lock()  # one line at a time
        self.code = OK

    def target(self, one: Got) -> Path:
        """Return the path of a result, and reserve its name: who asks first gets the plain one."""
        return Path(self._how["output"]) if self.names is None else self.names.of(one)

    def place(self, one: Got, target: Path) -> Placed:
        """Place one result and say nothing; any thread may do it."""
        assert one.artifact is not None
        try:
            return Placed(self._give_name(one, one.artifact, target))
        except (LongshoreError, OSError) as error:
            placed = Placed(target, error)
            if placed.damaged and self.names is not None:
                self.names.forget(one)
            return placed

    def _give_name(self, one: Got, artifact: Artifact, target: Path) -> Path:
        if is_same(target, artifact, self._inside):
            return target
        if self.names is None or self._overwrites or self._is_given(one):
            return self._write_first(artifact, target)
        if (before := self.names.placed_before(one)) is not None:
            return before
        return self._write_first(artifact, target, self.names.with_hash(one))

    @property
    def _overwrites(self) -> bool:
        return bool(self._how["overwrite"] or self._how["force"])

    def _is_given(self, one: Got) -> bool:
        """Return whether the user chose the name: then another file of this name is an error, as with `-o`."""
        name = self._given.get(one.url)
        return name is not None and one.artifact is not None and one.artifact.name == name

    def _write_first(self, artifact: Artifact, *targets: Path) -> Path:
        """Write to the first of these paths that no other bytes have."""
        mode: Any = "hardlink" if self._how["hardlink"] else "reflink"
        inside = Path(os.path.abspath(self._inside)) if self._inside else None
        for target in targets:
            path = Path(os.path.abspath(target))
            try:
                self._depot.place(artifact, path, mode=mode, overwrite=self._overwrites, inside=inside)
                return target
            except Conflict:
                if is_same(target, artifact, self._inside):  # another item of the list was faster
                    return target
                if target is targets[-1]:
                    raise
        raise AssertionError("no target")

    def tell(self, one: Got, placed: Placed) -> None:
        """Report one result."""
        with self.telling:
            if placed.damaged:
                say(f"{placed.error}; fetching it again")
            elif placed.error is not None:
                is_directory = f"a directory is named with -d {placed.path}" if placed.path.is_dir() else None
                hint = is_directory or getattr(placed.error, "hint", None)
                say(f"not placed  {placed.path}: {placed.error}" + (f"\n  → {hint}" if hint else ""))
                self.code = self.code or UNEXPECTED
            elif self._call.json:
                self._call.output.record("placed", {"job_id": one.job_id, "path": str(placed.path)}, flush=False)
            elif self._call.verbosity >= 0 and placed.path not in self._named:
                self._named.add(placed.path)  # a list may name an item twice
                self._call.output.text(one_line(str(placed.path)))

    def place_all(self, got: Sequence[Got]) -> list[int]:
        """Place what is not placed yet, in the order of the list; return the places of the damaged ones."""
        if self._how["output"] == STDOUT:
            return [place for place, one in enumerate(got) if one.artifact and not self._to_stdout(one.artifact)]
        stored = [place for place, one in enumerate(got) if one.artifact is not None]
        damaged: list[int] = []
        with ThreadPoolExecutor(THREADS) as threads:
            for start in range(0, len(stored), BATCH):
                places = stored[start : start + BATCH]
                placed = {at: early for at in places if (early := self.early.pop(got[at].job_id, None)) is not None}
                left = [at for at in places if at not in placed]
                targets = [self.target(got[at]) for at in left]
                for at, one in zip(left, threads.map(self.place, [got[at] for at in left], targets), strict=True):
                    placed[at] = one
                    self.tell(got[at], one)
                damaged += [at for at in places if placed[at].damaged]
        return damaged

    def _to_stdout(self, artifact: Artifact) -> bool:
        """Write the bytes to stdout; verify them first, so that a pipe gets all or nothing."""
        if not self._depot.prove(artifact):
            say(f"the stored blob {artifact.sha256} is missing or damaged; fetching it again")
            return False
        with self._depot.store.open(artifact.scope, artifact.pointer) as body:
            for piece in proven_pieces(body, artifact.sha256):
                sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return True


def place_results(
    placing: Placing, depot: Depot, requests: Sequence[JobRequest], got: list[Got], how: dict[str, Any], lost: list[Got]
) -> int:
    """Place results and return the exit code; refetched items replace theirs in `got`; `lost` gets the damaged ones."""
    if not how["output"] and not how["directory"]:
        return OK
    damaged = placing.place_all(got)
    if damaged:
        again = depot.get([requests[place] for place in damaged], max_wait_s=how["max_wait"], handle_signals=True)
        still = set(placing.place_all(again))
        for at, (place, one) in enumerate(zip(damaged, again, strict=True)):
            if one.artifact is not None and at not in still:
                got[place] = one
            else:
                say(
                    f"damaged  {one.url}: {one.message or 'its stored bytes are damaged, and it was not fetched again'}"
                )
                placing.code = DAMAGE
                lost.append(got[place])
    return placing.code


class PlacingMeanwhile:
    """Places results while the run goes on: hears of finished jobs, reads their artifacts, and lets threads place them."""

    def __init__(self, placing: Placing, depot: Depot, requests: Sequence[JobRequest]) -> None:
        self._placing, self._depot = placing, depot
        assert placing.names is not None
        self._names = placing.names
        self._shared = self._names.shared(requests)  # left to the end: the order of the list decides, not who is first
        self._ended: SimpleQueue[str | None] = SimpleQueue()
        self._begun: set[str] = set()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="longshore-place", daemon=True)

    def listener(self, listen: Listener) -> Listener:
        """Return a listener that passes events on and notes the results."""

        def hear(note: RunEvent) -> None:
            with self._placing.telling:
                listen(note)
            if note.kind in _RESULTS and note.job_id is not None:
                self._ended.put(note.job_id)

        return hear

    @contextmanager
    def running(self) -> Iterator[None]:
        """Place during the block; at its end wait for the files that were begun, and raise the first unexpected error."""
        self._thread.start()
        try:
            yield
        finally:
            self._ended.put(None)
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        with ThreadPoolExecutor(THREADS) as threads:
            try:
                while job_ids := self._next():
                    for one in self._results(job_ids):
                        threads.submit(self._place, one, self._placing.target(one))
            except LongshoreError as error:
                log.warning("%s; the files are placed at the end", error)

    def _next(self) -> list[str]:
        """Wait for a finished job and return it with those that ended meanwhile; empty: the run is over."""
        job_ids: list[str] = []
        while (not job_ids or not self._ended.empty()) and len(job_ids) < BATCH:
            if (job_id := self._ended.get()) is None:
                self._ended.put(None)  # also for the next call
                break
            job_ids.append(job_id)
        return job_ids

    def _results(self, job_ids: Sequence[str]) -> Iterator[Got]:
        """Yield the results of finished jobs that can be placed now."""
        fresh = [job_id for job_id in dict.fromkeys(job_ids) if job_id not in self._begun]
        self._begun.update(fresh)
        jobs = self._depot.ledger.read(standings, self._depot.scope, fresh)
        for job_id, artifacts in self._depot.ledger.read(results_named, self._depot.scope, fresh).items():
            artifact = next((one for one in artifacts if one.availability == "available"), None)
            if artifact is None or job_id not in jobs:
                continue
            job = jobs[job_id]
            if self._names.expected(artifact.name, job.url, job.work_id) not in self._shared:
                yield Got(job_id, job.url, job.status, artifact=artifact, work_id=job.work_id)

    def _place(self, one: Got, target: Path) -> None:
        try:
            placed = self._placing.place(one, target)
            self._placing.early[one.job_id] = placed
            self._placing.tell(one, placed)
        except OSError as error:  # e.g. a closed pipe
            self._failure = self._failure or error
