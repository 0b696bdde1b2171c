"""Where a job can stand and where it can go: all of it, as data.

Rule 1: whatever concerns stages, statuses and moves stands here. The schema's triggers and the diagram in the docs are
made from these tables, and a test compares them.
Rule 2: terminal is final. Nothing leaves a terminal stage; doing the work again is a new job linked by `retry_of`.
Rule 3: a stage only moves forward within one lease epoch; a new epoch starts the attempt again (REGRANT).
"""

from __future__ import annotations

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

# stage -> status, in the order of the flow.
DOWNLOAD_STAGES: Final[dict[str, Status]] = {
    "PLANNED": Status.PENDING,
    "LEASED": Status.PROCESSING,
    "HEAD_DONE": Status.PROCESSING,
    "RESUME_OK": Status.PROCESSING,
    "STREAMING": Status.PROCESSING,
    "FINALIZED": Status.PROCESSING,
    "INDEXED": Status.COMPLETED,
    "DEDUPED": Status.COMPLETED,
    "SKIPPED_DUPLICATE": Status.SKIPPED,
    "FAILED": Status.FAILED,
    CANCELED: Status.CANCELED,
}
TORRENT_STAGES: Final[dict[str, Status]] = {
    "queued": Status.PENDING,
    "downloading": Status.PROCESSING,
    "completed": Status.COMPLETED,
    "failed": Status.FAILED,
    CANCELED: Status.CANCELED,
}
OWN_STAGES: Final[dict[str, Status]] = {
    "pending": Status.PENDING,
    "processing": Status.PROCESSING,
    "completed": Status.COMPLETED,
    "skipped": Status.SKIPPED,
    "failed": Status.FAILED,
    CANCELED: Status.CANCELED,
}

# stage -> the stages it may go to. A self-loop is a grant of the same stage under a new epoch.
DOWNLOAD_MOVES: Final[dict[str, frozenset[str]]] = {
    "PLANNED": frozenset({"LEASED", "SKIPPED_DUPLICATE", "FAILED", CANCELED}),
    "LEASED": frozenset({"HEAD_DONE", "RESUME_OK", "STREAMING", "FINALIZED", "SKIPPED_DUPLICATE", "FAILED", CANCELED}),
    "HEAD_DONE": frozenset({"RESUME_OK", "STREAMING", "SKIPPED_DUPLICATE", "FAILED", CANCELED}),
    "RESUME_OK": frozenset({"STREAMING", "FAILED", CANCELED}),
    "STREAMING": frozenset({"FINALIZED", "FAILED", CANCELED}),
    "FINALIZED": frozenset({"INDEXED", "DEDUPED", "FAILED", CANCELED}),
    "INDEXED": frozenset(),
    "DEDUPED": frozenset(),
    "SKIPPED_DUPLICATE": frozenset(),
    "FAILED": frozenset(),
    CANCELED: frozenset(),
}
TORRENT_MOVES: Final[dict[str, frozenset[str]]] = {
    "queued": frozenset({"downloading", "failed", CANCELED}),
    "downloading": frozenset({"completed", "failed", CANCELED}),
    "completed": frozenset(),
    "failed": frozenset(),
    CANCELED: frozenset(),
}
OWN_MOVES: Final[dict[str, frozenset[str]]] = {
    "pending": frozenset({"processing", "skipped", "failed", CANCELED}),
    "processing": frozenset({"completed", "skipped", "failed", CANCELED}),
    "completed": frozenset(),
    "skipped": frozenset(),
    "failed": frozenset(),
    CANCELED: frozenset(),
}

# What a lease does to a stage: the grant, and giving the job back to wait (retry, release, drain).
FIRST: Final = {DOWNLOAD: "PLANNED", TORRENT: "queued"}
GRANTED: Final = {DOWNLOAD: "LEASED", TORRENT: "downloading"}
OWN_FIRST: Final = "pending"
OWN_GRANTED: Final = "processing"


def stages(job_type: str) -> dict[str, Status]:
    """Give the stages of a type with their statuses."""
    return {DOWNLOAD: DOWNLOAD_STAGES, TORRENT: TORRENT_STAGES}.get(job_type, OWN_STAGES)


def moves(job_type: str) -> dict[str, frozenset[str]]:
    """Give the legal moves of a type."""
    return {DOWNLOAD: DOWNLOAD_MOVES, TORRENT: TORRENT_MOVES}.get(job_type, OWN_MOVES)


def first_stage(job_type: str) -> str:
    """Name the stage of a job that waits."""
    return FIRST.get(job_type, OWN_FIRST)


def granted_stage(job_type: str) -> str:
    """Name the stage of a job whose lease was just granted."""
    return GRANTED.get(job_type, OWN_GRANTED)


def status_of(job_type: str, stage: str) -> Status:
    """Map a stage to its canonical status."""
    try:
        return stages(job_type)[stage]
    except KeyError:
        raise BadInput(f"a {job_type} job has no stage {stage!r}") from None


def is_terminal(job_type: str, stage: str) -> bool:
    """Tell whether nothing leaves this stage."""
    return status_of(job_type, stage) in TERMINAL


def check_move(job_type: str, job_id: str, have: str, wants: str) -> None:
    """Raise `InvalidTransition` unless the table has the move; change nothing."""
    status_of(job_type, wants)
    if wants not in moves(job_type).get(have, frozenset()):
        raise InvalidTransition(f"job {job_id} is {have}: it may not go to {wants}")
