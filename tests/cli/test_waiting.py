"""No silent second: a run that can do nothing says which jobs wait for what, why and until when."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import pytest

from longshore.depot import Depot
from longshore.ledger.operations.leasing import claim
from tests.support.big_list import silent_host
from tests.support.origin import Origin, Thing, drip, status
from tests.support.program import invoke, schema_of

pytestmark = pytest.mark.slow

NET = ("--allow-net", "127.0.0.0/8")


@pytest.mark.parametrize("command", ["get", "run"])
def test_retry_after_is_named(tmp_path: Path, command: str) -> None:
    with Origin() as origin:
        url = origin.add("/a", status(503, b"", Retry_After="86400"))
        depot = ("--depot", tmp_path / "d", *NET)
        if command == "run":
            invoke("add", "-", "--depot", tmp_path / "d", stdin=f"{url}\n".encode()).ok()
        began = time.monotonic()
        ran = invoke(command, *([url] if command == "get" else []), "--max-wait", "5", *depot)
        assert ran.code == 4, ran.stderr
        assert time.monotonic() - began < 30
        host = url.split("/")[2]
        (line,) = [line for line in ran.stderr.splitlines() if line.startswith("waiting")]
        assert host in line
        assert "http_503" in line
        assert "until 2" in line
        assert origin.count("/a") == 1


def test_as_json_lines(tmp_path: Path) -> None:
    with Origin() as origin:
        url = origin.add("/a", status(503, b"", Retry_After="86400"))
        ran = invoke("get", url, "--max-wait", "5", "--depot", tmp_path / "d", "--json", *NET)
        (line,) = [line for line in ran.lines if line["type"] == "waiting"]
        schema_of("waiting").validate(line)
        assert (line["host"], line["reason"], line["jobs"]) == (url.split("/")[2], "http_503", 1)


def test_leases_of_others_are_named(tmp_path: Path) -> None:
    with Origin() as origin:
        url = origin.add("/a", status(404))
        invoke("add", "-", "--depot", tmp_path / "d", stdin=f"{url}\n".encode()).ok()
        with Depot(tmp_path / "d") as depot:
            assert depot.ledger.write(claim, "another machine", limit=1, ttl_s=3600)
        ran = invoke("run", "--max-wait", "5", "--depot", tmp_path / "d", *NET)
        assert "1 job for other workers: leased, until 2" in ran.stderr
        assert origin.count("/a") == 0


def test_a_resting_host_is_told_before_the_other_ends(tmp_path: Path) -> None:
    with Origin() as origin, Origin("127.0.0.2") as resting:
        url = resting.add("/rests", status(503, b"", Retry_After="86400"))
        slow = origin.add("/slow", drip(Thing(b"x" * 40), 1, 0.25))
        ran = invoke("get", slow, url, "--max-wait", "3", "--depot", tmp_path / "d", "--json", *NET)
        kinds = [line["type"] for line in ran.lines]
        assert kinds.index("waiting") < kinds.index("completed")


def test_a_get_names_only_what_its_own_jobs_wait_for(tmp_path: Path) -> None:
    with Origin() as origin, Origin("127.0.0.2") as resting, Origin("127.0.0.3") as other:
        theirs = other.add("/theirs", status(503, b"", Retry_After="86400"))
        ours = resting.add("/ours", status(503, b"", Retry_After="86400"))
        slow = origin.add("/slow", drip(Thing(b"x" * 30), 1, 0.25))
        assert invoke("get", theirs, "--max-wait", "2", "--depot", tmp_path / "d", *NET).code == 4
        ran = invoke("get", slow, ours, "--max-wait", "4", "--depot", tmp_path / "d", "--json", *NET)
        assert {line["host"] for line in ran.of("waiting")} == {ours.split("/")[2]}
        assert {line["jobs"] for line in ran.of("waiting")} == {1}


def test_a_host_without_a_connection_is_told_with_all_its_jobs_and_the_end_of_the_attempt(tmp_path: Path) -> None:
    with silent_host() as dead:
        lines = "".join(f"http://{dead}/{n}\n" for n in range(12))
        (tmp_path / "dead.txt").write_text(lines)
        env = {"LONGSHORE_TRANSFER__CONNECT_S": "20"}
        began = time.time()
        options = ("--max-wait", "9", "--depot", tmp_path / "d", *NET)
        ran = invoke("get", "-i", tmp_path / "dead.txt", "--json", *options, env=env)
        line = next(line for line in ran.of("waiting") if line["host"] == dead)
        assert (line["reason"], line["jobs"]) == ("connecting", 12)
        ends_s = datetime.fromisoformat(line["until"]).timestamp() - began
        assert 15 < ends_s < 25  # when the attempt ends, not `transfer.stall_s`


def test_the_probe_of_a_host_speaks_for_the_jobs_that_wait(tmp_path: Path) -> None:
    with silent_host() as dead:
        (tmp_path / "dead.txt").write_text("".join(f"http://{dead}/{n}\n" for n in range(6)))
        env = {"LONGSHORE_TRANSFER__CONNECT_S": "10", "LONGSHORE_HOSTS__BREAKER_COOLDOWN_S": "10"}
        options = ("--max-wait", "18", "--depot", tmp_path / "d", *NET)
        ran = invoke("get", "-i", tmp_path / "dead.txt", "--json", *options, env=env)
        told = [line for line in ran.of("waiting") if line["reason"] == "connecting"]
        assert [line["jobs"] for line in told] == [6, 6]  # the first round, and the probe
