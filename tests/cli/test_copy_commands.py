"""A depot moves: its bytes from store to store, its ledger from SQLite to PostgreSQL; killed on the way, nothing is lost."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from longshore.domain.model import Scope
from longshore.ledger import Ledger
from tests.cli.conftest import LOOPBACK, Box
from tests.support.origin import Origin, Thing
from tests.support.postgres import Cluster, postgres_cluster
from tests.support.program import execute
from tests.support.weed import Weed, weed

__all__ = ["postgres_cluster", "weed"]
FILES = 9
HOME = Scope("default", "default")


@pytest.fixture
def filled(tmp_path: Path, origin: Origin) -> Box:
    """A laptop's depot: things held, things failed, things still to do."""
    box = Box(tmp_path, LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot")})
    urls = [origin.add(f"/{n}", Thing(b"body %d " % n * (n + 1) * 50)) for n in range(FILES)]
    box("get", *urls, "-q").ok()
    box("get", origin.url("/nowhere"), "-q")
    later = [origin.add(f"/later/{n}", Thing(b"later %d" % n)) for n in range(3)]
    box("add", "-", stdin="\n".join(later).encode()).ok()
    return box


def until_it_ends(box: Box, kills: list[str], *words: str, env: dict[str, str]) -> None:
    """Run a command again and again, killed at another place each time, and to its end at last."""
    ends = [execute(*words, env=box.env | env | {"LONGSHORE_FAILPOINTS": kill}) for kill in kills]
    codes = [ran.code for ran in ends]
    assert codes[0] == -signal.SIGKILL, f"{kills[0]}: {ends[0].stderr}"
    assert set(codes) <= {0, -signal.SIGKILL}, (
        "many are put at once: after the first kill perhaps nothing is left to do"
    )
    done = execute(*words, env=box.env | env)
    assert done.code == 0, done.stderr


def server(weed: Weed) -> dict[str, str]:
    return {
        "LONGSHORE_S3__ENDPOINT": weed.url,
        "LONGSHORE_S3__ACCESS_KEY_ID": weed.key_id,
        "LONGSHORE_S3__SECRET_ACCESS_KEY": weed.secret,
    }


def test_a_store_moves_to_s3_killed_on_the_way(filled: Box, weed: Weed) -> None:
    bucket, s3 = f"s3://{weed.bucket()}/depot", server(weed)
    until_it_ends(filled, ["put.object=kill@2"], "store", "copy", bucket, env=s3)
    (summary,) = filled("store", "copy", bucket, "--verify", "--json", env=s3).ok().lines
    assert (summary["items"], summary["there"], summary["damaged"]) == (0, FILES, 0)
    filled("verify", env=s3 | {"LONGSHORE_STORE": bucket}).ok()


@pytest.mark.torture
def test_a_store_moves_to_s3_to_postgres_and_home_again_killed_on_every_way(
    filled: Box, postgres_cluster: Cluster, weed: Weed
) -> None:
    s3 = server(weed)
    home = str(filled.home / "home")
    with postgres_cluster.database() as database:
        bucket = f"s3://{weed.bucket()}/depot"
        ways = [(str(filled.depot / "store"), bucket), (bucket, database), (database, home)]
        for here, there in ways:
            first, then = ("stage.write", "link.link") if there == home else ("put.object", "put.done")
            kills = [f"{first}=kill@2", f"{then}=kill@1", f"{then}=kill@3"]
            until_it_ends(filled, kills, "store", "copy", there, env=s3 | {"LONGSHORE_STORE": here})
            there_env = s3 | {"LONGSHORE_STORE": there}
            (summary,) = (
                filled("store", "copy", there, "--verify", "--json", env=s3 | {"LONGSHORE_STORE": here}).ok().lines
            )
            assert (summary["items"], summary["there"], summary["damaged"]) == (0, FILES, 0)
            filled("verify", env=there_env).ok()
            filled("reconcile", env=there_env | {"LONGSHORE_RECONCILE__STALE_PART_S": "0"}).ok()


def test_a_ledger_moves_to_postgres_killed_on_the_way_and_work_goes_on_there(
    filled: Box, postgres_cluster: Cluster, origin: Origin
) -> None:
    with Ledger.open(filled.depot / "ledger.db") as ledger:
        ledger.set_budget("nobody-yet", jobs=3)
        counts, jobs = ledger.counts(HOME), [job.job_id for job in ledger.jobs(HOME).items]
    with postgres_cluster.database() as database:
        kills = ["copy.page=kill@3", "copy.finish=kill"]
        until_it_ends(filled, kills, "ledger", "copy", database, env={})
        (summary,) = filled("ledger", "copy", database, "--json").ok().lines
        assert summary["rows"]["jobs"] == len(jobs) == FILES + 4
        with Ledger.open(database) as moved:
            assert moved.counts(HOME) == counts
            assert [job.job_id for job in moved.jobs(HOME).items] == jobs
            assert moved.budget("nobody-yet")[0].jobs == 3
        there = {"LONGSHORE_LEDGER": database}
        filled("run", "-q", env=there).ok()
        (status,) = filled("status", "--json", env=there).ok().lines
        assert status["jobs"]["completed"] == FILES + 3
        filled("verify", env=there).ok()
        assert [origin.count(f"/{n}") for n in range(FILES)] == [1] * FILES, "nothing held is fetched again"
