"""Trace the way of one small download: how many modules it passes, and how often control changes between them.

    PYTHONPATH=src:. python -m bench.trace_modules

The figures are in ADR 19. A warm-up download comes first, so that imports do not count.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Any

import longshore

BODY = bytes(range(256)) * 20  # 5 KiB
PACKAGE = f"{longshore.__path__[0]}/"


class Trace:
    """Counts the package's modules that threads enter, per thread."""

    def __init__(self) -> None:
        self.modules: Counter[str] = Counter()
        self.changes = 0
        self._last: dict[int, str] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call."""
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(PACKAGE):
            return
        module, thread = name.removeprefix(PACKAGE), threading.get_ident()
        if self._last.get(thread) != module:
            self._last[thread] = module
            self.changes += 1
        self.modules[module] += 1

    def copy(self) -> Trace:
        """Return the counts so far."""
        counts = Trace()
        counts.modules, counts.changes = Counter(self.modules), self.changes
        return counts


class Handler(BaseHTTPRequestHandler):
    """Serve one body under every path."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with the body."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.send_header("ETag", '"v1"')
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


async def fetch(folder: str, base: str) -> Trace:
    """Download two files with one open depot; trace the second."""
    trace = Trace()
    threading.setprofile(trace)  # before the depot starts its threads
    sys.setprofile(trace)
    try:
        async with longshore.AsyncDepot.open(folder, network={"allow": ["127.0.0.0/8"]}) as depot:
            await depot.get([f"{base}/warm-up"])
            trace.modules.clear()
            trace.changes = 0
            (got,) = await depot.get([f"{base}/traced"])
            assert got.ok
            return trace.copy()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def main() -> None:
    """Print the figures."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        trace = asyncio.run(fetch(folder, f"http://127.0.0.1:{server.server_port}"))
    server.shutdown()
    print(f"{len(trace.modules)} modules, {trace.changes} changes of module, {trace.modules.total()} calls")
    for module, calls in trace.modules.most_common(10):
        print(f"  {calls:5}  {module}")


if __name__ == "__main__":
    main()
