"""kill -9 at every step of the flow: everything completes afterwards, nothing twice, nothing half."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import longshore
from longshore import failpoints
from longshore.domain.run_events import RunEvent
from tests.support.origin import Origin, Thing, check_stamps, cut, drip, stamped, status
from tests.worker import crashing

SMALL, LARGE = 5_000, 900_000
FILES = 6
# Every failpoint that a run with small, large, equal, flaky and cut bodies passes; `@2` where the first hit is too early.
REACHED = [
    "claim.before",
    "claim.after",
    "work.begin",
    "work.end",
    "flow.begin",
    "flow.received",
    "flow.published",
    "stream.received",
    "stream.judged",
    "stream.adopted",
    "publish.begin",
    "publish.staged",
    "publish.intents",
    "publish.linked",
    "publish.clean",
    "settle.before",
    "settle.after",
    "ledger.begin",
    "ledger.commit",
    "ledger.committed",
    "stage.write",
    "stage.barrier",
    "link.mkdir",
    "link.link",
    "link.dirsync",
    "clean.unlink",
    "part.create",
    "part.open",
    "part.write",
    "part.fsync",
    "part.facts",
    "part.rename",
    "part.dirsync",
    "part.adopt",
]


def _serve(origin: Origin) -> list[str]:
    large = Thing(stamped(3, LARGE))
    return [
        *(origin.add(f"/small{i}", Thing(stamped(1, SMALL + i))) for i in range(FILES)),
        origin.add("/same", Thing(stamped(1, SMALL))),
        origin.add("/flaky", status(503), Thing(stamped(2, SMALL + 77))),
        origin.add("/large", large),
        origin.add("/cut", cut(large, LARGE // 2), large),
    ]


SETTINGS: dict[str, Any] = {
    "network": {"allow": ["127.0.0.0/8"]},
    "retry": {"base_s": 0.01, "cap_s": 0.05},
    "reconcile": {"stale_part_s": 0},
}


def _recover(depot: Path, urls: list[str]) -> None:
    """Run again: everything is there, once, right; what a crash left behind, reconcile takes away."""
    with longshore.open(depot, **SETTINGS) as again:
        again.add(urls)
        result = again.run()
        assert (result.failed, result.left) == (0, False)
    assert crashing.findings(depot, healed=False) == []
    with longshore.open(depot, offline=True, **SETTINGS) as held:
        got = held.get(urls)
        assert [one.status.value for one in got] == ["completed"] * len(urls)
        assert all(one.path and check_stamps(one.path.read_bytes()) for one in got)
        held.reconcile()
        assert held.reconcile(dry_run=True).findings == []
    assert crashing.findings(depot, healed=True) == []


def _kill_at(depot: Path, urls: list[str], name: str, hit: int) -> None:
    code, _, err = crashing.run(depot, urls, LONGSHORE_FAILPOINTS=f"{name}=kill@{hit}")
    assert code in (-signal.SIGKILL, 0), err
    _recover(depot, urls)


@pytest.mark.parametrize("name", REACHED)
def test_a_kill_at_any_step_costs_nothing_but_time(tmp_path: Path, origin: Origin, name: str) -> None:
    _kill_at(tmp_path / "depot", _serve(origin), name, 1)


@pytest.mark.torture
@pytest.mark.parametrize("name", REACHED)
@pytest.mark.parametrize("hit", [2, 3, 5])
def test_a_later_kill_costs_nothing_either(tmp_path: Path, origin: Origin, name: str, hit: int) -> None:
    _kill_at(tmp_path / "depot", _serve(origin), name, hit)


@pytest.mark.torture
@pytest.mark.parametrize("name", REACHED)
def test_a_kill_during_recovery_costs_nothing_either(tmp_path: Path, origin: Origin, name: str) -> None:
    urls = _serve(origin)
    crashing.run(tmp_path / "depot", urls, LONGSHORE_FAILPOINTS="publish.linked=kill")
    _kill_at(tmp_path / "depot", urls, name, 1)


def test_every_failpoint_of_the_engine_is_reached_by_the_list_above(tmp_path: Path, origin: Origin) -> None:
    log = tmp_path / "hits"
    code, _, err = crashing.run(tmp_path / "depot", _serve(origin), LONGSHORE_FAILPOINTS_LOG=str(log))
    assert code == 0, err
    hit = set(log.read_text().split())
    assert set(REACHED) <= hit
    mine = {
        name
        for name in failpoints.KNOWN
        if name.partition(".")[0] in {"claim", "work", "flow", "stream", "publish", "settle"}
    }
    assert mine <= hit


def test_a_kill_in_mid_stream_goes_on_from_the_last_durable_byte(tmp_path: Path, origin: Origin) -> None:
    thing = Thing(stamped(1, 40_000_000))
    url = origin.add("/large", drip(thing, 100_000, 0.05), thing)
    depot = tmp_path / "depot"
    with crashing.start(depot, [url]) as worker:
        end = time.monotonic() + 60
        while not any(_durable(facts) for facts in depot.glob("store/.staging/parts/*/*/*/*/facts.json")):
            assert time.monotonic() < end
            assert worker.poll() is None
            time.sleep(0.01)
        worker.kill()
        worker.communicate(timeout=60)
    notes: list[RunEvent] = []
    with longshore.open(depot, **SETTINGS) as again:
        got = again.get([url], on_note=notes.append)[0]
        assert got.path is not None
        assert got.path.read_bytes() == thing.body
    assert next(note.facts for note in notes if note.kind == "completed")["resumed_from_bytes"] > 0
    assert origin.seen("/large")[1].headers["range"].startswith("bytes=")
    assert crashing.findings(depot, healed=True) == []


def _durable(facts: Path) -> int:
    try:
        return int(json.loads(facts.read_text())["durable_bytes"])
    except (OSError, ValueError):
        return 0
