"""Job kinds: the stages of each type of job, the moves between them, and how a type differs from the others.

Rule 1: a job type is compared nowhere else. Other modules ask `kind_of(job_type)` for a property; the statements take the
stage or the readiness as a parameter. The schema's triggers and the diagram in the docs are compared with these tables by
tests.
Rule 2: terminal is final. No move leaves a terminal stage; doing the work again is a new job linked by `retry_of`.
Rule 3: a stage only moves forward within one lease epoch; a new epoch starts the attempt again at `granted`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from longshore.errors import BadInput, InvalidTransition


class Status(StrEnum):
    """The canonical answer for every type of job."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELED = "canceled"


TERMINAL: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELED})
ACTIVE: Final = frozenset({Status.PENDING, Status.PROCESSING})

DOWNLOAD: Final = "download"
TORRENT: Final = "torrent"
UPLOAD: Final = "upload"

CANCELED: Final = "canceled"


@dataclass(frozen=True, slots=True)
class JobKind:
    """What the ledger and the worker need to know about a type of job; everything else is in the kind's own folder."""

    name: str
    stages: Mapping[str, Status]  # in the order of the flow
    moves: Mapping[str, frozenset[str]]
    first: str  # of a new job, and after a lease that ended without an outcome
    granted: str  # of a job whose lease was just granted
    done: str
    done_known: str  # done, and all its bytes were stored before
    failed: str
    skipped: str | None  # None: a job of this kind never reuses another job's result
    finalized: str | None = None  # written with the FINALIZE intent; it frees the host's slot
    to_finalized: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the legal moves from each stage
    counted_at_grant: bool = True  # else a claim counts when the job leaves `granted`
    external: bool = False  # an external program works on it without a lease; the worker does not claim it
    of_url: bool = False  # its result is what its URL gives: one artifact, a URL version, can be fetched again
    needs_result: bool = True  # completing without an artifact is an error
    common: bool = False  # most jobs are of this kind: the index of jobs by type (jobs_typed) leaves it out
    own_route: bool = False  # is not planned by the general `POST /jobs`
    declared: bool = False  # by a user: its parameters are part of its key, and it may fail with codes of its own

    @property
    def ready(self) -> int:
        """Return the column `ready` of a job that waits for nothing."""
        return 0 if self.external else 1

    def released(self, stage: str) -> str:
        """Return the stage after a lease that ended without an outcome: an external program works on."""
        return stage if self.external else self.first


_DOWNLOAD: Final = JobKind(
    name=DOWNLOAD,
    stages={
        "PLANNED": Status.PENDING,
        "LEASED": Status.PROCESSING,
        "HEAD_DONE": Status.PROCESSING,  # only callers of `advance` write it; the worker's probe is the GET itself
        "RESUME_OK": Status.PROCESSING,
        "STREAMING": Status.PROCESSING,
        "FINALIZED": Status.PROCESSING,
        "INDEXED": Status.COMPLETED,
        "DEDUPED": Status.COMPLETED,
        "SKIPPED_DUPLICATE": Status.SKIPPED,
        "FAILED": Status.FAILED,
        CANCELED: Status.CANCELED,
    },
    moves={
        "PLANNED": frozenset({"LEASED", "SKIPPED_DUPLICATE", "FAILED", CANCELED}),
        "LEASED": frozenset(
            {"HEAD_DONE", "RESUME_OK", "STREAMING", "FINALIZED", "SKIPPED_DUPLICATE", "FAILED", CANCELED}
        ),
        "HEAD_DONE": frozenset({"RESUME_OK", "STREAMING", "SKIPPED_DUPLICATE", "FAILED", CANCELED}),
        "RESUME_OK": frozenset({"STREAMING", "FAILED", CANCELED}),
        "STREAMING": frozenset({"FINALIZED", "FAILED", CANCELED}),
        "FINALIZED": frozenset({"INDEXED", "DEDUPED", "FAILED", CANCELED}),
        "INDEXED": frozenset(),
        "DEDUPED": frozenset(),
        "SKIPPED_DUPLICATE": frozenset(),
        "FAILED": frozenset(),
        CANCELED: frozenset(),
    },
    first="PLANNED",
    granted="LEASED",
    finalized="FINALIZED",
    to_finalized={
        "LEASED": ("FINALIZED",),
        "HEAD_DONE": ("STREAMING", "FINALIZED"),
        "RESUME_OK": ("STREAMING", "FINALIZED"),
        "STREAMING": ("FINALIZED",),
    },
    done="INDEXED",
    done_known="DEDUPED",
    skipped="SKIPPED_DUPLICATE",
    failed="FAILED",
    counted_at_grant=False,
    of_url=True,
    common=True,
)
_TORRENT: Final = JobKind(
    name=TORRENT,
    stages={
        "queued": Status.PENDING,
        "downloading": Status.PROCESSING,
        "completed": Status.COMPLETED,
        "failed": Status.FAILED,
        CANCELED: Status.CANCELED,
    },
    moves={
        "queued": frozenset({"downloading", "failed", CANCELED}),
        "downloading": frozenset({"completed", "failed", CANCELED}),
        "completed": frozenset(),
        "failed": frozenset(),
        CANCELED: frozenset(),
    },
    first="queued",
    granted="downloading",
    done="completed",
    done_known="completed",
    skipped=None,
    failed="failed",
    external=True,
    own_route=True,
)
CUSTOM: Final = JobKind(
    name="custom",
    stages={
        "pending": Status.PENDING,
        "processing": Status.PROCESSING,
        "completed": Status.COMPLETED,
        "skipped": Status.SKIPPED,
        "failed": Status.FAILED,
        CANCELED: Status.CANCELED,
    },
    moves={
        "pending": frozenset({"processing", "skipped", "failed", CANCELED}),
        "processing": frozenset({"completed", "skipped", "failed", CANCELED}),
        "completed": frozenset(),
        "skipped": frozenset(),
        "failed": frozenset(),
        CANCELED: frozenset(),
    },
    first="pending",
    granted="processing",
    done="completed",
    done_known="completed",
    skipped="skipped",
    failed="failed",
    needs_result=False,
    declared=True,
)
_UPLOAD: Final = replace(CUSTOM, name=UPLOAD, needs_result=True, own_route=True, declared=False)

KINDS: Final = {kind.name: kind for kind in (_DOWNLOAD, _TORRENT, _UPLOAD)}
EXTERNAL: Final = tuple(kind.name for kind in KINDS.values() if kind.external)


def kind_of(job_type: str) -> JobKind:
    """Return the kind of a job type; a type that has no entry is the user's own."""
    return KINDS.get(job_type, CUSTOM)


def status_of(job_type: str, stage: str) -> Status:
    """Map a stage to its canonical status."""
    try:
        return kind_of(job_type).stages[stage]
    except KeyError:
        raise BadInput(f"a {job_type} job has no stage {stage!r}") from None


def is_terminal(job_type: str, stage: str) -> bool:
    """Return whether no move leaves this stage."""
    return status_of(job_type, stage) in TERMINAL


def check_move(job_type: str, job_id: str, have: str, wants: str) -> None:
    """Raise `InvalidTransition` unless the table has the move; change nothing."""
    status_of(job_type, wants)
    if wants not in kind_of(job_type).moves.get(have, frozenset()):
        raise InvalidTransition(f"job {job_id} is {have}: it may not go to {wants}")
