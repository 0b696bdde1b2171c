"""Run jobs of declared types: make inputs readable, run the handler isolated from the worker, publish results."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from longshore import failpoints
from longshore.domain.kinds import Status
from longshore.domain.model import Artifact, Blob, Lease, NewArtifact
from longshore.domain.outcomes import Completed, Failed, Outcome, Reused
from longshore.domain.transfer import content_checks
from longshore.errors import BadInput, Reasoned
from longshore.ledger.queries.due_work import results_named
from longshore.ledger.queries.lookup import current_job, current_keys, results
from longshore.ledger.transaction import Tx
from longshore.store import Staged
from longshore.store.durability import filesystem
from longshore.worker.kinds.custom.async_handler import run_async
from longshore.worker.kinds.custom.context import LocalContext, ThreadContext, job_facts
from longshore.worker.kinds.custom.handler_io import ScratchDirectory, open_result, restore_stdout
from longshore.worker.kinds.custom.in_process import run_here
from longshore.worker.kinds.custom.job_types import Input, JobFailed, JobType, Result, known_types, own_key
from longshore.worker.kinds.custom.process_pool import ProcessPool, Task

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Part, Store
    from longshore.worker.publisher import Publisher

failpoints.declare("own.begin", "own.ran", "own.published")
SMALL: Final = 262_144


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was read for a claimed job before it began."""

    inputs: list[Artifact] = field(default_factory=list)
    same: str | None = None  # the other key of the same work
    may_be_done: bool = False  # a job has that key, or one under way does the same work


NOTHING: Final = Prepared()


