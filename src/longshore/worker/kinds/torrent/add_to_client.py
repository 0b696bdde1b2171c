"""Add a torrent to the client, idempotently.

intent committed → look → add or adopt → (the next poll sees it). The torrent carries the job's tag from the moment it is
added, so a crash anywhere leaves something that the next poll recognises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from longshore import failpoints
from longshore.domain.reasons import Kind, reason_named
from longshore.domain.settings import QbittorrentSettings
from longshore.domain.torrents.model import JOB_TAG, NOBODY, OURS_TAG, Identity, Seen, job_tag
from longshore.domain.torrents.sync_rules import Act, PollState, refused
from longshore.errors import BadInput, Reasoned
from longshore.ledger.operations.torrents import Noted, note_torrents
from longshore.ledger.queries.torrents import Tracked, any_of_tenant, metainfo, torrent
from longshore.worker.kinds.torrent.client import Client, NotAdded
from longshore.worker.kinds.torrent.identity import from_magnet, from_metainfo

if TYPE_CHECKING:
    from longshore.ledger import Ledger

Fetch = Callable[[str], Awaitable[bytes]]
failpoints.declare("torrent.add.before", "torrent.add.after", "torrent.adopt.before")


class Enqueue:
    """Adds or adopts one torrent for one job."""

    def __init__(self, ledger: Ledger, client: Client, fetch: Fetch, settings: QbittorrentSettings) -> None:
        self._ledger, self._client, self._fetch, self._settings = ledger, client, fetch, settings

    async def run(self, job: Tracked, watch: PollState) -> None:
        """Bring the job's torrent into the client; what fails is counted, what the client already has is adopted."""
        try:
            job, identity, content = await self._identified(job)
        except Reasoned as error:
            await self._refuse(job, watch, error.reason, str(error), final=_final(error.reason))
            return
        except BadInput as error:
            await self._refuse(job, watch, "bad_torrent", str(error), final=True)
            return
        found = await self._find(identity)
        if found is None:
            job, found = await self._add(job, watch, identity, content)
        if found is not None:
            await self.adopt(job, watch, found, identity)

    async def _identified(self, job: Tracked) -> tuple[Tracked, Identity, str | bytes]:
        """Return the hashes and what is handed over; a .torrent behind a URL is fetched once, by us, and kept."""
        content = await self._ledger.read_async(metainfo, job.scope, job.job_id)
        if content is not None:
            return job, from_metainfo(content), content
        if job.source.lower().startswith("magnet:"):
            return job, from_magnet(job.source), job.source
        content = await self._fetch(job.source)
        identity = from_metainfo(content)
        job = await self._note(Noted(job, job.watch, job.stage, identity=identity, metainfo=content))
        return job, identity, content

    async def _find(self, identity: Identity) -> Seen | None:
        found = await asyncio.to_thread(self._client.by_ids, identity.ids)
        return found[0] if found else None

    async def _add(
        self, job: Tracked, watch: PollState, identity: Identity, content: str | bytes
    ) -> tuple[Tracked, Seen | None]:
        """Add it; None when the next poll shall look. The intent is committed before the client hears of it."""
        intent = replace(watch, added_at=self._ledger.now(), foreign=False)
        job = await self._note(Noted(job, intent, job.stage, identity.ids[0], identity))
        failpoints.hit("torrent.add.before")
        tags = (OURS_TAG, job_tag(job.job_id))
        try:
            await asyncio.to_thread(
                self._client.add, content, category=self._settings.category_of(job.media_type), tags=tags
            )
        except NotAdded as error:
            # The client gives the same answer for a refused and an existing torrent. Adopt an existing one.
            found = await self._find(identity)
            if found is None:
                await self._refuse(job, intent, "external_refused", str(error), final=False)
            return job, found
        failpoints.hit("torrent.add.after")
        return job, None

    async def adopt(self, job: Tracked, watch: PollState, found: Seen, identity: Identity = NOBODY) -> None:
        """Use what the client already has: a foreign torrent gets our job's tag and nothing else.

        The files of a torrent go to whoever knows its info hash, so one that another tenant's job added, or somebody by
        hand, is used only if the operator allows it.
        """
        if not await self._may_adopt(job, found):
            text = "the torrent client has this torrent already, and no job of this tenant added it"
            await self._refuse(job, watch, "not_adopted", f"{text} (qbittorrent.adopt_foreign)", final=True)
            return
        now = self._ledger.now()
        known = replace(watch, added_at=watch.added_at or now, seen_at=watch.seen_at or now, foreign=not found.ours)
        await self._note(Noted(job, known, job.stage, found.id, _merged(identity, found.identity)))
        failpoints.hit("torrent.adopt.before")
        tag = job_tag(job.job_id)
        if tag not in found.tags:
            await asyncio.to_thread(self._client.tag, found.id, [tag])

    async def _may_adopt(self, job: Tracked, found: Seen) -> bool:
        if self._settings.adopt_foreign:
            return True
        tagged = [tag.removeprefix(JOB_TAG) for tag in found.tags if tag.startswith(JOB_TAG)]
        return found.ours and await self._ledger.read_async(any_of_tenant, job.scope.tenant_id, tagged)

    async def _refuse(self, job: Tracked, watch: PollState, reason: str, message: str, *, final: bool) -> None:
        verdict = refused(job.stage, watch, reason, message, attempts=self._settings.enqueue_attempts, final=final)
        failed = verdict.act is Act.FAIL
        await self._ledger.write_async(
            note_torrents,
            [
                Noted(
                    job,
                    verdict.watch,
                    job.stage,
                    reason=verdict.reason if failed else None,
                    message=verdict.message if failed else None,
                )
            ],
        )

    async def _note(self, note: Noted) -> Tracked:
        """Write, and return the new row for the next write; raise Overtaken if another process wrote first."""
        won = (await self._ledger.write_async(note_torrents, [note]))[0]
        if not won:
            raise Overtaken
        return await self._ledger.read_async(torrent, note.job.scope, note.job.job_id)


class Overtaken(Exception):
    """Another process wrote the job first; the next poll sees what it wrote."""


def _merged(ours: Identity, theirs: Identity) -> Identity:
    return Identity(ours.v1 or theirs.v1, ours.v2 or theirs.v2)


def _final(reason: str) -> bool:
    return reason_named(reason).kind in (Kind.PERMANENT, Kind.POLICY)
