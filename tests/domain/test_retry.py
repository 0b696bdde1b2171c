"""How a failed attempt ends: one table, every kind."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longshore.domain.outcomes import Deferred, Failed
from longshore.domain.policy.disk_space import Lack
from longshore.domain.policy.retry import PROGRESS_BYTES, Failure, Gain, Past, next_outcome, progressed
from longshore.domain.settings import DedupeSettings, RetrySettings
from longshore.domain.transfer.mirrors import Trail, read

SETTINGS = RetrySettings(max_attempts=3, base_s=8, cap_s=100)
FIRST = Past(attempts=0, reason=None)


def test_a_transient_reason_waits_with_jitter_and_counts() -> None:
    end = next_outcome(Failure("connect", "refused"), FIRST, 0.5, SETTINGS)
    assert end == Deferred("connect", "refused", 4.0)


def test_the_last_attempt_is_final_and_keeps_its_own_reason() -> None:
    end = next_outcome(Failure("connect", "refused"), Past(2, "http_503"), 0.5, SETTINGS)
    assert isinstance(end, Failed)
    assert end.reason == "connect"
    assert "attempt 3 of 3" in end.message


def test_a_jobs_own_limit_wins() -> None:
    assert isinstance(next_outcome(Failure("connect", "x"), Past(0, None, max_attempts=1), 0.0, SETTINGS), Failed)
    assert isinstance(next_outcome(Failure("connect", "x"), Past(5, None, max_attempts=9), 0.0, SETTINGS), Deferred)


def test_restart_fresh_happens_once() -> None:
    assert isinstance(next_outcome(Failure("object_changed", "x"), FIRST, 0.0, SETTINGS), Deferred)
    assert isinstance(next_outcome(Failure("object_changed", "x"), Past(1, "bad_range"), 0.0, SETTINGS), Failed)
    assert isinstance(next_outcome(Failure("object_changed", "x"), Past(1, "truncated"), 0.0, SETTINGS), Deferred)


@pytest.mark.parametrize("reason", ["http_404", "tls", "html_page", "forbidden_address", "too_large"])
def test_permanent_and_policy_are_final_at_once(reason: str) -> None:
    assert next_outcome(Failure(reason, "x"), FIRST, 0.0, SETTINGS) == Failed(reason, "x")


@pytest.mark.parametrize("reason", ["disk_full", "store_unavailable", "host_busy", "interrupted"])
def test_our_side_never_counts(reason: str) -> None:
    end = next_outcome(Failure(reason, "x"), Past(99, "connect"), 0.9, SETTINGS)
    assert isinstance(end, Deferred)
    assert not end.counts


def test_retry_after_rests_the_host_and_is_never_undercut() -> None:
    end = next_outcome(Failure("http_429", "x", retry_after_s=60, host="h"), FIRST, 0.0, SETTINGS)
    assert isinstance(end, Deferred)
    assert end.delay_s >= 60
    assert (end.host_rest_s, end.host) == (60, "h")
    other = next_outcome(Failure("http_500", "x", retry_after_s=60), FIRST, 0.0, SETTINGS)
    assert isinstance(other, Deferred)
    assert other.host_rest_s is None


def test_freshness_policies() -> None:
    ages = [DedupeSettings(revalidate=policy).revalidate_after_s for policy in ("always", "never", "90")]
    assert ages == [0.0, math.inf, 90.0]
    for bad in ("often", "-1", "nan"):
        with pytest.raises(ValueError, match="revalidate"):
            DedupeSettings(revalidate=bad)


@pytest.mark.parametrize("lack", [None, Lack.FULL, Lack.PROMISED])
@pytest.mark.parametrize("attempts", [0, 99])
def test_a_disk_that_is_full_or_promised_never_counts(lack: Lack | None, attempts: int) -> None:
    end = next_outcome(Failure("disk_full", "x", lack=lack), Past(attempts, "disk_full"), 0.0, SETTINGS)
    assert isinstance(end, Deferred)
    assert not end.counts
    assert end.delay_s >= (2.5 if lack is Lack.PROMISED else 0.5)


@pytest.mark.parametrize("lack", [Lack.NOT_NOW, Lack.OUTGROWN])
def test_bytes_that_do_not_fit_although_the_disk_is_not_full_count(lack: Lack) -> None:
    end = next_outcome(Failure("disk_full", "x", lack=lack), FIRST, 0.5, SETTINGS)
    assert end == Deferred("disk_full", "x", 4.0)
    quick = next_outcome(Failure("disk_full", "x", lack=lack), FIRST, 0.0, RetrySettings(max_attempts=3, base_s=0.01))
    assert isinstance(quick, Deferred)
    assert quick.delay_s >= 0.5
    last = next_outcome(Failure("disk_full", "x", lack=lack), Past(2, "disk_full"), 0.5, SETTINGS)
    assert isinstance(last, Failed)
    assert last.reason == "disk_full"


def test_what_never_fits_is_final() -> None:
    assert next_outcome(Failure("too_large", "x", lack=Lack.NEVER), FIRST, 0.0, SETTINGS) == Failed("too_large", "x")


MIB = 1 << 20


@pytest.mark.parametrize("resumable", [True, False])
@pytest.mark.parametrize("total", [None, 0, 1, 99, 1_000, MIB, 100 * MIB, 1 << 40])
@pytest.mark.parametrize("best", [0, 500, 5 * MIB])
@pytest.mark.parametrize("added", [-10, 0, 1, 9, 10, MIB // 100, MIB // 100 + 1, MIB - 1, MIB])
def test_what_counts_as_progress(added: int, best: int, total: int | None, resumable: bool) -> None:
    """At least 1 % of the declared length, or 1 MiB, beyond the best so far, and only if the next attempt can go on."""
    gain = Gain(best + added, total, resumable)
    by_share = bool(total) and added * 100 >= (total or 0)
    assert progressed(gain, best) == (resumable and added > 0 and (by_share or added >= MIB))
    assert not progressed(None, best)


@pytest.mark.parametrize("reason", ["truncated", "too_slow", "connect", "http_503", "deadline"])
def test_progress_does_not_count_and_is_remembered(reason: str) -> None:
    past = Past(2, "connect", trail=Trail(best=100))
    end = next_outcome(Failure(reason, "x", gain=Gain(200, 1_000, resumable=True)), past, 0.5, SETTINGS)
    assert isinstance(end, Deferred)
    assert (end.progressed, read(end.trail).best, read(end.trail).gains) == (True, 200, 1)
    assert end.delay_s <= 1.5
    again = next_outcome(
        Failure(reason, "x", gain=Gain(200, 1_000, resumable=True)),
        Past(3, reason, None, read(end.trail)),
        0.5,
        SETTINGS,
    )
    assert isinstance(again, Failed)


@pytest.mark.parametrize("reason", ["http_404", "object_changed", "digest_mismatch", "disk_full"])
def test_only_transient_ends_can_be_progress(reason: str) -> None:
    end = next_outcome(Failure(reason, "x", gain=Gain(900, 1_000, resumable=True)), FIRST, 0.5, SETTINGS)
    assert isinstance(end, Failed) or not end.progressed


@pytest.mark.parametrize("total", [100, 1_000, 12_345, 3 * MIB, 250 * MIB])
def test_progress_ends(total: int) -> None:
    """The slowest progress that does not count takes 100 attempts, or one per MiB of a large body."""
    step = min(PROGRESS_BYTES, -(-total // 100))
    best, uncounted = 0, 0
    while best < total:
        kept = min(total, best + step)
        if not progressed(Gain(kept, total, resumable=True), best):
            break
        best, uncounted = kept, uncounted + 1
    assert uncounted <= max(100, -(-total // MIB))


def test_an_answer_from_the_first_byte_is_progress_once() -> None:
    assert progressed(Gain(500, 1_000, resumable=True, resumed=False), 0)
    assert not progressed(Gain(900, 1_000, resumable=True, resumed=False), 500)
    assert progressed(Gain(900, 1_000, resumable=True, resumed=True), 500)


lengths = st.one_of(st.none(), st.integers(0, 300), st.integers(0, 4 * MIB), st.integers(0, 1 << 40))
answers = st.builds(
    lambda kept, total, resumable, resumed: Gain(kept, total, resumable, resumed=resumed),
    st.one_of(st.integers(0, 300), st.integers(0, 200 * MIB)),
    lengths,
    st.booleans(),
    st.booleans(),
)


def attempts_of(gains: Iterator[Gain], limit: int) -> tuple[int, int]:
    """Play a job whose attempts all end as `truncated` with these gains. Return their number and the most durable bytes."""
    past, count, most = Past(0, None), 0, 0
    for gain in gains:
        count, most = count + 1, max(most, gain.kept)
        end = next_outcome(Failure("truncated", "x", gain=gain), past, 0.5, RetrySettings(max_attempts=limit))
        if isinstance(end, Failed):
            break
        past = Past(count, "truncated", None, past.trail if end.trail is None else read(end.trail))
    return count, most


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(answers, max_size=400), st.integers(1, 6))
def test_no_server_gets_more_attempts_than_the_bound(gains: list[Gain], limit: int) -> None:
    count, most = attempts_of(iter(gains), limit)
    assert count <= max(100, most // MIB) + limit


def _greedy(*, total: int, longer: float, resumed: bool) -> Iterator[Gain]:
    """Bring as little as still is progress, of an object that is declared a little longer each time."""
    best = 0
    while True:
        step = max(1, min(PROGRESS_BYTES, -(-total // 100)))
        best += step
        yield Gain(best, total, resumable=True, resumed=resumed)
        total = max(best + step, int(total * longer))


@pytest.mark.parametrize("resumed", [True, False])
@pytest.mark.parametrize("longer", [1.0, 1.001, 1.0115, 1.5])
@pytest.mark.parametrize("total", [1, 2_000, MIB, 90 * MIB])
def test_a_length_that_grows_does_not_move_the_bound(total: int, longer: float, resumed: bool) -> None:
    endless = _greedy(total=total, longer=longer, resumed=resumed)
    count, most = attempts_of(itertools.islice(endless, 1_000), 5)
    assert count <= (max(100, most // MIB) if resumed else 1) + 5
    assert resumed or count == 6


@pytest.mark.parametrize("total", [100, 101, 12_345, 3 * MIB, 100 * MIB, 100 * MIB + 1, 250 * MIB])
def test_a_server_that_keeps_to_its_length_never_meets_the_limit(total: int) -> None:
    step = min(PROGRESS_BYTES, -(-total // 100))
    gains = (Gain(kept, total, resumable=True) for kept in range(step, total, step))
    count, _ = attempts_of(gains, 1)
    assert count == len(range(step, total, step))


def test_offline_waits_and_counts_nothing_against_the_job() -> None:
    outcome = next_outcome(Failure("offline", "x"), FIRST, 0.0, SETTINGS)
    assert isinstance(outcome, Deferred)
    assert (outcome.reason, outcome.counts) == ("offline", False)
