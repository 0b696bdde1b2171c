"""Reuse stored content: a URL's earlier result, content found by its hash, blobs published by a lost lease.

Stored bytes are reused only if they exist. Unless the request names their hash, the freshness policy decides whether to
revalidate them with the server first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from longshore import failpoints
from longshore.domain.identity.object_versions import Proof, Version, caller_of, difference, varies_always
from longshore.domain.model import (
    SECOND,
    Artifact,
    Blob,
    Expect,
    JobRequest,
    Lease,
    NewArtifact,
    Scope,
    UrlVersion,
    Validators,
)
from longshore.domain.outcomes import Completed, Reused
from longshore.domain.transfer.declared_digests import digest_fault
from longshore.errors import LongshoreError
from longshore.ledger.operations.effects import begin, unfinished
from longshore.ledger.queries.lookup import held, url_versions
from longshore.ledger.records import Effect, Intent
from longshore.store import shard_of
from longshore.worker.publish_protocol import FINALIZE

if TYPE_CHECKING:
    from longshore.domain.settings import DedupeSettings
    from longshore.domain.transfer.response_head import Head
    from longshore.ledger import Ledger
    from longshore.store import Store

ANEW: Final = {"fetch": "anew"}  # a job's parameters: fetch without reuse or revalidation
failpoints.declare("adopt.recovered", "adopt.begun")


@dataclass(frozen=True, slots=True)
class UrlContent:
    """An artifact that can stand for what a job wants, if its URL still gives it."""

    artifact: Artifact
    version: UrlVersion | None  # None: known by its hash alone
    is_fresh: bool  # may be used without asking

    @property
    def validators(self) -> Validators:
        """What to ask the server with."""
        return self.version.validators if self.version else Validators()

    def is_given_since(self, at: int) -> bool:
        """Return whether the server was asked after a moment, and what it gave may stand for a second answer."""
        version = self.version
        return version is not None and version.revalidated_at >= at and not varies_always(version.vary)

    def is_unchanged(self, url: str, head: Head, digests: Mapping[str, str]) -> bool:
        """Return whether a 304 is about the bytes that are stored, whose digests are given.

        Many servers send `Content-Length: 0` with a 304, and mean the 304 itself: it says nothing about the object.
        """
        if self.version is None or digest_fault(Expect(), head.headers, digests) is not None:
            return False
        stored = Version(url, self.version.final_url, self.version.validators, self.artifact.size_bytes)
        answer = Version(url, head.url, head.validators, head.length or None)
        return difference(stored, answer, Proof.UNCHANGED) is None

    def reused(self, why: str) -> Reused:
        """Return the outcome of a job that needed no transfer."""
        artifact = self.artifact
        facts = {
            "dedupe_action": "skipped",
            "why": why,
            "sha256": artifact.sha256,
            "size_bytes": artifact.size_bytes,
            "stream_bytes": 0,
            "revalidated": why == "revalidated",
            "shard_prefix": shard_of(artifact.pointer),
        }
        if self.version is not None:
            validators = self.version.validators
            facts |= {"etag": validators.etag, "last_modified": validators.last_modified}
            facts["final_url"] = self.version.final_url
        return Reused(
            artifact.created_by_job_id or "",
            artifact.artifact_id,
            facts,
            pointer=artifact.pointer,
            revalidated=why == "revalidated",
        )


class StoredContent:
    """Looks held content up, a batch of leases at a time."""

    def __init__(self, ledger: Ledger, store: Store, threads: Executor, settings: DedupeSettings) -> None:
        self._ledger, self._store, self._threads, self._settings = ledger, store, threads, settings
        self._found: dict[tuple[str, int], UrlContent] = {}

    async def prepare(self, leases: Sequence[Lease]) -> None:
        """Look up a claimed batch: one read per tenant and project, and nothing at all where nothing is known."""
        if not self._settings.reuse:
            return
        by_scope: dict[Scope, list[Lease]] = {}
        for lease in leases:
            if lease.job.request.params.get("fetch") == ANEW["fetch"]:
                continue
            by_scope.setdefault(lease.scope, []).append(lease)
        for scope, group in by_scope.items():
            hits = await self._ledger.read_async(known_content, scope, group)
            if hits:
                await asyncio.get_running_loop().run_in_executor(self._threads, self._keep_those_that_exist, hits)

    def of(self, lease: Lease) -> UrlContent | None:
        """Return what was found for a lease."""
        return self._found.pop((lease.job_id, lease.epoch), None)

    def _keep_those_that_exist(self, hits: list[tuple[Lease, Artifact, UrlVersion | None]]) -> None:
        now = self._ledger.now()
        for lease, artifact, version in hits:
            blob = self._store.stat(lease.scope, artifact.sha256)
            if blob is not None and blob.size_bytes == artifact.size_bytes:
                fresh = version is None or self._is_fresh(lease, version, now)
                self._found[lease.job_id, lease.epoch] = UrlContent(artifact, version, fresh)

    def _is_fresh(self, lease: Lease, version: UrlVersion, now: int) -> bool:
        """Return whether stored content may be reused without revalidation. A retry always revalidates."""
        if lease.job.retry_of is not None or varies_always(version.vary):
            return False
        return now - version.revalidated_at < self._settings.revalidate_after_s * SECOND

    async def adopted(self, lease: Lease) -> Completed | None:
        """Finish what an earlier epoch had begun to publish: its intent names the bytes, so nothing is fetched again."""
        for effect in await self._ledger.read_async(unfinished, lease.scope, lease.job_id):
            if effect.kind != FINALIZE:
                continue
            blob = await asyncio.get_running_loop().run_in_executor(self._threads, self._recovered, lease, effect)
            failpoints.hit("adopt.recovered")
            if blob is not None:
                return await self._registered(lease, effect, blob)
        return None

    def _recovered(self, lease: Lease, effect: Effect) -> Blob | None:
        wanted = effect.request
        return self._store.recover(
            lease.scope,
            lease.job_id,
            lease.epoch,
            sha256=wanted["sha256"],
            size_bytes=wanted["size_bytes"],
            content_type=wanted["content_type"],
        )

    async def _registered(self, lease: Lease, effect: Effect, blob: Blob) -> Completed:
        intent = Intent(lease, FINALIZE, effect.key, "verifiable", effect.fingerprint, effect.request)
        (begun,) = await self._ledger.write_async(begin, [intent])
        if isinstance(begun, LongshoreError):  # not ours at that moment: what follows would complete without its intent
            raise begun
        failpoints.hit("adopt.begun")
        return completed_from(effect.request, blob, lease)


def known_content(tx: Any, scope: Scope, leases: Sequence[Lease]) -> list[tuple[Lease, Artifact, UrlVersion | None]]:
    """In one read: what each lease's expected hash, or else its URL, is known to be."""
    urls = [lease.job.request.canonical_url for lease in leases if lease.job.request.canonical_url]
    versions = url_versions(tx, scope, urls)
    found = []
    for lease in leases:
        request = lease.job.request
        version = versions.get(request.canonical_url or "")
        if version is not None and version.caller != _caller(tx, scope, request, version.final_url):
            version = None  # what the URL gave to another caller
        wanted = request.expect.sha256
        sha256 = wanted or (version.sha256 if version else None)
        artifact = held(tx, scope, sha256) if sha256 else None
        if artifact and meets(artifact, request.expect):
            found.append((lease, artifact, None if wanted else version))
    return found


