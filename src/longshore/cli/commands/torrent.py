"""`longshore torrent`: downloads by a qBittorrent client."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from longshore.cli.audited import note, of_jobs
from longshore.cli.job_ids import full_ids
from longshore.cli.options import Call, common
from longshore.cli.output.writer import moment, say, size
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.domain.model import Artifact
    from longshore.ledger.operations.book_assets import BookStatus
    from longshore.ledger.queries.torrents import Tracked
    from longshore.worker.kinds.torrent.service import TorrentService
    from longshore.worker.kinds.torrent.sync_loop import Cycle

T = TypeVar("T")
SOME_FAILED, WORK_LEFT = 3, 4


@click.group("torrent")
def command() -> None:
    """Downloads by a qBittorrent client."""


def _with_service(
    call: Call, work: Callable[[TorrentService], Coroutine[Any, Any, T]], *, create: bool = False, leases: bool = False
) -> T:
    """Open the depot and its torrent component, and run one action; with `leases`, as a worker with a liveness lock."""
    from longshore.depot import AsyncDepot
    from longshore.worker.kinds.torrent.service_lifetime import open_torrent_service
    from longshore.worker.runtime import release_dead_owners

    async def run() -> T:
        async with AsyncDepot.open(settings=call.settings, create=create) as depot:
            if leases:
                depot.runtime.liveness.hold()
                await release_dead_owners(depot.runtime)
            async with open_torrent_service(depot.runtime) as service:
                return await work(service)

    return asyncio.run(run())


def _full_ids(call: Call, given: Sequence[str]) -> list[str]:
    with call.ledger() as ledger:
        return full_ids(ledger, call.scope, given)


@command.command("add")
@click.argument("source")
@click.option("--user", "user_id", required=True, help="User that the download is for.")
@click.option("--book", "book_id", required=True, help="Book that the download belongs to.")
@click.option("--media-type", required=True, help="ebook, audiobook …: selects the client's category.")
@click.option("--again", is_flag=True, help="Also if this release failed before for the same book and media type.")
@common
def add(call: Call, source: str, user_id: str, book_id: str, media_type: str, *, again: bool) -> int:
    """Start a download from a magnet link, a .torrent file or its http(s) URL.

    The same request again returns the same job; another source while one is active is refused, and so is a release that
    failed before.
    """
    from longshore.worker.kinds.torrent.service import request_of

    source, metainfo = _read(source, call.settings.qbittorrent.max_torrent_bytes)
    request = request_of(
        call.scope,
        source,
        user_id=user_id,
        book_id=book_id,
        media_type=media_type,
        metainfo=metainfo,
        max_bytes=call.settings.qbittorrent.max_torrent_bytes,
        again=again,
    )

    async def work(service: TorrentService) -> int:
        started = await service.start(request)
        job, away = await service.hand_over(request.scope, started.job_id)
        if away is not None:
            _away(f"{away}; the job waits for it", away.hint)
        if call.json:
            call.output.record("planned", {"created": started.created, "url": facts(job)["source"], **facts(job)})
        else:
            call.output.text(job.job_id)
            say(f"{'started' if started.created else 'already there'}: {job.stage}{_why(job)}")
        return SOME_FAILED if job.status == "failed" else 0

    return _with_service(call, work, create=True)


def _read(source: str, most: int) -> tuple[str, bytes | None]:
    """Read a .torrent file; return links and URLs unchanged."""
    if source.lower().startswith(("magnet:", "http://", "https://")):
        return source, None
    path = Path(source.removeprefix("file://"))
    try:
        if path.stat().st_size > most:
            raise BadInput(f"{path} is larger than qbittorrent.max_torrent_bytes ({most})")
        return path.resolve().as_uri(), path.read_bytes()
    except FileNotFoundError:
        raise BadInput(
            f"{source[:200]!r} is not a magnet link, an http(s) URL or a file", hint="give one of the three"
        ) from None
    except (IsADirectoryError, OSError, ValueError) as error:
        raise BadInput(f"{source[:200]!r} cannot be read: {error}") from None


@command.command("list")
@click.option("--active", is_flag=True, help="Only unfinished jobs.")
@common
def list_(call: Call, *, active: bool) -> int:
    """List torrent jobs."""

    async def work(service: TorrentService) -> list[Tracked]:
        rows: list[Tracked] = []
        while page := await service.list(call.scope, after=rows[-1].job_id if rows else ""):
            rows += page
        return [row for row in rows if not active or row.status in ("pending", "processing")]

    rows = _with_service(call, work)
    if call.json:
        for row in rows:
            call.output.record("torrent", facts(row), row.updated_at)
    else:
        headings = ["job", "stage", "%", "speed", "user", "book", "media", "what"]
        call.output.table(headings, [_row(row) for row in rows])
    return 0


def _row(job: Tracked) -> list[object]:
    speed = f"{size(job.watch.speed_bytes_s)}/s" if job.watch.speed_bytes_s else ""
    what = job.message or job.watch.note or job.watch.substate or ""
    return [job.job_id, job.stage, job.progress, speed, job.user_id, job.book_id, job.media_type, what]


@command.command("show")
@click.argument("job_id")
@common
def show(call: Call, job_id: str) -> int:
    """Show one torrent job."""
    (job_id,) = _full_ids(call, [job_id])

    async def work(service: TorrentService) -> tuple[Tracked, dict[str, Any], list[dict[str, Any]]]:
        job = await service.show(call.scope, job_id)
        book = _book(await service.book_status(job))
        return job, book, [_file(*found) for found in await service.files(call.scope, job_id)]

    job, book, files = _with_service(call, work)
    if call.json:
        call.output.record("torrent", {**facts(job), **book, "files": files}, job.updated_at)
        return 0
    for name, value in {**facts(job), **book}.items():
        if value is not None:
            call.output.text(f"{name:<18} {value}")
    if files:
        call.output.table(["file", "size", "held at"], [_told(file) for file in files])
    return 0


def _book(status: BookStatus | None) -> dict[str, Any]:
    return {
        "book_state": status.state if status else None,
        "asset_status": status.status if status else None,
        "storage_path": status.storage_path if status else None,
    }


def _file(artifact: Artifact, path: str | None) -> dict[str, Any]:
    return {
        "name": artifact.metadata.get("path") or artifact.name,
        "artifact_id": artifact.artifact_id,
        "size_bytes": artifact.size_bytes,
        "sha256": artifact.sha256,
        "available": artifact.availability == "available",
        "path": path,
    }


def _told(file: dict[str, Any]) -> list[object]:
    held = file["path"] or f"artifact {file['artifact_id']}"
    return [file["name"], size(file["size_bytes"]), held if file["available"] else "missing"]


@command.command("cancel")
@click.argument("job_ids", nargs=-1, required=True)
@click.option(
    "--delete-files", is_flag=True, help="Also remove the files of torrents that Longshore added and no other job uses."
)
@common
def cancel(call: Call, job_ids: tuple[str, ...], *, delete_files: bool) -> int:
    """Cancel torrent jobs; the client's torrent is removed with its last job."""
    wanted = _full_ids(call, job_ids)

    async def work(service: TorrentService) -> list[Tracked]:
        note(service.ledger, call.scope, "cancel", {"delete_files": delete_files, **of_jobs(wanted)})
        return [await service.cancel(call.scope, job_id, with_files=delete_files) for job_id in wanted]

    waiting = False
    for job in _with_service(call, work):
        pending = job.status in ("pending", "processing")
        waiting = waiting or pending
        if call.json:
            call.output.record("torrent", facts(job), job.updated_at)
        else:
            state = "to be canceled when the client answers" if pending else job.stage
            call.output.text(f"{job.job_id}  {state}")
    return WORK_LEFT if waiting else 0


