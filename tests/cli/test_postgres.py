"""The same commands on a PostgreSQL ledger."""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.cli.conftest import LOOPBACK, Box
from tests.support.origin import Origin, Thing, status
from tests.support.postgres import Cluster, postgres_cluster

__all__ = ["postgres_cluster"]


def test_the_same_commands_work_on_postgresql(tmp_path: Path, origin: Origin, postgres_cluster: Cluster) -> None:
    with postgres_cluster.database() as dsn:
        box = Box(tmp_path, LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot"), "LONGSHORE_LEDGER": dsn})
        box("migrate").ok()
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


def test_only_migrate_makes_the_schema(tmp_path: Path, origin: Origin, postgres_cluster: Cluster) -> None:
    with postgres_cluster.database() as dsn:
        box = Box(tmp_path, LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot"), "LONGSHORE_LEDGER": dsn})
        for words in (("get", origin.url("/a")), ("add", "-"), ("put", __file__), ("run",)):
            refused = box(*words)
            assert refused.code == 10, words
            assert "longshore migrate" in refused.stderr
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)
        assert "applied" in box("migrate").ok().stderr
        assert "nothing to do" in box("migrate").ok().stderr
        box("add", "-", stdin=b"https://a.example/1\n").ok()


def test_forked_workers_share_a_postgresql_ledger(tmp_path: Path, origin: Origin, postgres_cluster: Cluster) -> None:
    """The parent has spoken to the server before it forks; nobody speaks on another's connection."""
    with postgres_cluster.database() as dsn:
        box = Box(tmp_path, LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot"), "LONGSHORE_LEDGER": dsn})
        box("migrate").ok()
        urls = [origin.add(f"/{n}", Thing(b"body %d" % n)) for n in range(600)]
        box("add", "-", stdin="\n".join(urls[:60]).encode()).ok()

        ran = box.process("run", "--workers", "2", "--json").ok()
        got = box.process("get", "-i", box.write("list", "\n".join(urls)), "--workers", "2", "--json").ok()

        assert (len(ran.of("completed")), len(got.of("completed")), len(got.of("held"))) == (60, 540, 60)
        assert box.counts() == {"completed": 600}


def test_waits_hosts_and_offline_work_on_postgresql(tmp_path: Path, origin: Origin, postgres_cluster: Cluster) -> None:
    with postgres_cluster.database() as dsn:
        box = Box(tmp_path, LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot"), "LONGSHORE_LEDGER": dsn})
        box("migrate").ok()
        urls = [origin.add(f"/{n}", status(503, b"", Retry_After="3600")) for n in range(3)]
        host = urls[0].split("/")[2]

        assert box("get", *urls, "--offline").code == 4
        ran = box("get", *urls, "--max-wait", "4", "--json")
        assert ran.code == 4
        assert {(line["host"], line["reason"]) for line in ran.of("waiting")} == {(host, "http_503")}
        (now,) = box("status", "--json").ok().lines
        assert sum(one["jobs"] for one in now["waiting"]) == 3
        assert now["failures"] == {"missing": 0, "retried": 0}

        box("hosts", "pause", host, "--for", "1h").ok()
        box("hosts", "limit", host, "3").ok()
        (line,) = box("hosts", "--json").ok().lines
        assert (line["reason"], line["concurrency"], line["waiting"]) == ("paused", 3, 3)
        box("hosts", "resume", host).ok()
        assert box("run", "--max-wait", "0").code == 4
