"""Canaries: no secret of a URL, header or configuration reaches a message, a repr or another host."""

from __future__ import annotations

from pathlib import Path

import pytest

from longshore.errors import BadInput
from longshore.transfer import FetchRequest
from tests.support.origin import Origin, Thing, cut, header_bomb, raw, redirect, silent, status
from tests.support.settings import login, tuned
from tests.transfer.wire import fails, fetch

CANARY = "CANARY0123456789"
BEHAVIOURS = {
    "status": status(403),
    "cut": cut(Thing(b"x" * 1000), 10),
    "garbage": raw(b"garbage\r\n\r\n"),
    "bomb": header_bomb(1_000_000),
    "redirect": redirect(f"file:///{CANARY}"),
    "echo": raw(f"HTTP/1.1 200 OK\r\nContent-Length: {CANARY}\r\n\r\n".encode()),
    "silent": silent(),
}


@pytest.mark.parametrize("how", BEHAVIOURS)
def test_messages_carry_no_secret(origin: Origin, how: str) -> None:
    url = origin.add("/a", BEHAVIOURS[how]).replace("http://", f"http://me:{CANARY}@")
    ask = FetchRequest(f"{url}?token={CANARY}&X-Amz-Signature={CANARY}#{CANARY}", headers=(("Authorization", CANARY),))
    error = fails(ask, settings=tuned(deadline_s=2.0 if how == "silent" else 0))
    shown = f"{error} {error!r} {error.hint} {error.__cause__!r} {error.__context__!r}"
    assert CANARY not in shown


@pytest.mark.parametrize("url", [f"http://me:{CANARY}@[bad/", f"http://me:{CANARY}@/x", f"x://me:{CANARY}@h/"])
def test_urls_that_are_none_carry_no_secret(url: str) -> None:
    assert CANARY not in str(fails(url))


def test_settings_show_no_secret() -> None:
    settings = tuned(credentials={"h": login(username="u", password=CANARY, token=CANARY)})
    assert CANARY not in repr(settings)


def test_netrc_is_read_on_request_only(origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password pw\ndefault login anyone password no\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    url = origin.add("/a", Thing())
    fetch(url)
    fetch(url, settings=tuned(netrc=str(netrc)))
    assert all("authorization" not in request.headers for request in origin.requests), "clear text gets no netrc secret"
    with pytest.raises(BadInput):
        fetch(url, settings=tuned(netrc=str(tmp_path / "none")))
