"""Runs on the command line: `--run NAME`, `run_id` in lists, `longshore runs`."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Box
from tests.support.origin import Gate, Origin, Thing, status


@pytest.fixture
def two_runs(box: Box, origin: Origin) -> Box:
    """A run with a good and a missing file, another one with a good file; all are worked on."""
    good, gone, other = origin.add("/a", Thing(b"aaaa")), origin.add("/b", status(404)), origin.add("/c", Thing(b"cc"))
    box("add", "-", "--run", "monday", stdin=f"{good}\n{gone}\n".encode()).ok()
    box("add", "-", "--run", "tuesday", stdin=f"{other}\n".encode()).ok()
    box("add", "-", stdin=f"{origin.url('/d')}\n".encode()).ok()
    assert box("run").code == 3
    return box


def urls(box: Box, *words: str) -> list[str]:
    return sorted(line["url"][-2:] for line in box(*words, "--json").ok().lines if "url" in line)


def test_runs_are_listed(two_runs: Box) -> None:
    tuesday, monday = two_runs("runs", "--json").ok().lines
    assert (tuesday["run_id"], monday["run_id"]) == ("tuesday", "monday")
    assert (monday["jobs"]["completed"], monday["jobs"]["failed"], monday["missing"]) == (1, 1, 1)
    assert (monday["bytes"], tuesday["bytes"]) == (4, 2)
    assert monday["begun_at"] <= monday["ended_at"]
    assert "1 completed, 1 failed" in two_runs("runs", "--limit", "2").ok().stdout
    assert len(two_runs("runs", "--limit", "1").ok().stdout.splitlines()) == 1


def test_filters_by_run(two_runs: Box) -> None:
    assert urls(two_runs, "jobs", "--run", "monday") == ["/a", "/b"]
    assert urls(two_runs, "export", "jsonl", "--run", "tuesday") == ["/c"]
    assert urls(two_runs, "export", "failures", "--run", "tuesday") == []
    (group,) = two_runs("failures", "--run", "monday", "--json").ok().lines
    assert (group["reason"], group["count"]) == ("http_404", 1)
    assert two_runs("failures", "--run", "tuesday", "--json").ok().lines == []
    (counts,) = two_runs("status", "--run", "monday", "--json").ok().lines
    assert (counts["jobs"]["failed"], counts["failures"], counts["held"]["bytes"]) == (
        1,
        {"missing": 1, "retried": 0},
        4,
    )
    assert "longshore runs" in two_runs("status", "--run", "nothing").stderr
    (summary,) = [line for line in two_runs("retry", "--run", "tuesday", "--json").ok().lines if "retried" in line]
    assert summary["retried"] == 0
    two_runs("retry", "--run", "monday", "--json").ok()
    assert {line["run_id"] for line in two_runs("jobs", "--status", "pending", "--json").ok().lines} == {"monday"}


def test_run_works_on_one_run_only(box: Box, origin: Origin) -> None:
    """Others in the same lanes wait, also if there are more of them than a claim reads."""
    others = "\n".join(origin.add(f"/other/{n}", Thing(b"x")) for n in range(40))
    box("add", "-", "--run", "others", stdin=others.encode()).ok()
    mine = [origin.add(f"/mine/{n}", Thing(b"y")) for n in range(3)]
    box("add", "-", "--run", "mine", stdin="\n".join(mine).encode()).ok()
    *_, summary = box("run", "--run", "mine", "--json").ok().lines
    assert (summary["completed"], summary["pending"]) == (3, 0)
    assert box.counts() == {"completed": 3, "pending": 40}
    assert "nothing to do" in box("run", "--run", "mine").ok().stderr
    assert box("run", "--run", "mine", "--all-tenants").code == 2
    assert box("run").ok().code == 0
    assert box.counts() == {"completed": 43}


def test_several_processes_work_on_one_run(box: Box, origin: Origin) -> None:
    box("add", "-", "--run", "others", stdin=origin.add("/other", Thing(b"x")).encode()).ok()
    mine = "\n".join(origin.add(f"/mine/{n}", Thing(b"y")) for n in range(20))
    box("add", "-", "--run", "mine", stdin=mine.encode()).ok()
    assert box.process("run", "--run", "mine", "--workers", "2").code == 0
    assert box.counts() == {"completed": 20, "pending": 1}


def test_a_run_waits_for_its_retries(box: Box, origin: Origin) -> None:
    url = origin.add("/a", status(503), Thing(b"late"))
    box("get", "--run", "r", "--max-wait", "60", url).ok()
    (run,) = box("runs", "--json").ok().lines
    assert (run["run_id"], run["jobs"]["completed"]) == ("r", 1)


def test_run_ids_come_from_lists(box: Box) -> None:
    lines = [{"url": "https://a.example/1", "run_id": "own"}, {"url": "https://a.example/2"}]
    jsonl = "\n".join(map(json.dumps, lines)).encode()
    assert box("add", "-", "--run", "given", stdin=jsonl).ok().stderr.count("not used") == 0
    csv = b"url,run_id,colour\nhttps://a.example/3,table,red\nhttps://a.example/4,,blue\n"
    assert box("add", "-", "--json", stdin=csv).ok().stderr.count("'colour' (2)") == 1  # named once, not per line
    found = {line["url"][-1]: line["run_id"] for line in box("jobs", "--json").ok().lines}
    assert found == {"1": "own", "2": "given", "3": "table", "4": None}


def test_known_jobs_keep_their_run(box: Box) -> None:
    box("add", "-", "--run", "first", stdin=b"https://a.example/1\n").ok()
    box("add", "-", "--run", "second", stdin=b"https://a.example/1\n").ok()
    assert [line["run_id"] for line in box("jobs", "--json").ok().lines] == ["first"]


def test_a_media_type_for_a_whole_list(box: Box, origin: Origin) -> None:
    pdf, text = origin.add("/a.pdf", Thing(b"%PDF-1.4\n%EOF\n")), origin.add("/b", Thing(b"just words"))
    assert box("get", "--media-type", "application/pdf", pdf, text).code == 3
    (failed,) = [line for line in box("jobs", "--json").ok().lines if line["status"] == "failed"]
    assert (failed["reason"], failed["url"]) == ("type_mismatch", text)
    own = json.dumps({"url": origin.add("/c", Thing(b"words")), "media_type": "text/plain"})
    box("add", "-", "--media-type", "application/pdf", stdin=own.encode()).ok()
    box("run").ok()
    assert box("get", "--media-type", "pdf", pdf).code == 2


def test_progress_is_in_the_list_of_jobs(box: Box, origin: Origin) -> None:
    """`jobs --json` and `show` have the fields from the start; tests/worker/test_progress.py fills them."""
    gate = Gate(Thing(b"x" * 100), 10)
    box("add", "-", stdin=origin.add("/a", gate).encode()).ok()
    (line,) = box("jobs", "--json").ok().lines
    assert (line["bytes_done"], line["bytes_total"], line["progress"]) == (None, None, None)
