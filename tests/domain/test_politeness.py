"""How much may be started at a host: what one worker leaves to the next."""

from __future__ import annotations

from longshore.domain.model import SECOND
from longshore.domain.politeness import HostDefaults, HostFacts, HostUse, allowance

DEFAULTS = HostDefaults(concurrency=32)
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
    defaults = HostDefaults(concurrency=8, breaker_failures=3, breaker_cooldown_s=30)
    tried = HostFacts(host="a.example", failures=3, failed_at=0)

    assert allowance(tried, "me", defaults, 31 * SECOND, ahead=480).leases == 1
    well = HostFacts(host="a.example", failures=0, failed_at=0)
    assert allowance(well, "me", defaults, 31 * SECOND, ahead=480).leases == 488
