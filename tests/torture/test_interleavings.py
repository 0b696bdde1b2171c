"""Two workers, one job, every interleaving of their steps with a pause past the lease or a crash: the real ledger and store.

A worker's life is six steps. The first is stopped after each of them; its lease runs out; the second worker begins, and
after each of *its* steps the first wakes up and goes on (a zombie), or never does (a crash). The second may die as well.
After every step an outside witness looks; in the end an honest worker finishes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore import compat
from longshore.checker import check
from longshore.checker.check import LocalFiles
from longshore.domain.identity.keys import op_key
from longshore.domain.identity.requests import download_request
from longshore.domain.model import SECOND, Blob, Lease, NewArtifact, Scope, Status
from longshore.domain.outcomes import Completed
from longshore.errors import LongshoreError
from longshore.ledger import Ledger
from longshore.ledger.records import Intent, Settled
from longshore.store import Staged, Store, open_store

SCOPE = Scope()
TTL_S = 10.0
STEPS = ("claim", "stage", "intent", "link", "settle", "clean")


class Clock:
    """The ledger's clock: it only moves when a test moves it."""

    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now

    def pass_the_lease(self) -> None:
        self.now += int(2 * TTL_S) * SECOND


class Hand:
    """One worker, step by step. It believes in its lease until the ledger refuses a write."""

    def __init__(self, name: str, ledger: Ledger, store: Store, body: bytes) -> None:
        self.name, self._ledger, self._store, self._body = name, ledger, store, body
        self.accepted = 0

    def steps(self) -> Iterator[str]:
        """Work; each `yield` is a place to be stopped for ever or for a while."""
        leases = self._ledger.claim(self.name, limit=1, ttl_s=TTL_S)
        yield "claim"
        if not leases:
            return
        (lease,) = leases
        item = self._item(lease)
        assert self._store.stage([item]) == [None]
        yield "stage"
        key = op_key("FINALIZE", lease.job_id, sha256=item.sha256)
        (begun,) = self._ledger.begin([Intent(lease, "FINALIZE", key, "verifiable", item.sha256, {})])
        yield "intent"
        if isinstance(begun, LongshoreError):
            return
        (blob,) = self._store.link([item])
        assert isinstance(blob, Blob)
        yield "link"
        (settled,) = self._ledger.settle([(lease, Completed((NewArtifact(blob),)))])
        self.accepted += isinstance(settled, Settled)
        yield "settle"
        self._store.clean([item])
        yield "clean"

    def _item(self, lease: Lease) -> Staged:
        digest = hashlib.sha256(self._body).hexdigest()
        return Staged(lease.scope, lease.job_id, lease.epoch, digest, len(self._body), "text/plain", self._body)


class Quay:
    """A ledger, a store, a clock and one job."""

    def __init__(self, home: Path) -> None:
        self.home, self.clock = home, Clock()
        self.ledger = Ledger.open(home / "ledger.db", create=True, clock=self.clock)
        self.store = open_store(home / "store")
        (planned,) = self.ledger.plan(SCOPE, [download_request("https://example.org/a")])
        self.job_id = planned.job_id

    def hand(self, name: str, body: bytes = b"the bytes") -> Hand:
        return Hand(name, self.ledger, self.store, body)

    def look(self) -> None:
        """Whatever has happened so far, nothing is damaged, and completed means that the bytes are there."""
        report = check(str(self.home / "ledger.db"), LocalFiles(self.home / "store"))
        assert report.damage == []

    def finish(self) -> None:
        """Let an honest worker end it, and close the books."""
        self.clock.pass_the_lease()
        list(self.hand("honest").steps())
        assert self.ledger.job(SCOPE, self.job_id).status is Status.COMPLETED
        assert len(self.ledger.results(SCOPE, self.job_id)) == 1
        compat.cleanup_stale_ops(self.ledger)
        self.look()
        self.ledger.close()
        self.store.close()


def advance(steps: Iterator[str], until: int) -> int:
    """Take up to `until` steps; say how many there were."""
    taken = 0
    while taken < until and next(steps, None) is not None:
        taken += 1
    return taken


@pytest.mark.parametrize("second_stops", range(len(STEPS) + 1))
@pytest.mark.parametrize("first_stops", range(1, len(STEPS)))
def test_a_zombie_changes_nothing(tmp_path: Path, first_stops: int, second_stops: int) -> None:
    """The first sleeps past its lease, the second works for a while, the first wakes up and goes on to its end."""
    quay = Quay(tmp_path)
    first, second = quay.hand("first"), quay.hand("second")
    sleeping = first.steps()
    advance(sleeping, first_stops)
    quay.look()
    ended_before = first.accepted
    quay.clock.pass_the_lease()
    working = second.steps()
    advance(working, second_stops)
    quay.look()
    list(sleeping)
    quay.look()
    list(working)
    quay.look()
    assert first.accepted == ended_before, "a lease that ran out was believed"
    assert first.accepted + second.accepted <= 1
    quay.finish()


@pytest.mark.parametrize("second_dies", range(len(STEPS) + 1))
@pytest.mark.parametrize("first_dies", range(1, len(STEPS)))
def test_two_crashes_leave_one_result(tmp_path: Path, first_dies: int, second_dies: int) -> None:
    """The first dies after a step, the second dies during the recovery; the third ends it."""
    quay = Quay(tmp_path)
    advance(quay.hand("first").steps(), first_dies)
    quay.clock.pass_the_lease()
    advance(quay.hand("second").steps(), second_dies)
    quay.look()
    quay.finish()


@pytest.mark.parametrize("stops", range(1, len(STEPS)))
def test_the_object_changed_between_two_attempts(tmp_path: Path, stops: int) -> None:
    """The second attempt gets other bytes: one of the two versions is the result, never both, never a mix."""
    quay = Quay(tmp_path)
    sleeping = quay.hand("first", b"version one").steps()
    advance(sleeping, stops)
    quay.clock.pass_the_lease()
    list(quay.hand("second", b"version two").steps())
    list(sleeping)
    quay.look()
    compat.cleanup_stale_ops(quay.ledger)
    report = check(str(quay.home / "ledger.db"), LocalFiles(quay.home / "store"))
    assert {finding.kind for finding in report.findings} <= {"file_unregistered"}
    results = quay.ledger.results(SCOPE, quay.job_id)
    expected = b"version one" if stops == STEPS.index("settle") + 1 else b"version two"
    assert [artifact.sha256 for artifact in results] == [hashlib.sha256(expected).hexdigest()]
    quay.ledger.close()
    quay.store.close()


@pytest.mark.parametrize("asked_after", range(len(STEPS)))
def test_cancel_against_complete(tmp_path: Path, asked_after: int) -> None:
    """Canceled between any two steps: the job ends once, legally, and the files fit."""
    quay = Quay(tmp_path)
    steps = quay.hand("first").steps()
    advance(steps, asked_after)
    quay.ledger.cancel(SCOPE, [quay.job_id])
    quay.look()
    list(steps)
    status = quay.ledger.job(SCOPE, quay.job_id).status
    assert status in (Status.CANCELED, Status.COMPLETED)
    quay.look()
    quay.ledger.close()
    quay.store.close()
