"""A URL is whole wherever a program reads it; a table for people shortens it with a mark."""

from __future__ import annotations

from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing, status

TAIL = "/long/" + "x" * 900


def test_json_has_the_whole_url_with_its_secrets_hidden(box: Box, origin: Origin) -> None:
    good, bad = origin.add(TAIL, Thing(b"good")), origin.add(TAIL + "bad", status(404))
    got = box("get", good, bad + "?token=CANARY", "--json")
    shown = {good, bad + "?token=***"}
    assert {line["url"] for line in got.lines if line.get("url")} == shown
    assert {line["url"] for line in got.of("completed") + got.of("failed")} == shown
    listed = box("jobs", "--json").ok().lines
    assert {line["url"] for line in listed} == {line["work_id"] for line in listed} == shown
    for line in listed:
        (told,) = box("show", line["job_id"], "--json").ok().lines
        assert told["job"]["url"] == line["url"]
    (failure,) = box("failures", "--json").ok().of("failure")
    assert failure["sample_url"] == bad + "?token=***"
    (held,) = box("get", good, "--json").ok().of("held")
    assert held["url"] == good
    (again, *_) = box("add", "-", "--json", stdin=good.encode()).ok().lines
    assert again["url"] == good
    assert "CANARY" not in got.stdout


def test_a_table_shortens_visibly(box: Box, origin: Origin) -> None:
    good, bad = origin.add(TAIL, Thing(b"good")), origin.add(TAIL + "bad", status(404))
    got = box("get", good, bad)
    for text in (got.stdout, got.stderr, box("jobs").ok().stdout, box("failures").ok().stdout):
        assert "…" in text
        assert TAIL not in text
