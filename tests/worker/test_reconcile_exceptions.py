"""What reconciling leaves alone."""

from __future__ import annotations

import os

import pytest

from longshore.depot import Depot
from longshore.domain.identity.requests import download_request
from tests.support.origin import Origin, Thing, stamped


def test_parts_do_not_go_by_the_age_of_their_file(depot: Depot) -> None:
    """A job that waits needs its part, however old that is; one that was just canceled is young whatever its file says."""
    requests = [download_request(f"http://127.0.0.1:1/{name}") for name in ("waiting", "canceled")]
    jobs = [planned.job_id for planned in depot.ledger.plan(depot.scope, requests)]
    for job_id in jobs:
        part = depot.store.part(depot.scope, job_id, 1)
        part.begin(url="http://127.0.0.1:1/")
        part.write(b"half of it")
        part.checkpoint()
        os.utime(part.fd, (0, 0))
        part.close()
    depot.ledger.cancel(depot.scope, jobs[1:])
    depot.reconcile()
    assert sorted(facts.job_id for facts in depot.store.parts()) == sorted(jobs)


@pytest.mark.parametrize("verb", ["reconcile", "gc"])
def test_what_a_crash_left_in_quarantine_comes_back(depot: Depot, origin: Origin, verb: str) -> None:
    """Taken away as unreferenced while somebody published onto it, and killed before the ledger was read again."""
    (got,) = depot.get([origin.add("/a", Thing(stamped(1, 5_000)))])
    assert got.artifact is not None
    assert depot.store.quarantine(depot.scope, got.artifact.pointer, "no row names it") is not None
    if verb == "gc":
        depot.gc(grace_s=0.0)
    else:
        depot.reconcile()
    (held,) = depot.ledger.results(depot.scope, got.job_id)
    assert held.availability == "available"
    assert depot.store.check(depot.scope, held.pointer, held.sha256, held.size_bytes) is None
    assert list(depot.store.quarantined()) == []


def test_what_is_damaged_stays_in_quarantine(depot: Depot, origin: Origin) -> None:
    (got,) = depot.get([origin.add("/a", Thing(stamped(1, 5_000)))])
    assert got.artifact is not None
    depot.store.quarantine(depot.scope, got.artifact.pointer, "wrong_hash")
    depot.reconcile()
    (held,) = depot.ledger.results(depot.scope, got.job_id)
    assert held.availability == "missing"
    assert len(list(depot.store.quarantined())) == 1
