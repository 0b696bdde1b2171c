"""What goes out can come in again: our own manifest in each format, and the list of what failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import LOOPBACK, Box
from tests.support.origin import Origin, Thing, status

FORMS = ("jsonl", "csv", "parquet")


def fresh(tmp_path: Path) -> Box:
    return Box(tmp_path, LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "another")})


def summary(box: Box, *arguments: object) -> dict[str, int]:
    (told,) = box("add", *arguments, "--json").ok().of("summary")
    return {name: told[name] for name in ("new", "known", "refused", "passed_over")}


@pytest.fixture
def filled(box: Box, origin: Origin) -> Box:
    """Held, failed and waiting downloads with names of every kind, and an upload."""
    lines = [
        {"url": origin.add("/plain", Thing(b"plain"))},
        {"url": origin.add("/named", Thing(b"named")), "work_id": "W1", "artifact_id": "A1", "name": "-x.pdf"},
        {"url": origin.add("/formula", Thing(b"formula")), "work_id": "=1+1", "artifact_id": "'@a"},
        {"url": origin.add("/gone", status(404)), "work_id": "W4"},
    ]
    box("add", box.write("list.jsonl", "".join(json.dumps(line) + "\n" for line in lines))).ok()
    box("run")
    box("put", box.write("mine.txt", "my own bytes")).ok()
    box("add", box.write("more.txt", origin.url("/waiting") + "\n")).ok()
    return box


@pytest.mark.parametrize("first", FORMS)
def test_a_manifest_is_the_same_list_in_every_format(filled: Box, tmp_path: Path, first: str) -> None:
    for form in FORMS:
        filled("export", form, "-o", tmp_path / f"manifest.{form}").ok()
    other = fresh(tmp_path)
    assert summary(other, tmp_path / f"manifest.{first}") == {"new": 5, "known": 0, "refused": 0, "passed_over": 1}
    for form in FORMS:
        told = summary(other, tmp_path / f"manifest.{form}")
        assert told == {"new": 0, "known": 5, "refused": 0, "passed_over": 1}, form
        told = summary(filled, tmp_path / f"manifest.{form}")
        assert told == {"new": 0, "known": 5, "refused": 0, "passed_over": 1}, f"{form} where it came from"


def test_what_is_passed_over_is_told_and_is_no_failure(filled: Box, tmp_path: Path) -> None:
    filled("export", "csv", "-o", tmp_path / "manifest.csv").ok()
    assert "0 new, 5 known, 0 refused, 1 no downloads" in filled("add", tmp_path / "manifest.csv").ok().stdout


def test_the_list_of_failures_has_what_is_failed_now_once(box: Box, origin: Origin) -> None:
    """Tried again and completed, tried again and failed again, never tried again: the last two are failed."""
    served = origin.add("/served", status(404), Thing(b"here"))
    gone, alone = origin.add("/gone", status(404)), origin.add("/alone", status(404))
    box("get", served, gone, alone)
    box("get", served, gone)
    box("get", gone)
    lines = [json.loads(line) for line in box("export", "failures").ok().stdout.splitlines()]
    assert sorted(line["url"] for line in lines) == sorted([gone, alone])
    (group,) = box("failures", "--json").ok().of("failure")
    assert group["count"] == len(lines)
    told = box("export", "failures", "-o", box.home / "failed.jsonl").ok()
    assert "2 written" in told.stderr
    assert summary(box, box.home / "failed.jsonl", "--retry-failed")["new"] == 2


@pytest.mark.parametrize("form", ["fetch-bag", "crate"])
def test_a_package_with_secrets_is_warned_of(box: Box, origin: Origin, form: str) -> None:
    box("get", origin.add("/a", Thing(b"a")) + "?token=CANARY", origin.add("/b", Thing(b"b"))).ok()
    warned = box("export", form, "-o", box.home / "told").ok()
    assert "1 of the URLs written look as if they held a secret" in warned.stderr
    assert "--no-secrets" in warned.stderr
    (told,) = box("export", form, "-o", box.home / "json", "--json").ok().of("summary")
    assert told["urls_with_secrets"] == 1
    quiet = box("export", form, "-o", box.home / "hidden", "--no-secrets").ok()
    assert "warning" not in quiet.stderr
    texts = [path.read_text() for path in (box.home / "hidden").iterdir() if path.is_file()]
    assert not any("CANARY" in text for text in texts)


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "failures"])
def test_a_list_that_add_takes_back_cannot_be_without_its_secrets(box: Box, form: str) -> None:
    ran = box("export", form, "--no-secrets")
    assert (ran.code, ran.stdout) == (2, "")
    assert "--no-secrets" in ran.stderr


@pytest.mark.parametrize("form", [*FORMS, "failures"])
@pytest.mark.parametrize("ran", [False, True])
def test_an_export_has_what_was_expected(box: Box, origin: Origin, tmp_path: Path, form: str, *, ran: bool) -> None:
    if form == "failures" and not ran:
        return
    wrong: list[dict[str, Any]] = [
        {"sha256": "ab" * 32},
        {"size_bytes": 999},
        {"media_type": "application/pdf"},
        {"md5": "ab" * 16},
        {"sha512": "ab" * 64, "mirrors": [origin.url("/mirror")]},
    ]
    lines: list[dict[str, Any]] = [
        {"url": origin.add(f"/{n}", Thing(b"bytes")), **fields} for n, fields in enumerate(wrong)
    ]
    lines.append({"url": origin.add("/h", status(404)), "headers": {"X-Who": "canary"}})
    box("add", box.write("list.jsonl", "".join(json.dumps(line) + "\n" for line in lines))).ok()
    if ran:
        assert box("run").code == 3
    target = tmp_path / f"list.{form}"
    box("export", form, "-o", target).ok()
    assert b"canary" not in target.read_bytes()
    other = fresh(tmp_path)
    added = other("add", target)
    assert (added.code, "5 new" in added.stdout) == (3, True)
    assert "had headers" in added.stderr
    assert other("run").code == 3
    assert other.counts() == {"failed": 5}


def test_fields_that_are_not_known_are_told_once(box: Box, origin: Origin) -> None:
    lines = [{"url": origin.add(f"/{n}", Thing(b"bytes")), "title": "x"} for n in range(3)]
    file = box.write("list.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert box("add", file).ok().stderr.count("'title' (3)") == 1
    assert "'title' (3)" in box("get", "-i", file).ok().stderr
