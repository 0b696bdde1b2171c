"""Reconcile, whole: rows and files both ways, intents, leases, lost bytes fetched again, one leader, dry runs that change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from longshore import failpoints
from longshore.config import load_settings
from longshore.depot import Depot, Finding
from longshore.depot.maintenance import hash_slices
from longshore.depot.maintenance import reconcile as module
from longshore.depot.maintenance.reconcile import Reconciler
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from longshore.domain.model import Scope
from longshore.domain.settings import ReconcileSettings
from longshore.errors import Locked, NoStore
from tests.support.origin import Origin, Thing, stamped, status
from tests.worker.conftest import MakeDepot


@pytest.fixture
def runtime(where: str, tmp_path: Path) -> Iterator[Depot]:
    """A depot on either engine."""
    given: dict[str, Any] = {"network": {"allow": ["127.0.0.0/8"]}, "retry": {"base_s": 0.01, "cap_s": 0.05}}
    settings = load_settings(tmp_path / "depot", environ={}, ledger=where, reconcile={"stale_part_s": 0}, **given)
    with Depot(settings=settings) as depot:
        yield depot


def kinds(findings: list[Finding]) -> list[tuple[str, bool]]:
    return [(one.kind, one.healed) for one in findings]


def lose(depot: Depot, job_id: str) -> Path:
    """Delete the bytes of a job's result."""
    (artifact,) = depot.ledger.results(depot.scope, job_id)
    path = depot.store.path(depot.scope, artifact.pointer)
    assert path is not None
    path.unlink()
    return path


def test_lost_bytes_are_said_aloud_every_time_and_fetched_again_by_a_linked_job(runtime: Depot, origin: Origin) -> None:
    url = origin.add("/a", Thing(stamped(1, 5_000)))
    (got,) = runtime.get([url])
    path = lose(runtime, got.job_id)
    (dry,) = runtime.reconcile(dry_run=True).findings
    assert "can be fetched again" in dry.message
    assert runtime.ledger.counts(runtime.scope)[Status.PENDING] == 0
    assert runtime.ledger.results(runtime.scope, got.job_id)[0].availability == "available"
    for _ in range(2):  # the second time it was marked before, and is still said
        (finding,) = runtime.reconcile().findings
        assert (finding.kind, finding.healed) == ("missing_blob", False)
        assert "fetches them again" in finding.message
    assert runtime.ledger.results(runtime.scope, got.job_id)[0].availability == "missing"
    assert runtime.ledger.counts(runtime.scope)[Status.PENDING] == 1
    assert runtime.run().completed == 1
    (again,) = runtime.get([url])
    assert runtime.ledger.job(runtime.scope, again.job_id).retry_of == got.job_id
    assert path.exists()
    assert kinds(runtime.reconcile().findings) == [("returned_blob", True)]
    assert runtime.ledger.results(runtime.scope, got.job_id)[0].availability == "available"
    assert runtime.reconcile().findings == []


def test_a_source_that_is_gone_too_is_not_asked_for_ever(runtime: Depot, origin: Origin) -> None:
    (got,) = runtime.get([origin.add("/a", Thing(stamped(1, 5_000)), status(404))])
    lose(runtime, got.job_id)
    runtime.reconcile()
    assert runtime.run().failed == 1
    for _ in range(2):
        (finding,) = runtime.reconcile().findings
        assert "failed" in finding.message
    assert runtime.ledger.counts(runtime.scope)[Status.PENDING] == 0


def test_a_source_that_gives_something_else_by_now_is_not_asked_again(runtime: Depot, origin: Origin) -> None:
    (got,) = runtime.get([origin.add("/a", Thing(stamped(1, 5_000)), Thing(stamped(2, 6_000), etag='"v2"'))])
    lose(runtime, got.job_id)
    runtime.reconcile()
    assert runtime.run().completed == 1
    (finding,) = runtime.reconcile().findings
    assert "what the source gives today" in finding.message
    assert runtime.ledger.counts(runtime.scope)[Status.PENDING] == 0


