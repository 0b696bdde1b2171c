"""Policy is remembered: one missing flag or being offline ends no queue."""

from __future__ import annotations

import pytest

from tests.cli.conftest import LOOPBACK, Box
from tests.support.origin import Origin, Thing, status
from tests.support.program import Ran

MANY = 200


@pytest.fixture
def strict(box: Box) -> Box:
    """A depot that does not allow loopback addresses."""
    return Box(box.home, {name: value for name, value in box.env.items() if "ALLOW" not in name})


def listed(box: Box, origin: Origin, count: int = MANY) -> str:
    return str(box.write("list", "\n".join(origin.add(f"/{n}", Thing(b"%d" % n)) for n in range(count))))


def refused(ran: Ran) -> None:
    assert ran.code == 4, ran.stderr
    assert "stopped   20 items in a row were refused: forbidden_address" in ran.stderr or "items in a row" in ran.stderr
    assert "--allow-net CIDR" in ran.stderr
    assert "longshore config set network.allow CIDR" in ran.stderr
    assert "longshore retry --reason forbidden_address" in ran.stderr


def test_a_run_without_its_flag_stops_and_leaves_the_queue_pending(strict: Box, origin: Origin) -> None:
    strict("add", listed(strict, origin)).ok()

    refused(strict("run", "--set", "transfer.concurrency=4"))
    counts = strict.counts()
    assert 20 <= counts["failed"] <= 60
    assert counts["pending"] == MANY - counts["failed"]

    strict("config", "set", "network.allow", "127.0.0.0/8").ok()
    strict("retry", "--reason", "forbidden_address").ok()
    strict("run").ok()
    assert strict.counts()["completed"] == MANY


def test_a_get_does_too(strict: Box, origin: Origin) -> None:
    ran = strict("get", "-i", listed(strict, origin), "--set", "transfer.concurrency=4")
    refused(ran)
    assert strict.counts()["pending"] >= MANY - 60

    ran = strict("get", "-i", strict.home / "list", "--allow-net", "127.0.0.0/8").ok()
    assert strict.counts()["completed"] == MANY


@pytest.mark.slow
def test_several_workers_do_too(strict: Box, origin: Origin) -> None:
    strict("add", listed(strict, origin, 600)).ok()
    ran = strict.process("run", "--workers", "2", "--set", "transfer.concurrency=4")
    refused(ran)
    assert ran.stderr.count("stopped  ") == 1
    assert strict.counts()["pending"] > 300


def test_as_json(strict: Box, origin: Origin) -> None:
    strict("add", listed(strict, origin)).ok()
    ran = strict("run", "--json", "--set", "transfer.concurrency=4")
    assert ran.code == 4
    (line,) = ran.of("stopped")
    assert line["reason"] == "forbidden_address"
    assert line["refusals"] >= 20
    (summary,) = ran.of("summary")
    (now,) = strict("status", "--json").ok().lines
    assert summary["jobs"] == now["jobs"]


def test_few_refusals_are_failures_and_other_hosts_begin_the_count_anew(strict: Box, origin: Origin) -> None:
    for round_ in range(3):
        urls = [f"http://127.0.0.1:9/{round_}-{n}" for n in range(15)]
        assert strict("get", *urls).code == 3
    assert strict.counts() == {"failed": 45}


def test_the_limit_is_a_setting(strict: Box, origin: Origin) -> None:
    strict("add", listed(strict, origin, 50)).ok()
    assert strict("run", "--set", "network.max_refusals=0").code == 3
    assert strict.counts() == {"failed": 50}


def test_definite_answers_do_not_stop_a_run(box: Box, origin: Origin) -> None:
    urls = [origin.add(f"/{n}", status(404)) for n in range(60)]
    assert box("get", *urls).code == 3
    assert box.counts() == {"failed": 60}


# ── offline ──


def test_offline_leaves_jobs_waiting_and_the_next_run_takes_them_at_once(box: Box, origin: Origin) -> None:
    box("add", listed(box, origin, 30)).ok()

    ran = box("run", "--offline")
    assert ran.code == 4, ran.stderr
    assert "offline" in ran.stderr
    assert "run again without --offline" in ran.stderr
    assert "30 not stored (offline)" in ran.stderr
    assert "30 left" in ran.stderr
    assert box.counts() == {"pending": 30}
    (now,) = box("status", "--json").ok().lines
    assert [(one["reason"], one["jobs"]) for one in now["waiting"]] == [("offline", 30)]
    assert box("run", "--offline").code == 4

    box("run").ok()
    assert box.counts() == {"completed": 30}


def test_get_offline_names_what_is_not_stored_and_gives_what_is(box: Box, origin: Origin) -> None:
    held, other = origin.add("/held", Thing()), origin.add("/other", Thing(b"other"))
    box("get", held).ok()

    ran = box("get", held, other, "--offline", "--json")
    assert ran.code == 4
    assert [(line["url"], line["reason"]) for line in ran.of("retry")] == [(other, "offline")]
    (summary,) = ran.of("summary")
    assert (summary["held"], summary["pending"], summary["failed"]) == (1, 1, 0)
    text = box("get", held, other, "--offline")
    assert f"waits     offline  {other}: offline, and these bytes are not stored" in text.stderr

    box("get", other).ok()
    assert origin.count("/other") == 1


def test_the_depots_own_policy_is_used_by_every_command(strict: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing())
    assert strict("get", url).code == 3
    strict("config", "set", "network.allow", "127.0.0.0/8").ok()
    strict("get", url).ok()
    assert LOOPBACK["LONGSHORE_NETWORK__ALLOW"] not in strict.env.values()
