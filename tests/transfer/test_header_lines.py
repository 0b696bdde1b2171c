"""Header values are bytes: what came is sent back as it came, what a person wrote goes out as UTF-8."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longshore.errors import BadInput, Reasoned
from longshore.transfer import Discard, FetchRequest, Transfer
from longshore.transfer.cookies import Cookies
from tests.support.origin import Origin, Request, Thing, Wire, raw, redirect, stamped
from tests.support.settings import login, tuned
from tests.transfer.wire import fetch, within

ODD = '"caf\xe9\xff"'


def test_an_entity_tag_goes_back_as_it_came(origin: Origin) -> None:
    thing = Thing(stamped(1, 1000), etag=ODD)
    url = origin.add("/a", thing)
    got, _ = fetch(url)
    tag = got.head.validators.etag
    assert tag == ODD
    assert fetch(FetchRequest(url, start=500, if_range=tag))[1] == thing.body[500:]
    assert origin.requests[-1].headers["if-range"] == ODD, "the origin reads Latin-1: the bytes are equal"
    assert fetch(FetchRequest(url, if_none_match=tag))[0].head.status == 304


def test_a_garbage_date_is_not_a_validator(origin: Origin) -> None:
    got, _ = fetch(origin.add("/a", Thing(etag=None, last_modified="\xe4\xf6\xfc gestern")))
    assert got.head.validators.last_modified is None


def test_a_latin1_cookie_comes_back_as_it_came(origin: Origin) -> None:
    def door(request: Request, wire: Wire) -> None:
        if "cookie" in request.headers:
            Thing()(request, wire)
        else:
            redirect("/door", Set_Cookie="who=Ren\xe9; Path=/")(request, wire)

    fetch(origin.add("/door", door))
    assert origin.requests[-1].headers["cookie"] == "who=Ren\xe9"


@given(st.lists(st.text(st.characters(max_codepoint=255, exclude_characters="\0\r\n"), max_size=60), max_size=4))
def test_any_cookie_is_kept_or_dropped(lines: list[str]) -> None:
    jar = Cookies()
    jar.take("http://a.example/x", tuple(lines))
    jar.line("http://a.example/x")


@pytest.mark.parametrize("value", ["Grüße", "日本", "plain", "\udce9"])
def test_what_a_person_wrote_is_sent_as_utf8(origin: Origin, value: str) -> None:
    wire = value.encode("utf-8", "surrogateescape").decode("latin-1")
    account = {f"http://{origin.netloc}": login(token=value, headers=(("X-Key", value),))}
    used = tuned(user_agent=f"me/{value}", credentials=account)
    fetch(FetchRequest(origin.add("/a", Thing()), headers=(("X-Job", value),)), settings=used)
    sent = origin.requests[0].headers
    assert (sent["x-job"], sent["x-key"], sent["user-agent"]) == (wire, wire, f"me/{wire}")
    assert sent["authorization"] == f"Bearer {wire}"


def test_a_password_of_any_bytes(origin: Origin) -> None:
    url = origin.add("/a", Thing()).replace("http://", "http://me:%E9%C3%A9@")
    fetch(url)
    assert origin.requests[0].headers["authorization"] == "Basic bWU66cOp"


@pytest.mark.parametrize("bad", [{"user_agent": "a\r\nX: y"}, {"credentials": {"h": login(headers=(("X", "a\nb"),))}}])
def test_settings_cannot_break_a_head(bad: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        within(lambda t: t.probe(FetchRequest("http://h/")), settings=tuned(**bad))


@pytest.mark.parametrize(
    ("location", "asked"),
    [
        ("/café".encode(), "/caf%C3%A9"),
        ("/café".encode("latin-1"), "/caf%E9"),
        (b"/a/../caf%c3%a9", "/caf%c3%a9"),
        ("/q?x=ü".encode(), "/q?x=%C3%BC"),
    ],
)
def test_a_location_of_any_bytes_asks_for_what_the_server_meant(origin: Origin, location: bytes, asked: str) -> None:
    head = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n"
    url = origin.add("/a", raw(head, "keep"))
    origin.add(asked.partition("?")[0], Thing(b"here"))
    got, body = fetch(url)
    assert body == b"here" and got.head.url == origin.url(asked)
    assert [request.target for request in origin.requests] == ["/a", asked]


_LINE = st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))


@settings(max_examples=60, deadline=None)
@given(st.lists(_LINE, max_size=5), st.sampled_from([200, 206, 302, 304, 404]))
def test_any_head_is_an_answer_or_a_reason(rows: list[bytes], code: int) -> None:
    names = (b"ETag: ", b"Last-Modified: ", b"Location: ", b"Set-Cookie: ", b"")
    head = b"".join(name + row + b"\r\n" for name, row in zip(names, rows, strict=False))
    with Origin() as origin:
        url = origin.add("/a", raw(b"HTTP/1.1 %d X\r\n" % code + head + b"Content-Length: 0\r\n\r\n"))

        async def once(transfer: Transfer) -> None:
            try:
                got = await transfer.fetch(FetchRequest(url), Discard())
                known = got.head.validators
                again = FetchRequest(url, if_none_match=known.etag, if_modified_since=known.last_modified)
                await transfer.fetch(again, Discard())
            except Reasoned as error:
                assert error.reason != "internal_error"

        within(once)
