"""Nobody can ask too much: bodies, depth, pages, rates, wrong tokens, open streams."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from longshore.web.security.bodies import json_depth
from longshore.web.security.middleware import is_ours
from longshore.web.security.rate_limit import Throttle
from longshore.web.server_options import ServerOptions
from tests.support.site import Client, Site

Start = Callable[..., Site]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def one(**limits: Any) -> Site:
            running: AbstractContextManager[Site] = Site.local(tmp_path, **limits)
            return stack.enter_context(running)

        yield one


def test_a_body_that_is_declared_or_grows_too_large_is_refused(start: Start) -> None:
    site = start(max_body_bytes=1000, max_batch_bytes=2000, max_upload_bytes=3000)
    client = site.client("write")
    assert client.post("/api/v1/jobs", doc={"url": "https://a.example/" + "x" * 2000}).status == 413
    ndjson = {"Content-Type": "application/x-ndjson"}
    assert client.post("/api/v1/jobs:batch", body="https://a.example/\n" * 500, headers=ndjson).status == 413
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    headers = {"Authorization": f"Bearer {client.token}", "Transfer-Encoding": "chunked"}
    connection.request("POST", "/api/v1/artifacts", body=iter([b"x" * 1000] * 10), headers=headers, encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 413
    assert b"body_too_large" in answer.read()
    connection.close()
    assert client.post("/api/v1/artifacts", body=b"x" * 3000).status == 201


def test_json_that_nests_too_deep_is_refused_before_it_is_parsed(site: Site) -> None:
    client = site.client("write")
    deep = b'{"params": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b'}, "url": "https://a.example/"}'
    answer = client.post("/api/v1/jobs", body=deep, headers={"Content-Type": "application/json"})
    assert (answer.status, answer.json()["reason"]) == (400, "too_deep")


@pytest.mark.parametrize(
    ("body", "depth"),
    [(b"{}", 1), (b'{"a": "[[[[["}', 1), (b'[[{"a\\"[": [1]}]]', 4), (b"1", 0), (b"[" * 50, 33)],
)
def test_depth_is_counted_outside_of_strings(body: bytes, depth: int) -> None:
    assert json_depth(body, 32) == depth


def test_pages_have_a_largest_size(site: Site) -> None:
    client = site.client("read")
    assert client.get("/api/v1/jobs?limit=501").status == 422
    assert client.get("/api/v1/jobs?limit=0").status == 422
    assert client.get("/api/v1/jobs?limit=500").status == 200


def test_a_throttle_gives_its_burst_then_its_rate() -> None:
    throttle = Throttle(rate_per_s=2, burst=3)
    assert [throttle.take("a", 0.0) for _ in range(3)] == [0, 0, 0]
    assert throttle.take("a", 0.0) == pytest.approx(0.5)
    assert throttle.take("b", 0.0) == 0
    assert throttle.take("a", 0.5) == 0
    assert throttle.take("a", 0.5) == pytest.approx(0.5)
    assert throttle.take("a", 1000.0) == 0


def test_a_throttle_forgets_who_was_quiet_longest() -> None:
    throttle = Throttle(rate_per_s=1, burst=1, keys_max=100)
    for number in range(1000):
        throttle.take(str(number), 0.0)
    assert len(throttle._buckets) == 100


def test_a_token_that_asks_too_often_is_told_when_to_come_again(start: Start) -> None:
    site = start(rate_per_s=0.001, rate_burst=3)
    client, other = site.client("read"), site.client("write")
    answers = [client.get("/api/v1/stats") for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert answers[-1].json()["reason"] == "too_many_requests"
    assert other.get("/api/v1/stats").status == 200


def test_wrong_tokens_are_throttled_by_address_and_nobody_else_is(start: Start) -> None:
    site = start(wrong_per_minute=5)
    right = site.client("read")
    assert right.get("/api/v1/stats").status == 200
    guesses = [Client(site.port, f"lsh_{n:043d}").get("/api/v1/stats").status for n in range(7)]
    assert guesses == [401] * 5 + [429] * 2
    # What resolves passes: a guess hits one of 2^256, but whoever shares the address (a proxy's) must not be locked out.
    assert right.get("/api/v1/stats").status == 200
    assert site.client("metrics").get("/metrics").status == 200
    assert site.stranger().get("/api/v1/stats").status == 401  # tried nothing
    wrong = site.stranger().post("/sign-in", form={"token": "lsh_x"})
    assert (wrong.status, int(wrong.headers["retry-after"]) >= 1) == (429, True)
    assert site.stranger().post("/first", form={"code": "guess"}).status == 429
    opened = site.stranger().post("/sign-in", form={"token": right.token})
    assert opened.status == 303
    cookie = {"Cookie": opened.headers["set-cookie"].partition(";")[0]}
    assert site.stranger().get("/jobs", headers=cookie).status == 200
    lines = [
        line for line in site.client("admin").get("/api/v1/audit").json()["entries"] if line["token_id"] == "nobody"
    ]
    assert len(lines) == 5  # nobody fills the log by guessing on
    assert site.stranger().get("/livez").status == 200


def test_on_loopback_only_names_of_ours_are_answered(start: Start) -> None:
    """A page of another site whose name was pointed at this machine (DNS rebinding) gets nothing."""
    site = start(names=("depot.example.org",))
    right = site.client("read")
    for host in ("evil.example", "evil.example:8642", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1"):
        for path in ("/sign-in", "/first", "/api/v1/stats", "/static/live.js"):
            answer = right.get(path, headers={"Host": host})
            assert (answer.status, answer.json()["reason"]) == (421, "unknown_host"), (host, path)
        assert right.get("/livez", headers={"Host": host}).status == 200
    for host in (f"localhost:{site.port}", "127.0.0.1", f"[::1]:{site.port}", "LOCALHOST", "Depot.example.org:443"):
        assert right.get("/sign-in", headers={"Host": host}).status == 200, host


@pytest.mark.parametrize(
    ("host", "names", "asked", "ours"),
    [
        ("0.0.0.0", (), "any.example", True),
        ("0.0.0.0", ("depot.example",), "any.example", False),
        ("0.0.0.0", ("depot.example",), "depot.example", True),
        ("::1", (), "evil.example", False),
        ("::1", (), "[::1]:80", True),
        ("localhost", (), "evil.example", False),
    ],
)
def test_elsewhere_any_name_is_answered_unless_some_are_named(
    host: str, names: tuple[str, ...], asked: str, ours: bool
) -> None:
    assert is_ours(asked, ServerOptions(host=host, names=names)) is ours


def test_open_event_streams_are_counted(start: Start) -> None:
    site = start(streams_per_token=2)
    client = site.client("read")
    open_ones = []
    for _ in range(2):
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
        connection.request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {client.token}"})
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.readline() == b"retry: 2000\n"
        open_ones.append(connection)
    assert client.get("/api/v1/events").status == 429
    for connection in open_ones:
        connection.close()


def test_security_headers_are_on_every_answer(site: Site) -> None:
    for client in (site.stranger(), site.client("admin")):
        for path in ("/livez", "/", "/jobs", "/api/v1/jobs", "/nothing", "/static/live.js", "/sign-in"):
            headers = client.get(path).headers
            assert headers["x-content-type-options"] == "nosniff", path
            assert headers["x-frame-options"] == "DENY", path
            assert headers["referrer-policy"] == "same-origin", path
            assert "default-src 'none'" in headers["content-security-policy"], path
            assert "unsafe" not in headers["content-security-policy"], path
            assert "server" not in headers, path
