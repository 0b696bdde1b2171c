"""The seam: fetch, probe, ranges, conditions, backpressure, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from longshore.domain.transfer.response_head import Head
from longshore.errors import Reasoned
from longshore.transfer import Answer, Discard, FetchRequest, Memory, Transfer
from tests.support.origin import Gate, Origin, Thing, check_stamps, chunked, silent, stamped, status
from tests.transfer.wire import LOOPBACK, fails, fetch, within

BODY = stamped(1, 300_000)


def test_a_body_arrives_whole(origin: Origin) -> None:
    answer, body = fetch(origin.add("/a", Thing(BODY, last_modified="Mon, 06 Jan 2025 10:00:00 GMT")))
    assert body == BODY and check_stamps(body) == 1
    head = answer.head
    assert (head.status, head.length, head.url, head.hops) == (200, len(BODY), origin.url("/a"), ())
    assert head.validators.etag == '"v1"' and head.validators.last_modified is not None
    assert (answer.received_bytes, answer.address, answer.new_connections) == (len(BODY), "127.0.0.1", 1)
    sent = origin.seen("/a")[0].headers
    assert sent["accept-encoding"] == "identity" and sent["user-agent"].startswith("longshore/")


@pytest.mark.parametrize("size", [0, 1, 16_383, 16_384, 16_385])
def test_sizes(origin: Origin, size: int) -> None:
    answer, body = fetch(origin.add("/a", Thing(stamped(1, size))))
    assert body == stamped(1, size) and answer.received_bytes == size


def test_chunked_and_one_byte_chunks(origin: Origin) -> None:
    thing = Thing(stamped(1, 2000))
    for step in (1, 7, 2000):
        answer, body = fetch(origin.add("/a", chunked(thing, step)))
        assert body == thing.body and answer.head.length is None and answer.head.delimited


def test_probe(origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY))
    answer = within(lambda transfer: transfer.probe(FetchRequest(url)))
    assert answer.head.length == len(BODY) and answer.received_bytes == 0
    assert origin.seen("/a")[0].method == "HEAD"


def test_a_refused_probe_is_a_reason_and_the_get_works(origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY, head=405))

    async def both(transfer: Transfer) -> bytes:
        with pytest.raises(Reasoned) as caught:
            await transfer.probe(FetchRequest(url))
        assert caught.value.reason == "http_405"
        sink = Memory()
        await transfer.fetch(FetchRequest(url), sink)
        return sink.body

    assert within(both) == BODY


def test_ranges(origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY))
    answer, body = fetch(FetchRequest(url, start=1000, if_range='"v1"'))
    assert answer.head.status == 206 and body == BODY[1000:]
    assert answer.head.content_range is not None and answer.head.content_range.total == len(BODY)
    sent = origin.seen("/a")[0].headers
    assert sent["range"] == "bytes=1000-" and sent["if-range"] == '"v1"'
    answer, body = fetch(FetchRequest(url, start=5, end=9))
    assert body == BODY[5:10]
    answer, body = fetch(FetchRequest(url, start=1000, if_range='"other"'))
    assert answer.head.status == 200 and body == BODY


def test_416_and_304_are_answers_when_asked_for(origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY))
    answer, body = fetch(FetchRequest(url, start=len(BODY)))
    assert (answer.head.status, answer.head.total, body) == (416, len(BODY), b"")
    answer, body = fetch(FetchRequest(url, if_none_match='"v1"'))
    assert (answer.head.status, body) == (304, b"")
    assert fails(origin.add("/b", status(416))).reason == "http_416"
    assert fails(origin.add("/c", status(304, b""))).reason == "protocol_error"


def test_connections_are_reused(origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY))

    async def many(transfer: Transfer) -> None:
        for _ in range(20):
            await transfer.fetch(FetchRequest(url), Discard())
        for missing in range(5):
            with pytest.raises(Reasoned):
                await transfer.fetch(FetchRequest(origin.url(f"/nothing{missing}")), Discard())

    within(many)
    assert origin.connections == 1


def test_many_at_once(origin: Origin) -> None:
    bodies = {origin.add(f"/{n}", Thing(stamped(n, 5000 + n))): stamped(n, 5000 + n) for n in range(200)}

    async def one(transfer: Transfer, url: str) -> None:
        sink = Memory()
        await transfer.fetch(FetchRequest(url), sink)
        assert sink.body == bodies[url]

    async def many(transfer: Transfer) -> None:
        await asyncio.gather(*(one(transfer, url) for url in bodies))

    within(many)


class Slow:
    """A sink that takes one piece at a time and pauses after each."""

    resume: Callable[[], None]

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.paused = asyncio.Event()
        self.begun = 0

    def begin(self, head: Head) -> None:
        self.begun += 1

    def write(self, data: bytes) -> bool:
        assert not self.paused.is_set(), "bytes came while the sink was paused"
        self.pieces.append(data)
        self.paused.set()
        return False


def test_backpressure_pauses_and_loses_nothing(origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY), chunked(Thing(BODY), 10_000))

    async def slowly(transfer: Transfer) -> None:
        for _ in range(2):
            sink = Slow()
            task = asyncio.ensure_future(transfer.fetch(FetchRequest(url), sink))
            while not task.done():
                waiting = asyncio.ensure_future(sink.paused.wait())
                await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if sink.paused.is_set():
                    for _ in range(3):
                        await asyncio.sleep(0)
                    sink.paused.clear()
                    sink.resume()
            answer = await task
            assert b"".join(sink.pieces) == BODY and answer.received_bytes == len(BODY)
            assert sink.begun == 1 and len(sink.pieces) > 3

    within(slowly)


class Refusing(Memory):
    """A sink that raises in `begin` or in `write`."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def begin(self, head: Head) -> None:
        if self.where == "begin":
            raise Reasoned("object_changed", "the sink says no")

    def write(self, data: bytes) -> bool:
        raise OSError(28, "no space")


