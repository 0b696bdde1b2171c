"""The sets: what is fetched, by whom, and what must have arrived afterwards."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import peers
from bench.machine import Figure, environment, far_away, fresh_disk, measure, nginx
from bench.peers import OURS, PROGRAM, Peer
from bench.report import Limit, Scene

Command = Callable[[Path, Sequence[str]], str]
DIGEST = "openssl dgst -sha256"
AGAIN: dict[str, tuple[Command, Command]] = {
    OURS: (peers.longshore_get, peers.longshore_get),
    "curl -z": (peers.curl, peers.curl_again),
    "wget2 -c": (peers.wget2, peers.wget2_again),
    "aria2c -c": (peers.aria2c, peers.aria2c_again),
}


def _write_files(root: Path, sizes: Sequence[int], *, duplicates: float = 0.0) -> None:
    draw = random.Random(20261116)
    root.mkdir(parents=True, exist_ok=True)
    for number, size in enumerate(sizes):
        if number and draw.random() < duplicates:
            shutil.copyfile(root / f"{draw.randrange(number)}.bin", root / f"{number}.bin")
        else:
            _write_body(root / f"{number}.bin", draw.randbytes(min(size, 1 << 20)), size)


def _write_body(path: Path, piece: bytes, size: int) -> None:
    """Write a body piece by piece: a large one must not grow this process, whose children's memory is measured."""
    with open(path, "wb") as file:
        file.writelines(piece[: size - start] for start in range(0, size, len(piece)))


