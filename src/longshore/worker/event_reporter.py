"""Report a run's progress to its listener: one event per step that a user may want to see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

from longshore.domain.model import Lease, Scope
from longshore.domain.outcomes import Canceled, Completed, Deferred, Failed, Outcome, Released, Reused
from longshore.domain.policy.redaction import safe_url
from longshore.domain.run_events import REFUSED, Kind, Listener, RunEvent

if TYPE_CHECKING:
    from longshore.domain.policy.refusals import Refusals
    from longshore.ledger.operations.give_up_host import FailedWithHost
    from longshore.ledger.records import Settled
    from longshore.worker.run_types import RunResult


_COUNTED: Final = frozenset({"completed", "held"})


class EventReporter:
    """Report events to the listener; without one, only count."""

    def __init__(
        self,
        now: Callable[[], int],
        path_of: Callable[[Scope, str], Path | None],
        listener: Listener | None = None,
        *,
        details: bool = True,
    ) -> None:
        self._now, self._path_of, self._listener, self._details = now, path_of, listener, details
        self.failure: Exception | None = None  # raised by the listener: it gets no further events, and the run ends

    @property
    def listening(self) -> bool:
        """Return whether there is a listener; without one, events need not be built."""
        return self._listener is not None

    def given_up(self, gone: FailedWithHost) -> None:
        """Report a job that failed because its host was given up."""
        facts = {"reason": gone.reason, "message": gone.message, "attempts": gone.attempts}
        self._hand(
            RunEvent("failed", self._now(), gone.scope, gone.job_id, safe_url(gone.url) if gone.url else None, facts)
        )

    def tell(self, kind: Kind, lease: Lease | None = None, **facts: Any) -> None:
        """Report one thing."""
        if self._listener is None:
            return
        if lease is None:
            note = RunEvent(kind, self._now(), facts=facts)
        else:
            url = lease.job.request.url if self._details or kind not in _COUNTED else None
            note = RunEvent(kind, self._now(), lease.scope, lease.job_id, safe_url(url) if url else None, facts)
        self._hand(note)

    def _hand(self, note: RunEvent) -> None:
        if self._listener is None:
            return
        try:
            self._listener(note)
        except Exception as error:  # noqa: BLE001 -- a closed pipe is the reader's business: it must not cost a job its end
            self._listener, self.failure = None, error

    def ended(self, lease: Lease, outcome: Outcome, settled: Settled, result: RunResult) -> None:
        """Count and report how an attempt ended."""
        attempts = lease.job.attempts + 1
        match outcome:
            case Completed():
                result.completed += 1
                result.bytes += int(outcome.facts.get("stream_bytes", 0))
                if self._listener:
                    self.tell("completed", lease, attempts=attempts, **self._completed(lease, outcome, settled))
            case Reused():
                result.reused += 1
                if self._listener:
                    self.tell("held", lease, attempts=lease.job.attempts, **self._reused(lease, outcome))
            case Failed():
                result.failed += 1
                facts = {"reason": outcome.reason, "message": outcome.message, "attempts": attempts}
                self.tell("failed", lease, **facts, **_asked(outcome))
            case Deferred():
                result.retried += 1
                facts = {"reason": outcome.reason, "message": outcome.message, "delay_s": round(outcome.delay_s, 3)}
                self.tell("retry", lease, attempts=lease.job.attempts + outcome.counts, **facts, **_asked(outcome))
            case Canceled():
                result.canceled += 1
                self.tell("canceled", lease, reason="canceled", message=outcome.message)
            case Released():
                pass
            case _:
                assert_never(outcome)

    def ends_run(self, refusals: Refusals) -> str | None:
        """Return why a run claims nothing more: its listener failed, or too many items in a row were refused."""
        if self.failure is not None:
            return "the event listener failed"
        if refusals.reason is not None:
            self.tell("stopped", reason=refusals.reason, refusals=refusals.in_a_row)
            return REFUSED
        return None

    def _reused(self, lease: Lease, outcome: Reused) -> dict[str, Any]:
        facts, pointer = outcome.facts, outcome.pointer
        path = self._path_of(lease.scope, pointer) if pointer else None
        return {
            "artifact_id": outcome.artifact_id,
            "sha256": facts.get("sha256"),
            "size_bytes": facts.get("size_bytes"),
            **({"path": str(path)} if path else {}),
            "deduplicated": True,
            "resumed_from_bytes": 0,
            "why": f"same content as {outcome.of_job_id} ({facts.get('why')})",
        }

    def _completed(self, lease: Lease, outcome: Completed, settled: Settled) -> dict[str, Any]:
        if not outcome.artifacts:
            return {}
        blob = outcome.artifacts[0].blob
        if not self._details:  # thousands a second come by, and their listener only counts
            return {"size_bytes": blob.size_bytes}
        path = self._path_of(lease.scope, blob.pointer)
        return {
            "artifact_id": settled.artifact_ids[0] if settled.artifact_ids else None,
            "sha256": blob.sha256,
            "size_bytes": blob.size_bytes,
            **({"path": str(path)} if path else {}),
            "deduplicated": blob.deduplicated,
            "resumed_from_bytes": outcome.facts.get("resumed_from_bytes", 0),
            "unverified_length": outcome.facts.get("unverified_length", False),
            "elapsed_s": round(outcome.facts.get("elapsed_ms", 0) / 1000, 6),
            "bytes": outcome.facts.get("stream_bytes", 0),
            **{name: outcome.facts[name] for name in ("resume_decision", "dedupe_action") if name in outcome.facts},
            **({"fsync_s": round(outcome.facts["fsync_ms"] / 1000, 6)} if "fsync_ms" in outcome.facts else {}),
        }


def _asked(outcome: Failed | Deferred) -> dict[str, Any]:
    """Return how long a server was asked in vain, how long it wants to be left alone, and why space was refused."""
    known = outcome.facts
    took: dict[str, Any] = {"elapsed_s": round(known["elapsed_ms"] / 1000, 6)} if "elapsed_ms" in known else {}
    took |= {name: known[name] for name in ("resume_decision", "quota_decision") if name in known}
    return took | ({"retry_after_s": known["retry_after_s"]} if "retry_after_s" in known else {})
