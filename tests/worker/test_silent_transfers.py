"""A transfer that brings no byte of a body is not progress: it ends by `stall_s`, and `max_wait_s` does not wait for it."""

from __future__ import annotations

import time

import pytest

from longshore.domain.kinds import Status
from longshore.domain.run_events import RunEvent
from tests.support.origin import Behaviour, Origin, Request, Thing, Wire, drip, honest, silent, stamped, status
from tests.worker.conftest import MakeDepot

ONCE = {"max_attempts": 1, "base_s": 0.01, "cap_s": 0.05}


def hints(request: Request, wire: Wire) -> None:
    """Send informational heads, for ever."""
    while True:
        wire.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        wire.wait(0.05)


def slow_head(request: Request, wire: Wire) -> None:
    """Send a head that never ends."""
    wire.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        wire.send(b"X-Line: a\r\n")
        wire.wait(0.05)


def trailers(request: Request, wire: Wire) -> None:
    """Send a body, then trailers for ever."""
    wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n")
    while True:
        wire.send(b"X-Line: a\r\n")
        wire.wait(0.05)


DRIPS: dict[str, Behaviour] = {"1xx": hints, "head": slow_head, "trailers": trailers, "nothing": silent()}


@pytest.mark.parametrize("how", DRIPS)
def test_what_is_no_byte_of_the_body_ends_by_the_stall_limit(make_depot: MakeDepot, origin: Origin, how: str) -> None:
    depot = make_depot(transfer={"stall_s": 0.5}, retry=ONCE)
    began = time.monotonic()
    got = depot.get([origin.add("/a", DRIPS[how])])[0]
    assert (got.status, got.reason) == (Status.FAILED, "too_slow")
    assert "no byte of the body for 0.5 s" in (got.message or "")
    assert time.monotonic() - began < 15
    assert origin.count("/a") == 1


@pytest.mark.parametrize("how", DRIPS)
def test_the_wait_is_kept_while_a_transfer_is_silent(make_depot: MakeDepot, origin: Origin, how: str) -> None:
    depot = make_depot()  # with a stall limit of a minute
    began = time.monotonic()
    got = depot.get([origin.add("/a", DRIPS[how])], max_wait_s=1.0)[0]
    assert got.status is Status.PENDING
    assert time.monotonic() - began < 15
    assert origin.count("/a") == 1


def test_a_slow_body_is_progress(make_depot: MakeDepot, origin: Origin) -> None:
    thing = Thing(b"x" * 12)
    got = make_depot().get([origin.add("/a", drip(thing, 1, 0.4))], max_wait_s=2.0)[0]
    assert got.ok


def test_the_host_that_is_waited_for_is_named(make_depot: MakeDepot, origin: Origin) -> None:
    notes: list[RunEvent] = []
    make_depot().get([origin.add("/a", silent())], max_wait_s=8.0, on_note=notes.append)
    (waiting,) = [note for note in notes if note.kind == "waiting"]
    assert waiting.facts["host"] == origin.netloc
    assert (waiting.facts["reason"], waiting.facts["jobs"]) == ("silent", 1)


@pytest.mark.parametrize(
    ("size", "share"), [(60_000, 6_000), (30 << 20, 3 << 20)], ids=["in memory", "on disk, partly past libcurl"]
)
def test_bytes_of_attempts_that_are_cut_are_progress(
    make_depot: MakeDepot, origin: Origin, size: int, share: int
) -> None:
    """Every attempt is over in an instant, so that no check falls into one; the waits between them add up to more."""
    thing = Thing(stamped(1, size))

    def cut_again(request: Request, wire: Wire) -> None:
        code, headers, body = honest(thing, request)
        wire.answer(code, headers, body[:share])
        wire.hangup()

    depot = make_depot(retry={"base_s": 0.8, "cap_s": 1.0, "max_attempts": 3})
    began = time.monotonic()
    (got,) = depot.get([origin.add("/a", cut_again)], max_wait_s=4.0)
    assert got.ok, (got.reason, origin.count("/a"))
    assert time.monotonic() - began > 4.0


def test_the_wait_is_kept_between_attempts_that_bring_nothing(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(retry={"base_s": 0.4, "cap_s": 0.4, "max_attempts": 1000})
    began = time.monotonic()
    (got,) = depot.get([origin.add("/a", status(503))], max_wait_s=2.0)
    assert got.status is Status.PENDING
    assert time.monotonic() - began < 15
