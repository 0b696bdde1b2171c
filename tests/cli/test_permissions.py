"""A depot is its owner's alone whatever the umask, and at a path that can be written down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import LOOPBACK, Box
from tests.support.origin import Origin, Thing, stamped, status
from tests.support.program import command, environment

pytestmark = pytest.mark.slow

BAD = b"dep\xff\xe9t"


def under_umask(umask: int, env: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    code = f"import os, sys; os.umask({umask}); os.execv(sys.executable, sys.argv[1:])"
    words = [sys.executable, "-c", code, *command(*arguments)]
    return subprocess.run(words, env=environment(env), capture_output=True, text=True, check=False, input="x\n")


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_nothing_of_a_depot_is_for_others(origin: Origin, tmp_path: Path, umask: int) -> None:
    depot = tmp_path / "new" / "parents" / "depot"
    env = LOOPBACK | {"LONGSHORE_DEPOT": str(depot)}
    small, large = origin.add("/a", Thing(b"a")), origin.add("/b", Thing(stamped(1, 3_000_000)))
    gone = origin.add("/gone", status(404))
    for words in (
        ("config", "init"),
        ("add", "-"),
        ("get", small, large, gone),
        ("put", "-"),
        ("run", "--max-wait", "0"),
        ("token", "create"),
        ("reconcile",),
        ("verify",),
        ("gc",),
        ("get", small, "--force"),
        ("backup", tmp_path / "new" / "backup"),
    ):
        ran = under_umask(umask, env, *words)
        assert ran.returncode in (0, 2, 3), (words, ran.stderr)
    open_to_others = [
        f"{path.stat().st_mode:o} {path}"
        for path in (tmp_path / "new").rglob("*")
        if path.stat().st_mode & (0o077 if path.is_dir() else 0o033)
    ]
    assert open_to_others == []
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0
    assert (depot / "alive").is_dir()


@pytest.mark.parametrize(
    "words", [("get", "http://127.0.0.1:9/x"), ("add", "-"), ("put", "-"), ("status",), ("doctor",), ("serve",)]
)
@pytest.mark.parametrize("key", ["DEPOT", "STORE", "LEDGER"])
def test_a_path_that_is_not_text_is_refused_at_the_door(tmp_path: Path, words: tuple[str, ...], key: str) -> None:
    bad = os.fsdecode(os.fsencode(tmp_path) + b"/" + BAD)
    env = {"LONGSHORE_DEPOT": str(tmp_path / "depot")} | {f"LONGSHORE_{key}": bad}
    ran = subprocess.run(command(*words), env=environment(env), capture_output=True, text=True, check=False, input="x")
    assert ran.returncode == 2, ran.stderr
    assert "not UTF-8" in ran.stderr
    assert "internal error" not in ran.stderr
    assert os.listdir(tmp_path) == []


def test_a_working_directory_that_is_not_text_is_refused(tmp_path: Path) -> None:
    here = os.fsencode(tmp_path) + b"/" + BAD
    os.mkdir(here)
    ran = subprocess.run(
        command("put", "-", "--depot", "depot"),
        env=environment({}),
        cwd=here,
        capture_output=True,
        check=False,
        input=b"x",
    )
    assert ran.returncode == 2
    assert b"not UTF-8" in ran.stderr


def test_a_file_outside_may_have_any_name(box: Box, origin: Origin) -> None:
    target = os.fsdecode(os.fsencode(box.home) + b"/" + BAD)
    for form in ((), ("--json",)):
        ran = box.process("get", origin.add("/a", Thing(b"bytes")), "-o", target, *form)
        assert ran.code == 0, ran.stderr
    assert Path(target).read_bytes() == b"bytes"


def test_a_backup_at_a_path_that_is_not_text_is_refused(box: Box, origin: Origin) -> None:
    box("get", origin.add("/a", Thing(b"bytes"))).ok()
    bad = os.fsdecode(os.fsencode(box.home) + b"/" + BAD)
    for words in (("backup", bad), ("restore", bad, "--depot", box.home / "new")):
        ran = box(*words)
        assert ran.code == 2
        assert "not UTF-8" in ran.stderr
