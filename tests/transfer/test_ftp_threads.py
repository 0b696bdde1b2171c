"""FTP and SFTP servers that fall silent delay nothing but their own file: libcurl waits for them in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from longshore.domain.settings import Settings
from longshore.errors import Reasoned
from longshore.transfer import Answer, FetchRequest, Memory, Transfer
from tests.support.cable import Cable
from tests.support.liar_ftp import LiarFtp
from tests.support.origin import Origin, Thing, stamped
from tests.support.settings import tuned
from tests.support.silent_sftp import SilentSftp
from tests.transfer.wire import within

DATA = stamped(1, 300_000)
WHOLE = f"213 {len(DATA)}"
PAGE = Thing(stamped(2, 2000))
GAP_S = 1.0  # longest time without an answer of the healthy host
END_S = 2.0  # longest time from a stop to its end


@dataclass
class Healthy:
    """Requests to a healthy host, one after the other, and the longest time between two answers."""

    served: int = 0
    longest_s: float = 0.0


@asynccontextmanager
async def beside(transfer: Transfer, url: str) -> AsyncIterator[Healthy]:
    """Ask a healthy host all the time."""
    seen = Healthy()

    async def ask() -> None:
        last = time.monotonic()
        while True:
            await transfer.fetch(FetchRequest(url), Memory())
            now = time.monotonic()
            seen.served, seen.longest_s, last = seen.served + 1, max(seen.longest_s, now - last), now
            await asyncio.sleep(0.01)

    task = asyncio.ensure_future(ask())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.wait({task})


async def failure_of(work: Coroutine[Any, Any, Answer]) -> Reasoned:
    with pytest.raises(Reasoned) as caught:
        await work
    return caught.value


def in_time(work: Callable[[Transfer], Awaitable[None]], settings: Settings, limit_s: float = 60.0) -> None:
    """Run `work` in a thread, so that a call that never returns fails the test and does not hang the suite."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            within(work, settings=settings)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    assert not thread.is_alive(), "the event loop hangs"
    if errors:
        raise errors[0]


class LateFtp(LiarFtp):
    """Sends its replies to QUIT, or after the data, late."""

    quit_s = reply_s = 0.0

    def _reply(self, verb: str, data: Any) -> str:
        if verb == "QUIT":
            time.sleep(self.quit_s)
        return super()._reply(verb, data)

    def _send(self, data: Any, content: bytes) -> None:
        super()._send(data, content)
        time.sleep(self.reply_s)


def test_final_replies_that_never_come_delay_nobody(origin: Origin) -> None:
    """Each file waits as long as the setting allows, and all of them at the same time."""
    page = origin.add("/page", PAGE)

    async def both(transfer: Transfer) -> None:
        async with beside(transfer, page) as healthy:
            began = time.monotonic()
            asks = [failure_of(transfer.fetch(FetchRequest(one.url()), Memory())) for one in servers for _ in range(4)]
            errors = await asyncio.gather(*asks)
            took = time.monotonic() - began
        assert {error.reason for error in errors} == {"too_slow"}
        assert all("no reply after the data for 3 s" in str(error) and error.disowned for error in errors)
        assert 3.0 <= took < 3.0 + END_S
        assert healthy.longest_s < GAP_S and healthy.served > 50

    with ExitStack() as stack:
        servers = [stack.enter_context(LiarFtp(DATA, size=WHOLE, end="")) for _ in range(3)]
        in_time(both, tuned(stall_s=3.0))


def test_a_final_reply_that_comes_late_completes_its_file(origin: Origin) -> None:
    page = origin.add("/page", PAGE)

    async def both(transfer: Transfer) -> None:
        async with beside(transfer, page) as healthy:
            sinks = [Memory() for _ in range(4)]
            await asyncio.gather(*(transfer.fetch(FetchRequest(server.url()), sink) for sink in sinks))
        assert all(sink.body == DATA for sink in sinks)
        assert healthy.longest_s < GAP_S

    with LateFtp(DATA, size=WHOLE) as server:
        server.reply_s = 3.0
        in_time(both, tuned(stall_s=20.0))