class CustomJobs:
    """The handler of every declared type."""

    def __init__(
        self, ledger: Ledger, store: Store, publisher: Publisher, scratch: Path, *, processes: int, inside: int
    ) -> None:
        self._ledger, self._store, self._publisher, self._scratch = ledger, store, publisher, scratch
        self._threads = ThreadPoolExecutor(processes + inside, "longshore-own")
        self._hands = ProcessPool()
        self._processes, self._inside = asyncio.Semaphore(processes), asyncio.Semaphore(inside)
        self._prepared: dict[tuple[str, int], Prepared] = {}  # claimed jobs that have not begun, by lease
        self._under_way: Counter[str | None] = Counter()  # other keys of the work that this process has claimed
        self.types = known_types()
        for kind in self.types.values():
            if kind.on_completed is not None:
                ledger.on_completed(kind.name, kind.on_completed)

    async def prepare(self, leases: Sequence[Lease]) -> None:
        """Read what a batch of claimed jobs needs in one transaction: inputs, and which of the same work may be done.

        A batch without inputs whose jobs have derived keys reads nothing.
        """
        first = [lease for lease in leases if lease.job.request.inputs or self._may_be_done(lease, ())]
        found = await self._ledger.read_async(look_up, first, self._derived_key) if first else {}
        self._under_way.update(one.same for one in found.values())
        for key, one in found.items():  # another job of this process may do the same work before this one begins
            self._prepared[key] = replace(one, may_be_done=one.may_be_done or self._under_way[one.same] > 1)

    async def handle(self, lease: Lease) -> Outcome:
        """Run one job: its inputs, its function, its results."""
        kind = self.types[lease.job.job_type]
        failpoints.hit("own.begin")
        async with self._inside if kind.is_inside else self._processes:
            prepared = await self._prepared_for(lease)
            try:
                return await self._done_before(lease, prepared) or await self._work(kind, lease, prepared.inputs)
            finally:
                self._under_way[prepared.same] -= 1
                if not self._under_way[prepared.same]:
                    del self._under_way[prepared.same]

    async def _work(self, kind: JobType, lease: Lease, artifacts: Sequence[Artifact]) -> Outcome:
        with ScratchDirectory(self._scratch, lease) as scratch:
            inputs = await self._thread(self._readable, lease, artifacts, scratch) if artifacts else ()
            try:
                made = await self._run(kind, lease, inputs, scratch)
            except JobFailed as error:
                if error.again:
                    raise Reasoned(error.reason, error.message) from None
                return Failed(error.reason, error.message)
            if kind.requires_results and not made:
                raise Reasoned("bad_result", f"the handler returned no result, and {kind.name} jobs require one")
            failpoints.hit("own.ran")
            return await self._published(lease, made, scratch)

    async def _prepared_for(self, lease: Lease) -> Prepared:
        """Return what `prepare` read for a job; if it could not, read it now."""
        key = (lease.job_id, lease.epoch)
        if key not in self._prepared:
            await self.prepare([lease])
        return self._prepared.pop(key, NOTHING)

    def _may_be_done(self, lease: Lease, artifacts: Sequence[Artifact]) -> bool:
        return self._derived_key(lease, artifacts) is not None

    def _derived_key(self, lease: Lease, artifacts: Sequence[Artifact]) -> str | None:
        """Return the key that follows from what the job works on, if it has another: the same work may be done under it.

        A retry, or a job without a key, always runs.
        """
        hashes, request = [one.sha256 for one in artifacts], lease.job.request
        if lease.job.retry_of is not None or request.key is None:
            return None
        try:
            key = own_key(lease.scope, request.job_type, hashes, dict(request.params), self.types)
        except BadInput:  # planned by a program that did not check the parameters of jobs with a key of their own
            return None
        return None if key == request.key else key

    async def _done_before(self, lease: Lease, prepared: Prepared) -> Reused | None:
        """Find the same work done under another key whose results all exist."""
        if prepared.same is None or not prepared.may_be_done:
            return None
        found = await self._ledger.read_async(same_work, lease, prepared.same)
        if found is None:
            return None
        of_job_id, artifacts = found
        sizes = await self._thread(self._store.sizes, lease.scope, [one.pointer for one in artifacts])
        if sizes != [one.size_bytes for one in artifacts]:
            return None
        return Reused(of_job_id, artifacts[0].artifact_id, {"why": "the same work is done already"})

    def close(self) -> None:
        """End every process."""
        self._hands.close()
        self._threads.shutdown(wait=True)
        restore_stdout()

    # ── inputs ──

    def _readable(self, lease: Lease, artifacts: Sequence[Artifact], scratch: ScratchDirectory) -> tuple[Input, ...]:
        """Make every input a file that can be read; one that is not there ends the job."""
        inputs = []
        for place, one in enumerate(artifacts):
            path = self._store.path(lease.scope, one.pointer)
            blob = Blob(one.sha256, one.size_bytes, one.pointer, self._store.backend, one.content_type)
            if not self._store.prove(blob, lease.scope, "input"):
                raise Reasoned("input_missing", f"the bytes of input {one.artifact_id} are not there, or damaged")
            if path is None:
                path = scratch.path / f"input-{place}"
                with self._store.open(lease.scope, one.pointer) as source, filesystem.create_private(path) as target:
                    shutil.copyfileobj(source, target, 1 << 20)
            what = (one.artifact_id, one.artifact_type, one.content_type, one.size_bytes, one.sha256, one.name)
            inputs.append(Input(*what, path, one.schema_version, one.metadata))
        return tuple(inputs)

    # ── the function ──

    async def _run(
        self, kind: JobType, lease: Lease, inputs: tuple[Input, ...], scratch: ScratchDirectory
    ) -> list[Result]:
        params = dict(lease.job.request.params)
        if kind.is_async:
            context = LocalContext(self._ledger, lease, scratch)
            return await run_async(kind.function, (list(inputs), params, context), kind.time_limit_s)
        stop = threading.Event()
        if kind.is_inside:
            here = ThreadContext(self._ledger, lease, scratch, stop)
            return await self._until_over(stop, run_here, kind.function, (list(inputs), params, here))
        task = Task(
            kind.address,
            inputs,
            params,
            job_facts(lease),
            lease.job.attempts + 1,
            scratch.path,
            kind.memory_bytes,
            kind.environment,
            _cpu_s(kind.time_limit_s),
        )
        near = LocalContext(self._ledger, lease, scratch)
        return await self._until_over(stop, self._hands.work, task, kind.time_limit_s, near.answer, stop)

    async def _until_over(self, stop: threading.Event, call: Callable[..., Any], *arguments: object) -> list[Result]:
        """Run a call in a thread. If this task is canceled, ask the call to stop and wait for its end."""
        working = self._thread(call, *arguments)
        try:
            made: list[Result] = await asyncio.shield(working)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait([working])
            raise
        return made

    # ── results ──

    async def _published(self, lease: Lease, made: Sequence[Result], scratch: ScratchDirectory) -> Completed:
        artifacts = []
        for result in made:
            staged = await self._thread(self._staged, lease, result, scratch)
            blob = await self._publisher.publish(lease, staged, {"content_type": staged.content_type})
            self._publisher.clean(lease)
            artifacts.append(
                NewArtifact(
                    blob,
                    artifact_type=result.artifact_type,
                    name=result.name,
                    schema_version=result.schema_version,
                    metadata=result.metadata,
                )
            )
        failpoints.hit("own.published")
        size = sum(one.blob.size_bytes for one in artifacts)
        return Completed(tuple(artifacts), facts={"results": len(artifacts), "result_bytes": size})

    def _staged(self, lease: Lease, result: Result, scratch: ScratchDirectory) -> Staged:
        """Take a result in: a small one as bytes, a large one as a part."""
        body = result.body.encode() if isinstance(result.body, str) else result.body
        if isinstance(body, bytes):
            return _small(lease, result, body)
        with open_result(body, scratch.path) as descriptor:
            first = os.pread(descriptor, SMALL + 1, 0)
            if len(first) <= SMALL:
                return _small(lease, result, first)
            part = self._taken(lease, descriptor)
        kind = _content_type(result, first[: content_checks.JUDGE_BYTES])
        return Staged(lease.scope, lease.job_id, lease.epoch, part.sha256, part.size_bytes, kind, part)

    def _taken(self, lease: Lease, descriptor: int) -> Part:
        """Copy a result into a part for which space was reserved; a copy that fails leaves nothing."""
        size = os.fstat(descriptor).st_size
        room = self._store.reserve_for_part(lease.scope, lease.job_id, lease.epoch, size)
        try:
            part = self._store.part(lease.scope, lease.job_id, lease.epoch)
        except BaseException:
            room.release()
            raise
        part.reservation = room
        try:
            part.take_from(descriptor)
        except BaseException:
            part.discard()
            raise
        return part

    def _thread(self, call: Callable[..., Any], *arguments: object) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)