def _arrived(disk: Path, peer: str, count: int) -> None:
    """Refuse a run that did not bring every file."""
    if peer == OURS:
        out = subprocess.run(
            [sys.executable, "-m", "longshore", "status", "--depot", "depot", "--json"],
            cwd=disk,
            env=environment(),
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        import json

        jobs = json.loads(out.splitlines()[-1])["jobs"]
        if jobs["completed"] + jobs["skipped"] != count:
            raise SystemExit(f"{peer}: {jobs} of {count}")
        return
    found = sum(1 for path in (disk / "out").rglob("*") if path.is_file())
    if found != count:
        raise SystemExit(f"{peer}: {found} files of {count}")


def _race(scene: Scene, racers: Sequence[Peer], urls: Sequence[str], *, repeat: int, disk: str | None) -> None:
    """Run every program on the same files, interleaved, each on an empty disk of its own."""
    for _ in range(repeat):
        for peer in racers:
            with fresh_disk(disk or "6G") if disk else _plain() as place:
                command = peer.command(place, urls)
                os.sync()
                scene.note(peer.name, measure(command, cwd=place, log=place / "log"))
                _arrived(place, peer.name, len(urls))


class _plain:  # noqa: N801 - reads as a word beside fresh_disk
    """A directory on the plain disk."""

    def __enter__(self) -> Path:
        self.path = Path(
            os.environ.get("BENCH_DIR", "/var/tmp"), f"longshore-bench-{os.getpid()}-{time.monotonic_ns()}"
        )
        self.path.mkdir(parents=True)
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def small(work: Path, repeat: int) -> Scene:
    """10,000 × 16 KiB from one host."""
    count = int(os.environ.get("BENCH_SMALL", "10000"))
    scene = Scene("small", f"{count} × 16 KiB, one host, fresh ext4")
    _write_files(work / "small", [16384] * count)
    with nginx(work / "small") as (port, _):
        urls = [f"http://127.0.0.1:{port}/{n}.bin" for n in range(count)]
        racers = [peers.CURL_HASH_SYNC, peers.LONGSHORE, peers.CURL, peers.WGET2]
        _race(scene, racers, urls, repeat=repeat, disk="4G")
        _race(scene, [peers.ARIA2C], urls, repeat=1, disk="4G")
    scene.faster(OURS, peers.CURL_HASH_SYNC.name, 1.2)
    scene.faster(OURS, peers.ARIA2C.name, 10)
    return scene


def mixed(work: Path, repeat: int) -> Scene:
    """2,000 files of 1 KiB to 8 MiB over 20 hosts, a tenth of them duplicates."""
    draw = random.Random(7)
    sizes = [int(1024 * 2 ** (draw.random() ** 2 * 13)) for _ in range(2000)]
    scene = Scene("mixed", "2,000 files of 1 KiB to 8 MiB, 20 hosts, 10 % duplicates, fresh ext4")
    _write_files(work / "mixed", sizes, duplicates=0.1)
    with nginx(work / "mixed") as (port, _):
        urls = [f"http://127.0.0.{n % 20 + 1}:{port}/{n}.bin" for n in range(len(sizes))]
        _race(scene, [peers.CURL_HASH_SYNC, peers.LONGSHORE, peers.CURL, peers.WGET2], urls, repeat=repeat, disk="8G")
        _race(scene, [peers.ARIA2C], urls, repeat=1, disk="8G")
    scene.faster(OURS, peers.CURL_HASH_SYNC.name, 1.2)
    scene.faster(OURS, peers.ARIA2C.name, 10)
    return scene


def large(work: Path, repeat: int) -> Scene:
    """One body of 2 GiB, on the plain disk."""
    scene = Scene("large", "one body of 2 GiB, plain disk")
    _write_files(work / "large", [2 << 30])
    with nginx(work / "large") as (port, _):
        urls = [f"http://127.0.0.1:{port}/0.bin"]
        for _ in range(repeat):
            _race(scene, [peers.CURL_SYNC, peers.LONGSHORE_GET, peers.ARIA2C], urls, repeat=1, disk=None)
            scene.note(DIGEST, measure(f"openssl dgst -sha256 {work}/large/0.bin", cwd=work))
    (work / "large" / "0.bin").unlink()
    scene.at_most(OURS, peers.CURL_SYNC.name, 0.6)
    scene.at_most(OURS, DIGEST, 1.5)
    return scene


def slow(work: Path, repeat: int) -> Scene:
    """One body of 256 MiB over a link that is far away and limited per connection."""
    scene = Scene("slow", "256 MiB, 2 MiB/s per connection, 50 ms each way, 16 connections")
    _write_files(work / "slow", [256 << 20])
    with nginx(work / "slow", rate="2m") as (port, _), far_away(port, 0.05) as away:
        urls = [f"http://127.0.0.1:{away}/slow/0.bin"]
        racers = [peers.ARIA2C_16, peers.ARIA2C_16_1M, peers.LONGSHORE_16]
        _race(scene, racers, urls, repeat=repeat, disk=None)
    scene.faster(OURS, peers.ARIA2C_16.name, 1.0)
    scene.faster(OURS, peers.ARIA2C_16_1M.name, 1.0)
    return scene


def far(work: Path, repeat: int) -> Scene:
    """500 small files from far away."""
    scene = Scene("far", "500 × 16 KiB, 50 ms each way, 32 connections")
    _write_files(work / "far", [16384] * 500)
    with nginx(work / "far") as (port, _), far_away(port, 0.05) as away:
        urls = [f"http://127.0.0.1:{away}/{n}.bin" for n in range(500)]
        _race(scene, [peers.ARIA2C, peers.WGET2, peers.CURL, peers.LONGSHORE_GET], urls, repeat=repeat, disk=None)
    scene.faster(OURS, peers.ARIA2C.name, 1.0)
    scene.faster(OURS, peers.WGET2.name, 1.0)
    return scene


def rerun(work: Path, repeat: int) -> Scene:
    """The small set again: nothing to do."""
    count = int(os.environ.get("BENCH_SMALL", "10000"))
    scene = Scene("rerun", f"the {count} small files again, fresh ext4")
    _write_files(work / "small", [16384] * count)
    with nginx(work / "small", access=True) as (port, log), fresh_disk("4G") as disk:
        urls = [f"http://127.0.0.1:{port}/{n}.bin" for n in range(count)]
        places = {name: _first_time(disk, name, first, urls) for name, (first, _) in AGAIN.items()}
        asked = dict.fromkeys(AGAIN, 0)
        for _ in range(repeat):
            for name, (_, second) in AGAIN.items():
                before = log.stat().st_size
                scene.note(name, measure(second(places[name], urls), cwd=places[name], log=places[name] / "log"))
                asked[name] += log.stat().st_size - before
        scene.extra |= {f"{name}: bytes in the server's log": size for name, size in asked.items()}
    asking = [name for name in AGAIN if name != OURS]
    fastest = min(asking, key=scene.median)
    scene.faster(OURS, fastest, 1.0, what=f"times as fast as the fastest that asks ({fastest})")
    scene.limits.append(Limit("bytes asked of the server", asked[OURS], 0, most_is_best=False))
    return scene


def _first_time(disk: Path, name: str, first: Command, urls: Sequence[str]) -> Path:
    place = disk / name.replace(" ", "")
    place.mkdir()
    measure(first(place, urls), cwd=place, log=place / "log")
    return place


def plan(work: Path, repeat: int) -> Scene:
    """1,000,000 URLs taken in, and once more."""
    count = int(os.environ.get("BENCH_PLAN", "1000000"))
    scene = Scene("plan", f"{count:,} URLs")
    listing = work / "million.txt"
    with open(listing, "w") as file:
        file.writelines(f"https://host{n % 1000}.example.org/papers/{n}.pdf\n" for n in range(count))
    for _ in range(min(repeat, 2)):
        with _Depot(work) as depot:
            for name in ("add", "add again"):
                figure = measure(f"{PROGRAM} add {listing} --depot {depot} -q", cwd=work, log=work / "log")
                scene.note(name, figure)
    for name in ("add", "add again"):
        scene.extra[f"{name}: URLs per second"] = round(count / scene.median(name))
    scene.limits.append(Limit("URLs planned per second", count / scene.median("add"), 20_000, most_is_best=True))
    rss = max(run.peak_rss_mib for run in scene.runs["add"])
    scene.limits.append(Limit("peak MiB of add", rss, 150, most_is_best=False))
    return scene


def backlog(work: Path, repeat: int) -> Scene:
    """Claims and a worker's memory with 10⁴ to 10⁷ jobs waiting."""
    from bench.backlog import backlog as measured

    return measured(work, _write_files)


class _Depot:
    def __init__(self, work: Path) -> None:
        self.path = work / "plan-depot"

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


SCENES: dict[str, Callable[[Path, int], Scene]] = {
    "small": small, "mixed": mixed, "large": large, "slow": slow, "far": far, "rerun": rerun, "plan": plan,
    "backlog": backlog,
}  # fmt: skip
__all__ = ["SCENES", "Figure"]
