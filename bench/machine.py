"""The ground the peers run on: a fresh file system, an nginx, a slow link, and a stopwatch that also counts CPU and memory."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Figure:
    """What one run of one program cost."""

    wall_s: float
    cpu_s: float
    peak_rss_mib: float


@cache
def environment() -> dict[str, str]:
    """Run the program as it is when installed: with its byte code, which some machines forbid to write."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept = tempfile.mkdtemp(prefix="longshore-bench-pycache-")
    atexit.register(shutil.rmtree, kept, ignore_errors=True)
    env |= {"PYTHONPATH": str(HERE.parent / "src"), "PYTHONPYCACHEPREFIX": kept}
    for command in (["get", "https://example.invalid/", "--offline"], ["run", "--offline"], ["status"]):
        whole = [sys.executable, "-m", "longshore", *command, "--depot", f"{kept}/depot", "-q"]
        subprocess.run(whole, env=env, capture_output=True, check=False)
    return env


def measure(command: str, *, cwd: Path, log: Path | None = None) -> Figure:
    """Run a shell command; its children's CPU and the largest resident set count."""
    env = environment()
    watch = [sys.executable, "-I", "-S", str(HERE / "stopwatch.py"), str(log or os.devnull), command]
    told = subprocess.run(watch, cwd=cwd, env=env, stdout=subprocess.PIPE, check=True, text=True).stdout
    wall, cpu, rss, code = (float(word) for word in told.split())
    if code:
        tail = log.read_text(errors="replace")[-2000:] if log else ""
        raise SystemExit(f"exit {code:.0f}: {command[:200]}\n{tail}")
    return Figure(wall, cpu, rss / 1024)


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


@contextlib.contextmanager
def far_away(port: int, delay_s: float) -> Iterator[int]:
    """Give the port of a proxy, in a process of its own, that adds a delay in each direction."""
    command = [sys.executable, str(HERE / "delay.py"), str(port), str(delay_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(10)
