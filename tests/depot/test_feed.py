"""The change feed: a consumer that applies and acknowledges equals the depot, whatever is killed."""

from __future__ import annotations

import asyncio
import io
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from longshore import Scope
from longshore.depot import Depot
from longshore.domain.kinds import Status
from longshore.domain.model import Artifact, Blob, JobRequest, NewArtifact
from longshore.domain.outcomes import Completed, Failed
from longshore.errors import BadInput
from longshore.ledger import Ledger
from longshore.ledger.operations.deleting import By, delete_artifacts
from longshore.ledger.operations.feed_consumers import feed_ack
from longshore.ledger.operations.purging import purge, purgeable
from longshore.ledger.queries.feed import feed_after, feed_consumers
from tests.support.origin import Origin, Thing
from tests.worker.conftest import MakeDepot, engine, make_depot, origin, postgres_cluster, where

__all__ = ["engine", "make_depot", "origin", "postgres_cluster", "where"]
ROOT = Path(__file__).resolve().parents[2]
CONSUMER = Path(__file__).with_name("feed_consumer.py")
HOME = Scope("default", "default")


@pytest.fixture
def depot(make_depot: MakeDepot, where: str) -> Depot:
    return make_depot(ledger=where)


def put(depot: Depot, body: bytes, **given: Any) -> str:
    artifact = depot.put(io.BytesIO(body), name="a.txt", **given).artifact
    assert artifact is not None
    return artifact.artifact_id


def told(depot: Depot, consumer: str = "c") -> list[tuple[str, str]]:
    return [(change.kind, change.artifact_id) for change in depot.feed(consumer)]


def test_new_changed_and_gone_until_acknowledged(depot: Depot, origin: Origin) -> None:
    url = origin.add("/a", Thing(b"first version", etag='"1"'))
    first = depot.get([url])[0].artifact
    upload = put(depot, b"words")
    assert first is not None
    feed = depot.feed("c")
    assert told(depot) == told(depot) == [("new", first.artifact_id), ("new", upload)], "not acknowledged: again"
    (one, two) = feed.read()
    assert (one.url, one.work_id, one.sha256) == (url, url, first.sha256)
    assert feed.ack(one) == one.cursor
    assert told(depot) == [("new", upload)]
    feed.ack(two)
    assert feed.ack(one.cursor) == two.cursor, "a late acknowledgement moves nothing back"
    origin.add("/a", Thing(b"second version", etag='"2"'))
    second = depot.get([url], refresh=True)[0].artifact
    assert second is not None
    depot.ledger.mark_missing(HOME, [upload])
    assert told(depot) == [("changed", second.artifact_id), ("changed", upload)]
    newer, lost = feed.read()
    assert newer.artifact is not None and newer.artifact.previous_id == first.artifact_id
    assert lost.artifact is not None and lost.artifact.availability == "missing"
    depot.delete([first.artifact_id, upload])
    feed.ack(lost)
    assert set(told(depot)) == {("gone", first.artifact_id), ("gone", upload)}
    assert {change.sha256 for change in feed.read()} == {first.sha256, lost.sha256}
    assert ("new", first.artifact_id) not in told(depot, "late"), "what is gone is not new to a late consumer"
    assert set(told(depot, "late")) == {
        ("changed", second.artifact_id),
        ("gone", first.artifact_id),
        ("gone", upload),
    }


def test_consumers_and_projects_do_not_touch_each_other(depot: Depot) -> None:
    mine = put(depot, b"mine")
    other = Scope("default", "other")
    depot.feed("a").ack(depot.feed("a").read()[0])
    assert told(depot, "a") == []
    assert told(depot, "b") == [("new", mine)]
    assert list(depot.feed("b", scope=other)) == []
    assert [(one.name, one.behind) for one in depot.ledger.read(feed_consumers, HOME)] == [("a", False)]
    assert depot.feed("a").forget()
    assert not depot.feed("a").forget()
    assert told(depot, "a") == [("new", mine)]


def test_a_cursor_from_nowhere_is_refused(depot: Depot) -> None:
    put(depot, b"x")
    for wrong in (1 << 61, -1, "7", None, True):
        with pytest.raises(BadInput):
            depot.feed("c").ack(wrong)  # type: ignore[arg-type]
    for name in ("", "a b", "../x", "x" * 101, 7):
        with pytest.raises(BadInput):
            depot.feed(name)  # type: ignore[arg-type]


def test_several_results_of_one_job_are_acknowledged_one_by_one(depot: Depot) -> None:
    scope = HOME
    depot.ledger.plan(scope, [JobRequest("own", "many")])
    (lease,) = depot.ledger.claim("w", limit=1, ttl_s=60)
    blobs = [Blob(f"{n:02x}" * 32, 1, f"p{n}", "local", "text/plain") for n in range(3)]
    depot.ledger.settle([(lease, Completed(tuple(NewArtifact(blob) for blob in blobs)))])
    feed = depot.feed("c")
    first, second, third = feed.read()
    feed.ack(first)
    feed.ack(second)
    assert third.artifact_id in [change.artifact_id for change in feed.read()], "the last one is not lost"
    feed.ack(third)
    assert feed.read() == []


