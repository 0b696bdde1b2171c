"""Somebody who knows nothing of us reads the store while everything runs: a visible name is always its bytes' hash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from longshore.domain.kinds import Status
from tests.support.origin import Behaviour, Origin, Thing, chunked, cut, overlong, stamped, status
from tests.worker.conftest import MakeDepot

# Uses nothing of ours: walks, hashes, and says what it saw. It ends when the last walk began after it was told to stop.
READER = """
import hashlib, os, sys
root, stop = sys.argv[1:]
seen, looks, told, last = set(), 0, False, False
while not last:
    last = os.path.exists(stop)
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if name.startswith("."):
                continue
            with open(os.path.join(folder, name), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                body = file.read()
            digest = hashlib.sha256(body).hexdigest()
            if len(body) != size or digest != name[:64] or os.path.basename(folder) != name[:2]:
                sys.exit(f"{name}: {len(body)} of {size} bytes, {digest}")
            seen.add(name)
            looks += 1
    if looks and not told:
        told = True
        print("reading", flush=True)
print(len(seen), looks, flush=True)
"""


def fill(origin: Origin) -> tuple[list[str], set[bytes]]:
    """Make things of every size on honest, flaky and lying paths; some bodies come from several of them."""
    urls, bodies = [], set()
    for number, size in enumerate([0, 1, 4_096, 70_000, 262_145, 900_000, 2_500_000] * 6):
        body = stamped(number % 21, size)  # every body twice
        thing = Thing(body)
        bodies.add(body)
        paths: list[list[Behaviour]] = [
            [thing],
            [cut(thing, size // 2), thing],
            [cut(thing, size // 3, "reset"), status(503), thing],
            [overlong(thing, b"more than was declared"), thing],
            [chunked(thing)],
            [cut(thing, size // 2), Thing(body, etag='"changed"')],
        ]
        urls.append(origin.add(f"/{number}", *paths[number % len(paths)]))
    return urls, bodies


def test_an_independent_reader_never_sees_a_wrong_name(make_depot: MakeDepot, origin: Origin, tmp_path: Path) -> None:
    depot = make_depot(transfer={"concurrency": 16})
    root = Path(depot.settings.depot or "") / "store"
    assert depot.get([origin.add("/first", Thing(b"there from the beginning"))])[0].status is Status.COMPLETED
    assert any(path.is_dir() for path in root.iterdir()), root
    stop = tmp_path / "stop"
    command = [sys.executable, "-c", READER, os.fspath(root), os.fspath(stop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        urls, bodies = fill(origin)
        got = depot.get(urls)
        stop.touch()
        told = reader.stdout.read().splitlines()[-1]
    assert reader.returncode == 0, told
    seen, looks = map(int, told.split())
    assert {one.status for one in got} == {Status.COMPLETED}
    assert seen == len(bodies) + 1
    assert looks > seen
