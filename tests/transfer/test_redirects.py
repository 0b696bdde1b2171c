"""Redirects walked by us (torture D 50): every hop judged, secrets stay at home, hosts are asked for a slot."""

from __future__ import annotations

import pytest

from longshore.errors import Reasoned
from longshore.transfer import FetchRequest, Memory, NetworkPolicy
from tests.support.origin import Origin, Request, Thing, Wire, redirect, stamped
from tests.support.settings import login, tuned
from tests.transfer.wire import fails, fetch, reason, within

THING = Thing(stamped(1, 5000))


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_every_kind_is_followed_with_get(origin: Origin, code: int) -> None:
    origin.add("/b", THING)
    got, body = fetch(origin.add("/a", redirect("b", code)))
    assert body == THING.body
    assert got.head.url == origin.url("/b") and got.head.hops == (origin.url("/a"),)
    assert [r.method for r in origin.requests] == ["GET", "GET"]


def test_a_chain_and_its_limit(origin: Origin) -> None:
    origin.add("/0", THING)
    for n in range(1, 13):
        origin.add(f"/{n}", redirect(f"/{n - 1}"))
    got, body = fetch(origin.url("/10"))
    assert body == THING.body and len(got.head.hops) == 10
    assert reason(origin.url("/11")) == "redirect_loop"
    assert reason(origin.url("/3"), settings=tuned(max_redirects=2)) == "redirect_loop"


def test_loops(origin: Origin) -> None:
    assert reason(origin.add("/self", redirect("/self"))) == "redirect_loop"
    origin.add("/b", redirect("/a"))
    assert reason(origin.add("/a", redirect("/b"))) == "redirect_loop"
    assert origin.count("/a") == 1 and origin.count("/self") == 1
    changing = origin.add("/c", redirect("/c", Set_Cookie="n=1"))
    assert reason(changing) == "redirect_loop", "a cookie that does not change is a loop, too"


def test_a_cookie_that_opens_the_door(origin: Origin) -> None:
    def door(request: Request, wire: Wire) -> None:
        if "pass=yes" in request.headers.get("cookie", ""):
            THING(request, wire)
        else:
            redirect("/door", Set_Cookie="pass=yes; Path=/")(request, wire)

    assert fetch(origin.add("/door", door))[1] == THING.body


def test_cookies_stay_with_their_host_and_their_walk(origin: Origin) -> None:
    with Origin("127.0.0.2") as other:
        there = other.add("/b", THING)
        fetch(origin.add("/a", redirect(there, Set_Cookie="secret=1")))
        assert "cookie" not in other.requests[0].headers

    origin.add("/d", THING)
    origin.add("/c", redirect("/d", Set_Cookie="secret=1"))

    async def twice(transfer: object) -> None:
        for _ in range(2):
            await transfer.fetch(FetchRequest(origin.url("/c")), Memory())  # type: ignore[attr-defined]

    within(twice)
    assert [("cookie" in r.headers) for r in origin.requests[1:]] == [False, True, False, True]


@pytest.mark.parametrize(
    "location",
    [
        *("file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/", "data:text/plain,x", "javascript:1"),
        *(
            "dict://127.0.0.1:11211/stats",
            "http://user:pw@127.0.0.1/",
            "http://[::1",
            "http://a b/",
            "sftp://127.0.0.1/x",
        ),
    ],
)
def test_where_we_do_not_go(origin: Origin, location: str) -> None:
    error = fails(origin.add("/a", redirect(location)))
    assert error.reason == "forbidden_redirect" and "pw" not in str(error)


def test_no_location(origin: Origin) -> None:
    assert reason(origin.add("/a", redirect(None))) == "protocol_error"


def test_a_redirect_only_for_ranges(origin: Origin) -> None:
    origin.add("/b", THING)
    url = origin.add("/a", redirect("/b"))
    got, body = fetch(FetchRequest(url, start=100, if_range='"v1"'))
    assert got.head.status == 206 and body == THING.body[100:]
    assert origin.requests[1].headers["if-range"] == '"v1"'


