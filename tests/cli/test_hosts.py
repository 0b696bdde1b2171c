"""`longshore hosts`: the state of hosts, and how a person steers them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Box
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
    assert table[0].split()[:4] == ["host", "state", "until", "waiting"]
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
        (["show", "never-asked.example"], 1),
    ],
)
def test_what_is_not_understood_is_refused(box: Box, origin: Origin, arguments: list[str], code: int) -> None:
    box("get", origin.add("/a", Thing())).ok()

    ran = box("hosts", *arguments)

    assert ran.code == code, ran.stderr
    assert len(box("hosts", "--json").ok().lines) == 1
