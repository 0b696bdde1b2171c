"""A host that loses the network for longer than its lease: others do its work, it comes back, everything is there once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from longshore.domain.identity.requests import download_request
from longshore.domain.model import Scope
from longshore.ledger import Ledger
from tests.fleet.conftest import MakeFleet
from tests.fleet.fleet import Fleet
from tests.support.lan import Lan, possible
from tests.support.origin import Gate, Origin, Thing
from tests.support.program import eventually

SCOPE = Scope("default", "default")
HELD = 8


@pytest.fixture
def lan() -> Iterator[Lan]:
    if not possible():
        pytest.skip("this machine makes no network namespaces; the test with cables stands for it")
    with Lan() as made:
        yield made


def plan(fleet: Fleet, urls: list[str], scope: Scope = SCOPE) -> None:
    with Ledger.open(fleet.dsn) as ledger:
        ledger.plan(scope, [download_request(url) for url in urls])


def body(number: int) -> bytes:
    return b"body %d " % number * (200 + number)


def cut_off_and_back(fleet: Fleet, origin: Origin) -> None:
    gates = [Gate(Thing(body(n)), after=100) for n in range(HELD)]
    bodies = {origin.add(f"/held/{n}", gate): gate.thing.body for n, gate in enumerate(gates)}
    lost, other = fleet.host().start(), fleet.host()
    plan(fleet, list(bodies))
    for gate in gates:
        assert gate.reached.wait(120), lost.words()

    lost.pull()
    other.start()
    expired = "SELECT count(*) FROM job_claims WHERE outcome = 'expired'"
    eventually(lambda: fleet.sql(expired) == [(HELD,)], "the leases of the host that is cut off run out")
    for gate in gates:
        gate.open()
    fleet.all_done(HELD)

    lost.plug()
    more = {origin.add(f"/more/{n}", Thing(body(100 + n))): body(100 + n) for n in range(HELD)}
    plan(fleet, list(more))
    fleet.all_done(2 * HELD)
    assert lost.process is not None
    assert lost.process.poll() is None, lost.words()
    for host in fleet.hosts:
        host.stop()
        host.heal()
    fleet.everything_once(bodies | more)


def test_a_host_cut_off_for_longer_than_its_lease(make_fleet: MakeFleet, origin: Origin) -> None:
    cut_off_and_back(make_fleet(), origin)


@pytest.mark.torture
def test_a_host_in_a_namespace_whose_link_goes_down(make_fleet: MakeFleet, lan: Lan) -> None:
    with Origin(lan.address) as origin:
        cut_off_and_back(make_fleet(lan=lan), origin)
