"""The reading verbs as methods: `Ledger` inherits them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from longshore.domain.model import Artifact, Job, Scope
from longshore.ledger.queries import listing
from longshore.ledger.queries.listing import (
    ArtifactFilter,
    Event,
    FailureGroup,
    JobFilter,
    Link,
    Page,
    Timeline,
    WorkerLeases,
)
from longshore.ledger.transaction import Tx

P = ParamSpec("P")
T = TypeVar("T")


class Lists:
    """What can be read page by page."""

    def read(self, verb: Callable[Concatenate[Tx, P], T], *args: P.args, **kw: P.kwargs) -> T:
        """Run a verb that only reads."""
        raise NotImplementedError

    def jobs(
        self, scope: Scope, wanted: JobFilter | None = None, *, after: str | None = None, limit: int = 100
    ) -> Page[Job]:
        """Return one page of the jobs that match, newest first unless the filter says otherwise."""
        return self.read(listing.jobs, scope, wanted or JobFilter(), after=after, limit=limit)

    def matching_ids(self, scope: Scope, wanted: JobFilter, at_most: int = 1_000_000) -> list[str]:
        """Return the jobs that match, at most so many."""
        return self.read(listing.matching_ids, scope, wanted, at_most)

    def failures(self, scope: Scope, limit: int = 1_000) -> list[FailureGroup]:
        """Group what failed and was not tried again, by reason and host."""
        return self.read(listing.failures, scope, limit)

    def timeline(self, scope: Scope, job_id: str) -> Timeline:
        """Return one job's whole life."""
        return self.read(listing.timeline, scope, job_id)

    def events_after(self, scope: Scope, seq: int, limit: int = 500) -> list[Event]:
        """Return what happened in a project after a number."""
        return self.read(listing.events_after, scope, seq, limit)

    def last_event(self, scope: Scope) -> int:
        """Return the latest event sequence number (a cursor for new events only)."""
        return self.read(listing.last_event, scope)

    def artifact(self, scope: Scope, artifact_id: str) -> Artifact:
        """Return one artifact, or raise NotFound."""
        return self.read(listing.artifact, scope, artifact_id)

    def artifacts(
        self, scope: Scope, wanted: ArtifactFilter | None = None, *, after: str | None = None, limit: int = 100
    ) -> Page[Artifact]:
        """Return one page of the artifacts that match, newest first."""
        return self.read(listing.artifacts, scope, wanted or ArtifactFilter(), after=after, limit=limit)

    def provenance(self, scope: Scope, artifact_id: str, limit: int = 1_000) -> list[Link]:
        """Return every job that led to an artifact or used it."""
        return self.read(listing.provenance, scope, artifact_id, limit)

    def leases(self) -> list[WorkerLeases]:
        """Return who holds leases now, over all tenants."""
        return self.read(listing.leases)
