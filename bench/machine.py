"""The ground the peers run on: a fresh file system, an nginx, a slow link, and a stopwatch that also counts CPU and memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """What one run of one program cost."""

    wall_s: float
    cpu_s: float
    peak_rss_mib: float


def measure(command: str, *, cwd: Path, env: dict[str, str] | None = None, log: Path | None = None) -> Figure:
    """Run a shell command; its children's CPU and the largest resident set count."""
    started = time.perf_counter()
    with open(log or os.devnull, "ab") as out:
        process = subprocess.Popen(["bash", "-c", f"set -e\n{command}"], cwd=cwd, env=env, stdout=out, stderr=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - started
    if process.returncode:
        tail = log.read_text(errors="replace")[-2000:] if log else ""
        raise SystemExit(f"exit {process.returncode}: {command[:200]}\n{tail}")
    return Figure(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


@contextlib.contextmanager
def fresh_disk(size: str = "6G") -> Iterator[Path]:
    """Give an empty ext4 on a loop image where root allows, else a plain directory (and say so)."""
    home = Path(tempfile.mkdtemp(prefix="longshore-bench-"))
    image, mount = home / "image", home / "disk"
    mount.mkdir()
    mounted = False
    try:
        subprocess.run(["truncate", "-s", size, image], check=True)
        made = subprocess.run(["mkfs.ext4", "-q", "-F", image], capture_output=True, check=False).returncode == 0
        mounted = (
            made
            and subprocess.run(["mount", "-o", "loop", image, mount], capture_output=True, check=False).returncode == 0
        )
        if not mounted:
            print("note: no loop mount here; figures are of the plain disk")
        yield mount
    finally:
        if mounted:
            subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(home, ignore_errors=True)


def free_port() -> int:
    """Name a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_CONF = """
daemon off; worker_processes 1; pid {home}/pid; error_log {home}/error.log; {user}
events {{ worker_connections 2048; }}
http {{
  access_log {access}; default_type application/octet-stream; sendfile on; tcp_nopush on; keepalive_requests 1000000;
  client_body_temp_path {home}/cb; proxy_temp_path {home}/px; fastcgi_temp_path {home}/fc;
  uwsgi_temp_path {home}/uw; scgi_temp_path {home}/sc;
  open_file_cache max=20000; open_file_cache_valid 600s;
  server {{
    listen {port}; root {root};
    location /slow/ {{ alias {root}/; limit_rate {rate}; }}
  }}
}}
"""


@contextlib.contextmanager
def nginx(root: Path, *, rate: str = "2m", access: bool = False) -> Iterator[tuple[int, Path]]:
    """Serve a directory on every loopback address; `/slow/` is limited per connection."""
    home = Path(tempfile.mkdtemp(prefix="longshore-nginx-"))
    port, log = free_port(), home / "access.log"
    user = "user root;" if os.geteuid() == 0 else ""
    conf = _CONF.format(home=home, root=root, port=port, rate=rate, user=user, access=log if access else "off")
    (home / "nginx.conf").write_text(conf)
    process = subprocess.Popen(["/usr/sbin/nginx", "-p", home, "-c", home / "nginx.conf", "-e", home / "error.log"])
    try:
        while process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.01)
        yield port, log
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        shutil.rmtree(home, ignore_errors=True)


class FarAway:
    """A proxy that adds a delay in each direction and does not limit the rate."""

    def __init__(self, port: int, delay_s: float) -> None:
        self._target, self._delay = port, delay_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target, limit=1 << 20)
        await asyncio.gather(self._carry(reader, up_writer), self._carry(up_reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1024)

        async def take() -> None:
            while data := await reader.read(65536):
                await waiting.put((self._loop.time() + self._delay, data))
            await waiting.put((0.0, b""))

        taking = asyncio.ensure_future(take())
        with contextlib.suppress(ConnectionError, OSError):
            while True:
                due, data = await waiting.get()
                if not data:
                    break
                if (rest := due - self._loop.time()) > 0:
                    await asyncio.sleep(rest)
                writer.write(data)
                await writer.drain()
        taking.cancel()
        writer.close()

    def close(self) -> None:
        """Stop listening."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
