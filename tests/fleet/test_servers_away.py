"""The two servers that a fleet shares go away and come back: everything completes once."""

from __future__ import annotations

import time

import pytest

from tests.fleet.conftest import MakeFleet
from tests.fleet.fleet import Fleet
from tests.fleet.test_cut_off import body, plan
from tests.support.origin import Origin, Thing, drip
from tests.support.postgres import Cluster
from tests.support.program import eventually
from tests.support.weed import Weed

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1200)]
FILES = 300


def served(origin: Origin) -> dict[str, bytes]:
    """Files that take a moment each, so that many are on their way whenever something happens."""
    bodies = {}
    for number in range(FILES):
        thing = Thing(body(number))
        bodies[origin.add(f"/{number}", drip(thing, 400, 0.02))] = thing.body
    return bodies


def some_done(fleet: Fleet, share: float) -> None:
    eventually(lambda: fleet.counts().get("completed", 0) >= FILES * share, f"{share:.0%} are done", 300)


def finish(fleet: Fleet, bodies: dict[str, bytes]) -> None:
    fleet.all_done(FILES, 240)
    for host in fleet.hosts:
        assert host.process is not None
        assert host.process.poll() is None, host.words()
        host.stop()
        host.heal()
    fleet.everything_once(bodies)


@pytest.mark.parametrize("immediate", [False, True], ids=["restarted", "crashed"])
def test_postgres_goes_away_and_comes_back(
    make_fleet: MakeFleet, own_postgres_cluster: Cluster, origin: Origin, immediate: bool
) -> None:
    fleet = make_fleet(own_postgres_cluster)
    bodies = served(origin)
    plan(fleet, list(bodies))
    for _ in range(3):
        fleet.host().start()
    for share in (0.2, 0.5):
        some_done(fleet, share)
        own_postgres_cluster.stop(immediate=immediate)
        time.sleep(5)  # longer than the leases
        own_postgres_cluster.start()
    finish(fleet, bodies)


def test_the_object_store_is_down_for_a_minute(make_fleet: MakeFleet, own_weed: Weed, origin: Origin) -> None:
    fleet = make_fleet(store=own_weed)
    bodies = served(origin)
    plan(fleet, list(bodies))
    for _ in range(3):
        fleet.host().start()
    some_done(fleet, 0.2)
    own_weed.kill()
    time.sleep(60)
    own_weed.restart()
    finish(fleet, bodies)


def test_hosts_die_one_after_the_other(make_fleet: MakeFleet, origin: Origin) -> None:
    fleet = make_fleet()
    bodies = served(origin)
    plan(fleet, list(bodies))
    for number in range(4):
        fleet.host().start()
        some_done(fleet, 0.2 * (number + 1))
        if number < 3:
            fleet.hosts[-1].kill()
    fleet.all_done(FILES, 240)
    for host in fleet.hosts:
        host.kill()
        host.heal()
    fleet.everything_once(bodies)
