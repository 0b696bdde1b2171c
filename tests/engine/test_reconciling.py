"""What reconciling leaves alone."""

from __future__ import annotations

import os

from longshore.depot import Depot
from longshore.domain.requests import download_request


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
