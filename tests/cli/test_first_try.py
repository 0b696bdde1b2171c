"""What a new user stumbled over: each command says what it did, and what to do next, in words that fit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing, drip, status
from tests.support.program import environment, eventually


@pytest.mark.parametrize("url", ["gopher://x.example/1", "javascript:alert(1)", "file:///etc/passwd"])
@pytest.mark.parametrize("form", ["{url}", '{{"url": "{url}"}}', "url,name\n{url},a"])
def test_a_scheme_that_is_never_fetched_is_a_refused_line(box: Box, url: str, form: str) -> None:
    file = box.write("list", form.format(url=url))
    ran = box("add", file, "--rejects", box.home / "rejects")
    assert ran.code == 3
    assert "is not fetched; use http, https, ftp or sftp" in ran.stderr
    assert "0 new, 0 known, 1 refused" in ran.stdout
    assert url in (box.home / "rejects").read_text()


def test_files_in_a_directory_are_named_there_and_once(box: Box, origin: Origin) -> None:
    url = origin.add("/a.txt", Thing())
    ran = box("get", "-i", box.write("list", f"{url}\n{url}\n"), "-d", box.home / "out").ok()
    assert ran.stdout.splitlines() == [str(box.home / "out/a.txt")]
    assert "1 item named more than once" in ran.stderr
    again = box("get", "-i", box.home / "list", "-d", box.home / "out").ok()
    assert again.stdout.splitlines() == [str(box.home / "out/a.txt")]


def test_get_says_that_repeating_it_asks_for_failed_items_again(box: Box, origin: Origin) -> None:
    file = box.write("list", f"{origin.url('/a')}\n{origin.url('/b')}\n")
    ran = box("get", "-i", file)
    assert ran.code == 3
    assert "the same command, or `longshore retry --all` and `longshore run`, asks for them again" in ran.stderr
    assert "repeating the command is a retry" in " ".join(box("get", "--help").ok().stdout.split())
    assert box("get", "-i", file).code == 3
    assert origin.count("/a") == 2
    assert "2 still missing (2 of the failed jobs were tried again)" in box("status").ok().stdout


def test_show_says_where_the_content_is(box: Box, origin: Origin) -> None:
    box("get", origin.add("/a", Thing(b"the content"))).ok()
    (job,) = box("jobs", "--json").ok().lines
    (line,) = box("show", job["job_id"], "--json").ok().lines
    with open(line["artifacts"][0]["path"], "rb") as file:
        assert file.read() == b"the content"
    text = box("show", job["job_id"]).ok().stdout
    assert line["artifacts"][0]["path"] in text
    assert job["completed_at"][:19].replace("T", " ") + "Z" in text
    assert job["completed_at"] not in text


def test_a_token_in_a_new_place_says_that_it_is_new(box: Box) -> None:
    assert f"new depot: {box.depot}" in box("token", "create").ok().stderr
    assert "new depot" not in box("token", "create").ok().stderr


@pytest.mark.parametrize("port", ["99999", "abc", "80a"])
def test_a_bad_port_is_named(box: Box, port: str) -> None:
    ran = box("get", f"http://a.example:{port}/x")
    assert ran.code == 2
    assert f"{port} is not a port: a port is a number from 1 to 65535" in ran.stderr


def test_hints_fit_what_was_asked(box: Box) -> None:
    ran = box("get", "https://a.example/x", "--limit-rate", "200")
    assert ran.code == 2
    assert "--limit-rate" in ran.stderr
    assert "max_rate" not in ran.stderr
    box("add", "-", stdin=b"https://a.example/x\n").ok()
    ran = box("retry", "--reason", "nosuch")
    assert ran.code == 2
    assert "`longshore failures` shows those that occur" in ran.stderr
    assert len(ran.stderr) < 300


def test_jobs_of_a_killed_worker_are_told_apart(box: Box, origin: Origin) -> None:
    url = origin.add("/slow", drip(Thing(b"x" * 600), 1, 0.1))
    command = [sys.executable, "-m", "longshore", "get", url]
    with subprocess.Popen(command, env=environment() | box.env, stderr=subprocess.DEVNULL) as running:
        eventually(lambda: origin.count("/slow") == 1, "the transfer begins")
        (line,) = box("status", "--json").ok().lines
        assert (line["jobs"]["processing"], line["abandoned"]) == (1, 0)
        os.kill(running.pid, signal.SIGKILL)
    (line,) = box("status", "--json").ok().lines
    assert (line["jobs"]["processing"], line["abandoned"]) == (1, 1)
    assert "1 job of the whole depot held by workers that died" in box("status").ok().stdout


def test_the_manifest_maps_a_url_to_its_file(box: Box, origin: Origin) -> None:
    urls = [origin.add(f"/{n}/a.txt", Thing(f"body {n}".encode())) for n in range(3)]
    box("get", *urls).ok()
    box("export", "tree", "-o", box.home / "tree").ok()
    for row in box("export", "manifest", "--json").ok().lines:
        assert (box.home / "tree" / row["name"]).read_bytes() == f"body {row['url'].split('/')[-2]}".encode()


def test_failures_are_grouped_by_reason_and_can_be_chosen(box: Box, origin: Origin) -> None:
    with Origin("127.0.0.2") as other:
        gone = [origin.url("/1"), origin.url("/2"), other.url("/3")]
        refused = [origin.add("/s", status(403)), other.add("/s", status(403))]
        box("get", "-i", box.write("list", "\n".join([gone[0], *refused, *gone[1:]])))
    lines = box("failures", "--json").ok().lines
    assert [(line["reason"], line["count"]) for line in lines] == [
        ("http_404", 2), ("http_404", 1), ("http_403", 1), ("http_403", 1)
    ]  # fmt: skip
    assert {line["reason"] for line in box("failures", "--reason", "http_403", "--json").ok().lines} == {"http_403"}
    ran = box("failures", "--reason", "http_500")
    assert ran.code == 2
    assert "there are http_403, http_404" in ran.stderr
