"""One body over several connections: in order, whole, one version; and one stream by itself where pieces do not work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from longshore.domain.transfer.response_head import Head
from longshore.errors import Reasoned
from longshore.transfer import Answer, FetchRequest, Memory, Transfer
from longshore.transfer.descriptor_gate import DescriptorGate
from longshore.transfer.segmented import Slots, fetch_in_pieces
from tests.support.nginx import Nginx
from tests.support.origin import (
    Behaviour,
    Origin,
    Request,
    Thing,
    Wire,
    bad_range,
    check_stamps,
    cut,
    drip,
    honest,
    on_range,
    other_version,
    redirect,
    silent,
    stamped,
    status,
)
from tests.support.settings import tuned
from tests.transfer.wire import within

SIZE = 4 << 20
THING = Thing(stamped(1, SIZE))


def held(origin: Origin, thing: Thing = THING) -> Behaviour:
    """Send 64 KiB of the answer, then wait until others ask, too: slow, however fast the machine is."""

    def behave(request: Request, wire: Wire) -> None:
        code, headers, body = honest(thing, request)
        wire.answer(code, headers, body[:65_536])
        while origin.count(request.path) < 2:
            wire.wait(0.01)
        wire.send(body[65_536:])

    return behave


def pieces(
    url: str, *, connections: int = 6, ask: FetchRequest | None = None, slots: Slots | None = None
) -> tuple[Answer, bytes]:
    sink = Memory()
    wanted = ask or FetchRequest(url)
    got = within(lambda t: fetch_in_pieces(t, wanted, sink, connections=connections, slots=slots))
    return got, sink.body


def test_a_slow_server_is_asked_over_several_connections(origin: Origin) -> None:
    url = origin.add("/a", held(origin), THING)
    got, body = pieces(url)
    assert body == THING.body and check_stamps(body) == 1
    assert got.received_bytes == SIZE and got.head.status == 200
    later = origin.requests[1:]
    assert later and all(r.headers["if-range"] == '"v1"' for r in later)
    assert all(r.headers["range"].startswith("bytes=") for r in later)


def test_a_short_body_is_left_alone(origin: Origin) -> None:
    small = replace(THING, body=THING.body[:900_000])
    got, body = pieces(origin.add("/a", small))
    assert body == small.body and got.received_bytes == 900_000
    assert len(origin.requests) == 1


@pytest.mark.parametrize(
    "thing",
    [replace(THING, etag='W/"v1"'), replace(THING, etag=None), replace(THING, ranges=False)],
    ids=["weak", "none", "no ranges"],
)
def test_without_proof_there_are_no_pieces(origin: Origin, thing: Thing) -> None:
    small = replace(thing, body=thing.body[: 1 << 20])
    got, body = pieces(origin.add("/a", drip(small, 16_384, 0.005), small))
    assert body == small.body and len(origin.requests) == 1 and got.received_bytes == 1 << 20


def test_a_resume_is_divided_like_a_fresh_fetch(origin: Origin) -> None:
    url = origin.add("/a", held(origin), THING)
    start = 1_000_001
    got, body = pieces(url, ask=FetchRequest(url, start=start, if_range='"v1"'))
    assert body == THING.body[start:] and got.head.status == 206 and got.received_bytes == SIZE - start
    assert len(origin.requests) > 1


TRANSIENT: dict[str, Behaviour] = {
    "cut": cut(THING, 1000),
    "reset": cut(THING, 0, "reset"),
    "late reset": cut(THING, 100_000, "reset"),
    "503": status(503),
    "429": status(429, Retry_After="60"),
}


@pytest.mark.parametrize("odd", TRANSIENT)
def test_pieces_that_fail_are_fetched_again(origin: Origin, odd: str) -> None:
    _, body = pieces(origin.add("/a", held(origin), TRANSIENT[odd], TRANSIENT[odd], THING))
    assert body == THING.body


WRONG = ("start", "short", "total", "star_total", "no_header", "unit", "etag", "weak_etag", "no_etag", "multipart")
USELESS: dict[str, Behaviour] = {
    **{how: bad_range(THING, how) for how in WRONG},
    "ranges ignored": replace(THING, ranges=False),
    "403": on_range(THING, status(403)),
    "always 503": on_range(THING, status(503)),
    "always cut": on_range(THING, cut(THING, 0)),
}


@pytest.mark.parametrize("how", USELESS)
def test_where_pieces_do_not_work_the_first_stream_goes_on(origin: Origin, how: str) -> None:
    got, body = pieces(origin.add("/a", held(origin), USELESS[how]))
    assert body == THING.body and got.received_bytes == SIZE


def test_an_object_that_changes_is_never_spliced(origin: Origin) -> None:
    """Whichever request sees the new version first: the result is one version, or none with its reason."""
    new = other_version(THING, 2)
    for at in range(6):
        url = origin.add(f"/{at}", held(origin), *([THING] * at), new)
        try:
            _, body = pieces(url)
        except Reasoned as error:
            assert error.reason == "object_changed"
        else:
            assert body == THING.body and check_stamps(body) == 1


def gathered(origin: Origin, how: str, *, least: int, thing: Thing = THING) -> Behaviour:
    """Answer with 64 KiB and wait until so many have asked; then all of them `hang`, `reset` or `hangup` in one turn."""

    def behave(request: Request, wire: Wire) -> None:
        code, headers, body = honest(thing, request)
        wire.answer(code, headers, body[:65_536])
        while origin.count(request.path) < least:
            wire.wait(0.005)
        getattr(wire, how)()

    return behave


@pytest.mark.parametrize("how", ["hang", "reset", "hangup"])
@pytest.mark.parametrize("recovers", [True, False], ids=["then it works", "for good"])
def test_all_connections_fail_in_one_turn(origin: Origin, how: str, recovers: bool) -> None:
    """Each stream used to see another one at work and to leave: none was left, and the fetch never ended."""
    together = gathered(origin, how, least=4)
    url = origin.add("/a", *([together] * 4), THING if recovers else together)
    sink = Memory()

    async def once(transfer: Transfer) -> Answer:
        return await asyncio.wait_for(fetch_in_pieces(transfer, FetchRequest(url), sink, connections=4), 60)

    settings = tuned(stall_s=0.5)
    if recovers:
        within(once, settings=settings)
        assert sink.body == THING.body
    else:
        with pytest.raises(Reasoned) as caught:
            within(once, settings=settings)
        assert caught.value.reason in ("too_slow", "truncated", "connect")
        assert THING.body.startswith(sink.body)
    assert origin.count("/a") <= 30


@pytest.mark.parametrize("how", ["hang", "reset", "hangup"])
def test_the_first_connection_fails_after_the_split(origin: Origin, how: str) -> None:
    url = origin.add("/a", gathered(origin, how, least=3), THING)
    sink = Memory()
    within(lambda t: fetch_in_pieces(t, FetchRequest(url), sink, connections=4), settings=tuned(stall_s=0.5))
    assert sink.body == THING.body and origin.count("/a") <= 30


def test_pieces_that_are_redirected_are_never_spliced(origin: Origin) -> None:
    """The same size and the same entity tag at another place are still another object."""
    with Origin("127.0.0.2") as other:
        there = other.add("/b", replace(other_version(THING, 2), etag=THING.etag))
        elsewhere = origin.add("/c", replace(other_version(THING, 3), etag=THING.etag))
        for target in (there, elsewhere):
            url = origin.add("/a", held(origin), on_range(THING, redirect(target)))
            try:
                _, body = pieces(url)
            except Reasoned as error:
                assert error.reason == "object_changed"
            else:
                assert body == THING.body and check_stamps(body) == 1


@pytest.mark.parametrize("same_host", [True, False], ids=["same host", "other host"])
def test_a_redirected_piece_is_no_reason_to_leave_the_host(origin: Origin, same_host: bool) -> None:
    """The slot is the first stream's: a piece used to ask for another host's, and to give the first one's back."""
    asked: list[str] = []

    async def on_hop(host: str) -> bool:
        asked.append(host)
        return True

    with Origin("127.0.0.2") as other:
        there = (origin if same_host else other).add("/b", THING)
        url = origin.add("/a", held(origin), on_range(THING, redirect(there)))
        got, body = pieces(url, ask=FetchRequest(url, on_hop=on_hop))
        assert body == THING.body and got.received_bytes == SIZE and got.head.url == url
        assert asked == []
        assert origin.count("/b") == other.count("/b") == 0, "no redirect of a piece is followed"
        assert origin.count("/a") <= 12


