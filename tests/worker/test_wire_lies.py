"""Lies on the wire, as a job sees them: completed and right, completed and marked, or a reason that is true."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from longshore.domain.model import JobRequest
from longshore.domain.run_events import RunEvent
from tests.support.frames import FrameServer, body, head, reset
from tests.support.liar_ftp import LiarFtp
from tests.support.origin import (
    Behaviour,
    Origin,
    Request,
    Thing,
    Wire,
    check_stamps,
    cut,
    honest,
    other_version,
    redirect,
    stamped,
)
from tests.transfer.test_real_servers import _context
from tests.worker.conftest import MakeDepot

SIZE = 900_000
ODD = '"caf\xe9\xff"'


def outcome(make_depot: MakeDepot, item: str | JobRequest, **flags: object) -> tuple[Status, str | None, bool, bytes]:
    """Get one thing: status, reason, whether its length is unverified, bytes."""
    notes: list[RunEvent] = []
    got = make_depot(**flags).get([item], on_note=notes.append)[0]
    marked = any(note.facts.get("unverified_length") for note in notes if note.kind == "completed")
    return got.status, got.reason, marked, got.path.read_bytes() if got.path else b""


def test_an_http2_body_without_length_is_marked(make_depot: MakeDepot, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    network = {"allow": ["127.0.0.0/8"], "ca_file": str(tmp_path / "ca.pem")}
    whole = stamped(1, 9000)
    with FrameServer(
        _context(authority, "127.0.0.1"), lambda s: head(s, None) + body(s, whole[:4000], end=False) + reset(s, 0)
    ) as server:
        status, _, marked, _ = outcome(make_depot, server.url, network=network)
        assert status is not Status.COMPLETED or marked
        assert server.requests <= 10


@pytest.mark.parametrize(
    ("size", "status", "reason", "marked"),
    [
        ("213 9000", Status.COMPLETED, None, False),
        ("213 100", Status.FAILED, "length_mismatch", False),
        ("213 -5", Status.COMPLETED, None, True),
        ("502 no", Status.COMPLETED, None, True),
        ("213 9001", Status.FAILED, "truncated", False),
    ],
)
def test_ftp_lengths(make_depot: MakeDepot, size: str, status: Status, reason: str | None, marked: bool) -> None:
    whole = stamped(1, 9000)
    with LiarFtp(whole, size=size) as server:
        got = outcome(make_depot, server.url())
        assert got == (status, reason, marked, whole if status is Status.COMPLETED else b"")
        assert server.count("RETR") <= 10


def test_an_odd_entity_tag_on_resume_and_refresh(make_depot: MakeDepot, origin: Origin) -> None:
    thing = Thing(stamped(1, SIZE), etag=ODD, last_modified="vorgestern, f\xfcnf Uhr")
    url = origin.add("/a", cut(thing, 700_000), thing)
    depot = make_depot()
    first = depot.get([url])[0]
    assert first.status is Status.COMPLETED and first.path is not None and first.path.read_bytes() == thing.body
    again = depot.get([url], refresh=True)[0]
    assert again.status in (Status.COMPLETED, Status.SKIPPED)
    assert origin.requests[-1].headers["if-none-match"] == ODD
    assert origin.count("/a") <= 4


def test_header_values_and_cookies_of_any_script(make_depot: MakeDepot, origin: Origin) -> None:
    origin.add("/b", Thing())
    url = origin.add("/a", redirect("/b", Set_Cookie="n=Ren\xe9; Path=/"))
    got = outcome(make_depot, download_request(url, headers=[("X-Name", "Łukasz")]))
    assert got[0] is Status.COMPLETED
    assert origin.requests[1].headers["cookie"] == "n=Ren\xe9"
    assert origin.requests[0].headers["x-name"].encode("latin-1").decode() == "Łukasz"


@pytest.mark.parametrize("path", ["/a/../b", "/a/%2e%2e/b", "/./b", "/a/..//../b"])
def test_one_identity_is_one_request(make_depot: MakeDepot, origin: Origin, path: str) -> None:
    origin.add("/b", Thing(b"here"))
    depot = make_depot()
    assert depot.get([origin.url(path)])[0].status is Status.COMPLETED
    assert [request.target for request in origin.requests] == ["/b"]
    assert depot.get([origin.url("/b")])[0].held_before


def split_then(origin: Origin, thing: Thing, how: str) -> Behaviour:
    """Send some, wait until others ask, then fail all in one turn."""

    def behave(request: Request, wire: Wire) -> None:
        code, headers, content = honest(thing, request)
        wire.answer(code, headers, content[:65_536])
        while origin.count(request.path) < 3:
            wire.wait(0.005)
        getattr(wire, how)()

    return behave


LARGE = Thing(stamped(1, 4 << 20))


@pytest.mark.parametrize("how", ["reset", "hangup", "hang"])
def test_a_divided_body_whose_connections_all_fail(make_depot: MakeDepot, origin: Origin, how: str) -> None:
    bad = split_then(origin, LARGE, how)
    url = origin.add("/a", bad, bad, bad, LARGE)
    transfer = {"segments": 3, "stall_s": 0.5}
    status, _, _, got = outcome(make_depot, url, transfer=transfer, hosts={"concurrency": 4})
    assert status is Status.COMPLETED and got == LARGE.body
    assert origin.count("/a") <= 40


def test_pieces_of_another_server_are_never_joined(make_depot: MakeDepot, origin: Origin) -> None:
    with Origin("127.0.0.2") as other:
        there = other.add("/b", Thing(other_version(LARGE, 2).body, etag=LARGE.etag))
        first: Callable[[Request, Wire], None] = split_then(origin, LARGE, "hangup")
        url = origin.add("/a", first, redirect(there))
        status, reason, _, got = outcome(make_depot, url, transfer={"segments": 3}, hosts={"concurrency": 4})
        if status is Status.COMPLETED:
            assert check_stamps(got) in (1, 2) and len(got) == len(LARGE.body)
        else:
            assert reason in ("object_changed", "truncated", "bad_range")
        assert origin.count("/a") + other.count("/b") <= 40
