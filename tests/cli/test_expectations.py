"""What a caller asks for is checked whatever job is already there: waiting, running, completed, failed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing

BODY = b"%PDF-1.4 the right bytes\n"
RIGHT, WRONG = hashlib.sha256(BODY).hexdigest(), "0" * 64
OTHERS = {
    "sha512": "0" * 128,
    "md5": "0" * 32,
    "size_bytes": 5,
    "media_type": "application/zip",
}


@pytest.mark.parametrize("before", ["waiting", "completed", "failed"])
@pytest.mark.parametrize("flag", ["-o", "-d", None])
def test_a_wrong_digest_is_never_exit_0(
    box: Box, origin: Origin, tmp_path: Path, before: str, flag: str | None
) -> None:
    url = origin.add("/x.pdf", Thing(BODY))
    if before == "failed":
        assert box("get", "--sha256", "1" * 64, url).code == 3
    else:
        box("add", "-", stdin=url.encode()).ok()
    if before == "completed":
        box("run").ok()
    target = tmp_path / "out"
    arguments = [] if flag is None else [flag, target / "x.pdf" if flag == "-o" else target]
    ran = box("get", "--sha256", WRONG, url, *arguments)
    assert ran.code == 3
    assert not list(target.glob("**/*.pdf"))
    assert box("get", "--sha256", RIGHT, url, *arguments).ok()
    if flag:
        assert [path.read_bytes() for path in target.glob("**/*.pdf")] == [BODY]
    assert origin.count("/x.pdf") <= 5


def test_a_request_without_expectations_does_not_fail_by_those_of_another(box: Box, origin: Origin) -> None:
    url = origin.add("/x.pdf", Thing(BODY))
    line = json.dumps({"url": url, "sha256": WRONG})
    box("add", "-", stdin=line.encode()).ok()
    assert box("get", url).ok()
    assert box("run").code == 3, "the job with the wrong digest fails by itself"


@pytest.mark.parametrize("before", ["waiting", "completed"])
@pytest.mark.parametrize("field", OTHERS)
def test_every_expectation_counts(box: Box, origin: Origin, field: str, before: str) -> None:
    url = origin.add("/x.pdf", Thing(BODY))
    box("add", "-", stdin=url.encode()).ok()
    if before == "completed":
        box("run").ok()
    text = json.dumps({"url": url, field: OTHERS[field]})
    ran = box("get", "-i", box.write("list.jsonl", text))
    assert ran.code == 3, ran
    assert origin.count("/x.pdf") <= 4


def test_two_digests_for_one_url_are_told(box: Box, origin: Origin) -> None:
    url = origin.add("/x.pdf", Thing(BODY))
    lines = "\n".join(json.dumps({"url": url, "sha256": one}) for one in (RIGHT, WRONG, RIGHT))
    ran = box("add", box.write("list.jsonl", lines)).ok()
    assert "2 new, 1 known" in ran.stdout and "1 contradicting" in ran.stdout
    assert "expects another sha256" in ran.stderr
    planned = box("add", box.write("again.jsonl", lines), "--json").ok().lines
    assert [one.get("created") for one in planned if one["type"] == "planned"] == [False] * 3
    assert box("run").code == 3
    assert box.counts() == {"completed": 1, "failed": 1}


def test_digests_that_agree_are_one_job(box: Box, origin: Origin) -> None:
    url = origin.add("/x.pdf", Thing(BODY))
    box("get", url).ok()
    line = json.dumps({"url": url, "sha256": RIGHT, "size_bytes": len(BODY), "media_type": "application/pdf"})
    assert "0 new, 1 known" in box("add", "-", stdin=line.encode()).ok().stdout
    box("get", "--sha256", RIGHT, url).ok()
    assert origin.count("/x.pdf") == 1
    assert box.counts() == {"completed": 1}
