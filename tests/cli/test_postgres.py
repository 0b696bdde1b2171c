"""The same commands on a PostgreSQL ledger."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import LOOPBACK, Box
from tests.support.origin import Origin, Thing, status
from tests.support.postgres import Cluster, postgres_cluster

__all__ = ["postgres_cluster"]


def test_the_same_commands_work_on_postgresql(tmp_path: Path, origin: Origin, postgres_cluster: Cluster) -> None:
    with postgres_cluster.database() as dsn:
        box = Box(tmp_path, LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot"), "LONGSHORE_LEDGER": dsn})
        good, gone = origin.add("/good", Thing(b"good")), origin.add("/gone", status(404))

        assert box("get", good, gone).code == 3
        again = box("get", good, "--json").ok()
        box("add", "-", stdin=b"https://later.example/x\n").ok()

        assert [line["url"] for line in again.of("held")] == [good]
        assert origin.count("/good") == 1
        assert box.counts() == {"completed": 1, "failed": 1, "pending": 1}
        assert len(box("jobs", "--json").ok().lines) == 3
        assert [line["reason"] for line in box("failures", "--json").ok().lines] == ["http_404"]
        box("verify").ok()
        box("cancel", "--all").ok()
        found = {
            line["id"]: line for line in box("doctor", "--json", "--only", "postgresql", "--only", "ledger").of("check")
        }
        assert found["ledger"]["status"] == "ok"
        assert "PostgreSQL" in found["postgresql"]["evidence"]
        assert dsn not in box("config").ok().stdout or "@" not in dsn


def test_forked_workers_share_a_postgresql_ledger(tmp_path: Path, origin: Origin, postgres_cluster: Cluster) -> None:
    """The parent has spoken to the server before it forks; nobody speaks on another's connection."""
    with postgres_cluster.database() as dsn:
        box = Box(tmp_path, LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot"), "LONGSHORE_LEDGER": dsn})
        urls = [origin.add(f"/{n}", Thing(b"body %d" % n)) for n in range(600)]
        box("add", "-", stdin="\n".join(urls[:60]).encode()).ok()

        ran = box.process("run", "--workers", "2", "--json").ok()
        got = box.process("get", "-i", box.write("list", "\n".join(urls)), "--workers", "2", "--json").ok()

        assert (len(ran.of("completed")), len(got.of("completed")), len(got.of("held"))) == (60, 540, 60)
        assert box.counts() == {"completed": 600}
