"""What moves, how fast, and when it will be done: from the ledger, so that other processes' transfers count too."""

from __future__ import annotations

import re

from longshore.domain.kinds import Status
from longshore.domain.model import SECOND, Lease, NewArtifact, Scope
from longshore.domain.outcomes import Completed
from longshore.ledger import Ledger, Move
from longshore.ledger.operations import stages
from longshore.ledger.queries.throughput import long_arrivals, transfers
from longshore.web.dashboard.rates import Rates
from longshore.web.dashboard.throughput import WINDOWS, Slot, Span, spread
from tests.ledger.acts import HOME, blob, downloads, settle
from tests.support.ledgers import Clock
from tests.support.site import Site

MIB = 1 << 20


def streaming(ledger: Ledger, many: int, *, resumed: int = 0, host: str = "large.example") -> list[Lease]:
    """Plan and claim downloads whose bodies have begun to arrive."""
    ledger.plan(HOME, downloads(many, host=host))
    leases = ledger.claim("elsewhere", limit=many, ttl_s=3600, scope=HOME)
    ledger.advance(
        [Move(one, "STREAMING", {"bytes_total": 100 * MIB, "resumed_from_bytes": resumed}) for one in leases]
    )
    return leases


def test_only_jobs_that_receive_a_body_are_transfers(ledger: Ledger, clock: Clock) -> None:
    first, second = streaming(ledger, 2, resumed=10 * MIB)
    ledger.plan(HOME, downloads(5, host="idle.example"))
    assert len(ledger.claim("elsewhere", limit=5, ttl_s=3600, scope=HOME)) == 5
    clock.sleep(20)
    ledger.write(stages.report, [(first, 50 * MIB, 100 * MIB), (second, 12 * MIB, None)])
    found = ledger.read(transfers, HOME)
    assert [one.job.job_id for one in found] == [first.job_id, second.job_id]
    assert [(one.job.bytes_done, one.resumed_from, clock.now - one.begun_at) for one in found] == [
        (50 * MIB, 10 * MIB, 20 * SECOND),
        (12 * MIB, 10 * MIB, 20 * SECOND),
    ]
    rates = Rates()
    seen = rates.measured(found[0], 50 * MIB, 100 * MIB, clock.now)
    assert (seen.rate_bytes_s, seen.eta_s) == (
        2 * MIB,
        25,
    )  # the mean of this attempt: what was there before is not counted
    clock.sleep(5)
    seen = rates.measured(found[0], 55 * MIB, 100 * MIB, clock.now)
    assert (seen.rate_bytes_s, seen.eta_s) == (MIB, 45)  # from then on what it did lately
    clock.sleep(3600)
    assert ledger.read(transfers, HOME) == []  # the worker is gone


def test_bytes_are_in_the_slots_in_which_they_arrived() -> None:
    window, now = WINDOWS["5m"], 1_800_000_000 * SECOND + 2 * SECOND
    rows = {at: size for at, _, size in spread(window, now, [Span(now - 12 * SECOND, now, 1200)])}
    assert rows == {now - 12 * SECOND: 500, now - 7 * SECOND: 500, now - 2 * SECOND: 200}
    assert Slot(now - 2 * SECOND, 0, 200).lasted_s(window, now) == 5  # under five seconds a rate is noise
    assert Slot(now - 20 * SECOND, 0, 200).lasted_s(WINDOWS["1h"], now) == 20


def test_a_long_arrival_has_a_beginning(ledger: Ledger, clock: Clock) -> None:
    [lease] = streaming(ledger, 1, resumed=MIB)
    begun = clock.now
    clock.sleep(600)
    settle(ledger, lease, Completed((NewArtifact(blob(1, 100 * MIB)),)))
    [one] = ledger.read(long_arrivals, HOME, begun)
    assert (one.begun_at, one.ended_at, one.size_bytes, one.resumed_from) == (begun, clock.now, 100 * MIB, MIB)


def test_the_overview_shows_what_moves_and_not_what_is_only_claimed(site: Site) -> None:
    scope = Scope("busy", "default")
    slow = site.plan(*(f"https://slow-{n % 2}.example/{n}" for n in range(14)), scope=scope)
    leases = site.lease(slow, scope)
    idle = site.plan(*(f"https://idle-{n % 2}.example/{n}" for n in range(12)), scope=scope)
    assert len(site.ledger.claim("tester", limit=12, ttl_s=3600, scope=scope, job_ids=idle)) == 12
    site.ledger.write(stages.report, [(lease, 3 * MIB, 12 * MIB) for lease in leases])
    client = site.client("read", tenant="busy")
    view = client.get("/overview.json").json()
    assert {one["job_id"] for one in view["active"]} == set(slow)
    assert (view["moving"]["receiving"], view["moving"]["claimed"]) == (14, 12)
    assert view["jobs"][Status.PROCESSING] == 26
    assert sum(slot["bytes_per_s"] for slot in view["throughput"]["buckets"]) > 0  # nothing is registered yet
    assert view["moving"]["rate_bytes_s"] > 0
    page = words(client.get("/").text)
    assert "14 receiving" in page
    assert "12 claimed" in page
    assert "3.0 MiB of 12.0 MiB" in page


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))
