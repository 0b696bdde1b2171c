"""Settling: the end of a lease, in one transaction with everything that follows from it.

Problem: when an attempt ends, the artifact, its blob and its links, the effect, the job's stage, the claim, the event, the
counters, the host's record and the free slot change together. A crash must leave all of it or none.

Invariant: a completed job has its results in the registry (the schema refuses the row otherwise), an attempt has one end,
and the counters equal the rows. An outcome is checked against the job's kind before anything is written; an outcome that
is refused, or a lease that is lost, is an error value in its own place of the answer and the others are written.

Order, per tenant: the fence (which locks the rows on PostgreSQL); then completed, reused, failed, waiting, canceled, each
as a few statements over the whole batch; then what all have in common (claims, events, counters); then hosts; last the
slots, so that a lane is unparked only when its job no longer uses the slot. Within completed: blobs, URL versions,
artifacts, links, effects, and only then the job.

The stage of each end comes from the job's kind (`domain.kinds`). A deferred or released job goes back to the kind's first
stage; what an external program works on keeps its stage and only loses the lease.

Not done: one transaction per job (the commit costs more than all its rows), and writing hosts or counters later from the
events (a reader would see jobs and counters that contradict each other).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from longshore.domain.kinds import CANCELED, JobKind, check_move, kind_of
from longshore.domain.model import SECOND, JobRequest, Lease, Micros, NewArtifact, Scope, Status
from longshore.domain.outcomes import Blame, Canceled, Completed, Deferred, Failed, Outcome, Released, Reused
from longshore.domain.policy.host_limits import REST_FOR_ALL, STALE
from longshore.domain.policy.redaction import safe_text
from longshore.domain.reasons import is_code, reason_named
from longshore.errors import BadInput, LongshoreError
from longshore.ledger.event_facts import facts_text
from longshore.ledger.named_rows import FencedRow
from longshore.ledger.operations.artifact_registry import register, reuse
from longshore.ledger.operations.failure_log import logged
from longshore.ledger.operations.fencing import fence, lost
from longshore.ledger.operations.make_claimable import free_slots, mark_lanes
from longshore.ledger.operations.planning import add_counts, open_lanes
from longshore.ledger.operations.stages import finalize
from longshore.ledger.records import Settled
from longshore.ledger.rows import by_tenant
from longshore.ledger.transaction import Row, Tx
from longshore.ledger.user_tables import Hook, UserTx, completed_job, failed

Ended = tuple[int, Lease, FencedRow, Outcome]
_WORDS: Final = {status: status.value for status in Status}


def settle(tx: Tx, ended: Sequence[tuple[Lease, Outcome]]) -> list[Settled | LongshoreError]:
    """End leases with their outcomes; results are registered in the same transaction."""
    answer: list[Settled | LongshoreError | None] = [None] * len(ended)
    for tenant, group in by_tenant(ended, lambda item: item[0].scope):
        tx.enter(tenant)
        held = fence(tx, [lease for _, (lease, _) in group])
        batch = Batch(tx, answer)
        hooked: list[Ended] = []
        for index, (lease, outcome) in group:
            row = held.take(lease)
            if row is not None and row.job_type in tx.hooks and isinstance(outcome, Completed):
                hooked.append((index, lease, row, outcome))
            else:
                batch.add(index, lease, row, outcome)
        batch.write()
        for item in hooked:
            _complete_with_hook(tx, answer, item)
    return [item for item in answer if item is not None]


def _complete_with_hook(tx: Tx, answer: list[Settled | LongshoreError | None], item: Ended) -> None:
    """Complete one job together with what its type's hook writes: both, or neither."""
    index, lease, row, outcome = item
    hook: Hook = tx.hooks[row.job_type]
    assert isinstance(outcome, Completed)

    def complete() -> None:
        batch = Batch(tx, answer)
        batch.add(index, lease, row, outcome)
        batch.write()
        settled = answer[index]
        if isinstance(settled, Settled):
            done = completed_job(lease, lease.job.request, settled, outcome.artifacts, tx.now)
            hook(UserTx(tx), done)

    if (error := tx.attempt(complete)) is not None:
        answer[index] = failed(hook, error)