def test_secrets_of_a_job_stay_at_its_origin(origin: Origin) -> None:
    headers = (
        ("Authorization", "Bearer CANARY"),
        ("X-Api-Key", "CANARY"),
        ("Cookie", "CANARY=1"),
        ("Accept", "text/x"),
    )
    with Origin("127.0.0.2") as other:
        there = other.add("/b", THING)
        origin.add("/mid", redirect(there))
        fetch(FetchRequest(origin.add("/a", redirect("/mid")), headers=headers))
        sent = other.requests[0].headers
        assert "CANARY" not in str(sent) and sent["accept"] == "text/x"
        assert origin.requests[1].headers["x-api-key"] == "CANARY", "the same origin still gets it"


def test_another_port_is_another_origin(origin: Origin) -> None:
    with Origin() as other:
        fetch(FetchRequest(origin.add("/a", redirect(other.add("/b", THING))), headers=(("X-Api-Key", "CANARY"),)))
        assert "CANARY" not in str(other.requests[0].headers)


def test_credentials_by_host(origin: Origin) -> None:
    with Origin("127.0.0.2") as other:
        mine = {
            f"http://{origin.netloc}": login(username="me", password="pw"),
            f"http://{other.netloc}": login(token="tok"),
        }
        fetch(origin.add("/a", redirect(other.add("/b", THING))), settings=tuned(credentials=mine))
        assert origin.requests[0].headers["authorization"] == "Basic bWU6cHc="
        assert other.requests[0].headers["authorization"] == "Bearer tok"
    fetch(origin.add("/c", THING))
    assert "authorization" not in origin.requests[-1].headers


def test_userinfo_is_sent_as_a_header_and_goes_nowhere_else(origin: Origin) -> None:
    with Origin("127.0.0.2") as other:
        url = origin.add("/a", redirect(other.add("/b", THING)))
        got, _ = fetch(url.replace("http://", "http://me:CANARY@"))
        assert "authorization" in origin.requests[0].headers
        assert "authorization" not in other.requests[0].headers
        assert "CANARY" not in str(got)


def test_a_hop_to_another_host_asks_for_its_slot(origin: Origin) -> None:
    asked = []
    with Origin("127.0.0.2") as other:
        origin.add("/mid", redirect(other.add("/b", THING)))
        url = origin.add("/a", redirect("/mid"))

        async def slot(host: str) -> bool:
            asked.append(host)
            return len(asked) < 2

        assert fetch(FetchRequest(url, on_hop=slot))[1] == THING.body
        assert asked == [other.netloc], "the same host needs no other slot"
        with pytest.raises(Reasoned) as caught:
            fetch(FetchRequest(url, on_hop=slot))
        assert caught.value.reason == "host_busy" and other.count("/b") == 1


def test_a_hop_to_a_forbidden_address_is_refused_at_the_socket(origin: Origin) -> None:
    policy = NetworkPolicy.allowing("127.0.0.1")
    with Origin("127.0.0.2") as other:
        assert reason(origin.add("/a", redirect(other.add("/b", THING))), policy=policy) == "forbidden_address"
        assert other.connections == 0
    for host in ("169.254.169.254", "[::ffff:169.254.169.254]", "10.0.0.1", "[fd00:ec2::254]", "2852039166"):
        url = origin.add("/a", redirect(f"http://{host}/latest/meta-data/"))
        assert reason(url, policy=policy) == "forbidden_address", host


def test_a_cookie_that_the_parser_cannot_read_is_ignored_without_a_word(
    origin: Origin, recwarn: pytest.WarningsRecorder, capfd: pytest.CaptureFixture[str]
) -> None:
    """The standard library prints "http.cookiejar bug!" and a traceback for a year of 5,000 digits."""
    expires = f"Thu, 01 Jan {'9' * 5000} 00:00:00 GMT"
    url = origin.add("/a", redirect(origin.add("/b", Thing(b"ok")), Set_Cookie=f"a=b; Expires={expires}"))
    _, body = fetch(url)
    assert body == b"ok"
    assert [str(one.message) for one in recwarn if one.category is UserWarning] == []
    assert capfd.readouterr().err == ""
