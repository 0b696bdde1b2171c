"""A million URLs planned, ten thousand of them run: how much memory a worker needs (`python -m bench.million`).

Everything is the program itself: `longshore add` reads a list of a million URLs of one loopback server that answers any
path, `longshore run --limit` works on some of them. Peak memory is the kernel's own (`wait4`, ru_maxrss).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

LIMIT_MIB = 150.0


class Used(NamedTuple):
    """What one process came to."""

    code: int
    seconds: float
    peak_mib: float


def main() -> None:
    """Plan, run and measure; exit 1 when the worker needed more than is allowed."""
    parser = argparse.ArgumentParser(prog="python -m bench.million", description=__doc__)
    parser.add_argument("--urls", type=int, default=1_000_000)
    parser.add_argument("--run", type=int, default=10_000)
    given = parser.parse_args()
    where = Path(tempfile.mkdtemp(prefix="longshore-million-", dir="/var/tmp"))
    try:
        with open(where / "list.txt", "w", encoding="ascii") as file:
            port = serve()
            file.writelines(f"http://127.0.0.1:{port}/works/{number:07d}/paper.pdf\n" for number in range(given.urls))
        added = measure(where, "add", str(where / "list.txt"))
        ran = measure(where, "run", "--limit", str(given.run), "--set", "hosts.concurrency=32")
        print(f"add of {given.urls:,} URLs: {added.seconds:.1f} s, peak RSS {added.peak_mib:.1f} MiB")
        print(f"run of {given.run:,} of them: {ran.seconds:.1f} s, peak RSS {ran.peak_mib:.1f} MiB")
        assert (added.code, ran.code) == (0, 4 if given.run < given.urls else 0), (added, ran)
        subprocess.run(command("status"), env=environment(where), check=True)
    finally:
        shutil.rmtree(where, ignore_errors=True)
    sys.exit(0 if ran.peak_mib < LIMIT_MIB else 1)


def measure(where: Path, *arguments: str) -> Used:
    """Run the program to its end; the kernel tells how much memory it had at its peak."""
    started = time.monotonic()
    child = os.posix_spawn(sys.executable, command(*arguments), environment(where))
    _, status, usage = os.wait4(child, 0)
    return Used(os.waitstatus_to_exitcode(status), time.monotonic() - started, usage.ru_maxrss / 1024)


def command(*arguments: str) -> list[str]:
    """Give the command line of the program."""
    return [sys.executable, "-m", "longshore", *arguments]


def environment(where: Path) -> dict[str, str]:
    """Give the environment of a depot of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LONGSHORE_")}
    return kept | {"LONGSHORE_DEPOT": str(where / "depot"), "LONGSHORE_NETWORK__ALLOW": '["127.0.0.0/8"]'}


def serve() -> int:
    """Start a server in a thread that answers any path with a small body of its own; give its port."""
    ready: list[int] = []
    begun = threading.Event()

    async def listen() -> None:
        server = await asyncio.start_server(_answer, "127.0.0.1", 0)
        ready.append(server.sockets[0].getsockname()[1])
        begun.set()
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(listen()), daemon=True).start()
    begun.wait()
    return ready[0]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while request := await reader.readuntil(b"\r\n\r\n"):
            path = request.split(b" ", 2)[1]
            body = b"%PDF-1.4\n" + path * 40
            head = b'HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\nETag: "%b"\r\nContent-Length: %d\r\n\r\n'
            writer.write(head % (path[-16:].replace(b"/", b"-"), len(body)) + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


if __name__ == "__main__":
    main()