class Batch:
    """The outcomes of one tenant, sorted by kind, written kind by kind."""

    def __init__(self, tx: Tx, answer: list[Settled | LongshoreError | None]) -> None:
        self.tx = tx
        self.answer = answer
        self.completed: list[tuple[int, Lease, FencedRow, Completed]] = []
        self.reused: list[tuple[int, Lease, FencedRow, Reused]] = []
        self.failed: list[tuple[int, Lease, FencedRow, Failed]] = []
        self.waiting: list[tuple[int, Lease, FencedRow, Deferred | Released]] = []
        self.canceled: list[tuple[int, Lease, FencedRow, Canceled]] = []
        self.claims: list[Row] = []
        self.events: list[Row] = []
        self.changes: Counter[tuple[str, str, str]] = Counter()
        self.faults: dict[str, tuple[int, str]] = {}
        self.silent: dict[str, list[Blame]] = {}
        self.heard: set[str] = set()
        self.well: set[str] = set()

    def add(self, index: int, lease: Lease, row: FencedRow | None, outcome: Outcome) -> None:
        """Sort one outcome in, or say in its place why not."""
        if row is None:
            self.answer[index] = lost(lease)
            return
        try:
            _check(row, outcome)
        except LongshoreError as error:
            self.answer[index] = error
            return
        waits = isinstance(outcome, Deferred | Released)
        if waits and row.cancel_requested_at is not None and not kind_of(row.job_type).external:
            outcome = Canceled()  # what was asked to stop does not wait for another try
        match outcome:
            case Completed():
                self.completed.append((index, lease, row, outcome))
            case Reused():
                self.reused.append((index, lease, row, outcome))
            case Failed():
                self.failed.append((index, lease, row, outcome))
            case Deferred() | Released():
                self.waiting.append((index, lease, row, outcome))
            case Canceled():
                self.canceled.append((index, lease, row, outcome))

    def write(self) -> None:
        """Write every kind, then what all have in common."""
        tx = self.tx
        self._complete()
        self._skip()
        self._fail()
        self._wait()
        self._cancel()
        tx.send("claim_end", self.claims)
        tx.send("event_insert", self.events)
        add_counts(tx, self.changes)
        all_rows = (*self.completed, *self.reused, *self.failed, *self.waiting, *self.canceled)
        self._write_hosts()
        free_slots(tx, [row.slot_host for _, _, row, _ in all_rows])

    def _end(
        self,
        item: tuple[int, Lease, FencedRow, Outcome],
        status: Status,
        stage: str,
        facts: str,
        *,
        kind: str = "",
        artifact_ids: tuple[str, ...] = (),
    ) -> None:
        """Note what every ending notes: the claim's end, the event, the counters, the answer."""
        index, lease, row, outcome = item
        (tenant, project), job_id, now = lease.scope, lease.job_id, self.tx.now
        ends = _WORDS[status]
        word = kind or ends
        self.claims.append((now, word, getattr(outcome, "reason", None), tenant, project, job_id, lease.epoch))
        self.events.append((tenant, project, job_id, word, now, facts))
        self.changes[tenant, project, row.status] -= 1
        self.changes[tenant, project, ends] += 1
        self.answer[index] = Settled(job_id, status, stage, artifact_ids)

    def _complete(self) -> None:
        if not self.completed:
            return
        tx, items = self.tx, self.completed
        registered = register(tx, [(lease, row, outcome) for _, lease, row, outcome in items])
        finalize(tx, [(row, lease) for _, lease, row, _ in items])
        ends = []
        for item, (artifact_ids, known) in zip(items, registered, strict=True):
            _, lease, row, outcome = item
            kind = kind_of(row.job_type)
            stage = kind.done_known if known else kind.done
            ends.append((stage, 1, tx.now, row.seq, lease.epoch))
            more = "," + facts_text(outcome.facts)[1:] if outcome.facts else "}"
            listed = '","'.join(artifact_ids)
            facts = f'{{"epoch":{lease.epoch},"stage":"{stage}","artifacts":["{listed}"]{more}'
            self._end(item, Status.COMPLETED, stage, facts, artifact_ids=artifact_ids)
        tx.send("end_completed", ends)
        for _, lease, _, outcome in items:
            if outcome.blames:
                self._blame(outcome.blames, lease.scope)
        self.well |= {row.slot_host or row.host for _, _, row, _ in items} - {""}

    def _skip(self) -> None:
        tx, ends, good = self.tx, [], []
        for item in self.reused:
            index, lease, row, outcome = item
            error = reuse(tx, lease, row, outcome)
            if error is not None:
                self.answer[index] = error
                continue
            stage = str(kind_of(row.job_type).skipped)
            ends.append((stage, outcome.of_job_id, tx.now, row.seq, lease.epoch))
            facts = {"epoch": lease.epoch, "reuse_of": outcome.of_job_id, "artifacts": [outcome.artifact_id]}
            ids = (outcome.artifact_id,)
            self._end(item, Status.SKIPPED, stage, facts_text({**facts, **outcome.facts}), artifact_ids=ids)
            good.append(item)
        self.reused = good
        tx.send("end_skipped", ends)

    def _fail(self) -> None:
        tx, ends = self.tx, []
        for item in self.failed:
            _, lease, row, outcome = item
            kind = kind_of(row.job_type)
            message = safe_text(outcome.message, limit=2_000)
            why = outcome.reason if kind.external else None
            debug_id = logged(lease.job_id, lease.epoch, outcome.reason, message, outcome.debug_id)
            ends.append((kind.failed, outcome.reason, message, debug_id, why, 1, tx.now, row.seq, lease.epoch))
            facts = {"epoch": lease.epoch, "reason": outcome.reason, "message": message, "debug_id": debug_id}
            self._end(item, Status.FAILED, kind.failed, facts_text({**facts, **outcome.facts}))
            if outcome.blames is not None:
                self._blame(outcome.blames, lease.scope)
            else:
                self._fault(row.slot_host or row.host, outcome.reason)
        tx.send("end_failed", ends)

    def _wait(self) -> None:
        """Return jobs to the queue, ready now or later; a host that a redirect taught makes them change lanes."""
        if not self.waiting:
            return
        tx, ends, ready = self.tx, [], []
        lanes = self._learned_lanes()
        for item in self.waiting:
            _, lease, row, outcome = item
            deferred = outcome if isinstance(outcome, Deferred) else None
            kind = kind_of(row.job_type)
            host = deferred.host if deferred and deferred.host else row.host
            lane = lanes.get((*lease.scope, host, row.job_type), row.lane_id)
            later = deferred is not None and deferred.delay_s > 0 and not kind.external  # which is polled, not timed
            due = tx.now + int(deferred.delay_s * SECOND) if deferred and later else None
            ready_now, stage = 0 if due else kind.ready, kind.released(row.stage)
            place = (ready_now, _WORDS[kind.stages[stage]], stage, due, host, lane)
            ends.append((*place, *_deferral(deferred, row, kind), tx.now, row.seq, lease.epoch))
            if ready_now:
                ready.append((lane, row.priority))
            facts = {"epoch": lease.epoch, "from": row.stage, "reason": outcome.reason}
            if deferred:
                message = safe_text(deferred.message, limit=2_000)
                facts |= {"message": message, "next_attempt_at": due, "counts": deferred.counts, **deferred.facts}
                self._blame_deferred(deferred, row, lease.scope)
            self._end(item, kind.stages[stage], stage, facts_text(facts), kind="deferred" if deferred else "released")
        tx.send("end_waiting", ends)
        mark_lanes(tx, ready)

    def _blame_deferred(self, deferred: Deferred, row: FencedRow, scope: Scope) -> None:
        if deferred.blames is not None:
            self._blame(deferred.blames, scope)
            return
        host = deferred.host or row.slot_host or row.host
        self._fault(host, deferred.reason)
        self._rest(host, scope, deferred.host_rest_s, deferred.reason)

    def _learned_lanes(self) -> dict[tuple[str, str, str, str], int]:
        """Open the lanes of hosts that a redirect taught."""
        lanes: dict[tuple[str, str, str, str], int] = {}
        for _, lease, row, outcome in self.waiting:
            host = outcome.host if isinstance(outcome, Deferred) else None
            if host and host != row.host and (*lease.scope, host, row.job_type) not in lanes:
                request = JobRequest(row.job_type, None, host=host, priority=row.priority)
                lane = open_lanes(self.tx, lease.scope, [request])[host, row.job_type]
                lanes[(*lease.scope, host, row.job_type)] = lane
        return lanes

    def _cancel(self) -> None:
        for item in self.canceled:
            _, lease, _, outcome = item
            facts = {"epoch": lease.epoch, "message": safe_text(outcome.message)}
            self._end(item, Status.CANCELED, CANCELED, facts_text(facts))
        self.tx.many("end_canceled", [(self.tx.now, row.seq, lease.epoch) for _, lease, row, _ in self.canceled])

    def _blame(self, blames: Sequence[Blame], scope: Scope) -> None:
        """Count what each host that was asked did."""
        for blame in blames:
            self._fault(blame.host, blame.reason, silent=blame.silent)
            self._rest(blame.host, scope, blame.rest_s, blame.reason)
            if blame.silent:
                self.silent.setdefault(blame.host, []).append(blame)
            elif blame.heard:
                (self.heard if reason_named(blame.reason).host_fault else self.well).add(blame.host)

    def _write_hosts(self) -> None:
        """Write what the batch learned of hosts; an answer outweighs a silence of the same moment."""
        tx, now = self.tx, self.tx.now
        silent = [
            (host, _silent_since(blames, now), len(blames), now - STALE, _nameless_at(blames, now), now)
            for host, blames in sorted(self.silent.items())
        ]
        tx.send("host_silent", silent)
        tx.send("host_fault", [(host, n, why, now - STALE, now) for host, (n, why) in sorted(self.faults.items())])
        tx.send("host_heard", [(now, host) for host in sorted(self.heard)])
        tx.send("host_well", [(now, host) for host in sorted(self.well)])

    def _fault(self, host: str, reason: str, *, silent: bool = False) -> None:
        """Count a fault against the host that made it."""
        if host and (silent or reason_named(reason).host_fault):
            count, _ = self.faults.get(host, (0, ""))
            self.faults[host] = (count + 1, reason)

    def _rest(self, host: str, scope: Scope, rest_s: float | None, reason: str) -> None:
        if host and rest_s:
            now = self.tx.now
            row = (host, now + int(rest_s * SECOND), scope.tenant_id, now + REST_FOR_ALL, reason, now)
            self.tx.many("host_rest", [row])