def test_the_reply_is_waited_for_at_most_ten_seconds() -> None:
    async def alone(transfer: Transfer) -> None:
        began = time.monotonic()
        error = await failure_of(transfer.fetch(FetchRequest(server.url()), Memory()))
        assert "no reply after the data for 10 s" in str(error)
        assert 10.0 <= time.monotonic() - began < 10.0 + END_S

    with LiarFtp(DATA, size=WHOLE, end="") as server:
        in_time(alone, tuned(stall_s=60.0))


def test_a_quit_without_a_reply_delays_nobody(origin: Origin) -> None:
    page = origin.add("/page", PAGE)

    async def both(transfer: Transfer) -> None:
        async with beside(transfer, page) as healthy:
            await asyncio.gather(*(transfer.fetch(FetchRequest(server.url()), Memory()) for _ in range(6)))
        assert healthy.longest_s < GAP_S

    with LateFtp(DATA, size=WHOLE) as server:
        server.quit_s = 30.0
        in_time(both, tuned(stall_s=20.0))


# --- servers that are left while libcurl waits for them


@contextmanager
def ftp_without_reply(_: Path) -> Iterator[tuple[str, Settings]]:
    with LiarFtp(DATA, size=WHOLE, end="") as server:
        yield server.url(), tuned(stall_s=60.0)


@contextmanager
def silent_sftp(where: str, folder: Path) -> Iterator[tuple[str, Settings]]:
    with SilentSftp(DATA, where) as server:
        yield server.url(), sftp_settings(server, folder)


@contextmanager
def pulled_cable(folder: Path) -> Iterator[tuple[str, Settings]]:
    """An SFTP server behind a link that goes down in the middle of the file."""
    with SilentSftp(DATA, "read") as server, Cable(("127.0.0.1", server.port)) as cable:

        def pull() -> None:
            server.reached.wait(30)
            time.sleep(0.5)  # the bytes before that request are still on their way
            cable.pull()

        threading.Thread(target=pull, daemon=True).start()
        yield f"sftp://127.0.0.1:{cable.port}/f", sftp_settings(server, folder)


def sftp_settings(server: SilentSftp, folder: Path, stall_s: float = 60.0) -> Settings:
    known = str(folder / "known_hosts")
    credentials = {"sftp://127.0.0.1": server.login}
    return tuned(stall_s=stall_s, known_hosts=known, host_keys="accept_new", credentials=credentials)


SILENT: dict[str, Callable[[Path], Any]] = {
    "ftp": ftp_without_reply,
    "sftp-read": lambda folder: silent_sftp("read", folder),
    "sftp-close": lambda folder: silent_sftp("close", folder),
    "sftp-cable": pulled_cable,
}


async def until_silent(sink: Memory) -> None:
    """Wait until bytes have come and no more come."""
    last, limit = -1, time.monotonic() + 20
    while last < 1 or last != sum(map(len, sink.pieces)):
        assert time.monotonic() < limit, "no byte came"
        last = sum(map(len, sink.pieces))
        await asyncio.sleep(0.3)


@pytest.mark.parametrize("how", SILENT)
@pytest.mark.parametrize("stop", ["cancel", "deadline", "close"])
def test_a_stop_takes_effect_at_once(origin: Origin, tmp_path: Path, how: str, stop: str) -> None:
    page = origin.add("/page", PAGE)

    async def left(transfer: Transfer) -> None:
        sink = Memory()
        deadline = 3.0 if stop == "deadline" else None
        async with beside(transfer, page) as healthy:
            began = time.monotonic()
            task = asyncio.ensure_future(transfer.fetch(FetchRequest(url, deadline_s=deadline), sink))
            await until_silent(sink)
            if stop == "cancel":
                began = time.monotonic()
                task.cancel()
            elif stop == "close":
                began = time.monotonic()
                await transfer.close()
            await asyncio.wait({task})
            took = time.monotonic() - began - (deadline or 0.0)
        assert took < END_S
        assert healthy.longest_s < GAP_S
        await transfer.close()
        assert time.monotonic() - began - (deadline or 0.0) < 2 * END_S

    with SILENT[how](tmp_path) as (url, settings):
        in_time(left, settings)


