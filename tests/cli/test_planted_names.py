"""Private modes under any umask, and no writing through links that somebody planted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.program import execute, invoke


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o002])
@pytest.mark.parametrize("first", [("token", "create"), ("add", "-"), ("put", "-")])
def test_a_new_depot_is_private_under_any_umask(tmp_path: Path, umask: int, first: tuple[str, ...]) -> None:
    depot = tmp_path / "above" / "depot"
    before = os.umask(umask)
    try:
        execute(*first, "--depot", depot, stdin=b"https://a.example/").ok()
    finally:
        os.umask(before)
    for path in (depot, *depot.rglob("*")):
        if path.is_dir() or "store" not in path.parts:  # a blob is read-only for everybody who gets into its directory
            assert not path.stat().st_mode & 0o077, f"{path} {oct(path.stat().st_mode)}"


def test_an_export_does_not_write_through_a_planted_link(tmp_path: Path) -> None:
    depot, victim = tmp_path / "depot", tmp_path / "victim"
    victim.write_text("mine")
    invoke("put", "-", "--name", "x", "--depot", depot, stdin=b"bytes").ok()
    (tmp_path / ".out.jsonl.new").symlink_to(victim)
    invoke("export", "jsonl", "-o", tmp_path / "out.jsonl", "--depot", depot).ok()
    assert victim.read_text() == "mine"
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o600, "it has every URL with its secrets"
    assert not (tmp_path / "out.jsonl").is_symlink()


def test_a_file_that_is_named_like_the_description_does_not_replace_it(tmp_path: Path) -> None:
    depot = tmp_path / "depot"
    for name, body in (("ro-crate-metadata.json", b"not a description"), ("-rf", b"dash")):
        invoke("put", "-", "--name", name, "--depot", depot, stdin=body).ok()
    invoke("export", "crate", "-o", tmp_path / "crate", "--depot", depot).ok()
    described = json.loads((tmp_path / "crate" / "ro-crate-metadata.json").read_text())
    assert described["@context"].startswith("https://w3id.org/ro/crate")
    names = {path.name for path in (tmp_path / "crate").iterdir()}
    assert len(names) == 3
    assert not any(name.startswith("-") for name in names)