def _caller(tx: Any, scope: Scope, request: JobRequest, final_url: str | None) -> str:
    logins = tx.logins.of_tenant(scope.tenant_id).along(
        request.canonical_url, final_url, request.headers, planned=request.login
    )
    return caller_of(request.headers, logins)


def meets(artifact: Artifact, expect: Expect) -> bool:
    """Return whether held bytes are what a job expects, as far as the registry can say; otherwise they are fetched."""
    if expect.digests:  # the registry knows none but SHA-256
        return False
    if expect.media_type is not None and expect.media_type != artifact.content_type:
        return False
    return expect.size_bytes in (None, artifact.size_bytes)


def completed_from(record: dict[str, Any], blob: Blob, lease: Lease) -> Completed:
    """Make the outcome that the dead epoch would have made, from what its intent recorded."""
    return Completed(
        artifacts=(NewArtifact(blob, name=record.get("name") or lease.job.request.name),),
        validators=Validators(record.get("etag"), record.get("last_modified")),
        final_url=record.get("final_url"),
        vary=record.get("vary"),
        caller=record.get("caller"),
        facts={
            "adopted": True,
            "resume_decision": "adopted",
            "resume_reason": "published_before",
            "dedupe_action": "download",
            "stream_bytes": 0,
            "shard_prefix": shard_of(blob.pointer),
            "sha256": blob.sha256,
            "size_bytes": blob.size_bytes,
            **({"unverified_length": True} if record.get("unverified_length") else {}),
        },
    )
