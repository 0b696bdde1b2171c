"""The result of a transfer: the body with its head and facts, and the job's outcome once it is published."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from longshore.domain.file_names import disposition_name
from longshore.domain.model import Blob, Lease, NewArtifact
from longshore.domain.outcomes import Blame, Completed
from longshore.domain.transfer.response_head import Head
from longshore.domain.transfer.resume import lasting_validators
from longshore.store import Part, PartFacts, Staged, shard_of

if TYPE_CHECKING:
    from longshore.worker.kinds.download.body_sink import BodySink

NO_PART: Final = "no_part"


@dataclass(slots=True)
class Received:
    """A body that is whole and judged good."""

    lease: Lease
    staged: Staged
    head: Head
    facts: dict[str, Any] = field(default_factory=dict)
    blames: tuple[Blame, ...] = ()  # candidates that failed before
    caller: str | None = None  # who asked, if that is more than the request's own headers

    @property
    def name(self) -> str | None:
        """The display name: the request's, otherwise the server's."""
        return self.lease.job.request.name or disposition_name(self.head.headers.get("content-disposition"))

    def record(self) -> dict[str, Any]:
        """Return what adoption needs after a crash."""
        head, validators = self.head, lasting_validators(self.head)
        record: dict[str, Any] = {
            "content_type": self.staged.content_type,
            "etag": validators.etag,
            "last_modified": validators.last_modified,
            "final_url": head.url,
        }
        if "vary" in head.headers:
            record["vary"] = head.headers["vary"]
        if self.caller is not None:
            record["caller"] = self.caller
        if not head.delimited:
            record["unverified_length"] = True
        if (name := self.name) is not None:
            record["name"] = name
        return record

    def completed(self, blob: Blob) -> Completed:
        """Return the outcome of a published body."""
        self.facts["dedupe_action"] = blob.dedupe_action
        if blob.deduplicated:
            self.facts["deduplicated"] = True
        body_s = self.staged.body.fsync_s if isinstance(self.staged.body, Part) else 0.0
        self.facts["fsync_ms"] = round((self.staged.fsync_s + body_s) * 1000, 3)
        self.facts["shard_prefix"] = shard_of(blob.pointer)
        if self.staged.room is not None:
            self.facts |= self.staged.room.facts()
        return Completed(
            artifacts=(NewArtifact(blob, name=self.name),),
            validators=lasting_validators(self.head),
            final_url=self.head.url,
            vary=self.head.headers.get("vary"),
            caller=self.caller,
            facts=self.facts,
            blames=self.blames,
        )


def stored_head(facts: PartFacts) -> Head:
    """Return the head of the answer that a part belongs to, as it was stored with the part."""
    headers = dict(facts.headers or {})
    kind = headers.get("content-type", "").partition(";")[0].strip().lower() or None
    return Head(
        200,
        facts.final_url or "",
        headers,
        facts.validators,
        facts.total,
        media_type=kind,
        delimited=facts.delimited,
    )


def failure_telemetry(sink: BodySink, elapsed_s: float, why: str) -> dict[str, Any]:
    """Return what is recorded of a transfer that failed: of an answer also which version it was about."""
    head = sink.head
    if head is None:  # no answer with a body for us
        return {"elapsed_ms": round(elapsed_s * 1000, 3)}
    about = {"etag": head.validators.etag, "last_modified": head.validators.last_modified, "final_url": head.url}
    return telemetry(sink, head, elapsed_s, why) | about


def telemetry(sink: BodySink, head: Head, elapsed_s: float, why: str) -> dict[str, Any]:
    """Return what is recorded of every transfer; `why` is the reason unless the answer itself decided."""
    reason = sink.decision.reason if sink.decision is not None else why
    facts: dict[str, Any] = {
        "status": head.status,
        "stream_bytes": sink.received,
        "elapsed_ms": round(elapsed_s * 1000, 3),
        "resume_decision": "resume" if sink.resumed_from else "fresh" if reason == NO_PART else "discard_part",
        "resume_reason": reason,
    }
    if sink.resumed_from:
        facts["resumed_from_bytes"] = sink.resumed_from
    if elapsed_s > 0:
        facts["avg_write_mibps"] = round(sink.new_bytes / elapsed_s / (1 << 20), 3)
    if not head.delimited:
        facts["unverified_length"] = True
    if head.decoding is not None:
        facts |= head.decoding.facts()
    if head.hops:
        facts["hops"] = len(head.hops)
    return facts
