"""A depot as an MCP server: agents fetch, submit and look, and read artifacts.

A handle is the id of a job. It is answered only when the job is durable in the ledger, so it stays valid when this process is
killed: the next server on the same depot knows it and goes on with the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Final, TypeVar

from longshore.integrations.extras import missing

try:
    from mcp.server.lowlevel.helper_types import ReadResourceContents
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
    from mcp.types import ToolAnnotations
    from pydantic import Field
except ImportError as error:
    raise missing("mcp", error) from None

from longshore.depot import AsyncDepot
from longshore.depot.parse_items import as_request
from longshore.domain.kinds import TERMINAL, Status
from longshore.domain.model import Artifact, Job, JobRequest
from longshore.domain.policy.redaction import safe_url
from longshore.errors import LongshoreError, NotFound
from longshore.ledger.operations.planning import plan
from longshore.ledger.queries.history import failures as failures_by_reason
from longshore.ledger.queries.listing import JobFilter
from longshore.lists import BadLine, read_list
from longshore.store.verify_blob import proven_pieces
from longshore.version import __version__
from longshore.worker.replan_lost import plan_lost_again

T = TypeVar("T")
Facts = dict[str, Any]
URI: Final = "longshore://artifact/"
MOST_ITEMS: Final = 10_000
MOST_SHOWN: Final = 200
MOST_BYTES: Final = 16 << 20
MOST_WAIT_S: Final = 300.0
POLL_S: Final = 0.1
_TEXTS: Final = ("application/json", "application/xml", "application/x-ndjson", "application/yaml")
INSTRUCTIONS: Final = (
    "Longshore fetches and keeps files: each exactly once, verified by SHA-256. `fetch`, `add_list`, `submit` and `retry` answer"
    " with durable job ids; ask `status` about them later, also after a restart. Finished jobs name artifacts; read them as"
    f" resources {URI}ID."
)
Wait = Annotated[
    float, Field(ge=0, le=MOST_WAIT_S, description="seconds to wait for the jobs to end; 0 answers at once")
]
Ids = Annotated[list[str], Field(max_length=1_000, description="job ids")]


class Server(MCPServer):  # a resource has the media type of its artifact, which a template cannot say
    """MCP over one depot."""

    def __init__(self, depot: AsyncDepot) -> None:
        super().__init__("longshore", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")
        self._tools = Tools(depot)
        looks, acts = (
            ToolAnnotations(read_only_hint=True),
            ToolAnnotations(destructive_hint=False, idempotent_hint=True),
        )
        tools = self._tools
        known: dict[Callable[..., Any], ToolAnnotations] = {tools.status: looks, tools.failures: looks}
        known |= dict.fromkeys((tools.fetch, tools.add_list, tools.submit, tools.retry), acts)
        for tool, hints in known.items():
            self.add_tool(tool, annotations=hints)
        self.resource(URI + "{artifact_id}", name="artifact", description="The bytes of an artifact.")(_named)

    async def read_resource(self, uri: Any, context: Any = None) -> Any:
        """Return an artifact's bytes, as text if they are."""
        if not str(uri).startswith(URI):
            return await super().read_resource(uri, context)
        artifact, body = await self._tools.content(str(uri).removeprefix(URI))
        content: str | bytes = body
        if artifact.content_type.startswith("text/") or artifact.content_type in _TEXTS:
            with contextlib.suppress(UnicodeDecodeError):
                content = body.decode()
        return [ReadResourceContents(content=content, mime_type=artifact.content_type)]


def _named(artifact_id: str) -> str:
    """Stand for an artifact in the list of templates; `read_resource` answers."""
    return artifact_id