@pytest.mark.parametrize("how", ["sftp-read", "sftp-cable"])
def test_an_sftp_server_that_falls_silent_is_too_slow(origin: Origin, tmp_path: Path, how: str) -> None:
    page = origin.add("/page", PAGE)

    async def both(transfer: Transfer) -> None:
        async with beside(transfer, page) as healthy:
            error = await failure_of(transfer.fetch(FetchRequest(url), Memory()))
        assert error.reason == "too_slow" and "no byte of the body" in str(error)
        assert healthy.longest_s < GAP_S

    with SILENT[how](tmp_path) as (url, settings):
        in_time(both, tuned(**{**settings.network.__dict__, "stall_s": 2.0, "credentials": settings.credentials.named}))


def test_an_sftp_file_is_complete_with_its_last_byte(origin: Origin, tmp_path: Path) -> None:
    """The answer to the request to close says nothing about the bytes."""
    page, sink = origin.add("/page", PAGE), Memory()

    async def both(transfer: Transfer) -> None:
        async with beside(transfer, page) as healthy:
            got = await transfer.fetch(FetchRequest(server.url()), sink)
        assert sink.body == DATA and got.head.length == len(DATA) and got.address == "127.0.0.1"
        assert healthy.longest_s < GAP_S

    with SilentSftp(DATA, "close") as server:
        in_time(both, sftp_settings(server, tmp_path, stall_s=2.0))


def test_an_sftp_connection_is_used_again(tmp_path: Path) -> None:
    async def two(transfer: Transfer) -> None:
        for start in (0, 1000, 0):
            sink = Memory()
            await transfer.fetch(FetchRequest(server.url(), start=start), sink)
            assert sink.body == DATA[start:]
        assert (server.connections, server.opened) == (1, 3)

    with SilentSftp(DATA) as server:
        in_time(two, sftp_settings(server, tmp_path))


def test_keys_that_are_learned_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    async def all_at_once(transfer: Transfer) -> None:
        await asyncio.gather(*(transfer.fetch(FetchRequest(one.url()), Memory()) for one in servers for _ in range(3)))

    with ExitStack() as stack:
        servers = [stack.enter_context(SilentSftp(DATA)) for _ in range(4)]
        in_time(all_at_once, sftp_settings(servers[0], tmp_path))
        lines = (tmp_path / "known_hosts").read_text().splitlines()
        assert sorted(line.split()[0] for line in lines) == sorted(f"[127.0.0.1]:{one.port}" for one in servers)


class Pausing(Memory):
    """Pauses after every piece until the loop has run for a moment; `for_ever`: never resumes."""

    def __init__(self, *, for_ever: bool = False) -> None:
        super().__init__()
        self.for_ever = for_ever

    def write(self, data: bytes) -> bool:
        super().write(data)
        if not self.for_ever:
            asyncio.get_running_loop().call_later(0.005, self.resume)
        return False


def test_a_sink_that_pauses_stops_the_thread() -> None:
    async def paused(transfer: Transfer) -> None:
        sink = Pausing()
        await transfer.fetch(FetchRequest(server.url()), sink)
        assert sink.body == DATA
        sink = Pausing(for_ever=True)
        task = asyncio.ensure_future(transfer.fetch(FetchRequest(server.url()), sink))
        await asyncio.sleep(1.0)
        assert not task.done() and len(sink.pieces) == 1
        before = threading.active_count()
        task.cancel()
        await asyncio.wait({task})
        await transfer.close()
        assert threading.active_count() < before

    with LiarFtp(DATA, size=WHOLE) as server:
        in_time(paused, tuned(stall_s=60.0))
