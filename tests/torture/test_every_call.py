"""Every fallible call of every command fails once: no hang, no traceback, no lie, nothing lost, and the checker is silent.

As curl's torture tests: a command is run again and again on a small depot, and each time another call fails. Afterwards the
same command succeeds, what was stored before is still there, and an exit code of 0 is true.
"""

from __future__ import annotations

import errno
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from longshore.checker import check
from longshore.checker.check import LocalFiles
from tests.support.origin import Origin, Thing
from tests.support.program import invoke
from tests.torture.failing import Class, struck

KEPT = (b"kept one", b"kept two")
OURS = {0, 1, 2, 3, 4, 5, 10, 11, 12}
pytestmark = pytest.mark.timeout(1800)


@dataclass
class Place:
    """A small depot that is copied for each run."""

    home: Path
    url: str

    @property
    def depot(self) -> Path:
        return self.home / "depot"


WAIT = "--max-wait 0"  # a struck command does not wait for its next attempt; the honest one after it does
COMMANDS = {
    "get": f"get {{url}} --allow-net 127.0.0.0/8 {WAIT}",
    "add": "add -",
    "run": f"run --allow-net 127.0.0.0/8 {WAIT}",
    "put": "put {home}/file",
    "adopt": "adopt {home}/tree",
    "verify": "verify",
    "reconcile": "reconcile",
    "gc": "gc --grace 0",
    "purge": "purge --older-than 0 --format csv",
    "export": "export jsonl -o {home}/out.jsonl",
    "backup": "backup {home}/backup",
    "cancel": "cancel --all",
    "retry": "retry --all",
    "token": "token create",
    "status": "status",
}


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    with Origin() as made:
        made.add("/new", Thing(b"the new body"))
        made.add("/waits", Thing(b"the waiting body"))
        yield made


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Path:
    home = tmp_path_factory.mktemp("template")
    for number, body in enumerate(KEPT):
        (home / f"kept{number}").write_bytes(body)
        invoke("put", home / f"kept{number}", "--depot", home / "depot").ok()
    invoke("add", "-", "--depot", home / "depot", stdin=origin.url("/waits").encode()).ok()
    (home / "tree").mkdir()
    (home / "tree" / "leaf").write_bytes(b"a leaf")
    (home / "file").write_bytes(b"a file")
    return home


def fresh(template: Path, tmp_path: Path, origin: Origin, name: str) -> Place:
    shutil.copytree(template, tmp_path / name, symlinks=True)
    return Place(tmp_path / name, origin.url("/new"))


def words_of(command: str, place: Place, *, honest: bool = False) -> list[object]:
    text = COMMANDS[command].replace(WAIT, "" if honest else WAIT)
    return [*text.format(home=place.home, url=place.url).split(), "--depot", place.depot]


def nothing_lost(place: Place) -> None:
    for body in KEPT:
        digest = hashlib.sha256(body).hexdigest()
        (blob,) = (place.depot / "store").glob(f"default/default/*/{digest}*")
        assert blob.read_bytes() == body
    invoke("reconcile", "--depot", place.depot, "--set", "reconcile.stale_part_s=0").ok()
    assert check(str(place.depot / "ledger.db"), LocalFiles(place.depot / "store")).findings == []


def is_true(command: str, place: Place) -> None:
    """What exit code 0 says of a command is so."""
    if command == "export":
        assert (place.home / "out.jsonl").read_text().count("\n") >= len(KEPT)
    elif command == "backup":
        invoke("restore", place.home / "backup", "--depot", place.home / "restored").ok()
    elif command in ("put", "adopt", "get", "run"):
        body = {"put": b"a file", "adopt": b"a leaf", "get": b"the new body", "run": b"the waiting body"}[command]
        digest = hashlib.sha256(body).hexdigest()
        (blob,) = (place.depot / "store").glob(f"default/default/*/{digest}*")
        assert blob.read_bytes() == body


def strike(place: Place, command: str, kind: Class, at: int, code: int) -> bool:
    """Let one call fail and judge everything; return whether there was such a call."""
    words = words_of(command, place)
    ended = struck(words, kind, at, code=code, home=place.home, stdin=place.url.encode())
    about = f"{command}: call {at} of {kind} ({ended.failed}): {ended.code}\n{ended.stderr}"
    assert ended.code in OURS, about
    assert "Traceback" not in ended.stderr, about
    if ended.code == 0:
        is_true(command, place)
    if ended.failed:
        again = invoke(*words_of(command, place, honest=True), stdin=place.url.encode())
        assert again.code == 0, about + again.stderr
        nothing_lost(place)
    return bool(ended.failed)


SAMPLE = [
    ("put", "os", 5),
    ("put", "sql", 9),
    ("get", "os", 12),
    ("get", "curl", 1),
    ("backup", "os", 6),
    ("export", "sql", 3),
    ("add", "sql", 7),
]


@pytest.mark.parametrize(("command", "kind", "at"), SAMPLE)
def test_some_calls_fail_once(
    template: Path, tmp_path: Path, origin: Origin, command: str, kind: Class, at: int
) -> None:
    """A few on every run of the suite; `make torture` has all."""
    strike(fresh(template, tmp_path, origin, "one"), command, kind, at, errno.ENOSPC)


@pytest.mark.torture
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("kind", ["os", "sql", "curl"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_call_of_every_command_fails_once(
    template: Path, tmp_path: Path, origin: Origin, command: str, kind: Class, code: int
) -> None:
    at = 0
    while strike(fresh(template, tmp_path, origin, f"at-{(at := at + 1)}"), command, kind, at, code):
        shutil.rmtree(tmp_path / f"at-{at}", ignore_errors=True)
