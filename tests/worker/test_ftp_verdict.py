"""An FTP server says after the data whether it was good: bytes without that word are never completed, now or later."""

from __future__ import annotations

import time

import pytest

from longshore import failpoints
from longshore.domain.kinds import Status
from tests.support.liar_ftp import LiarFtp
from tests.support.origin import stamped
from tests.worker.conftest import MakeDepot

SIZE, CUT = 700_000, 500_000
GOOD = stamped(1, SIZE)
BAD = GOOD[:CUT] + bytes(SIZE - CUT)  # what a failing disk gives
REPLIES = ["421 closing", "426 cut", "451 local read error", "452 no", "550 gone", "551 no", "999 what", None]


@pytest.mark.parametrize("without_validators", [False, True])
@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("size", [SIZE, 9_000])
def test_bytes_that_the_server_disowned_are_fetched_again(
    make_depot: MakeDepot, reply: str | None, size: int, without_validators: bool
) -> None:
    good, bad = GOOD[:size], BAD[-size:]
    depot = make_depot(resume={"allow_without_validators": without_validators})
    with LiarFtp(good, size=f"213 {size}", mdtm="213 20250106100000", once=(bad, reply)) as server:
        got = depot.get([server.url()])[0]
        assert got.status is Status.COMPLETED and got.path is not None
        assert got.path.read_bytes() == good
        assert server.count("RETR") == 2


@pytest.mark.parametrize(("reply", "resumed"), [("451 local read error", False), ("426 cut", True)])
def test_a_cut_is_resumed_and_an_error_is_not(make_depot: MakeDepot, reply: str, resumed: bool) -> None:
    """Of the bytes before a read error the last ones may be wrong, too."""
    depot = make_depot(resume={"allow_without_validators": True, "prefix_check_bytes": 100})
    sent = GOOD[:CUT] if resumed else BAD[: CUT + 100_000]
    with LiarFtp(GOOD, size=f"213 {SIZE}", once=(sent, reply)) as server:
        got = depot.get([server.url()])[0]
        assert got.status is Status.COMPLETED and got.path is not None
        assert got.path.read_bytes() == GOOD
        assert bool(server.count("REST")) is resumed


def test_a_server_that_always_disowns_its_bytes_ends(make_depot: MakeDepot) -> None:
    depot = make_depot(retry={"max_attempts": 3, "base_s": 0.01, "cap_s": 0.05})
    with LiarFtp(BAD, size=f"213 {SIZE}", end="451 local read error") as server:
        got = depot.get([server.url()])[0]
        assert (got.status, got.reason) == (Status.FAILED, "truncated")
        assert server.count("RETR") == 3


def test_a_stop_before_the_verdict_asks_again(make_depot: MakeDepot) -> None:
    """The part is whole, but it does not know what the server said after it."""
    depot = make_depot(retry={"max_attempts": 3, "base_s": 0.01, "cap_s": 0.05})
    with LiarFtp(GOOD, size=f"213 {SIZE}", once=(GOOD, "226 done")) as server:
        failpoints.arm("stream.received=raise")
        try:
            depot.get([server.url()])
        finally:
            failpoints.arm("")
        assert server.count("RETR") >= 2


@pytest.mark.parametrize("size", [f"213 {SIZE}", "502 no SIZE here"])
def test_a_reply_that_never_comes_is_waited_for_as_long_as_a_byte(make_depot: MakeDepot, size: str) -> None:
    depot = make_depot(transfer={"stall_s": 1.0})
    began = time.monotonic()
    with LiarFtp(GOOD, size=size, once=(BAD, "")) as server:
        got = depot.get([server.url()])[0]
        assert got.status is Status.COMPLETED and got.path is not None
        assert got.path.read_bytes() == GOOD
        assert server.count("RETR") == 2
    assert time.monotonic() - began < 20
