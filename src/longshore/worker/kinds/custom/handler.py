"""Run jobs of declared types: make inputs readable, run the handler isolated from the worker, publish results."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from longshore import failpoints
from longshore.domain.identity.keys import op_key
from longshore.domain.kinds import Status
from longshore.domain.model import Artifact, Blob, Lease, NewArtifact
from longshore.domain.outcomes import Completed, Failed, Outcome, Reused
from longshore.domain.transfer import content_checks
from longshore.errors import BadInput, EffectInDoubt, LongshoreError, Reasoned
from longshore.ledger.operations.effects import effect_failed, effect_in_doubt
from longshore.ledger.operations.stages import report
from longshore.ledger.queries.lookup import current_job, results
from longshore.ledger.records import Intent
from longshore.ledger.transaction import Tx
from longshore.store import Staged
from longshore.store.durability import filesystem
from longshore.worker.kinds.custom.async_handler import run_async
from longshore.worker.kinds.custom.handler_io import open_result, restore_stdout
from longshore.worker.kinds.custom.job_types import Input, JobFailed, JobType, Result, known_types, own_key
from longshore.worker.kinds.custom.messages import BadMessage, error_message
from longshore.worker.kinds.custom.process_pool import JobFacts, ProcessPool, Task

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Part, Store
    from longshore.worker.publisher import Publisher

failpoints.declare("own.begin", "own.ran", "own.published")
REPORT_S: Final = 1.0
SMALL: Final = 262_144


class CustomJobs:
    """The handler of every declared type."""

    def __init__(self, ledger: Ledger, store: Store, publisher: Publisher, scratch: Path, *, at_once: int) -> None:
        self._ledger, self._store, self._publisher, self._scratch = ledger, store, publisher, scratch
        self._threads = ThreadPoolExecutor(at_once, "longshore-own")
        self._hands = ProcessPool()
        self._places = asyncio.Semaphore(at_once)
        self.types = known_types()
        for kind in self.types.values():
            if kind.on_completed is not None:
                ledger.on_completed(kind.name, kind.on_completed)

    async def handle(self, lease: Lease) -> Outcome:
        """Run one job: its inputs, its function, its results."""
        kind = self.types[lease.job.job_type]
        failpoints.hit("own.begin")
        async with self._places:
            if (reused := await self._done_before(lease)) is not None:
                return reused
            with self._scratch_directory(lease) as scratch:
                inputs = await self._inputs(lease, scratch)
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

    async def _done_before(self, lease: Lease) -> Reused | None:
        """Find the same work done under another key whose results all exist. A retry, or a job without a key, always runs."""
        if lease.job.retry_of is not None or lease.job.request.key is None:
            return None
        found = await self._ledger.read_async(same_work, lease)
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

    @contextmanager
    def _scratch_directory(self, lease: Lease) -> Iterator[Path]:
        filesystem.make_root(self._scratch)
        made = tempfile.mkdtemp(prefix=f"{lease.job_id}.{lease.epoch}.", dir=self._scratch)
        scratch = Path(os.path.realpath(made))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    async def _inputs(self, lease: Lease, scratch: Path) -> tuple[Input, ...]:
        artifacts = await self._ledger.read_async(results, lease.scope, lease.job_id, role="input")
        readable: tuple[Input, ...] = await self._thread(self._readable, lease, artifacts, scratch)
        return readable

    def _readable(self, lease: Lease, artifacts: Sequence[Artifact], scratch: Path) -> tuple[Input, ...]:
        """Make every input a file that can be read; one that is not there ends the job."""
        inputs = []
        for place, one in enumerate(artifacts):
            path = self._store.path(lease.scope, one.pointer)
            blob = Blob(one.sha256, one.size_bytes, one.pointer, self._store.backend, one.content_type)
            if not self._store.prove(blob, lease.scope, "input"):
                raise Reasoned("input_missing", f"the bytes of input {one.artifact_id} are not there, or damaged")
            if path is None:
                path = scratch / f"input-{place}"
                with self._store.open(lease.scope, one.pointer) as source, filesystem.create_private(path) as target:
                    shutil.copyfileobj(source, target, 1 << 20)
            what = (one.artifact_id, one.artifact_type, one.content_type, one.size_bytes, one.sha256, one.name)
            inputs.append(Input(*what, path, one.schema_version, one.metadata))
        return tuple(inputs)

    # ── the function ──

    async def _run(self, kind: JobType, lease: Lease, inputs: tuple[Input, ...], scratch: Path) -> list[Result]:
        params = dict(lease.job.request.params)
        if kind.is_async:
            context = LocalContext(self._ledger, lease, scratch)
            return await run_async(kind.function, (list(inputs), params, context), kind.time_limit_s)
        task = Task(
            kind.address,
            inputs,
            params,
            job_facts(lease),
            lease.job.attempts + 1,
            scratch,
            kind.memory_bytes,
            kind.environment,
            _cpu_s(kind.time_limit_s),
        )
        near, stop = LocalContext(self._ledger, lease, scratch), threading.Event()
        working = self._thread(self._hands.work, task, kind.time_limit_s, near.answer, stop)
        try:
            made: list[Result] = await asyncio.shield(working)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait([working])
            raise
        return made

    # ── results ──

    async def _published(self, lease: Lease, made: Sequence[Result], scratch: Path) -> Completed:
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

    def _staged(self, lease: Lease, result: Result, scratch: Path) -> Staged:
        """Take a result in: a small one as bytes, a large one as a part."""
        body = result.body.encode() if isinstance(result.body, str) else result.body
        if isinstance(body, bytes):
            return _small(lease, result, body)
        with open_result(body, scratch) as descriptor:
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


def job_facts(lease: Lease) -> JobFacts:
    """Return what a handler may know of its job."""
    request = lease.job.request
    return JobFacts(*lease.scope, lease.job_id, request.run_id, request.request_id)


def same_work(tx: Tx, lease: Lease) -> tuple[str, list[Artifact]] | None:
    """Look for a completed job with the same inputs, parameters and version under its own key; give its results."""
    request = lease.job.request
    inputs = results(tx, lease.scope, lease.job_id, role="input")
    try:
        key = own_key(lease.scope, request.job_type, [one.sha256 for one in inputs], dict(request.params))
    except BadInput:  # planned by a program that did not check the parameters of jobs with a key of their own
        return None
    if key == request.key:
        return None
    job = current_job(tx, lease.scope, request.job_type, key)
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


def _counter(value: int) -> int:
    """Return a count that the ledger's column can hold."""
    return min(max(value, 0), 2**63 - 1)


