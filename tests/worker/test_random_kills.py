"""kill -9 at random moments while many files with duplicates and flaky paths come in: all complete, nothing twice."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

import longshore
from tests.support.origin import Origin, Thing, cut, stamped, status
from tests.worker import crashing

SETTINGS: dict[str, Any] = {
    "network": {"allow": ["127.0.0.0/8"]},
    "retry": {"base_s": 0.01, "cap_s": 0.05},
    "reconcile": {"stale_part_s": 0},
}


def _serve(origin: Origin, count: int, draw: random.Random) -> list[str]:
    urls = []
    for n in range(count):
        size = 500 + (n % (count * 9 // 10)) * 3  # one in ten has another one's bytes
        thing = Thing(stamped(1, size if n % 50 else 600_000 + size))
        flaky = draw.choice([[], [], [], [status(503)], [cut(thing, size // 2)]])
        urls.append(origin.add(f"/{n}", *flaky, thing))
    return urls


def _storm(depot: Path, origin: Origin, files: int, kills: int) -> None:
    draw = random.Random(kills)
    urls = _serve(origin, files, draw)
    with longshore.open(depot, **SETTINGS) as planned:
        assert planned.add(urls).new == files
    for _ in range(kills):
        with crashing.start(depot, []) as worker:
            seen = len(origin.requests)
            wanted = seen + draw.randrange(1, max(2, files // (kills + 1)))
            while worker.poll() is None and len(origin.requests) < wanted:
                time.sleep(0.002)
            time.sleep(draw.random() * 0.05)
            worker.kill()
            worker.communicate(timeout=60)
    with longshore.open(depot, **SETTINGS) as last:
        result = last.run()
        assert (result.failed, result.left) == (0, False)
        counts = {status.value: count for status, count in last.ledger.counts(last.scope).items() if count}
        assert counts == {"completed": files}
        assert crashing.findings(depot, healed=False) == []
        last.reconcile()
        assert last.reconcile(dry_run=True).findings == []
        assert last.verify().findings == []
    assert crashing.findings(depot, healed=True) == []


def test_a_few_kills(tmp_path: Path, origin: Origin) -> None:
    _storm(tmp_path / "depot", origin, files=200, kills=8)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_fifty_kills(tmp_path: Path, origin: Origin) -> None:
    _storm(tmp_path / "depot", origin, files=2_000, kills=50)
