"""`--cookies FILE`: sent where they belong, part of who asks, never told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Box
from tests.support.origin import Origin, Request, Thing, Wire, redirect

SECRET = "hush-hush"


def cookies(box: Box, domain: str = "127.0.0.1", value: str = SECRET, secure: str = "FALSE") -> Path:
    return box.write("cookies.txt", f"# Netscape HTTP Cookie File\n{domain}\tFALSE\t/\t{secure}\t0\tsession\t{value}\n")


def private(request: Request, wire: Wire) -> None:
    """Send what only the owner of a session gets, or a public page."""
    sent = request.headers.get("cookie", "")
    Thing(f"for {sent}".encode(), etag=f'"{sent}"')(request, wire)


def test_a_cookie_reaches_its_host_and_makes_another_caller(box: Box, origin: Origin) -> None:
    url = origin.add("/a", private)
    box("get", url, "-o", box.home / "public").ok()
    box("get", url, "-o", box.home / "private", "--cookies", cookies(box)).ok()
    assert (box.home / "public").read_bytes() == b"for "
    assert (box.home / "private").read_bytes() == f"for session={SECRET}".encode()

    box("get", url, "-o", box.home / "again").ok()
    assert (box.home / "again").read_bytes() == b"for "
    box("get", url, "-o", box.home / "other", "--cookies", cookies(box, value="other")).ok()
    assert (box.home / "other").read_bytes() == b"for session=other"


def test_only_there_on_every_hop(box: Box, origin: Origin) -> None:
    with Origin("127.0.0.2") as other:
        there = other.add("/b", private)
        url = origin.add("/a", redirect(there))
        box("get", url, "--cookies", cookies(box)).ok()
        assert other.requests[-1].headers.get("cookie") is None
        assert origin.requests[-1].headers["cookie"] == f"session={SECRET}"

        back = origin.add("/back", redirect(other.add("/c", private), Set_Cookie="set=1"))
        box("get", back, "--cookies", cookies(box, "127.0.0.2")).ok()
        assert other.requests[-1].headers["cookie"] == f"session={SECRET}"


def test_a_redirects_cookie_comes_beside_the_files(box: Box, origin: Origin) -> None:
    last = origin.add("/last", private)
    url = origin.add("/first", redirect(last, Set_Cookie="fresh=1; Path=/"))
    box("get", url, "--cookies", cookies(box)).ok()
    assert set(origin.requests[-1].headers["cookie"].split("; ")) == {f"session={SECRET}", "fresh=1"}


def test_a_secure_cookie_is_not_sent_in_the_clear_and_a_header_comes_first(box: Box, origin: Origin) -> None:
    url = origin.add("/a", private)
    box("get", url, "--cookies", cookies(box, secure="TRUE")).ok()
    assert "cookie" not in origin.requests[-1].headers
    box("get", url, "--cookies", cookies(box), "--header", "Cookie: own=1").ok()
    assert origin.requests[-1].headers["cookie"] == "own=1"


@pytest.mark.parametrize("command", ["get", "run"])
def test_the_depot_can_remember_them_and_no_word_of_them_is_kept_or_said(
    box: Box, origin: Origin, command: str
) -> None:
    url = origin.add("/a", Thing())
    box("config", "set", "network.cookies", cookies(box)).ok()
    if command == "run":
        box("add", box.write("list", url)).ok()
    ran = box(command, *([url] if command == "get" else []), "--json", "-vv").ok()
    assert origin.requests[-1].headers["cookie"] == f"session={SECRET}"
    assert SECRET not in ran.stdout + ran.stderr
    for path in box.depot.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_a_bad_file_is_refused_before_anything_is_asked(box: Box, origin: Origin) -> None:
    url = origin.add("/a", private)
    bad = box.write("cookies.txt", f"127.0.0.1\tFALSE\t/\tFALSE\t0\tn\t{SECRET}; x\n")
    ran = box("get", url, "--cookies", bad)
    assert ran.code == 2
    assert f"{bad}:1: " in ran.stderr
    assert SECRET not in ran.stderr
    assert box("get", url, "--cookies", box.home / "missing").code == 2
    assert origin.requests == []
