"""Bodies that do not fit: what never fits fails at once, what does not fit now counts, a full disk is waited for."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import LOOPBACK, Box
from tests.cli.test_full_disks import full
from tests.support.disks import small_disk
from tests.support.origin import Gate, Origin, Thing, chunked, close_delimited, cut, endless, stamped, status
from tests.support.program import Ran, command, environment, eventually, execute, started

pytestmark = pytest.mark.slow

MIB = 1 << 20
ATTEMPTS = 3


@contextlib.contextmanager
def with_store(
    tmp_path: Path, size: str = "16m", inodes: int = 0, *, whole: bool = False
) -> Iterator[tuple[Box, Path]]:
    """A depot whose store (or the `whole` of it) is on a small disk."""
    with small_disk(size, inodes) as disk:
        depot = disk / "depot" if whole else tmp_path / "depot"
        env = LOOPBACK | {
            "LONGSHORE_DEPOT": str(depot),
            "LONGSHORE_STORE": str(disk / "store"),
            "LONGSHORE_QUOTA__FREE_BYTES_MIN": str(MIB),
            "LONGSHORE_RETRY__MAX_ATTEMPTS": str(ATTEMPTS),
        }
        yield Box(tmp_path, env), disk


def fill(disk: Path, left: int) -> Path:
    """Leave so many bytes free."""
    filler = disk / "filler"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    filler.write_bytes(bytes(max(0, free - left)))
    return filler


@pytest.mark.parametrize("declared", [17 * MIB, 200 << 30, (1 << 40) - 1])
def test_what_is_larger_than_the_disk_fails_at_once(origin: Origin, tmp_path: Path, declared: int) -> None:
    with with_store(tmp_path) as (box, disk):
        url = origin.add("/huge", endless(declared))
        ran = box("get", url, "--json")
        assert ran.code == 3
        (failed,) = ran.of("failed")
        assert failed["reason"] == "too_large"
        assert "never fit" in failed["message"]
        assert origin.count("/huge") == 1
        assert not list((disk / "store/.staging/parts").rglob("body"))


def test_what_does_not_fit_now_counts_and_others_go_on(origin: Origin, tmp_path: Path) -> None:
    with with_store(tmp_path) as (box, disk):
        fill(disk, 6 * MIB)
        urls = [origin.add("/large", endless(8 * MIB))]
        urls += [origin.add(f"/{n}", Thing(stamped(n, 9_000))) for n in range(5)]
        ran = box("get", *urls, "--json")
        assert ran.code == 3
        assert [one["reason"] for one in ran.of("failed")] == ["disk_full"]
        assert len(ran.of("completed")) == 5
        assert origin.count("/large") == ATTEMPTS


def test_a_body_without_a_length_that_fills_the_disk_counts(origin: Origin, tmp_path: Path) -> None:
    with with_store(tmp_path, "48m") as (box, disk):
        ran = box("get", origin.add("/endless", endless()), origin.add("/a", Thing(b"a")), "--json")
        assert ran.code == 3
        assert [one["reason"] for one in ran.of("failed")] == ["disk_full"]
        assert len(ran.of("completed")) == 1
        assert origin.count("/endless") <= ATTEMPTS
        assert os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize > 40 * MIB


@pytest.mark.parametrize("way", [chunked, close_delimited])
def test_a_body_of_unknown_length_larger_than_a_tiny_disk_counts(origin: Origin, tmp_path: Path, way: object) -> None:
    with with_store(tmp_path, "8m") as (box, _):
        box.env["LONGSHORE_QUOTA__FREE_BYTES_MIN"] = "0"
        thing = Thing(stamped(1, 12 * MIB), extra={"Accept-Ranges": "bytes"})
        url = origin.add("/long", way(thing, 100_000) if way is chunked else way(thing))  # type: ignore[operator]
        ran = box("get", url, "--json")
        assert ran.code == 3
        assert [one["reason"] for one in ran.of("failed")] == ["disk_full"]
        assert origin.count("/long") <= ATTEMPTS


def test_a_full_disk_is_not_asked_for_and_goes_on(origin: Origin, tmp_path: Path) -> None:
    with with_store(tmp_path) as (box, disk):
        box("get", origin.add("/first", Thing(b"first"))).ok()
        filler = fill(disk, 0)
        urls = [origin.add(f"/{n}", Thing(stamped(n, 90_000))) for n in range(20)]
        with started(tmp_path / "get", "get", *urls, env=box.env) as running:
            eventually(lambda: "the disk is full" in running.stderr, "it says why it waits")
            with pytest.raises(AssertionError):
                eventually(lambda: sum(origin.count(f"/{n}") for n in range(20)), "a request", timeout_s=2.0)
            filler.unlink()
            ran = running.wait()
        assert ran.code == 0, ran.stderr
        assert ran.stderr.count("the disk is full") == 1
        assert all(origin.count(f"/{n}") == 1 for n in range(20))


@pytest.mark.parametrize("whole", [False, True], ids=["store", "depot"])
def test_no_inodes_mid_run_is_waited_for(origin: Origin, tmp_path: Path, whole: bool) -> None:
    with with_store(tmp_path, "64m", 600, whole=whole) as (box, disk):
        box("get", origin.add("/first", Thing(b"first"))).ok()
        fillers = []
        with contextlib.suppress(OSError):
            for n in range(600 - 200):
                (disk / f"filler{n}").touch()
                fillers.append(disk / f"filler{n}")
        urls = [origin.add(f"/{n}", Thing(stamped(n, 9_000))) for n in range(300)]
        with started(tmp_path / "get", "get", *urls, env=box.env) as running:
            eventually(lambda: "the disk is full" in running.stderr, "it says why it waits")
            assert running.process.poll() is None
            for filler in fillers:
                filler.unlink()
            ran = running.wait()
        assert ran.code == 0, ran.stderr
        assert max(origin.count(f"/{n}") for n in range(300)) <= 3
        box("verify").ok()


def test_a_disk_that_fills_up_between_two_attempts_is_waited_for(origin: Origin, tmp_path: Path) -> None:
    """No job is held at that time: it is the ledger, on the same disk, that cannot be written."""
    with with_store(tmp_path, "16m", whole=True) as (box, disk):
        box.env |= {"LONGSHORE_RETRY__BASE_S": "2", "LONGSHORE_RETRY__CAP_S": "2"}
        box.env["LONGSHORE_QUOTA__FREE_BYTES_MIN"] = "0"
        url = origin.add("/a", status(503), Thing(stamped(1, 9_000)))
        with started(tmp_path / "get", "get", url, env=box.env) as running:
            eventually(
                lambda: "503" in running.stderr or "503" in running.stdout or origin.count("/a"), "it failed once"
            )
            with full(disk):
                eventually(lambda: "the disk is full" in running.stderr, "it says why it waits")
                assert running.process.poll() is None
            ran = running.wait()
        assert ran.code == 0, ran.stderr
        assert origin.count("/a") == 2


def test_a_part_that_fits_the_disk_only_once_is_taken_over(origin: Origin, tmp_path: Path) -> None:
    with with_store(tmp_path) as (box, _):
        thing = Thing(stamped(1, 12 * MIB))
        url = origin.add("/big", cut(thing, 9 * MIB), thing)
        (got,) = box("get", url, "--json").ok().of("completed")
        assert Path(got["path"]).read_bytes() == thing.body
        assert [one.headers.get("range") is not None for one in origin.seen("/big")] == [False, True]


@pytest.mark.parametrize(
    ("name", "hit"), [("part.adopt", 1), ("part.move", 1), ("part.move", 5), ("stream.adopted", 1)]
)
def test_a_kill_while_a_part_is_taken_over_costs_bytes_but_no_room(
    origin: Origin, tmp_path: Path, name: str, hit: int
) -> None:
    with with_store(tmp_path) as (box, disk):
        thing = Thing(stamped(1, 12 * MIB))
        url = origin.add("/big", cut(thing, 9 * MIB), thing)
        killed = execute("get", url, env=box.env | {"LONGSHORE_FAILPOINTS": f"{name}=kill@{hit}"})
        assert killed.code == -signal.SIGKILL, killed.stderr
        (got,) = box("get", url, "--json").ok().of("completed")
        assert Path(got["path"]).read_bytes() == thing.body
        assert not list((disk / "store/.staging/parts").rglob("body"))
        box("verify", "--full").ok()


@pytest.mark.parametrize("killed", [False, True])
def test_a_disk_that_a_waiting_part_fills_frees_itself(origin: Origin, tmp_path: Path, killed: bool) -> None:
    with with_store(tmp_path) as (box, disk):
        gate = Gate(Thing(stamped(1, 8 * MIB)), 6 * MIB)
        url = origin.add("/big", gate, gate.thing)
        with started(tmp_path / "first", "get", url, env=box.env) as running:
            assert gate.reached.wait(60)
            running.signal(signal.SIGTERM)
            running.wait()
        assert list((disk / "store/.staging/parts").rglob("facts.json"))
        filler = fill(disk, MIB + 10_000)
        small = origin.add("/small", Thing(b"small"))
        if killed:
            died = execute("get", small, env=box.env | {"LONGSHORE_FAILPOINTS": "disk.part=kill"})
            assert died.code == -signal.SIGKILL, died.stderr
        ran = execute("get", small, "--max-wait", "60" if killed else "6", env=box.env).ok()
        assert killed or "was dropped to make room; it starts from zero" in ran.stderr
        filler.unlink()
        (got,) = box("get", url, "--json").ok().of("completed")
        assert Path(got["path"]).read_bytes() == gate.thing.body


def test_parts_are_kept_where_other_data_fills_the_disk(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longshore.worker.full_disk.PATIENCE_S", 0.0)
    with with_store(tmp_path) as (box, disk):
        gate = Gate(Thing(stamped(1, 4 * MIB)), 400_000)
        with started(tmp_path / "first", "get", origin.add("/big", gate, gate.thing), env=box.env) as running:
            assert gate.reached.wait(60)
            running.signal(signal.SIGTERM)
            running.wait()
        fill(disk, 0)
        ran = box("get", origin.add("/small", Thing(b"small")), "--max-wait", "3")
        assert ran.code != 0
        assert list((disk / "store/.staging/parts").rglob("facts.json"))


def test_a_limit_on_file_sizes_is_not_called_a_full_disk(origin: Origin, box: Box) -> None:
    thing = Thing(stamped(1, 6 * MIB))
    words = command("get", origin.add("/big", thing), "--json")
    ran = subprocess.run(
        ["bash", "-c", 'ulimit -f 3072; exec "$@"', "-", *words],
        env=environment(box.env),
        capture_output=True,
        text=True,
    )
    (failed,) = Ran(ran.returncode, ran.stdout, ran.stderr).of("failed")
    assert (failed["reason"], origin.count("/big")) == ("too_large", 1)
    assert "File too large" in failed["message"]


@pytest.mark.parametrize("words", ["put FILE", "get URL -o DISK/out", "get URL -d DISK/out"])
def test_no_command_that_ends_promises_to_go_on(origin: Origin, box: Box, words: str) -> None:
    file, url = box.write("file", "x" * 3 * MIB), origin.add("/a", Thing(stamped(1, 3 * MIB)))
    with small_disk("2m") as disk:
        env = {"LONGSHORE_STORE": str(disk / "store"), "LONGSHORE_QUOTA__FREE_BYTES_MIN": "0"} if "put" in words else {}
        if "put" in words:
            fill(disk, 50_000)
        words = words.replace("FILE", str(file)).replace("URL", url).replace("DISK", str(disk))
        ran = box(*words.split(), env=env)
        assert ran.code != 0
        told = ran.stderr + ran.stdout
        assert "automatically" not in told
        assert "by itself" not in told
        assert "room" in told or "larger disk" in told, told
