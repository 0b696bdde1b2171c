"""The hostile origin itself: what it says it does, it does (seen with the standard library's client)."""

from __future__ import annotations

import http.client

import pytest

from tests.support.origin import Origin, Thing, bad_range, check_stamps, chunked, cut, stamped, status


def get(origin: Origin, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    client = http.client.HTTPConnection(origin.host, origin.port, timeout=30)
    client.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = client.getresponse()
    try:
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        client.close()


def test_stamps_show_a_mix() -> None:
    one, two = stamped(1, 10_000), stamped(2, 10_000)
    assert check_stamps(one) == 1 and check_stamps(two) == 2 and len(one) == 10_000
    with pytest.raises(AssertionError):
        check_stamps(one[:5000] + two[5000:])
    with pytest.raises(AssertionError):
        check_stamps(one[:6400] + one[6464:])


def test_an_honest_thing() -> None:
    body = stamped(1, 5000)
    with Origin() as origin:
        origin.add("/a", Thing(body))
        assert get(origin, "/a")[2] == body
        code, headers, data = get(origin, "/a", Range="bytes=4000-")
        assert (code, headers["content-range"], data) == (206, "bytes 4000-4999/5000", body[4000:])
        assert get(origin, "/a", Range="bytes=4000-", If_Range='"other"')[0] == 200
        assert get(origin, "/a", Range="bytes=5000-")[:2][0] == 416
        assert get(origin, "/a", If_None_Match='"v1"')[0] == 304
        assert get(origin, "/nowhere")[0] == 404
        assert origin.count("/a") == 5 and origin.count("/a", "HEAD") == 0


def test_scripts_play_in_order_and_the_last_repeats() -> None:
    with Origin("127.0.0.2") as origin:
        origin.add("/a", status(503, Retry_After="3"), Thing(b"ok"))
        assert [get(origin, "/a")[0] for _ in range(3)] == [503, 200, 200]


def test_bad_bodies() -> None:
    thing = Thing(stamped(1, 5000))
    with Origin() as origin:
        origin.add("/cut", cut(thing, 100))
        with pytest.raises(http.client.IncompleteRead):
            get(origin, "/cut")
        origin.add("/chunked", chunked(thing))
        assert get(origin, "/chunked")[2] == thing.body
        origin.add("/range", bad_range(thing, "start"))
        assert get(origin, "/range", Range="bytes=100-")[1]["content-range"] == "bytes 99-4999/5000"