def test_what_a_sink_raises_reaches_the_caller(origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY))

    async def refused(transfer: Transfer) -> None:
        with pytest.raises(Reasoned) as caught:
            await transfer.fetch(FetchRequest(url), Refusing("begin"))
        assert caught.value.reason == "object_changed"
        with pytest.raises(OSError, match="no space"):
            await transfer.fetch(FetchRequest(url), Refusing("write"))
        sink = Memory()
        await transfer.fetch(FetchRequest(url), sink)
        assert sink.body == BODY, "the next transfer is not harmed"

    within(refused)


def test_begin_may_refuse_an_empty_body(origin: Origin) -> None:
    url = origin.add("/a", Thing(b""))
    with pytest.raises(Reasoned, match="the sink says no"):
        within(lambda transfer: transfer.fetch(FetchRequest(url), Refusing("begin")))


def test_cancelling_closes_the_connection_at_once(origin: Origin) -> None:
    gate = Gate(Thing(BODY), 1000)
    url = origin.add("/a", gate)
    gone = origin.add("/b", silent())

    async def canceled(transfer: Transfer) -> None:
        sink = Memory()
        task = asyncio.ensure_future(transfer.fetch(FetchRequest(url), sink))
        while not sink.pieces:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open()
        event = asyncio.Event()
        waiting = asyncio.ensure_future(transfer.fetch(FetchRequest(gone, cancel=event), Memory()))
        while not origin.count("/b"):
            await asyncio.sleep(0.005)
        event.set()
        with pytest.raises(Reasoned) as caught:
            await waiting
        assert caught.value.reason == "canceled"

    within(canceled)


def test_closing_ends_what_runs(origin: Origin) -> None:
    url = origin.add("/a", silent())

    async def main() -> None:
        transfer = Transfer(policy=LOOPBACK)
        task = asyncio.ensure_future(transfer.fetch(FetchRequest(url), Memory()))
        while not origin.count("/a"):
            await asyncio.sleep(0.005)
        await transfer.close()
        with pytest.raises(Reasoned) as caught:
            await task
        assert caught.value.reason == "interrupted"
        with pytest.raises(Reasoned):
            await transfer.fetch(FetchRequest(url), Memory())
        await transfer.close()

    asyncio.run(main())


def test_headers_of_a_job_are_sent(origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY))
    fetch(FetchRequest(url, headers=(("Accept", "application/pdf"), ("X-Api-Key", "k"))))
    sent = origin.seen("/a")[0].headers
    assert sent["accept"] == "application/pdf" and sent["x-api-key"] == "k"

    async def twice(transfer: Transfer) -> Answer:
        await transfer.fetch(FetchRequest(url, headers=(("X-Api-Key", "k"),)), Discard())
        return await transfer.fetch(FetchRequest(url), Discard())

    within(twice)
    assert "x-api-key" not in origin.seen("/a")[2].headers, "a reused handle forgets"


def test_the_canonical_url_is_what_is_requested(origin: Origin) -> None:
    """Dot segments are resolved as in a job's identity; escapes stay as they were written, whatever libcurl prefers."""
    written = {
        "/%7ea?q='%2f&x=../..": "/%7ea?q=%27%2f&x=../..",
        "/plain": "/plain",
        "/a/../b/./c": "/b/c",
        "/a/%2e%2E/b": "/b",
        "/./b": "/b",
        "/b?": "/b?",
        "/a;b=c@d:e,f!$&'()*+~": "/a;b=c@d:e,f!$&'()*+~",
        "//x//y?a=%2b%e4": "//x//y?a=%2b%e4",
        "/a[1]|x?b?c": "/a[1]|x?b?c",
    }

    async def all_of_them(transfer: Transfer) -> None:
        for target in written:
            with pytest.raises(Reasoned, match="404"):
                await transfer.fetch(FetchRequest(origin.url(target)), Discard())

    within(all_of_them)
    assert [request.target for request in origin.requests] == list(written.values())
