"""How much may be started at a host: what one worker leaves to the next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from longshore.domain.model import SECOND
from longshore.domain.policy.host_limits import (
    NEVER,
    HostFacts,
    HostUse,
    HostVerdict,
    allowance,
    given_up,
    judged,
    rests_until,
    state_of,
)
from longshore.domain.settings import HostsSettings

DEFAULTS = HostsSettings(concurrency=32)
NOW, LATER = 1_000_000, 9_000_000


def test_a_worker_takes_no_more_slots_than_it_can_run_at_once() -> None:
    first = allowance(HostFacts("h"), "one", DEFAULTS, NOW, ahead=240, at_once=16)

    assert (first.slots, first.leases) == (16, 256)

    used = HostFacts("h", uses=(HostUse("one", first.leases, first.slots, LATER),))
    second = allowance(used, "two", DEFAULTS, NOW, ahead=240, at_once=16)
    assert (second.slots, second.leases) == (16, 256)

    full = HostFacts("h", uses=(*used.uses, HostUse("two", second.leases, second.slots, LATER)))
    assert allowance(full, "three", DEFAULTS, NOW, ahead=240, at_once=16).leases == 0


def test_a_worker_that_could_run_more_gets_what_the_host_has_left() -> None:
    used = HostFacts("h", uses=(HostUse("one", 20, 20, LATER),))

    assert allowance(used, "two", DEFAULTS, NOW, at_once=64).slots == 12
    assert allowance(used, "one", DEFAULTS, NOW, at_once=64).slots == 32


def test_after_a_breakers_rest_one_lease_decides_and_none_goes_ahead() -> None:
    """Leases ahead would carry the one slot of the try and run one by one long after the host is well."""
    defaults = HostsSettings(concurrency=8, breaker_failures=3, breaker_cooldown_s=30)
    tried = HostFacts(host="a.example", failures=3, failed_at=0)

    assert allowance(tried, "me", defaults, 31 * SECOND, ahead=480).leases == 1
    well = HostFacts(host="a.example", failures=0, failed_at=0)
    assert allowance(well, "me", defaults, 31 * SECOND, ahead=480).leases == 488


SILENCE = HostsSettings(breaker_failures=5, breaker_cooldown_s=30, give_up_s=60)


@pytest.mark.parametrize("failures", [4, 5])
@pytest.mark.parametrize("give_up_s", [0, 60])
@pytest.mark.parametrize("since", [None, 100])
@pytest.mark.parametrize("failed", [None, 100, 159, 160, 200])
@pytest.mark.parametrize("later", [0, 29, 30, 500])
def test_when_a_host_is_given_up(
    failures: int, give_up_s: int, since: int | None, failed: int | None, later: int
) -> None:
    """The breaker is open, and the last try came after the time: for as long as the host would rest."""
    manners = HostsSettings(breaker_failures=5, breaker_cooldown_s=30, give_up_s=give_up_s)
    at = None if failed is None else failed * SECOND
    facts = HostFacts("h", failures=failures, failed_at=at, silent_since=None if since is None else since * SECOND)
    expected = failures >= 5 and give_up_s and since is not None and failed is not None and failed >= 160 and later < 30
    assert given_up(facts, manners, (at or 0) + later * SECOND) == (at if expected else None)


def test_the_try_comes_no_later_than_the_time_to_give_up() -> None:
    since = 100 * SECOND
    for failed, until in ((100, 130), (129, 159), (131, 160), (159, 160), (160, 190), (300, 330)):
        facts = HostFacts("h", failures=9, failed_at=failed * SECOND, silent_since=since)
        assert rests_until(facts, SILENCE, failed * SECOND) == until * SECOND


@pytest.mark.parametrize(
    ("silences", "reason", "started", "failed", "until", "verdict"),
    [
        (6, "connect", 0, 30, 31, False),  # waiting for a connection was the rest: one of them tries again at once
        (7, "connect", 0, 60, 90, True),  # and speaks for all at `give_up_s`
        (1, "connect", 0, 30, None, False),  # one request may have been unlucky
        (6, "connect", 29, 30, None, False),  # refused at once: they are asked again as usual
        (6, "too_slow", 0, 30, None, False),  # connected, and silent: it may be at work
        (2, "connect", 0, 10, None, False),
        (4, "connect", 0, 45, 46, False),
    ],
)
def test_a_host_that_no_request_could_connect_to_is_tried_by_one(
    silences: int, reason: str, started: int, failed: int, until: int | None, verdict: bool
) -> None:
    """Times from 100 s on, 20 faults open the breaker otherwise."""
    manners = HostsSettings(breaker_failures=20, breaker_cooldown_s=30, give_up_s=60)
    at, first = (100 + failed) * SECOND, (100 + min(failed, 30)) * SECOND
    facts = HostFacts("h", failures=silences, failed_at=at, reason=reason, silences=silences)
    facts = replace(facts, silent_since=(100 + started) * SECOND, faulty_since=first)
    leases = 17 if until is None else 1
    assert allowance(facts, "me", manners, max(at, (100 + (until or 0)) * SECOND), ahead=9).leases == leases
    if until is not None:
        assert rests_until(facts, manners, at) == (100 + until) * SECOND
    assert given_up(facts, manners, at) == (at if verdict else None)


def test_the_last_try_of_an_unreachable_host_ends_when_it_is_given_up() -> None:
    """A try takes 10 s: it begins 10 s before the time is over."""
    manners = HostsSettings(breaker_failures=20, breaker_cooldown_s=30, give_up_s=60)
    facts = HostFacts("h", reason="connect", failures=9, silences=9, silent_since=0, faulty_since=10 * SECOND)
    for failed, until in ((32, 50), (45, 50), (50, 51), (59, 60), (70, 100)):
        facts = replace(facts, failed_at=failed * SECOND)
        assert rests_until(facts, manners, failed * SECOND) == until * SECOND


@pytest.mark.parametrize(
    ("facts", "state", "until"),
    [
        (HostFacts("h"), "ok", None),
        (HostFacts("h", failures=4, failed_at=0), "ok", None),
        (HostFacts("h", paused=True, cooldown_until=300 * SECOND), "paused", None),
        (HostFacts("h", cooldown_until=300 * SECOND), "resting", 300),
        (HostFacts("h", cooldown_until=10 * SECOND), "ok", None),
        (HostFacts("h", failures=5, failed_at=90 * SECOND), "resting", 120),
        (HostFacts("h", failures=5, failed_at=60 * SECOND), "resting", None),  # its one try may be under way
        (HostFacts("h", failures=9, failed_at=90 * SECOND, silent_since=0, silences=9), "given up", 120),
        (HostFacts("h", failures=9, failed_at=65 * SECOND, silent_since=0, silences=9), "given up", None),
        (HostFacts("h", nameless_at=90 * SECOND), "given up", None),
        (HostFacts("h", failures=9, failed_at=90 * SECOND, faulty_since=0), "faulty", None),
        (
            HostFacts("h", failures=9, failed_at=90 * SECOND, faulty_since=0, cooldown_until=NEVER - 1),
            "resting",
            NEVER - 1,
        ),
    ],
)
def test_a_host_has_one_state(facts: HostFacts, state: str, until: int | None) -> None:
    found, ends = state_of(facts, SILENCE, 100 * SECOND)
    assert found.value == state
    assert ends in (until, until and until * SECOND)


def test_a_name_that_does_not_exist_is_given_up_at_once() -> None:
    facts = HostFacts("h", nameless_at=5 * SECOND)
    assert given_up(facts, SILENCE, 6 * SECOND) == 5 * SECOND
    assert given_up(facts, SILENCE, 36 * SECOND) is None


@pytest.mark.parametrize("failures", [4, 5])
@pytest.mark.parametrize("give_up_s", [0, 60])
@pytest.mark.parametrize("silent", [None, 150])
@pytest.mark.parametrize("faulty", [None, 100])
@pytest.mark.parametrize("failed", [None, 100, 159, 160, 200, 210])
@pytest.mark.parametrize("later", [0, 29, 30, 500])
def test_when_a_host_is_faulty(
    failures: int, give_up_s: int, silent: int | None, faulty: int | None, failed: int | None, later: int
) -> None:
    """It answers, with nothing but faults for the time: that speaks for who was asked for, and nobody rests."""
    manners = HostsSettings(concurrency=8, breaker_failures=5, breaker_cooldown_s=30, give_up_s=give_up_s)
    at, since, mute = (None if value is None else value * SECOND for value in (failed, faulty, silent))
    facts = HostFacts("h", failures=failures, failed_at=at, silent_since=mute, faulty_since=since)
    now = (at or 0) + later * SECOND
    lately = failures >= 5 and give_up_s and failed is not None and later < 30
    dead = lately and silent is not None and failed is not None and failed >= 210
    spoiled = lately and silent is None and faulty is not None and failed is not None and failed >= 160
    expected = HostVerdict(at or 0, asked_only=bool(spoiled)) if dead or spoiled else None
    assert judged(facts, manners, now) == expected
    if spoiled:
        assert rests_until(facts, manners, now) is None
        assert allowance(facts, "me", manners, now, ahead=480).leases == 8
        resting = HostFacts("h", failures=5, failed_at=at, faulty_since=since, cooldown_until=now + 7)
        assert rests_until(resting, manners, now) == now + 7  # Retry-After is kept
    elif failures >= 5 and rests_until(facts, manners, now) is None:
        assert allowance(facts, "me", manners, now, ahead=480).leases == 1


def test_a_faulty_host_is_tried_when_its_time_is_over() -> None:
    for failed, until in ((100, 130), (131, 160), (159, 160)):
        facts = HostFacts("h", failures=9, failed_at=failed * SECOND, faulty_since=100 * SECOND)
        assert rests_until(facts, SILENCE, failed * SECOND) == until * SECOND