def test_a_purge_takes_no_change_away_and_no_number_comes_twice(depot: Depot) -> None:
    gone, ledger = put(depot, b"gone"), depot.ledger
    feed = depot.feed("c")
    for change in feed:
        feed.ack(change)
    ledger.write(delete_artifacts, HOME, [gone], By("test"))
    ledger.plan(HOME, [JobRequest("own", "fails")])
    (lease,) = ledger.claim("w", limit=1, ttl_s=60)
    ledger.settle([(lease, Failed("http_404", "gone"))])
    late = ledger.read(feed_after, HOME, 0).cursor
    ledger.write(feed_ack, HOME, "late", late)
    for status in (Status.COMPLETED, Status.FAILED):
        chains, _ = ledger.read(purgeable, HOME, status, before=1 << 60)
        assert ledger.write(purge, HOME, [job for chain in chains for job in chain], before=1 << 60) == 1
    new = put(depot, b"new")
    assert told(depot, "late") == [("new", new)], "a number that a purged event had is not given again"
    assert told(depot) == [("gone", gone), ("new", new)]


def test_events_that_are_no_changes_are_not_read_again(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longshore.depot.change_feed.PAGE", 3)
    ledger = depot.ledger
    for number in range(10):
        ledger.plan(HOME, [JobRequest("own", f"fails{number}")])
    leases = ledger.claim("w", limit=10, ttl_s=60)
    ledger.settle([(lease, Failed("http_404", "gone")) for lease in leases])
    put(depot, b"x")
    assert len(depot.feed("c").read(limit=3)) == 1
    (stands,) = ledger.read(feed_consumers, HOME)
    assert stands.cursor > 0, "the position moved past events that are no changes"


def copy_of(path: Path) -> set[tuple[str, str, str]]:
    rows = sqlite3.connect(path).execute("SELECT artifact_id, sha256, availability FROM held").fetchall()
    return set(rows)


def held(depot: Depot) -> set[tuple[str, str, str]]:
    return {(one.artifact_id, one.sha256, one.availability) for one in depot.artifacts()}


def consume(depot: Depot, where: str, copy: Path, die_at: int) -> int:
    command = [sys.executable, str(CONSUMER), depot.settings.depot, where, str(copy), str(die_at)]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode


def test_a_consumer_that_is_killed_at_every_step_equals_the_depot(depot: Depot, where: str, tmp_path: Path) -> None:
    copy, names = tmp_path / "copy.db", [put(depot, b"%d" % number) for number in range(3)]
    for die_at in (1, 2, 3, 4, 5, 6, 7):
        names.append(put(depot, b"more %d" % die_at))
        if die_at % 2:
            depot.delete(names.pop(0))
        assert consume(depot, where, copy, die_at) == -signal.SIGKILL
    assert consume(depot, where, copy, 0) == 0
    assert copy_of(copy) == held(depot)
    assert len(held(depot)) == 6


PRODUCE = """
import io, random, sys
import longshore
with longshore.open(sys.argv[1], ledger=sys.argv[2], create=False) as depot:
    print("open", flush=True)
    draw = random.Random(int(sys.argv[3]))
    for number in range(10_000):
        depot.put(io.BytesIO(b"%d %s" % (number, sys.argv[3].encode())), name="a.txt")
        if draw.random() < 0.4:
            depot.delete(draw.choice(depot.artifacts()).artifact_id)
        print(number, flush=True)
"""


@pytest.mark.slow
def test_a_producer_that_is_killed_tells_everything_that_it_did(depot: Depot, where: str, tmp_path: Path) -> None:
    draw = random.Random(7)
    for run in range(5):
        command = [sys.executable, "-c", PRODUCE, depot.settings.depot, where, str(run)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}) as producer:
            assert producer.stdout is not None
            for _ in range(draw.randrange(2, 9)):
                assert producer.stdout.readline()
            consume(depot, where, tmp_path / "copy.db", draw.randrange(1, 9))
            producer.kill()
    assert consume(depot, where, tmp_path / "copy.db", 0) == 0
    assert copy_of(tmp_path / "copy.db") == held(depot) != set()


def test_two_writers_and_a_reader_that_never_misses(depot: Depot, where: str) -> None:
    """On PostgreSQL numbers are drawn before the commit: an event that commits late must not be skipped."""
    seen: list[str] = []

    async def follow(wanted: int) -> None:
        async for change in depot.aio.feed("c").follow(poll_s=0.001):
            seen.append(change.artifact_id)
            await depot.aio.feed("c").ack(change)
            if len(seen) == wanted:
                return

    async def write(other: Ledger, name: str) -> None:
        for number in range(20):
            await asyncio.to_thread(one_artifact, other, f"{name}{number}")

    async def both() -> None:
        with Ledger.open(where) as first, Ledger.open(where) as second:
            following = asyncio.create_task(follow(40))
            await asyncio.gather(write(first, "a"), write(second, "b"))
            await asyncio.wait_for(following, 60)

    asyncio.run(both())
    assert sorted(seen) == sorted(artifact.artifact_id for artifact in depot.artifacts())


def one_artifact(ledger: Ledger, name: str) -> Artifact | None:
    scope = Scope("default", "default")
    (planned,) = ledger.plan(scope, [JobRequest("own", name)])
    leases = ledger.claim("w", limit=1, ttl_s=60, job_ids=[planned.job_id], scope=scope)
    blob = Blob("ab" * 32, 1, "p", "local", "text/plain")
    ledger.settle([(lease, Completed((NewArtifact(blob),))) for lease in leases])
    return None