def test_lost_bytes_without_a_source_are_named(runtime: Depot, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_bytes(b"nobody else has this")
    put = runtime.put(tmp_path / "mine.txt")
    lose(runtime, put.job_id)
    (finding,) = runtime.reconcile().findings
    assert "only a backup has them" in finding.message


def test_wrong_bytes_in_the_place_of_lost_ones_are_not_believed(runtime: Depot, origin: Origin) -> None:
    (got,) = runtime.get([origin.add("/a", Thing(stamped(1, 5_000)), status(404))])
    path = lose(runtime, got.job_id)
    runtime.reconcile()
    path.write_bytes(b"x" * 5_000)
    runtime.reconcile()
    assert runtime.ledger.results(runtime.scope, got.job_id)[0].availability == "missing"


def test_a_blob_without_a_row_is_quarantined_and_one_that_is_meant_is_left(runtime: Depot, origin: Origin) -> None:
    keep = origin.add("/keep", Thing(stamped(1, 5_000)))
    runtime.get([keep])
    orphan = _orphan(runtime)
    # the open intent still names the bytes: a dry run closes nothing
    assert kinds(runtime.reconcile(dry_run=True).findings) == [("stale_part", False), ("stale_effects", False)]
    assert orphan.exists()
    healed = [("stale_part", True), ("stale_effects", True), ("unreferenced_blob", True)]
    assert kinds(runtime.reconcile().findings) == healed
    assert not orphan.exists()
    assert [held.sha256 for held in runtime.store.quarantined()] == [orphan.name[:64]]
    assert runtime.get([keep])[0].held_before


def _orphan(depot: Depot) -> Path:
    """Publish a blob that no row ever heard of, as a crash between link and register leaves it after its job was purged."""
    from tests.torture.test_interleavings import Hand  # the six steps of a worker

    depot.ledger.plan(depot.scope, [download_request("https://example.org/orphan")])
    steps = Hand("dead", depot.ledger, depot.store, b"orphaned bytes").steps()
    while next(steps) != "link":
        pass
    (job,) = [job for job in depot.jobs() if job.request.url == "https://example.org/orphan"]
    depot.ledger.cancel(depot.scope, [job.job_id])
    depot.ledger.release_dead(["dead"])
    (held,) = [held for held in depot.store.walk() if depot.ledger.held(depot.scope, held.sha256) is None]
    path = depot.store.path(depot.scope, held.pointer)
    assert path is not None
    return path


def test_leases_and_intents_that_nobody_holds_are_closed_and_told(runtime: Depot) -> None:
    (planned,) = runtime.ledger.plan(runtime.scope, [download_request("https://example.org/a")])
    runtime.ledger.claim("gone", limit=1, ttl_s=1e-6)
    assert kinds(runtime.reconcile(dry_run=True).findings) == [("expired_leases", False)]
    assert runtime.ledger.job(runtime.scope, planned.job_id).lease_owner == "gone"
    assert kinds(runtime.reconcile().findings) == [("expired_leases", True)]
    assert runtime.ledger.job(runtime.scope, planned.job_id).lease_owner is None
    assert runtime.reconcile().findings == []


def test_one_leader(runtime: Depot, tmp_path: Path) -> None:
    """On one machine by a lock of the system's; on a shared ledger by the server's."""
    other = Reconciler(runtime.ledger, runtime.store, runtime.settings.reconcile, Path(runtime.settings.depot))
    with other._alone_here(), pytest.raises(Locked, match="another process"):
        runtime.reconcile()
    if runtime.ledger.dialect == "postgres":
        (tmp_path / "elsewhere").mkdir()
        far = Reconciler(runtime.ledger, runtime.store, runtime.settings.reconcile, tmp_path / "elsewhere")
        with far._alone_everywhere(), pytest.raises(Locked, match="another machine"):
            runtime.reconcile()
    assert runtime.reconcile().findings == []


def test_a_store_that_is_not_mounted_loses_nothing(
    make_depot: MakeDepot, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EMPTY_FROM", 3)
    depot = make_depot()
    urls = [origin.add(f"/{n}", Thing(stamped(1, 500 + n))) for n in range(4)]
    depot.get(urls)
    away = [(path, path.rename(path.with_name("." + path.name))) for path in _blobs(depot)]
    assert kinds(depot.reconcile().findings) == [("store_empty", False)]
    assert depot.ledger.counts(depot.scope)[Status.PENDING] == 0
    for there, hidden in away:
        hidden.rename(there)
    assert depot.reconcile().findings == []


def test_a_store_without_a_trace_loses_nothing_however_few_it_should_hold(
    runtime: Depot, origin: Origin, tmp_path: Path
) -> None:
    """One blob is enough; whoever says that the store is lost gets everything planned again, once."""
    (got,) = runtime.get([origin.add("/a", Thing(stamped(1, 500)))])
    store = tmp_path / "depot" / "store"
    store.rename(tmp_path / "whole")
    with pytest.raises(NoStore, match="nothing is there"):
        Depot(settings=runtime.settings)
    assert not store.exists()
    (tmp_path / "whole").rename(store)
    (store / "default").rename(tmp_path / "away")
    for look in (runtime.verify, runtime.reconcile, runtime.reconcile):
        assert kinds(look().findings) == [("store_empty", False)]
    assert runtime.ledger.results(runtime.scope, got.job_id)[0].availability == "available"
    assert kinds(runtime.reconcile(store_lost=True).findings) == [("missing_blob", False)]
    assert kinds(runtime.reconcile().findings) == [("missing_blob", False)], "what was marked is said as before"
    assert runtime.run().completed == 1
    runtime.reconcile()
    assert runtime.reconcile().findings == []


def _blobs(depot: Depot) -> list[Path]:
    paths = [depot.store.path(held.scope, held.pointer) for held in list(depot.store.walk())]
    return [path for path in paths if path is not None]


def test_slices_cover_every_hash_once() -> None:
    for of in (1, 2, 3, 7, 256, 1_000):
        cuts = [hash_slices.cut(number, of) for number in range(of)]
        assert (cuts[0].low, cuts[-1].high) == ("", "g")
        assert all(one.high == two.low for one, two in pairwise(cuts))
    assert sum("f" * 64 in hash_slices.cut(number, 9) for number in range(9)) == 1


def test_beside_its_work_a_worker_looks_at_the_next_slice_each_time(
    make_depot: MakeDepot, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hash_slices, "AT_ONCE", 5)
    depot = make_depot()
    depot.get([origin.add(f"/{n}", Thing(stamped(1, 500 + n))) for n in range(20)])
    house = Reconciler(depot.ledger, depot.store, depot.settings.reconcile, Path(depot.settings.depot))
    looked = [house.keep_house(full=True).checked for _ in range(4)]
    assert sum(looked) == 20
    assert max(looked) < 20
    assert house.keep_house(full=True).checked == looked[0]


@pytest.mark.parametrize("name", ["reconcile.marked", "reconcile.quarantined"])
def test_a_crash_between_looking_and_healing_is_made_good_by_the_next(
    make_depot: MakeDepot, origin: Origin, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    depot = make_depot()
    (got,) = depot.get([origin.add("/a", Thing(stamped(1, 5_000)))])
    lose(depot, got.job_id)
    _orphan(depot)

    def hit(here: str) -> None:
        if here == name:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "hit", hit)
        with pytest.raises(KeyboardInterrupt):
            depot.reconcile()
    depot.reconcile()
    assert depot.run().completed == 1
    depot.reconcile()
    assert depot.reconcile().findings == []


def test_tenants_are_told_apart(runtime: Depot, origin: Origin) -> None:
    other = Scope("other", "place")
    url = origin.add("/a", Thing(stamped(1, 5_000)))
    runtime.get([url])
    (got,) = runtime.get([url], scope=other)
    (artifact,) = runtime.ledger.results(other, got.job_id)
    path = runtime.store.path(other, artifact.pointer)
    assert path is not None
    path.unlink()
    (finding,) = runtime.reconcile().findings
    assert finding.scope == other
    assert runtime.ledger.counts(other)[Status.PENDING] == 1
    assert runtime.ledger.counts(runtime.scope)[Status.PENDING] == 0


def test_a_blob_in_the_wrong_shard_is_moved_to_its_own(runtime: Depot) -> None:
    got = runtime.put(b"stray")
    assert got.path is not None
    assert got.artifact is not None
    wrong = got.path.parent.with_name("zz" if got.path.parent.name != "zz" else "yy")
    wrong.mkdir()
    got.path.rename(wrong / got.path.name)
    seen = runtime.reconcile(dry_run=True)
    assert ("wrong_shard", False) in kinds(seen.findings)
    assert (wrong / got.path.name).exists()
    healed = runtime.reconcile()
    assert kinds(healed.findings) == [("wrong_shard", True)]
    assert got.path.read_bytes() == b"stray"
    assert not (wrong / got.path.name).exists()
    assert runtime.verify().findings == []
    assert runtime.ledger.artifact(runtime.scope, got.artifact.artifact_id).availability == "available"


@pytest.mark.parametrize("body", [b"stray", b"wrong"])
def test_a_second_or_damaged_file_in_a_wrong_shard_is_quarantined(runtime: Depot, body: bytes) -> None:
    got = runtime.put(b"stray")
    assert got.path is not None
    wrong = got.path.parent.with_name("zz" if got.path.parent.name != "zz" else "yy")
    wrong.mkdir()
    (wrong / got.path.name).write_bytes(body)
    assert kinds(runtime.reconcile().findings) == [("wrong_shard", True)]
    assert got.path.read_bytes() == b"stray"
    assert list(wrong.iterdir()) == []
    assert len(list(runtime.store.quarantined())) == 1


def test_a_worker_notices_lost_bytes_when_it_starts(runtime: Depot, origin: Origin) -> None:
    url = origin.add("/a", Thing(b"lost"))
    (got,) = runtime.get([url])
    lose(runtime, got.job_id)
    runtime.aio.runtime.reconcile(False)
    assert got.artifact is not None
    assert runtime.ledger.artifact(runtime.scope, got.artifact.artifact_id).availability == "missing"


def test_a_look_at_the_start_has_a_budget_and_goes_on_next_time(
    runtime: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start looks at one page here; after as many starts as there are pages, everything was looked at."""
    monkeypatch.setattr(module, "PAGE", 2)
    settings = ReconcileSettings(start_s=1e-9)
    reconciler = Reconciler(runtime.ledger, runtime.store, settings, Path(runtime.settings.depot))
    for number in range(6):
        lose(runtime, runtime.put(b"body %d" % number).job_id)
    lost = []
    for _ in range(3):
        reconciler.keep_house(full=False)
        lost.append(sum(one.availability == "missing" for one in runtime.artifacts()))
    assert lost == [2, 4, 6]
