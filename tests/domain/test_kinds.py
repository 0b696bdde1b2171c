"""Stages, statuses and moves: the table of the design, its shape, and what it refuses."""

from __future__ import annotations

import itertools

import pytest

from longshore.domain import kinds
from longshore.domain.kinds import CANCELED, DOWNLOAD, TERMINAL, TORRENT, UPLOAD, Status
from longshore.errors import BadInput, InvalidTransition, LongshoreError

TYPES = [DOWNLOAD, TORRENT, UPLOAD, "extract_text"]
DESIGN = {
    DOWNLOAD: {
        "PLANNED": "pending",
        "LEASED": "processing",
        "HEAD_DONE": "processing",
        "RESUME_OK": "processing",
        "STREAMING": "processing",
        "FINALIZED": "processing",
        "INDEXED": "completed",
        "DEDUPED": "completed",
        "SKIPPED_DUPLICATE": "skipped",
        "FAILED": "failed",
        "canceled": "canceled",
    },
    TORRENT: {
        "queued": "pending",
        "downloading": "processing",
        "completed": "completed",
        "failed": "failed",
        "canceled": "canceled",
    },
    "extract_text": {
        "pending": "pending",
        "processing": "processing",
        "completed": "completed",
        "skipped": "skipped",
        "failed": "failed",
        "canceled": "canceled",
    },
}


@pytest.mark.parametrize("job_type", DESIGN)
def test_the_mapping_is_the_designs(job_type: str) -> None:
    assert {stage: str(status) for stage, status in kinds.kind_of(job_type).stages.items()} == DESIGN[job_type]
    assert all(kinds.status_of(job_type, stage) == status for stage, status in DESIGN[job_type].items())


def test_there_are_six_statuses() -> None:
    assert [str(status) for status in Status] == [
        "pending",
        "processing",
        "completed",
        "failed",
        "skipped",
        "canceled",
    ]
    assert set(Status) == TERMINAL | kinds.ACTIVE
    assert not TERMINAL & kinds.ACTIVE


@pytest.mark.parametrize("job_type", TYPES)
def test_terminal_is_final_and_everything_else_can_end(job_type: str) -> None:
    moves = kinds.kind_of(job_type).moves
    assert set(moves) == set(kinds.kind_of(job_type).stages)
    for stage, after in moves.items():
        assert after <= set(moves)
        if kinds.is_terminal(job_type, stage):
            assert not after
        else:
            assert CANCELED in after
            assert any(kinds.status_of(job_type, to) is Status.FAILED for to in after)


@pytest.mark.parametrize("job_type", TYPES)
def test_no_move_leads_back(job_type: str) -> None:
    order = list(kinds.kind_of(job_type).stages)
    for stage, after in kinds.kind_of(job_type).moves.items():
        assert all(order.index(to) > order.index(stage) for to in after)


@pytest.mark.parametrize("job_type", TYPES)
def test_every_stage_can_be_reached(job_type: str) -> None:
    seen, todo = set(), [kinds.kind_of(job_type).first]
    while todo:
        stage = todo.pop()
        seen.add(stage)
        todo += kinds.kind_of(job_type).moves[stage] - seen
    assert seen == set(kinds.kind_of(job_type).stages)


@pytest.mark.parametrize("job_type", TYPES)
def test_a_grant_goes_from_waiting_to_processing(job_type: str) -> None:
    first, granted = kinds.kind_of(job_type).first, kinds.kind_of(job_type).granted
    assert kinds.status_of(job_type, first) is Status.PENDING
    assert kinds.status_of(job_type, granted) is Status.PROCESSING
    assert granted in kinds.kind_of(job_type).moves[first]


@pytest.mark.parametrize("job_type", TYPES)
def test_check_move_follows_the_table_for_every_pair(job_type: str) -> None:
    moves = kinds.kind_of(job_type).moves
    for have, wants in itertools.product(moves, moves):
        if wants in moves[have]:
            kinds.check_move(job_type, "j1", have, wants)
        else:
            with pytest.raises(InvalidTransition, match="j1"):
                kinds.check_move(job_type, "j1", have, wants)


def test_planned_to_streaming_raises_the_seeds_error() -> None:
    with pytest.raises(RuntimeError, match="PLANNED") as caught:
        kinds.check_move(DOWNLOAD, "j1", "PLANNED", "STREAMING")
    assert isinstance(caught.value, LongshoreError)


@pytest.mark.parametrize("stage", ["", "planned", "INDEXED ", "UNKNOWN", "queued"])
def test_an_unknown_stage_is_bad_input(stage: str) -> None:
    with pytest.raises(BadInput):
        kinds.status_of(DOWNLOAD, stage)
    with pytest.raises(BadInput):
        kinds.check_move(DOWNLOAD, "j1", "PLANNED", stage)


def test_completion_is_only_reached_through_finalized() -> None:
    for stage, after in kinds.kind_of(DOWNLOAD).moves.items():
        if after & {"INDEXED", "DEDUPED"}:
            assert stage == "FINALIZED"