class LocalContext:
    """`ctx` in the worker: serves the requests of pool processes, and is passed to async handlers."""

    def __init__(self, ledger: Ledger, lease: Lease, scratch: Path) -> None:
        self._ledger, self._lease = ledger, lease
        self._reported = 0.0
        self._opaque: set[str] = set()  # keys of the opaque effects that this attempt began
        self.tenant_id, self.project_id, self.job_id, self.run_id, self.request_id = job_facts(lease)
        self.attempt, self.scratch = lease.job.attempts + 1, scratch

    def answer(self, kind: str, value: Any) -> dict[str, Any]:
        """Serve one request of a pool process, in its thread; errors are returned as answers."""
        try:
            return {"value": self._answer(kind, value)}
        except BadMessage:
            raise
        except LongshoreError as error:
            return error_message(error)

    def _answer(self, kind: str, value: Any) -> Any:
        match kind, value:
            case "check", None:
                return False
            case "progress", [int() as done, int() | None as total]:
                return self._report(done, total)
            case "effect_begin", [str() as name, str() as effect_class, dict() as extras]:
                return self._begin(name, effect_class, extras)
            case "effect_confirm", [str() as name, dict() as extras, result]:
                return self._confirm(name, extras, result)
            case "effect_unstorable", [str() as name, dict() as extras, str() as why]:
                self._unstorable(name, extras, BadInput(why))
        raise BadMessage(f"{kind!r} is not a request")

    async def progress(self, done: int, total: int | None = None) -> None:
        """Report progress."""
        await asyncio.to_thread(self._report, done, total)

    async def check(self) -> None:
        """Yield to the event loop; raises CancelledError here if the job was canceled."""
        await asyncio.sleep(0)

    async def effect(
        self, kind: str, act: Callable[[], Awaitable[dict[str, Any]]], *, effect_class: str = "keyed", **extras: Any
    ) -> dict[str, Any]:
        """Perform an external effect at most once, as far as that can be known; return its result, new or recorded."""
        state, result = await asyncio.to_thread(self._begin, kind, effect_class, extras)
        if state == "confirmed":
            return dict(result or {})
        if state == "in_doubt":
            raise EffectInDoubt(f"the effect {kind} may or may not have happened")
        done = await act()
        await asyncio.to_thread(self._confirm, kind, extras, done)
        return done

    def _report(self, done: int, total: int | None) -> bool:
        if time.monotonic() - self._reported >= REPORT_S:
            self._reported = time.monotonic()
            total = None if total is None else _counter(total)
            self._ledger.write(report, [(self._lease, _counter(done), total)])
        return False

    def _begin(self, kind: str, effect_class: Any, extras: dict[str, Any]) -> tuple[str, Any]:
        key = op_key(kind, self.job_id, **extras)
        if effect_class == "opaque":
            self._opaque.add(key)
        intent = Intent(self._lease, kind, key, effect_class)
        begun = self._ledger.begin([intent])[0]
        if isinstance(begun, LongshoreError):
            raise begun
        return begun.state, begun.result

    def _confirm(self, kind: str, extras: dict[str, Any], result: dict[str, Any]) -> None:
        try:
            self._ledger.confirm(self._lease, op_key(kind, self.job_id, **extras), result)
        except BadInput as error:
            self._unstorable(kind, extras, error)

    def _unstorable(self, kind: str, extras: dict[str, Any], error: BadInput) -> NoReturn:
        """End an effect that has happened, but whose result cannot be stored."""
        key = op_key(kind, self.job_id, **extras)
        if key not in self._opaque:
            self._ledger.write(effect_failed, self._lease, key, type(error).__name__)
            raise error
        self._ledger.write(effect_in_doubt, self._lease, key)
        raise EffectInDoubt(f"the effect {kind} has happened, but its result cannot be stored: {error}") from None
