"""`longshore hosts`: the state of hosts, and how a person steers them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Box
from tests.support.big_list import silent_host
from tests.support.origin import Origin, Thing, status


def host_of(url: str) -> str:
    return url.split("/")[2]


def shown(box: Box, host: str) -> dict[str, Any]:
    (line,) = box("hosts", "show", host, "--json").ok().lines
    return line


def test_a_host_that_rests_is_named_with_its_reason_its_end_and_its_jobs(box: Box, origin: Origin) -> None:
    urls = [origin.add(f"/{n}", status(503, b"", Retry_After="3600")) for n in range(3)]
    box("add", box.write("list", "\n".join(urls))).ok()
    assert box("run", "--max-wait", "3").code == 4

    (line,) = box("hosts", "--json").ok().lines
    assert [line[name] for name in ("host", "state", "reason", "waiting")] == [
        host_of(urls[0]),
        "resting",
        "http_503",
        3,
    ]
    assert line["until"] is not None

    table = box("hosts").ok().stdout.splitlines()
    assert table[0].split()[:4] == ["host", "state", "reason", "until"]
    assert table[1].startswith(f"{host_of(urls[0])}  resting")


def test_status_names_the_hosts_that_jobs_wait_for(box: Box, origin: Origin) -> None:
    urls = [origin.add(f"/{n}", status(503, b"", Retry_After="3600")) for n in range(3)]
    box("add", box.write("list", "\n".join(urls))).ok()
    assert box("run", "--max-wait", "3").code == 4

    (line,) = box("status", "--json").ok().lines
    assert sum(one["jobs"] for one in line["waiting"]) == 3
    assert {(one["host"], one["reason"]) for one in line["waiting"]} == {(host_of(urls[0]), "http_503")}
    assert all(one["until"] for one in line["waiting"])

    text = box("status").ok().stdout
    assert f"for {host_of(urls[0])}: http_503 (the server answered 503), until 2" in text


def test_a_paused_host_is_not_asked_until_it_is_resumed(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing())
    host = host_of(url)
    box("add", box.write("list", url)).ok()

    box("hosts", "pause", url).ok()
    ran = box("run", "--max-wait", "0")
    assert ran.code == 4
    assert origin.count("/a") == 0
    assert shown(box, host)["state"] == "paused"
    assert "paused (by a person), until `longshore hosts resume`" in box("status").ok().stdout

    box("hosts", "resume", host).ok()
    box("run").ok()
    assert origin.count("/a") == 1


def test_a_pause_for_a_time_has_an_end(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing())
    box("add", box.write("list", url)).ok()

    box("hosts", "pause", host_of(url), "--for", "2h").ok()
    line = shown(box, host_of(url))
    assert (line["state"], line["reason"]) == ("resting", "paused")
    assert line["until"] is not None
    assert box("run", "--max-wait", "0").code == 4
    assert origin.count("/a") == 0

    box("hosts", "resume", host_of(url)).ok()
    box("run").ok()


def test_limits_hold_until_they_are_set_to_the_default(box: Box, origin: Origin) -> None:
    box("get", origin.add("/a", Thing())).ok()
    host = host_of(origin.url("/a"))
    assert shown(box, host)["concurrency"] == 8

    box("hosts", "limit", host, "2", "--rate", "0.5").ok()
    line = shown(box, host)
    assert (line["concurrency"], line["rate_per_s"], line["own_limits"]) == (2, 0.5, True)

    box("hosts", "limit", host, "default", "--rate", "default").ok()
    line = shown(box, host)
    assert (line["concurrency"], line["rate_per_s"], line["own_limits"]) == (8, 0, False)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show"], 2),
        (["list", "a.example"], 2),
        (["limit", "a.example"], 2),
        (["limit", "a.example", "0"], 2),
        (["limit", "a.example", "many"], 2),
        (["limit", "a.example", "--rate", "nan"], 2),
        (["resume", "a.example", "--for", "1h"], 2),
        (["pause", "a.example", "--for", "soon"], 2),
        (["pause", "a b"], 2),
        (["show", "never-asked.example"], 2),
        (["pause", "never-asked.example"], 2),
    ],
)
def test_what_is_not_understood_is_refused(box: Box, origin: Origin, arguments: list[str], code: int) -> None:
    box("get", origin.add("/a", Thing())).ok()

    ran = box("hosts", *arguments)

    assert ran.code == code, ran.stderr
    assert len(box("hosts", "--json").ok().lines) == 1


def test_a_host_that_answers_nothing_is_resting_and_then_given_up(box: Box) -> None:
    limits = {"LONGSHORE_TRANSFER__CONNECT_S": "1", "LONGSHORE_HOSTS__BREAKER_COOLDOWN_S": "1"}
    with silent_host() as dead:
        box("add", "-", stdin="".join(f"http://{dead}/{n}\n" for n in range(6)).encode()).ok()
        assert shown(box, dead)["state"] == "ok"
        env = {**limits, "LONGSHORE_HOSTS__GIVE_UP_S": "60"}
        assert box("run", "--max-wait", "3", env=env).code == 4
        (line,) = box("hosts", "--json", env=env).ok().lines
        assert (line["state"], line["reason"], line["waiting"]) == ("resting", "connect", 6)
        env = {**limits, "LONGSHORE_HOSTS__GIVE_UP_S": "3"}
        assert box("run", "--max-wait", "20", env=env).code == 3
        (line,) = box("hosts", "--json", env=env).ok().lines
        assert (line["state"], line["reason"], line["waiting"]) == ("given up", "connect", 0)
        assert "given up" in box("hosts", env=env).ok().stdout
        assert "given up" in box("hosts", "show", dead, env=env).ok().stdout


def test_the_pending_jobs_of_a_host_are_counted_also_while_it_is_well(box: Box, origin: Origin) -> None:
    urls = [origin.add(f"/{n}", Thing()) for n in range(40)]
    box("add", box.write("list", "\n".join(urls))).ok()
    host = host_of(urls[0])
    for action in (["limit", host, "2"], ["resume", host]):
        ran = box("hosts", *action).ok()
        assert "no job" not in ran.stderr
        assert "waiting      40" in ran.stdout


def test_a_typing_error_is_no_new_host(box: Box, origin: Origin) -> None:
    box("add", "-", stdin=origin.add("/a", Thing()).encode()).ok()
    host = host_of(origin.url("/a"))
    for wrong in (host.partition(":")[0], f"{host[:-1]}", host.replace("127.0.0.1", "127.0.0.12")):
        ran = box("hosts", "pause", wrong)
        assert ran.code == 2
        assert f"unknown host {wrong}" in ran.stderr
        assert f"did you mean {host}?" in ran.stderr
    assert len(box("hosts", "--json").ok().lines) == 1
    box("hosts", "pause", "later.example", "--new").ok()
    assert shown(box, "later.example")["state"] == "paused"


def test_status_and_hosts_agree_until_when_a_host_rests(box: Box, origin: Origin) -> None:
    urls = [origin.add(f"/{n}", status(500, b"")) for n in range(30)]
    box("add", box.write("list", "\n".join(urls))).ok()
    env = {"LONGSHORE_HOSTS__BREAKER_FAILURES": "3", "LONGSHORE_HOSTS__GIVE_UP_S": "10"}
    assert box("run", "--max-wait", "2", env=env).code == 4
    (host,) = box("hosts", "--json", env=env).ok().lines
    (line,) = box("status", "--json", env=env).ok().lines
    (wait,) = line["waiting"]
    assert host["state"] == "resting"
    assert (wait["until"][:19], wait["jobs"]) == (host["until"][:19], host["waiting"])
    assert f"until {host['until'][:19].replace('T', ' ')}Z" in box("status", env=env).ok().stdout
