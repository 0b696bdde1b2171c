"""The slots of a host over all workers: never more than its limit, whatever is claimed and ended in which order."""

from __future__ import annotations

import random

import pytest

from longshore.domain.model import Lease
from longshore.domain.outcomes import Failed
from longshore.domain.settings import HostsSettings
from longshore.ledger import Ledger
from longshore.ledger.operations.hosts import host_facts, set_host
from longshore.ledger.operations.leasing import claim
from tests.ledger.acts import plan
from tests.support.ledgers import Clock

LIMIT = 8
MANNERS = HostsSettings(concurrency=LIMIT)


class Worker:
    """What one worker believes: its leases, and how many it may run at once by its latest claim."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger, self.name = ledger, name
        self.leases: list[Lease] = []
        self.slots = 0

    def claim(self, limit: int) -> None:
        leases = self._ledger.write(claim, self.name, limit=limit, ttl_s=60, defaults=MANNERS, ahead=16, at_once=LIMIT)
        if leases:
            self.slots = leases[-1].host_slots
        self.leases += leases

    def end(self, count: int) -> None:
        ended, self.leases = self.leases[:count], self.leases[count:]
        self._ledger.settle([(lease, Failed("http_404", "gone")) for lease in ended])

    @property
    def running(self) -> int:
        return min(len(self.leases), self.slots)


def counted(ledger: Ledger) -> int:
    """Return what the ledger takes for running."""
    (facts,) = ledger.write(host_facts, ["h.example"]).values()
    return sum(use.in_flight for use in facts.uses)


def test_slots_that_were_given_back_do_not_come_back_by_older_leases(ledger: Ledger, clock: Clock) -> None:
    plan(ledger, 60)
    one, other = Worker(ledger, "one"), Worker(ledger, "other")
    one.claim(20)
    one.end(15)  # five leases with eight slots each are left
    clock.sleep(1)
    other.claim(20)
    clock.sleep(1)
    one.claim(20)
    clock.sleep(1)
    one.claim(20)
    assert (one.running, other.running) == (5, 3)
    assert counted(ledger) == LIMIT


def test_a_lower_limit_holds_from_the_next_claim_on(ledger: Ledger, clock: Clock) -> None:
    plan(ledger, 60)
    one = Worker(ledger, "one")
    one.claim(20)
    assert one.running == LIMIT
    ledger.write(set_host, "h.example", {"concurrency": 2})
    one.end(10)
    clock.sleep(1)
    one.claim(20)
    assert one.running == 2
    assert counted(ledger) == 2


@pytest.mark.parametrize("seed", range(4))
def test_no_order_of_claims_and_ends_exceeds_the_limit(ledger: Ledger, clock: Clock, seed: int) -> None:
    chance = random.Random(seed)
    plan(ledger, 400)
    workers = [Worker(ledger, name) for name in ("a", "b", "c", "d")]
    used = 0
    for _ in range(60):
        worker = chance.choice(workers)
        clock.sleep(0.01)
        if chance.random() < 0.5:
            worker.claim(chance.randint(1, 24))
        else:
            worker.end(chance.randint(1, 12))
        running = sum(one.running for one in workers)
        assert running <= LIMIT
        assert running <= counted(ledger) <= LIMIT
        used = max(used, running)
    assert used == LIMIT
