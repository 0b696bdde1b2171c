"""A machine that stands still in the middle of a transaction: the server ends it, and the others go on."""

from __future__ import annotations

import threading
import time

from longshore.domain.model import Lease
from longshore.domain.settings import HostsSettings
from longshore.ledger import Ledger
from longshore.ledger.operations.leasing import claim
from longshore.ledger.transaction import Tx
from tests.ledger.acts import plan

HELD_UP_S = 6.0  # at most 5, and a second for a machine under load


def test_a_machine_that_stands_still_in_a_claim_holds_the_others_up_for_seconds(postgres_ledger: str) -> None:
    """A claim locks the rows of its hosts. The claim is run again when the machine goes on, and takes other jobs."""
    frozen, thaw = threading.Event(), threading.Event()
    theirs: list[Lease] = []

    def stuck(tx: Tx) -> list[Lease]:
        leases = claim(tx, "stuck", limit=2, ttl_s=60, defaults=HostsSettings(concurrency=4))
        if not frozen.is_set():
            frozen.set()
            thaw.wait(15)
        return leases

    with Ledger.open(postgres_ledger) as one, Ledger.open(postgres_ledger) as other:
        plan(one, 4)
        machine = threading.Thread(target=lambda: theirs.extend(one.write(stuck)))
        machine.start()
        assert frozen.wait(20)
        began = time.monotonic()
        ours = other.claim("well", limit=2, ttl_s=60, defaults=HostsSettings(concurrency=4))
        held_up_s = time.monotonic() - began
        thaw.set()
        machine.join(60)
    assert len(ours) == 2
    assert held_up_s <= HELD_UP_S
    assert len(theirs) == 2
    assert not {lease.job_id for lease in theirs} & {lease.job_id for lease in ours}
