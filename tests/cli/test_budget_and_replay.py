"""`longshore budget` and `longshore replay`, as people type them."""

from __future__ import annotations

from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing


def test_a_budget_is_shown_set_kept_and_taken_back(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing(b"12345"))
    box("get", url, "-q").ok()
    (shown,) = box("budget", "--json").ok().lines
    assert shown["bytes"] == {"used": 5, "limit": None}
    (shown,) = box("budget", "--items", "2", "--bytes", "7", "--json").ok().lines
    assert (shown["items"], shown["bytes"]) == ({"used": 1, "limit": 2}, {"used": 5, "limit": 7})
    refused = box("add", "-", stdin=b"https://a.example/1\nhttps://a.example/2\n")
    assert refused.code == 3
    assert "2 items" in refused.stderr
    assert "longshore budget" in refused.stderr
    assert box.counts() == {"completed": 1}, "nothing of the list was planned"
    too_much = box("get", origin.add("/b", Thing(b"123")), "--json")
    assert too_much.code == 3
    assert [line["reason"] for line in too_much.of("failed")] == ["quota_exceeded"]
    box("budget", "--bytes", "none", "--items", "default").ok()
    box("get", origin.url("/b"), "-q").ok()
    assert "no limit" in box("budget").ok().stdout
    assert box("budget", "--jobs", "0").code == 2


def test_a_budget_from_the_settings_holds_for_add_too(box: Box) -> None:
    env = {"LONGSHORE_QUOTA__TENANT_ITEMS": "1"}
    assert box("add", "-", stdin=b"https://a.example/1\nhttps://a.example/2\n", env=env).code == 3
    box("add", "-", stdin=b"https://a.example/1\n", env=env).ok()


def test_a_job_is_replayed_as_a_new_one(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing(b"one", etag='"1"'), Thing(b"two", etag='"2"'))
    (done,) = box("get", url, "--json").ok().of("completed")
    (again,) = box("replay", done["job_id"], "--json").ok().of("replayed")
    assert (again["retry_of"], again["created"]) == (done["job_id"], True)
    box("run", "-q").ok()
    assert box.counts() == {"completed": 2}
    assert origin.count("/a") == 2
    waiting = box("add", "-", "--json", stdin=b"https://a.example/1\n").ok().of("planned")[0]["job_id"]
    assert box("replay", waiting).code == 2
    unknown = box("replay", "no-such-job")
    assert unknown.code != 0
    assert "no-such-job" in unknown.stderr
