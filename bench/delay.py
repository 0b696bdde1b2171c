"""A proxy that adds a delay in each direction and does not limit the rate: `delay.py TARGET SECONDS [SOCKET]`.

The target is a port of this machine or a socket file. The proxy prints its own port, or listens at SOCKET.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine

LIMIT = 1 << 20
PIECES = 1024  # on their way in one direction; what the network would hold


async def carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float, seen: Callable[[], None]
) -> None:
    """Forward what comes, each piece when it is due."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES)

    async def take() -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                seen()
                await waiting.put((loop.time() + delay_s, data))
        await waiting.put((loop.time() + delay_s, b""))

    taking = asyncio.ensure_future(take())
    with contextlib.suppress(OSError):
        while True:
            due, data = await waiting.get()
            if (rest := due - loop.time()) > 0:
                await asyncio.sleep(rest)
            if not data:
                break
            writer.write(data)
            await writer.drain()
    taking.cancel()
    writer.close()


class Turns:
    """How often a client sent something after it had been answered: round trips, over all connections."""

    def __init__(self) -> None:
        self.count = 0


async def main(target: str, delay_s: float, listen: str | None) -> None:
    """Listen at a port of the system's choice, or at a socket file; print which. At a socket file it prints the number
    of round trips so far for every line on stdin, and exits at its end."""
    turns = Turns()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_target = asyncio.open_unix_connection(target, limit=LIMIT) if "/" in target else _to_port(target)
        up_reader, up_writer = await open_target
        answered = [True]

        def sent() -> None:
            turns.count += answered[0]
            answered[0] = False

        def came() -> None:
            answered[0] = True

        await asyncio.gather(carry(reader, up_writer, delay_s, sent), carry(up_reader, writer, delay_s, came))

    def answer() -> None:
        if not sys.stdin.readline():
            sys.exit()
        print(turns.count, flush=True)

    if listen is None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=LIMIT, backlog=512)
        print(server.sockets[0].getsockname()[1], flush=True)
    else:
        server = await asyncio.start_unix_server(serve, listen, limit=LIMIT, backlog=512)
        print(listen, flush=True)
        asyncio.get_running_loop().add_reader(sys.stdin, answer)
    await server.serve_forever()


def _to_port(port: str) -> Coroutine[None, None, tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    return asyncio.open_connection("127.0.0.1", int(port), limit=LIMIT)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None))