def _silent_since(blames: Sequence[Blame], now: Micros) -> Micros:
    """Return when the first of these requests began to wait for a connection."""
    return now - int(max(blame.waited_s for blame in blames) * SECOND)


def _nameless_at(blames: Sequence[Blame], now: Micros) -> Micros | None:
    return now if any(blame.nameless for blame in blames) else None


def _deferral(deferred: Deferred | None, row: FencedRow, kind: JobKind) -> Row:
    """Return error_code, error_message_safe, attempts, trail and uncounted of a job that waits."""
    if deferred is None:
        return (None, None, 0, None, 0)
    counted = kind.counted_at_grant or row.stage != kind.granted
    uncounted = 1 if deferred.progressed and counted else 0  # progress is not held against max_claims
    message = safe_text(deferred.message, limit=2_000)
    return (deferred.reason, message, 1 if deferred.counts else 0, deferred.trail, uncounted)


def _check(row: FencedRow, outcome: Outcome) -> None:
    """Refuse an outcome that the job's type or stage does not allow, or whose reason is unknown."""
    kind = kind_of(row.job_type)
    if isinstance(outcome, (Failed, Deferred, Released)):
        _check_reason(outcome, kind)
    if isinstance(outcome, Reused):
        if kind.skipped is None:
            raise BadInput(f"a {row.job_type} job is never skipped")
        check_move(row.job_type, row.job_id, row.stage, kind.skipped)
    if isinstance(outcome, Completed) and not all(isinstance(made, NewArtifact) for made in outcome.artifacts):
        raise BadInput("a result is a NewArtifact")
    if isinstance(outcome, Completed) and not outcome.artifacts and kind.needs_result:
        raise BadInput(f"a {row.job_type} job completes with a result")
    if not isinstance(outcome, (Completed, Reused, Failed, Deferred, Released, Canceled)):
        raise BadInput(f"an outcome is one of domain.outcomes, not {type(outcome).__name__}")


def _check_reason(outcome: Failed | Deferred | Released, kind: JobKind) -> None:
    try:
        if not (kind.declared and is_code(outcome.reason)):
            reason_named(outcome.reason)
    except (KeyError, AttributeError, TypeError):
        raise BadInput(f"unknown reason {outcome.reason!r}") from None
    if not isinstance(getattr(outcome, "message", ""), str):
        raise BadInput("a message is text")
    if isinstance(outcome, Deferred):
        delay = outcome.delay_s
        if type(delay) not in (int, float) or not 0 <= delay <= 86_400 * 3_650:
            raise BadInput(f"a delay is 0 or more seconds, not {delay!r}")
