"""`make demo`: download a few hundred files on loopback (duplicates, flaky, one of a wrong type), with a kill -9.

No internet is needed; everything happens in a temporary directory that is removed at the end.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

SOURCES = Path(__file__).resolve().parents[1] / "src"
FILES, TWINS, FLAKY = 300, 40, 30
KILL_AFTER = 120  # requests
BOLD, PLAIN = ("\033[1m", "\033[0m") if sys.stdout.isatty() and "NO_COLOR" not in os.environ else ("", "")


def body_of(number: int) -> bytes:
    """Return the same bytes for the same number, every time."""
    return random.Random(number).randbytes(2_000 + number * 97 % 60_000)


class Site(BaseHTTPRequestHandler):
    """A server: some files succeed at once, some break the first time, one has the wrong type."""

    protocol_version = "HTTP/1.1"
    served: ClassVar[Counter[str]] = Counter()
    lock = threading.Lock()
    sent_bytes = 0
    delay_s = 0.02

    def do_GET(self) -> None:
        time.sleep(self.delay_s)
        with self.lock:
            self.served[self.path] += 1
            first = self.served[self.path] == 1
        kind, _, name = self.path.strip("/").partition("/")
        if kind == "lies":
            self.answer(b"<!doctype html><title>Log in</title><p>Please log in to read this paper.", "application/pdf")
        elif kind == "flaky" and first and int(name) % 2:
            self.send_error(503)
        elif kind == "flaky" and first:
            self.answer(body_of(int(name)), cut=True)
        else:
            self.answer(body_of(int(name)))

    def answer(self, body: bytes, media_type: str = "application/octet-stream", *, cut: bool = False) -> None:
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()[:16]}"')
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        with self.lock:
            Site.sent_bytes += len(body) // (2 if cut else 1)
        if cut:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Suppress the request log."""


class Quiet(ThreadingHTTPServer):
    """A server that does not print a traceback when its client is killed."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignore the error: the demo kills its client on purpose."""


def write_list(path: Path, base: str) -> int:
    """Write the list of URLs: files, duplicates under other names, flaky files, and the one with the wrong type."""
    urls = [f"{base}/files/{number}" for number in range(FILES)]
    urls += [f"{base}/twins/{number}" for number in range(TWINS)]  # the same bytes as files/NUMBER
    urls += [f"{base}/flaky/{1000 + number}" for number in range(FLAKY)]
    urls.append(f"{base}/lies/paper.pdf")
    path.write_text("\n".join(urls) + "\n")
    return len(urls)


class Demo:
    """Run commands as a user would, and print them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("LONGSHORE_")},
            "PYTHONPATH": str(SOURCES),
            "LONGSHORE_DEPOT": str(home / "depot"),
            "LONGSHORE_NETWORK__ALLOW": '["127.0.0.0/8"]',
            "LONGSHORE_RETRY__BASE_S": "0.2",
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        print(f"\n{BOLD}$ longshore {' '.join(words)}{PLAIN}", flush=True)
        return subprocess.Popen([sys.executable, "-m", "longshore", *words], env=self.environment, cwd=self.home)

    def call(self, *words: str, expected: int = 0) -> None:
        code = self.start(*words).wait()
        if code != expected:
            sys.exit(f"demo: expected exit {expected}, got {code}")

    def kill_in_the_middle(self) -> None:
        running = self.start("run")
        while sum(Site.served.values()) < KILL_AFTER and running.poll() is None:
            time.sleep(0.01)
        running.kill()
        running.wait()
        if sys.stderr.isatty():
            print("\033[?25h", end="")  # a killed process cannot restore the cursor
        print(f"{BOLD}kill -9{PLAIN} after {sum(Site.served.values())} requests", flush=True)


def main() -> None:
    """Run the demo."""
    began = time.monotonic()
    server = Quiet(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="longshore-demo-") as folder:
        home = Path(folder)
        demo = Demo(home)
        count = write_list(home / "list.txt", f"http://127.0.0.1:{server.server_address[1]}")
        print(f"A server on loopback with {count} URLs: {TWINS} duplicates, {FLAKY} flaky, one with the wrong type.")
        demo.call("add", "list.txt")
        demo.kill_in_the_middle()
        demo.call("status")
        demo.call("run", expected=3)
        demo.call("status")
        demo.call("failures")
        demo.call("verify")
        demo.call("reconcile", "--dry-run")
        before = sum(Site.served.values())
        demo.call("add", "list.txt")
        demo.call("run", "-q")
        extra = sum(count - 1 for count in Site.served.values() if count > 1)
        print(f"\nRunning again sent {sum(Site.served.values()) - before} requests.")
        print(
            f"{count} URLs, {sum(Site.served.values())} requests in all: {extra} were repeats (flaky ones and the kill)."
        )
        print(f"{time.monotonic() - began:.1f} s.")
    server.shutdown()


if __name__ == "__main__":
    main()