def look_up(
    tx: Tx, leases: Sequence[Lease], derived: Callable[[Lease, Sequence[Artifact]], str | None]
) -> dict[tuple[str, int], Prepared]:
    """Return the inputs of claimed jobs and the other keys under which their work may be done already, by lease."""
    found: dict[tuple[str, int], Prepared] = {}
    for scope, job_type in {(lease.scope, lease.job.job_type) for lease in leases}:
        batch = [lease for lease in leases if (lease.scope, lease.job.job_type) == (scope, job_type)]
        with_inputs = [lease.job_id for lease in batch if lease.job.request.inputs]
        inputs = results_named(tx, scope, with_inputs, role="input") if with_inputs else {}
        keys = {lease.job_id: derived(lease, inputs.get(lease.job_id, ())) for lease in batch}
        known = current_keys(tx, scope, job_type, [key for key in keys.values() if key is not None])
        for lease in batch:
            same = keys[lease.job_id]
            found[lease.job_id, lease.epoch] = Prepared(inputs.get(lease.job_id, []), same, same in known)
    return found


def same_work(tx: Tx, lease: Lease, key: str) -> tuple[str, list[Artifact]] | None:
    """Look for a completed job with the same inputs, parameters and version under its own key; give its results."""
    job = current_job(tx, lease.scope, lease.job.request.job_type, key)
    if job is None or job.status is not Status.COMPLETED or job.job_id == lease.job_id:
        return None
    made = results(tx, lease.scope, job.job_id)
    whole = bool(made) and all(one.availability == "available" for one in made)
    return (job.job_id, made) if whole else None


def _small(lease: Lease, result: Result, body: bytes) -> Staged:
    kind = _content_type(result, body[: content_checks.JUDGE_BYTES])
    return Staged(lease.scope, lease.job_id, lease.epoch, hashlib.sha256(body).hexdigest(), len(body), kind, body)


def _content_type(result: Result, first: bytes) -> str:
    if result.content_type != "application/octet-stream":
        return result.content_type
    return content_checks.content_type(first, None)


def _cpu_s(time_limit_s: float) -> int | None:
    """Return the CPU time that a handler with this time limit can use; None: no limit."""
    return math.ceil(time_limit_s * (os.cpu_count() or 1)) + 1 if math.isfinite(time_limit_s) else None
