"""`longshore feed`, as programs call it."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing
from tests.support.program import environment


def put(box: Box, name: str) -> str:
    (taken,) = box("put", box.write(name, name), "--json").ok().of("taken")
    return str(taken["artifact_id"])


def test_lines_until_they_are_acknowledged(box: Box) -> None:
    first, second = put(box, "a"), put(box, "b")
    lines = box("feed", "--consumer", "rag").ok().lines
    assert [(line["type"], line["artifact_id"]) for line in lines] == [("new", first), ("new", second)]
    assert {"cursor", "sha256", "size_bytes", "content_type", "name", "metadata", "url", "ts"} <= lines[0].keys()
    assert not [key for key in lines[0] if "pointer" in key]
    assert box("feed", "--consumer", "rag", "--ack", lines[0]["cursor"]).ok().stdout == ""
    assert [line["artifact_id"] for line in box("feed", "--consumer", "rag", "--ack").ok().lines] == [second]
    assert box("feed", "--consumer", "rag").ok().lines == []
    box("delete", first).ok()
    (gone,) = box("feed", "--consumer", "rag").ok().lines
    assert (gone["type"], gone["artifact_id"]) == ("gone", first)
    (consumer,) = box("feed", "--list", "--json").ok().lines
    assert (consumer["consumer"], consumer["behind"]) == ("rag", True)
    assert "rag" in box("feed", "--list").ok().stdout
    assert box("feed", "--consumer", "rag", "--forget", "--json").ok().of("forgotten")
    assert box("feed", "--consumer", "rag", "--limit", "1").ok().lines[0]["artifact_id"] == second


def test_a_newer_version_is_a_change(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing(b"first version", etag='"1"'))
    box("get", url).ok()
    origin.add("/a", Thing(b"second version", etag='"2"'))
    box("get", url, "--refresh").ok()
    first, second = box("feed", "--consumer", "rag").ok().lines
    assert (first["type"], second["type"], second["previous_id"]) == ("new", "changed", first["artifact_id"])


def test_what_is_wrong_is_said(box: Box) -> None:
    assert box("feed", "--consumer", "x").code == 10
    put(box, "a")
    for words in (["feed"], ["feed", "--consumer", "a b"], ["feed", "--consumer", "x", "--ack", "many"]):
        assert box(*words).code == 2, words
    assert box("feed", "--consumer", "x", "--ack", 10**15).code == 2
    assert box("feed", "--consumer", "x", "--forget").code != 0


def test_following_prints_what_comes(box: Box) -> None:
    first = put(box, "a")
    command = [sys.executable, "-m", "longshore", "feed", "--consumer", "x", "--follow", "--ack"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(box.env)) as following:
        try:
            assert following.stdout is not None
            assert json.loads(following.stdout.readline())["artifact_id"] == first
            second = put(box, "b")
            assert json.loads(following.stdout.readline())["artifact_id"] == second
        finally:
            following.kill()
