"""Reasons: one vocabulary, each with a meaning, a remedy and a consequence."""

from __future__ import annotations

import re

import pytest

from longshore.domain.reasons import REASONS, Kind, http_reason, reason_named

WORDS = """forbidden_address forbidden_redirect redirect_loop dns connect tls protocol_error truncated length_mismatch
object_changed digest_mismatch type_mismatch html_page blocked_challenge content_encoding too_large too_slow deadline
quota_exceeded disk_full disk_error offline canceled max_attempts missing_external_job external_error"""


@pytest.mark.parametrize("name", WORDS.split())
def test_the_designs_words_are_there(name: str) -> None:
    assert reason_named(name).name == name


@pytest.mark.parametrize("reason", REASONS.values(), ids=lambda r: r.name)
def test_each_reason_speaks(reason: object) -> None:
    from longshore.domain.reasons import Reason

    assert isinstance(reason, Reason)
    assert re.fullmatch(r"[a-z][a-z0-9_]+", reason.name)
    assert len(reason.meaning) > 8
    assert len(reason.remedy) > 5
    assert not reason.meaning.endswith(".")


@pytest.mark.parametrize("status", [202, 408, 425, 429, 500, 502, 503, 504])
def test_statuses_that_pass_are_tried_again(status: int) -> None:
    assert reason_named(http_reason(status)).kind is Kind.TRANSIENT


@pytest.mark.parametrize("status", [201, 203, 204, 226, 400, 401, 403, 404, 405, 410, 451, 501, 505])
def test_statuses_that_stay_are_final(status: int) -> None:
    reason = reason_named(http_reason(status))
    assert (reason.name, reason.kind) == (f"http_{status}", Kind.PERMANENT)
    assert not reason.host_fault


def test_asking_for_patience_is_no_fault_of_the_host() -> None:
    assert not reason_named("http_429").host_fault
    assert reason_named("http_503").host_fault


def test_truncation_does_not_count_towards_the_breaker() -> None:
    assert not REASONS["truncated"].host_fault


def test_our_own_troubles_never_count_against_a_job_or_a_host() -> None:
    for reason in REASONS.values():
        if reason.kind is Kind.INFRASTRUCTURE:
            assert not reason.host_fault


@pytest.mark.parametrize("name", ["", "http_", "http_x", "nonsense"])
def test_an_unknown_reason_is_a_key_error(name: str) -> None:
    with pytest.raises(KeyError):
        reason_named(name)
