"""A proxy that adds a delay in each direction and does not limit the rate: `delay.py PORT SECONDS` prints its own port."""

from __future__ import annotations

import asyncio
import contextlib
import sys

PIECES = 1024  # on their way in one direction; what the network would hold


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Hand on what comes, each piece when it is due."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES)

    async def take() -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
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


async def main(target: int, delay_s: float) -> None:
    """Listen until somebody ends us."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", target, limit=1 << 20)
        await asyncio.gather(carry(reader, up_writer, delay_s), carry(up_reader, writer, delay_s))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