def test_credentials_in_the_url_go_to_every_piece(origin: Origin) -> None:
    url = origin.add("/a", held(origin), THING).replace("http://", "http://me:pw@")
    assert pieces(url)[1] == THING.body
    assert len(origin.requests) > 1 and all("authorization" in request.headers for request in origin.requests)


@pytest.mark.torture
def test_a_stuck_piece_does_not_hold_the_rest_for_ever(origin: Origin) -> None:
    url = origin.add("/a", held(origin), silent(), THING)
    sink = Memory()
    settings = tuned(stall_s=3)
    within(lambda t: fetch_in_pieces(t, FetchRequest(url), sink, connections=4), settings=settings)
    assert sink.body == THING.body


def test_secrets_stay_at_the_first_origin(origin: Origin) -> None:
    with Origin("127.0.0.2") as other:
        there = other.add("/b", held(other), THING)
        url = origin.add("/a", redirect(there))
        _, body = pieces(url, ask=FetchRequest(url, headers=(("X-Api-Key", "CANARY"),)))
        assert body == THING.body and len(other.requests) > 1 and len(origin.requests) == 1
        assert all("CANARY" not in str(request.headers) for request in other.requests)


class Few(Slots):
    """A host that has so many more slots and wants them back."""

    def __init__(self, free: int) -> None:
        self.free, self.least = free, free

    def take(self) -> bool:
        if not self.free:
            return False
        self.free -= 1
        self.least = min(self.least, self.free)
        return True

    def give(self) -> None:
        self.free += 1


