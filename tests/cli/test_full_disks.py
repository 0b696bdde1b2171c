"""Disks that are really full and really read-only: what can be read is read, the rest is told, nothing is lost, and when
there is room again everything goes on.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import LOOPBACK, Box
from tests.cli.test_json import complaint
from tests.support.disks import small_disk
from tests.support.origin import Gate, Origin, Thing, status
from tests.support.program import eventually, started

pytestmark = pytest.mark.slow

READING = {
    "status": [],
    "jobs": [],
    "failures": [],
    "stats": [],
    "export": ["sums"],
    "verify": [],
    "verify --full": [],
    "reconcile": ["--dry-run"],
    "show": ["JOB"],
    "run": ["--max-wait", "0"],  # nothing is left to do: it only looks
}
WRITING = {
    "get": ["http://127.0.0.1:9/new"],
    "add": ["-"],
    "retry": ["--all"],
    "reconcile": [],
    "put": ["-"],
    "token create": [],
}


@contextlib.contextmanager
def on_disk(origin: Origin, size: str) -> Iterator[Box]:
    """A depot on a disk of its own, with something held and something failed."""
    with small_disk(size) as disk:
        env = LOOPBACK | {"LONGSHORE_DEPOT": str(disk / "depot"), "LONGSHORE_QUOTA__FREE_BYTES_MIN": "0"}
        box = Box(disk, env)
        assert box("get", origin.add("/x", Thing(b"held" * 50)), origin.add("/gone", status(404))).code == 3
        yield box


@contextlib.contextmanager
def read_only(disk: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    """Take every byte that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        filler.unlink()


def look(box: Box) -> None:
    """Everything that only reads works."""
    job = box("jobs", "--status", "completed", "--json").ok().lines[0]["job_id"]
    for name, arguments in READING.items():
        ran = box(*name.split(), *(job if word == "JOB" else word for word in arguments))
        assert ran.code == 0, (name, ran.stdout, ran.stderr)


def refused(box: Box, word: str) -> None:
    """Everything that would write says why not and what to do, and changes nothing."""
    before = box("export").ok().stdout
    for name, arguments in WRITING.items():
        ran = box(*name.split(), *arguments, "--json", stdin=b"http://127.0.0.1:9/y")
        assert (ran.code, ran.stdout) == (1, ""), (name, ran.stdout, ran.stderr)
        error = complaint(ran)
        assert word in error["message"] + error["hint"], name
    assert box("export").ok().stdout == before


def test_a_read_only_disk_is_read(origin: Origin) -> None:
    with on_disk(origin, "16m") as box:
        with read_only(box.home):
            look(box)
            refused(box, "read-only")
        box("get", origin.add("/y", Thing(b"more"))).ok()
        box("verify", "--full").ok()


def test_what_a_crash_left_is_read_on_a_read_only_disk(origin: Origin, tmp_path: Path) -> None:
    gate = Gate(Thing(b"x" * 400_000), 100_000)
    url = origin.add("/slow", gate, Thing(b"x" * 400_000))
    with on_disk(origin, "16m") as box:
        with started(tmp_path / "get", "get", url, env=box.env) as running:
            eventually(lambda: origin.count("/slow"), "the transfer began")
            running.kill()
        gate.open()
        assert (box.depot / "ledger.db-wal").stat().st_size
        with read_only(box.home):
            assert box.counts() == {"completed": 1, "failed": 1, "processing": 1}
            box("verify").ok()
        box("get", url).ok()
        box("verify", "--full").ok()


def test_a_full_disk_is_read_and_goes_on_when_there_is_room(origin: Origin) -> None:
    with on_disk(origin, "16m") as box:
        with full(box.home):
            assert os.statvfs(box.home).f_bavail == 0
            look(box)
            refused(box, "make room")
        box("get", origin.add("/y", Thing(b"more"))).ok()
        box("verify", "--full").ok()
        assert box.counts() == {"completed": 2, "failed": 1}


def test_a_disk_that_fills_up_while_bytes_come_is_waited_for(origin: Origin, tmp_path: Path) -> None:
    body = b"x" * 3_000_000
    gate = Gate(Thing(body), 1_000_000)
    url = origin.add("/big", gate, Thing(body))
    with on_disk(origin, "16m") as box, started(tmp_path / "get", "get", url, env=box.env) as running:
        eventually(lambda: origin.count("/big"), "the transfer began")
        with full(box.home):
            gate.open()
            eventually(lambda: "disk is full" in running.stderr or "No space left" in running.stderr, "it is told")
            assert running.process.poll() is None
        ran = running.wait()  # there is room again: it goes on by itself
        assert ran.code == 0, ran.stderr
        assert "Traceback" not in ran.stderr
        box("verify", "--full").ok()
        box("get", url, "-o", tmp_path / "copy").ok()
        assert (tmp_path / "copy").read_bytes() == body


def test_a_download_larger_than_the_disk_waits_and_is_done_when_there_is_room(origin: Origin) -> None:
    url = origin.add("/big", Thing(b"x" * 3_000_000))
    with on_disk(origin, "16m") as box:
        (box.home / "other").write_bytes(bytes(13 << 20))

        ran = box("get", url, "--max-wait", "0.3")

        assert ran.code == 4, ran.stderr
        assert "disk_full" in ran.stderr
        assert "make room" in ran.stderr
        assert box.counts() == {"completed": 1, "failed": 1, "pending": 1}
        (box.home / "other").unlink()
        box("run").ok()
        box("verify", "--full").ok()
