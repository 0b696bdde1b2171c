"""Clocks that jump, run apart, or are far in the future: at most wasted work, never a second result, never a frozen job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import longshore
from longshore.checker import check
from longshore.checker.check import LocalFiles
from longshore.domain.kinds import Status
from longshore.domain.model import SECOND
from tests.support.ledgers import build_template
from tests.support.origin import Origin, Thing, check_stamps, drip, stamped
from tests.support.postgres import Cluster
from tests.support.postgres import postgres_cluster as postgres_cluster  # noqa: PLC0414 - the fixture
from tests.support.program import execute
from tests.torture.soak import ROOT, SETTINGS

HOUR, YEAR = 3_600, 31_536_000
FILES = 12


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        yield server


def serve(origin: Origin) -> list[str]:
    things = [Thing(stamped(1, 4_000 + n)) for n in range(FILES)]
    return [origin.add(f"/{n}", drip(thing, 1_000, 0.03), thing) for n, thing in enumerate(things)]


def hand(depot: Path, **extra: str) -> subprocess.Popen[bytes]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("LONGSHORE_")}
    environment = {**plain, **SETTINGS, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **extra}
    command = [sys.executable, "-m", "tests.torture.hand", str(depot)]
    return subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE)


def settings(**extra: Any) -> dict[str, Any]:
    return {"network": {"allow": ["127.0.0.0/8"]}, "reconcile": {"stale_part_s": 0}, **extra}


def all_right(depot: Path, urls: list[str], ledger: str | None = None) -> None:
    with longshore.open(depot, ledger=ledger, **settings()) as held:
        got = held.get(urls)
        assert all(one.status is Status.COMPLETED and one.path for one in got)
        assert all(check_stamps(one.path.read_bytes()) == 1 for one in got if one.path)
        held.reconcile()
    assert check(ledger or str(depot / "ledger.db"), LocalFiles(depot / "store")).findings == []


def work(depot: Path, urls: list[str], clocks: list[dict[str, str]], ledger: str | None = None) -> None:
    with longshore.open(depot, ledger=ledger, **settings()) as planned:
        planned.add(urls)
    workers = [hand(depot, **clock) for clock in clocks]
    for worker in workers:
        _, err = worker.communicate(timeout=240)
        assert worker.returncode == 0, err.decode()


@pytest.mark.torture
@pytest.mark.parametrize("jump", [HOUR, -HOUR, YEAR, -50 * YEAR])
def test_one_of_two_clocks_jumps(tmp_path: Path, origin: Origin, jump: int) -> None:
    urls = serve(origin)
    work(tmp_path / "depot", urls, [{}, {"LONGSHORE_TEST_CLOCK": f"{jump}:30"}])
    all_right(tmp_path / "depot", urls)


@pytest.mark.torture
def test_two_workers_five_minutes_apart_either_way(tmp_path: Path, origin: Origin) -> None:
    urls = serve(origin)
    work(tmp_path / "depot", urls, [{"LONGSHORE_TEST_CLOCK": "300:0"}, {"LONGSHORE_TEST_CLOCK": "-300:0"}])
    all_right(tmp_path / "depot", urls)


@pytest.mark.torture
def test_a_worker_whose_clock_differs_from_the_servers(
    tmp_path: Path, origin: Origin, postgres_cluster: Cluster
) -> None:
    """On PostgreSQL only the server's clock is asked: an hour's difference changes nothing."""
    with postgres_cluster.database(postgres_cluster.template("clocks", build_template)) as ledger:
        urls = serve(origin)
        clocks = [{"LONGSHORE_LEDGER": ledger, "LONGSHORE_TEST_WALL": str(skew)} for skew in (HOUR, -HOUR)]
        work(tmp_path / "depot", urls, clocks, ledger)
        assert sum(origin.count(f"/{n}") for n in range(FILES)) == FILES, "nobody stole a live lease"
        all_right(tmp_path / "depot", urls, ledger)


@pytest.mark.parametrize("year", [2038, 2106, 2400])
def test_the_future_is_a_date_like_any_other(tmp_path: Path, origin: Origin, year: int) -> None:
    """Microseconds in 64 bits: no year of ours wraps around."""
    url = origin.add("/a", Thing(stamped(1, 3_000)))
    now = (year - 1970) * YEAR * SECOND
    ticks = iter(range(now, now + 10_000 * SECOND, 1_000))
    with longshore.open(tmp_path / "depot", **settings()) as depot:
        depot.ledger.backend._clock = lambda: next(ticks)  # type: ignore[attr-defined]
        (got,) = depot.get([url])
        assert got.ok
        assert depot.ledger.job(depot.scope, got.job_id).completed_at >= now  # type: ignore[operator]
        assert depot.reconcile().findings == []


@pytest.mark.torture
@pytest.mark.parametrize("zone", ["Pacific/Chatham", "America/Sao_Paulo", "UTC-14"])
def test_time_zones_and_languages_change_nothing(tmp_path: Path, origin: Origin, zone: str) -> None:
    url = origin.add("/a", Thing(stamped(1, 3_000)))
    env = {"TZ": zone, "LC_ALL": "C"}
    execute("get", url, "--depot", tmp_path / "depot", "--allow-net", "127.0.0.0/8", env=env).ok()
    (held,) = execute("get", url, "--depot", tmp_path / "depot", "--json", env={"TZ": "UTC"}).ok().of("held")
    assert held["ts"].endswith(("Z", "+00:00"))
