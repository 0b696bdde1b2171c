"""Words and counts: what commands say about totals, failures and results agrees and is said once."""

from __future__ import annotations

import re

from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing, status


def test_retry_says_how_many_and_only_with_v_which(box: Box, origin: Origin) -> None:
    urls = [origin.add(f"/{n}", status(404)) for n in range(3)]
    assert box("get", *urls).code == 3

    ran = box("retry", "--all").ok()
    assert ran.stdout == ""
    assert "3 planned again" in ran.stderr

    assert box("run").code == 3
    assert len(box("retry", "--all", "-v").ok().stdout.splitlines()) == 3


def test_verify_says_that_all_blobs_are_verified(box: Box, origin: Origin) -> None:
    box("get", *[origin.add(f"/{n}", Thing(f"body {n}".encode())) for n in range(5)]).ok()
    assert "all 5 blobs verified, 30 B" in box("verify").ok().stderr
    assert "5 blobs checked: rows and files agree" in box("reconcile").ok().stderr


def test_status_and_failures_agree_about_what_is_missing(box: Box, origin: Origin) -> None:
    gone, mended = origin.add("/gone", status(404)), origin.add("/mended", status(404), Thing())
    assert box("get", gone, mended).code == 3
    box("retry", "--url", mended).ok()
    box("run").ok()

    (line,) = box("status", "--json").ok().lines
    assert line["failures"] == {"missing": 1, "retried": 1}
    assert line["jobs"]["failed"] == 2
    assert sum(group["count"] for group in box("failures", "--json").ok().lines) == line["failures"]["missing"]
    assert "1 still missing (1 of the failed jobs were tried again)" in box("status").ok().stdout


def test_status_says_what_is_saved(box: Box, origin: Origin) -> None:
    box("get", *[origin.add(f"/{n}", Thing(b"x" * 2048)) for n in range(2)]).ok()
    assert "2 artifacts, 4.0 KiB; 2.0 KiB saved, because equal bytes are stored once" in box("status").ok().stdout


def test_a_quarantined_body_is_named_and_found_there(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing(b"not a picture"))
    listing = box.write("list.jsonl", f'{{"url": "{url}", "media_type": "image/png"}}\n')
    assert box("get", "-i", listing).code == 3

    (group,) = box("failures", "--json").ok().lines
    assert group["reason"] == "type_mismatch"
    (name,) = re.findall(r"kept in quarantine as (\S+)", group["message"])
    assert (box.depot / "store" / ".staging" / "quarantine" / name).read_bytes() == b"not a picture"
    assert ".staging/quarantine" in group["remedy"]