class Tools:
    """The tools. Each answers when what it says is durable."""

    def __init__(self, depot: AsyncDepot) -> None:
        self._depot, self._ledger, self._scope = depot, depot.ledger, depot.scope

    async def fetch(
        self,
        urls: Annotated[list[str], Field(min_length=1, max_length=1_000, description="http, https, ftp or sftp URLs")],
        wait_s: Wait = 0,
    ) -> Facts:
        """Fetch URLs and keep their files. Answers one durable job per URL; what is stored already is not fetched again."""
        requests = [_checked(as_request, url) for url in urls]
        job_ids = await self._plan(requests)
        return {"jobs": await self._after(job_ids, wait_s)}

    async def add_list(
        self,
        text: Annotated[str, Field(max_length=8 << 20, description="URLs, JSON lines, CSV, aria2 input or metalink")],
        run_id: Annotated[str | None, Field(max_length=200, description="a name for these jobs")] = None,
    ) -> Facts:
        """Plan a job for each item of a list. Answers counts, the first job ids, and the lines that were refused."""
        good, refused = await asyncio.to_thread(_checked, _read, text)
        if run_id is not None:
            good = [_in_run(request, run_id) for request in good]
        job_ids = await self._plan(good)
        told = {"planned": len(job_ids), "job_ids": job_ids[:MOST_SHOWN], "run_id": run_id}
        return told | {"refused": refused[:MOST_SHOWN], "refused_count": len(refused)}

    async def submit(
        self,
        job_type: Annotated[str, Field(max_length=128)],
        inputs: Annotated[list[str] | None, Field(max_length=1_000, description="artifact ids")] = None,
        params: dict[str, Any] | None = None,
        wait_s: Wait = 0,
    ) -> Facts:
        """Plan a job of a type that an installed package declares. The same inputs and parameters are the same job."""
        planned = await _told(self._depot.submit(job_type, inputs=inputs or (), params=params))
        return {"jobs": await self._after([planned.job_id], wait_s)}

    async def status(self, job_ids: Ids | None = None, wait_s: Wait = 0) -> Facts:
        """Answer where jobs stand, with their results; without ids, how many jobs have which status."""
        if job_ids is None:
            return {"counts": await self._depot.status()}
        return {"jobs": await self._after(job_ids, wait_s)}

    async def failures(self, run_id: Annotated[str | None, Field(max_length=1024)] = None) -> Facts:
        """Answer what failed for good and was not tried again, grouped by reason and host."""
        groups = await _told(self._ledger.read_async(failures_by_reason, self._scope, MOST_SHOWN, run_id=run_id))
        shown = [
            {
                "reason": group.reason,
                "host": group.host,
                "count": group.count,
                "sample_job_id": group.sample_job_id,
                "sample_url": safe_url(group.sample_url) if group.sample_url else None,
                "message": group.message,
            }
            for group in groups
        ]
        return {"failures": shown}

    async def retry(
        self,
        job_ids: Ids | None = None,
        reason: Annotated[
            str | None, Field(max_length=64, description="instead of ids: all that failed for it")
        ] = None,
        wait_s: Wait = 0,
    ) -> Facts:
        """Try failed or canceled jobs again, as new jobs: those with these ids, or all that failed for a reason."""
        if (job_ids is None) == (reason is None):
            raise ToolError("name either job_ids or a reason")
        wanted = JobFilter(status=Status.FAILED, reason=reason) if job_ids is None else job_ids
        planned = await _told(self._depot.retry(wanted))
        ids = [one.job_id for one in planned]
        return {"planned": len(ids), "jobs": await self._after(ids[:MOST_SHOWN], wait_s)}

    async def content(self, artifact_id: str) -> tuple[Artifact, bytes]:
        """Return an artifact and its bytes, proven."""
        try:
            artifact = await asyncio.to_thread(self._ledger.artifact, self._scope, artifact_id)
        except LongshoreError as error:
            raise ResourceNotFoundError(str(error)) from None
        if artifact.size_bytes > MOST_BYTES:
            raise ResourceError(f"the artifact has {artifact.size_bytes} bytes; no more than {MOST_BYTES} are answered")
        try:
            return artifact, await asyncio.to_thread(self._bytes, artifact)
        except LongshoreError:
            await self._depot.prove(artifact)  # marks it as missing
            raise ResourceError(f"the bytes of artifact {artifact_id} are lost or damaged") from None

    def _bytes(self, artifact: Artifact) -> bytes:
        with self._depot.store.open(artifact.scope, artifact.pointer) as file:
            return b"".join(proven_pieces(file, artifact.sha256))

    async def _plan(self, requests: Sequence[JobRequest]) -> list[str]:
        """Plan, durably, and wake the worker; return the jobs in order, each once."""
        if not requests:
            return []
        planned = await _told(self._ledger.write_async(plan, self._scope, requests, again="failed"))
        store = self._depot.store
        sizes = store.sizes if store.backend == "local" else None
        planned = await asyncio.to_thread(plan_lost_again, self._ledger, sizes, self._scope, requests, planned)
        self._depot.notify()
        return list(dict.fromkeys(one.job_id for one in planned))

    async def _after(self, job_ids: Sequence[str], wait_s: float) -> list[Facts]:
        """Return the jobs when all are over, or after so many seconds."""
        end = time.monotonic() + wait_s
        while True:
            jobs = await _told(asyncio.to_thread(self._jobs, job_ids))
            if time.monotonic() >= end or all(job.status in TERMINAL for job in jobs):
                return await asyncio.to_thread(self._all_shown, jobs)
            await asyncio.sleep(POLL_S)

    def _jobs(self, job_ids: Sequence[str]) -> list[Job]:
        return [self._ledger.job(self._scope, job_id) for job_id in job_ids]

    def _all_shown(self, jobs: Sequence[Job]) -> list[Facts]:
        return [self._shown(job) for job in jobs]

    def _shown(self, job: Job) -> Facts:
        shown: Facts = {"job_id": job.job_id, "job_type": job.job_type, "status": job.status.value}
        if job.request.url:
            shown["url"] = safe_url(job.request.url)
        if job.reason:
            shown |= {"reason": job.reason, "message": job.message}
        if job.status in (Status.COMPLETED, Status.SKIPPED):
            shown["artifacts"] = [_artifact(one) for one in self._ledger.results(self._scope, job.job_id)]
        return shown