def test_slots_are_asked_for_and_given_back(origin: Origin) -> None:
    few = Few(2)
    _, body = pieces(origin.add("/a", held(origin), THING), slots=few)
    assert body == THING.body and few.free == 2 and few.least == 0
    assert len({request.peer for request in origin.requests}) <= 4, "ours, two more, and ours again after the hand-over"


def test_without_slots_one_stream_does_it(origin: Origin) -> None:
    _, body = pieces(origin.add("/a", drip(THING, 65_536, 0.01), THING), slots=Few(0))
    assert body == THING.body and len(origin.requests) == 1


class Slow:
    """A sink that says stop after every piece of bytes and goes on a moment later."""

    resume: Callable[[], None]

    def __init__(self) -> None:
        self.body = bytearray()
        self.paused = False

    def begin(self, head: Head) -> None:
        assert not self.body

    def write(self, data: bytes) -> bool:
        assert not self.paused, "bytes came while the sink was paused"
        self.body += data
        self.paused = True
        asyncio.get_running_loop().call_soon(self._go_on)
        return False

    def _go_on(self) -> None:
        self.paused = False
        self.resume()


def test_backpressure_holds_the_window(origin: Origin) -> None:
    url = origin.add("/a", held(origin), THING)
    sink = Slow()
    got = within(lambda t: fetch_in_pieces(t, FetchRequest(url), sink, connections=4))
    assert bytes(sink.body) == THING.body and got.received_bytes == SIZE


class Refusing(Memory):
    def write(self, data: bytes) -> bool:
        if sum(map(len, self.pieces)) > SIZE // 2:
            raise OSError(28, "no space")
        return super().write(data)


def test_what_the_sink_raises_ends_everything(origin: Origin) -> None:
    url = origin.add("/a", held(origin), THING)
    with pytest.raises(OSError, match="no space"):
        within(lambda t: fetch_in_pieces(t, FetchRequest(url), Refusing(), connections=4))


def test_cancelling_ends_everything(origin: Origin) -> None:
    def stuck(request: Request, wire: Wire) -> None:
        code, headers, body = honest(THING, request)
        wire.answer(code, headers, body[:65_536])
        wire.hang()

    url = origin.add("/a", stuck)

    async def canceled(transfer: Transfer) -> None:
        sink = Memory()
        task = asyncio.ensure_future(fetch_in_pieces(transfer, FetchRequest(url), sink, connections=4))
        while len(origin.requests) < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(Reasoned) as caught:
            await fetch_in_pieces(transfer, FetchRequest(url, deadline_s=0.5), Memory(), connections=4)
        assert caught.value.reason == "deadline"

    within(canceled)


