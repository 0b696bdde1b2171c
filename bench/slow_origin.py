"""An origin that answers after a pause: `python -m bench.slow_origin SECONDS` prints its port and serves until killed."""

from __future__ import annotations

import asyncio
import hashlib
import sys

SIZE = 4096


class Origin(asyncio.Protocol):
    """HTTP/1.1 with keep-alive; the body is made of the path, so every URL has its own bytes."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._buffer = b""
        self._out: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._out = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._out = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            path = head.split(b" ", 2)[1]
            if self._pause_s:
                asyncio.get_running_loop().call_later(self._pause_s, self._answer, path)
            else:
                self._answer(path)

    def _answer(self, path: bytes) -> None:
        if self._out is None:
            return
        seed = hashlib.sha256(path).digest()
        body = seed * (SIZE // len(seed))
        head = b'HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nETag: "%s"\r\nContent-Length: %d\r\n\r\n'
        self._out.write(head % (seed.hex()[:16].encode(), len(body)) + body)


async def main(pause_s: float) -> None:
    """Serve for ever."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Origin(pause_s), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