@command.command("sync")
@click.option("--forever", is_flag=True, help="Keep running, and poll every qbittorrent.poll_s seconds.")
@common
def sync(call: Call, *, forever: bool) -> int:
    """Synchronize jobs with the client, once or continuously."""

    async def once(service: TorrentService) -> int:
        cycle = await service.sync.cycle()
        await service.sync.drain()
        cycle.completed += service.sync.take_completed()
        _report(call, cycle)
        return WORK_LEFT if cycle.away else 0

    async def always(service: TorrentService) -> int:
        from longshore.worker.kinds.torrent.sync_loop import forever as run

        stop, got = asyncio.Event(), list[int]()

        def obey(number: int) -> None:
            got.append(128 + number)
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, obey, number)
        await run(service.sync, stop, lambda cycle: _report(call, cycle))
        return got[0] if got else 0

    return _with_service(call, always if forever else once, leases=True)


def _report(call: Call, cycle: Cycle) -> None:
    if call.json:
        told = {"polled": cycle.polled, "missing": cycle.missing, "failed": cycle.failed, "away": cycle.away}
        done = {"completed": len(cycle.completed), "completed_jobs": cycle.completed}
        call.output.record("summary", {"command": "torrent sync", **told, **done})
    elif cycle.away:
        _away(cycle.away, cycle.hint)
    elif call.verbosity >= 0 and (cycle.polled or cycle.completed):
        say(f"polled {cycle.polled}, missing {cycle.missing}, failed {cycle.failed}, completed {len(cycle.completed)}")


def _away(what: str, hint: str | None) -> None:
    say(what)
    if hint:
        say(f"  → {hint}")


def facts(job: Tracked) -> dict[str, Any]:
    """Return the fields of a torrent job for JSON output."""
    from longshore.domain.policy.redaction import safe_source

    watch = job.watch
    return {
        "job_id": job.job_id,
        "status": job.status.value,
        "stage": job.stage,
        "user_id": job.user_id,
        "book_id": job.book_id,
        "media_type": job.media_type,
        "source": safe_source(job.source),
        "external_job_id": job.external_job_id,
        "infohash_v1": job.identity.v1,
        "infohash_v2": job.identity.v2,
        "name": watch.name or None,
        "progress": job.progress,
        "bytes_done": watch.done_bytes or None,
        "size_bytes": watch.size_bytes or None,
        "speed_bytes_s": watch.speed_bytes_s,
        "eta_s": watch.eta_s,
        "client_state": watch.state,
        "substate": watch.substate,
        "note": watch.note,
        "stalled_since": moment(watch.stalled.since) if watch.stalled else None,
        "first_not_found_at": moment(job.first_not_found_at) if job.first_not_found_at else None,
        "reason": job.failure_reason,
        "failure_reason": job.failure_reason,
        "message": job.message,
        "cancel_requested": job.cancel_requested_at is not None,
        "created_at": moment(job.created_at),
        "updated_at": moment(job.updated_at),
        "completed_at": moment(job.completed_at) if job.completed_at else None,
    }


def _why(job: Tracked) -> str:
    words = job.message or job.watch.note
    return f" ({words})" if words else ""