def slow(thing: Thing = THING) -> Behaviour:
    """Send 64 KiB of the whole body, then nothing for longer than the first look; pieces come at once."""

    def behave(request: Request, wire: Wire) -> None:
        code, headers, body = honest(thing, request)
        wire.answer(code, headers, body[:65_536])
        if code == 200:
            wire.wait(0.5)
        wire.send(body[65_536:])

    return behave


async def narrowed(gate: DescriptorGate, limit: int) -> None:
    """Let descriptors be missing, so that so many requests may run at once."""
    for _ in range(2 * limit):
        await gate.enter()
    gate.leave(starved=True)
    for _ in range(2 * limit - 1):
        gate.leave()
    assert gate.limit == limit


@pytest.mark.parametrize(("limit", "bodies"), [(1, 1), (1, 3), (2, 1), (2, 2), (2, 4)])
def test_bodies_are_not_divided_while_descriptors_are_short(origin: Origin, limit: int, bodies: int) -> None:
    """The first streams used to hold every place and to wait for pieces, which waited for a place."""
    urls = [origin.add(f"/{number}", slow()) for number in range(bodies)]
    sinks = [Memory() for _ in urls]

    async def all_of_them(transfer: Transfer) -> None:
        await narrowed(transfer._gate, limit)
        each = (
            fetch_in_pieces(transfer, FetchRequest(url), sink, connections=4)
            for url, sink in zip(urls, sinks, strict=True)
        )
        await asyncio.wait_for(asyncio.gather(*each), 20)

    within(all_of_them)
    assert all(sink.body == THING.body for sink in sinks)
    assert all(origin.count(f"/{number}") == 1 for number in range(bodies))


class Narrowing(Slots):
    """A host whose slot is there when descriptors are no longer: at once, or when the pieces' tasks begin."""

    def __init__(self, gate: DescriptorGate, *, later: bool) -> None:
        self.gate, self.taken, self.later = gate, 0, later

    def take(self) -> bool:
        self.taken += 1
        if self.later:
            asyncio.get_running_loop().call_soon(self.narrow)
        else:
            self.narrow()
        return True

    def narrow(self) -> None:
        self.gate._limit = 1.0

    def give(self) -> None:
        self.taken -= 1


@pytest.mark.parametrize("later", [False, True], ids=["before the pieces", "as they begin"])
@pytest.mark.parametrize("bodies", [1, 3])
def test_pieces_are_given_up_when_descriptors_become_short(origin: Origin, bodies: int, later: bool) -> None:
    urls = [origin.add(f"/{number}", slow()) for number in range(bodies)]
    sinks = [Memory() for _ in urls]

    async def all_of_them(transfer: Transfer) -> None:
        slots = Narrowing(transfer._gate, later=later)
        each = (
            fetch_in_pieces(transfer, FetchRequest(url), sink, connections=4, slots=slots)
            for url, sink in zip(urls, sinks, strict=True)
        )
        await asyncio.wait_for(asyncio.gather(*each), 20)
        assert slots.taken == 0

    within(all_of_them)
    assert all(sink.body == THING.body for sink in sinks)
    assert all(origin.count(f"/{number}") == 1 for number in range(bodies))


def test_a_real_server_with_a_limit_per_connection(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(THING.body)
    with Nginx(tmp_path, rate="512k") as server:
        got, body = pieces(f"{server.http}/slow/a.bin", connections=8)
        assert body == THING.body and got.received_bytes == SIZE


def cut_pieces(sent: int) -> Behaviour:
    """Send the whole body at a modest pace, but of a range only the first `sent` bytes."""

    def behave(request: Request, wire: Wire) -> None:
        code, headers, body = honest(THING, request)
        if "range" not in request.headers:
            wire.answer(code, headers)
            for at in range(0, len(body), 65_536):
                wire.send(body[at : at + 65_536])
                wire.wait(0.05)
            return
        wire.answer(code, headers, body[:sent])
        wire.hangup()

    return behave


@pytest.mark.parametrize("sent", [1, 30_000, 200_000])
def test_a_good_first_stream_outlives_pieces_that_are_cut(origin: Origin, sent: int) -> None:
    """Each piece has a valid head, and each is cut: the first stream used to be dropped for them."""
    url = origin.add("/a", cut_pieces(sent))
    got, body = pieces(url, connections=4)
    assert body == THING.body and got.received_bytes == SIZE
    assert all(r.headers["range"].split("-")[1] for r in origin.requests[1:]), "a stream for the rest was started"