def _artifact(one: Artifact) -> Facts:
    return {
        "artifact_id": one.artifact_id,
        "resource": f"{URI}{one.artifact_id}",
        "sha256": one.sha256,
        "size_bytes": one.size_bytes,
        "content_type": one.content_type,
        "name": one.name,
        "availability": one.availability,
    }


def _read(text: str) -> tuple[list[JobRequest], list[Facts]]:
    good: list[JobRequest] = []
    refused: list[Facts] = []
    for one in read_list(io.BytesIO(text.encode())):
        if isinstance(one, JobRequest):
            good.append(one)
        elif isinstance(one, BadLine):
            refused.append({"line": one.line, "message": one.message})
        if len(good) > MOST_ITEMS:
            raise ToolError(f"a list has at most {MOST_ITEMS} items here; use `longshore add` for longer ones")
    return good, refused


def _in_run(request: JobRequest, run_id: str) -> JobRequest:
    from longshore.domain.identity.requests import Defaults

    return Defaults(run_id).applied(request)


def _checked(call: Callable[[Any], T], given: Any) -> T:
    try:
        return call(given)
    except LongshoreError as error:
        raise ToolError(_text(error)) from None


async def _told(work: Any) -> Any:
    """Await; an expected error reaches the agent with its hint."""
    try:
        return await work
    except LongshoreError as error:
        raise ToolError(_text(error)) from None


def _text(error: LongshoreError) -> str:
    return f"{error} ({error.hint})" if error.hint and not isinstance(error, NotFound) else str(error)


async def serve_stdio(depot: AsyncDepot, *, workers: bool = True) -> None:
    """Serve on stdin and stdout until the client closes them; run the jobs beside."""
    working: Iterable[asyncio.Task[Any]] = [asyncio.create_task(depot.run(forever=True))] if workers else []
    serving = asyncio.create_task(Server(depot).run_stdio_async())
    try:
        await asyncio.wait([serving, *working], return_when=asyncio.FIRST_COMPLETED)
        for task in working:  # a worker that cannot work ends the server, instead of jobs that wait for ever
            if task.done():
                serving.cancel()
                await task
        await serving
    finally:
        depot.drain()
        await asyncio.gather(*working, return_exceptions=True)
