"""The store alone: durable small files per second, and one large body. `python -m bench.store [DIR]`.

Figures of one run on one file system are comparable; others are not. A fresh loop image is made where root allows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from longshore.domain.model import Blob, Scope
from longshore.store import LocalStore, Staged

SCOPE = Scope()


@contextlib.contextmanager
def fresh_file_system(where: str, megabytes: int) -> Iterator[Path]:
    """Mount a new ext4 image; a plain directory where that is not allowed."""
    with tempfile.TemporaryDirectory(dir=where) as base:
        image, mounted = Path(base, "image"), Path(base, "mounted")
        mounted.mkdir()
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
        if subprocess.run(["mount", "-o", "loop,noatime", str(image), str(mounted)], check=False).returncode:
            yield Path(base)
            return
        try:
            yield mounted
        finally:
            subprocess.run(["umount", str(mounted)], check=True)


def lap(phases: dict[str, float], name: str, since: float) -> float:
    now = time.monotonic()
    phases[name] += now - since
    return now


def small_files(root: Path, count: int, size: int, batch: int) -> dict[str, float]:
    store = LocalStore(root)
    filler = os.urandom(size - 8)
    phases = dict.fromkeys(("hash", "stage", "link", "clean"), 0.0)
    started, cpu = time.monotonic(), time.process_time()
    for first in range(0, count, batch):
        clock = time.monotonic()
        items = []
        for number in range(first, min(first + batch, count)):
            body = filler + number.to_bytes(8, "big")
            sha256 = hashlib.sha256(body).hexdigest()
            items.append(Staged(SCOPE, f"job{number}", 1, sha256, size, "application/octet-stream", body))
        clock = lap(phases, "hash", clock)
        assert store.stage(items) == [None] * len(items)
        clock = lap(phases, "stage", clock)
        assert all(isinstance(result, Blob) for result in store.link(items))
        clock = lap(phases, "link", clock)
        store.clean(items)
        lap(phases, "clean", clock)
    wall, spent = time.monotonic() - started, time.process_time() - cpu
    store.close()
    return {"files_per_s": count / wall, "cpu_us_per_file": spent / count * 1e6, **phases}


def large_body(root: Path, size: int) -> dict[str, float]:
    store = LocalStore(root)
    chunk = os.urandom(16 << 10)

    async def run() -> float:
        part = store.part(SCOPE, "large", 1)
        part.begin(url="bench:", total=size, preallocate=store.preallocation(size, size))
        room = asyncio.Event()
        pump = store.pump(part, room.set)
        started = time.monotonic()
        for _ in range(size // len(chunk)):
            if not pump.feed(chunk):
                await room.wait()
                room.clear()
        sha256, length = await pump.finish()
        item = Staged(SCOPE, "large", 1, sha256, length, "application/octet-stream", part)
        assert store.stage([item]) == [None]
        assert isinstance(store.link([item])[0], Blob)
        store.clean([item])
        return time.monotonic() - started

    cpu = time.process_time()
    wall = asyncio.run(run())
    store.close()
    return {"seconds": wall, "cpu_seconds": time.process_time() - cpu, "mib_per_s": size / wall / (1 << 20)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("where", nargs="?", default=tempfile.gettempdir())
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=1 << 30)
    options = parser.parse_args()
    for batch in (32, 128, 512):
        with fresh_file_system(options.where, 2048) as root:
            result = small_files(root / "store", options.files, 16 << 10, batch)
        print(f"small, batch {batch}:", ", ".join(f"{name} {value:.3g}" for name, value in result.items()))
    with tempfile.TemporaryDirectory(dir=options.where) as plain:
        result = large_body(Path(plain, "store"), options.bytes)
    print("large:", ", ".join(f"{name} {value:.3g}" for name, value in result.items()))


if __name__ == "__main__":
    main()
