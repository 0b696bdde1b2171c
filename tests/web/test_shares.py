"""Shares for everyone: what one token or a client without one cannot take from the others."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from longshore.domain.model import Scope
from longshore.ledger.queries import listing
from longshore.web import costly_reads
from tests.support.program import eventually
from tests.support.site import Site

Start = Callable[..., Site]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def one(**limits: Any) -> Site:
            running: AbstractContextManager[Site] = Site.local(tmp_path, **limits)
            return stack.enter_context(running)

        yield one


def sent(site: Site, *lines: str, body: bytes = b"") -> socket.socket:
    """Send a request and leave its answer unread."""
    connection = socket.create_connection(("127.0.0.1", site.port), timeout=60)
    connection.sendall("\r\n".join([*lines, f"Host: 127.0.0.1:{site.port}", "", ""]).encode() + body)
    return connection


def status_of(connection: socket.socket) -> int:
    return int(connection.makefile("rb").readline().split()[1])


def cookie_of(site: Site, secret: str | None) -> str:
    opened = site.stranger().post("/sign-in", form={"token": secret})
    assert opened.status == 303, opened.text
    return opened.headers["set-cookie"].partition(";")[0]


# ---- waits


def test_a_wait_ends_when_its_client_is_gone(start: Start) -> None:
    site = start()
    [job_id] = site.plan("https://never.example/")
    secret = site.client("read").token
    waiting = [
        sent(site, f"GET /api/v1/jobs/{job_id}?wait=60 HTTP/1.1", f"Authorization: Bearer {secret}") for _ in range(20)
    ]
    eventually(lambda: site.service.waits.total() == 20, "all wait", 60)
    assert len(site.service.job_waits.polls) == 1, "one poll serves all"
    for connection in waiting:
        connection.close()
    eventually(lambda: site.service.waits.total() == 0, "the waits end with their clients", 20)
    eventually(lambda: site.serving() == 0, "and so do the requests", 20)
    assert site.service.job_waits.polls == {}


def test_all_who_wait_for_a_job_learn_of_its_end(start: Start) -> None:
    site = start()
    [job_id] = site.plan("https://soon.example/")
    client = site.client("read")
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(client.get, f"/api/v1/jobs/{job_id}?wait=60") for _ in range(8)]
        eventually(lambda: site.service.waits.total() == 8, "all wait", 60)
        site.ledger.cancel(Scope(), [job_id])
        assert {answer.result(60).json()["status"] for answer in answers} == {"canceled"}
    still = site.plan("https://later.example/")[0]
    assert client.get(f"/api/v1/jobs/{still}?wait=0.2").json()["status"] == "pending"


def test_a_token_waits_for_a_few_jobs_at_a_time(start: Start) -> None:
    site = start(waits_per_token=3)
    [job_id] = site.plan("https://never.example/")
    client = site.client("write")
    path = f"/api/v1/jobs/{job_id}?wait=60"
    waiting = [sent(site, f"GET {path} HTTP/1.1", f"Authorization: Bearer {client.token}") for _ in range(3)]
    eventually(lambda: site.service.waits.total() == 3, "all wait", 60)
    assert client.get(path).status == 429
    assert client.post("/api/v1/jobs?wait=5", doc={"url": "https://not.example/"}).status == 429
    assert len(client.get("/api/v1/jobs").json()["jobs"]) == 1, "nothing was planned"
    assert site.client("read").get(f"/api/v1/jobs/{job_id}?wait=0.1").status == 200, "another token"
    for connection in waiting:
        connection.close()


# ---- streams, requests and sign-ins


def test_streams_are_counted_when_they_are_admitted(start: Start) -> None:
    site = start(streams_per_token=4)
    secret = site.client("read").token
    opened = [sent(site, "GET /api/v1/events HTTP/1.1", f"Authorization: Bearer {secret}") for _ in range(60)]
    statuses = [status_of(connection) for connection in opened]
    assert (statuses.count(200), statuses.count(429)) == (4, 56)
    for connection in opened:
        connection.close()
    eventually(lambda: site.service.streams.total() == 0, "the streams end with their clients", 30)


def test_sessions_count_for_the_token_that_opened_them(start: Start) -> None:
    site = start(streams_per_token=4)
    secret = site.client("read").token
    cookies = [cookie_of(site, secret) for _ in range(4)]
    opened = [sent(site, "GET /api/v1/events HTTP/1.1", f"Cookie: {cookies[n % 4]}") for n in range(12)]
    assert [status_of(connection) for connection in opened].count(200) == 4
    for connection in opened:
        connection.close()


def test_sessions_share_the_rate_of_their_token(start: Start) -> None:
    site = start(rate_per_s=0.001, rate_burst=4)
    secret = site.client("read").token
    cookies = [cookie_of(site, secret) for _ in range(3)]
    answers = [site.stranger().get("/jobs.json", headers={"Cookie": cookies[n % 3]}).status for n in range(6)]
    assert answers == [200] * 4 + [429] * 2


def test_sign_ins_are_limited_per_token(start: Start) -> None:
    site = start(sign_ins_per_minute=3)
    secret = site.client("read").token
    answers = [site.stranger().post("/sign-in", form={"token": secret}) for _ in range(5)]
    assert [answer.status for answer in answers] == [303] * 3 + [429] * 2
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert site.stranger().post("/sign-in", form={"token": site.client("write").token}).status == 303


def test_a_token_has_a_share_of_the_requests_at_a_time(start: Start) -> None:
    site = start(requests_per_token=3)
    client = site.client("write")
    head = ("POST /api/v1/jobs HTTP/1.1", f"Authorization: Bearer {client.token}", "Content-Type: application/json")
    slow = [sent(site, *head, "Content-Length: 1000", body=b"{") for _ in range(3)]
    eventually(lambda: site.service.requests.total() == 3, "three requests are under way", 60)
    assert client.get("/api/v1/stats").status == 429
    assert site.client("read").get("/api/v1/stats").status == 200
    for connection in slow:
        connection.close()
    eventually(lambda: client.get("/api/v1/stats").status == 200, "the places are free again", 30)


# ---- without a token


def test_without_a_token_no_body_is_read(start: Start) -> None:
    """The answer comes although the body never does."""
    site = start()
    for path in ("/api/v1/jobs", "/add", "/api/v1/artifacts"):
        head = (f"POST {path} HTTP/1.1", "Content-Type: application/json", "Content-Length: 1000000")
        with contextlib.closing(sent(site, *head)) as connection:
            assert status_of(connection) == 401, path


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "application/json", "text/plain"])
def test_a_body_without_a_token_is_small(site: Site, kind: str) -> None:
    big = site.stranger().post("/sign-in", body=b"token=" + b"x" * 17_000, headers={"Content-Type": kind})
    assert big.status == 413
    assert site.stranger().post("/sign-in", form={"token": "x" * 1000}).status == 401


def test_bodies_without_a_token_leave_places_for_the_others(start: Start) -> None:
    site = start(anonymous_bodies=5)
    head = ("POST /sign-in HTTP/1.1", "Content-Type: application/x-www-form-urlencoded", "Content-Length: 1000")
    slow = [sent(site, *head) for _ in range(5)]
    eventually(lambda: site.service.strangers.total() == 5, "the places of strangers are taken", 60)
    busy = site.stranger().post("/sign-in", form={"token": "x"})
    assert (busy.status, busy.json()["reason"]) == (503, "busy")
    assert busy.headers["x-frame-options"] == "DENY"
    assert site.stranger().get("/livez").status == 200
    assert site.stranger().get("/sign-in").status == 200
    assert site.client("read").get("/api/v1/stats").status == 200
    for connection in slow:
        connection.close()
    eventually(lambda: not site.service.strangers, "the places are free again", 30)


def test_a_body_without_a_token_has_a_deadline(start: Start) -> None:
    site = start(head_timeout_s=0.3)
    head = ("POST /sign-in HTTP/1.1", "Content-Type: application/x-www-form-urlencoded", "Content-Length: 1000")
    with contextlib.closing(sent(site, *head, body=b"token=")) as connection:
        assert status_of(connection) == 408


# ---- costly reads


def test_searches_of_one_token_delay_nobody_else(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    site = start()
    go_on, under_way = threading.Event(), threading.Semaphore(0)
    count = listing.count_matching

    def stuck(tx: Any, scope: Any, wanted: Any, at_most: int) -> int:
        if wanted.reason == "stuck":
            under_way.release()
            assert go_on.wait(60)
        return count(tx, scope, wanted, at_most)

    monkeypatch.setattr(listing, "count_matching", stuck)
    one, other = site.client("read"), site.client("write")
    with ThreadPoolExecutor(12) as threads:
        searches = [threads.submit(one.get, "/jobs.json?count=1&reason=stuck") for _ in range(12)]
        try:
            assert under_way.acquire(timeout=60)
            assert one.get("/api/v1/stats").status == 200
            assert other.get("/api/v1/stats").status == 200
            assert other.get("/jobs.json?count=1&reason=zzz").json()["matching"] == 0
            assert not under_way.acquire(timeout=0.2), "one search of a token at a time"
        finally:
            go_on.set()
        assert [search.result(60).status for search in searches] == [200] * 12


def test_a_token_queues_few_searches(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    site = start()
    go_on = threading.Event()
    monkeypatch.setattr(costly_reads, "QUEUED_MOST", 3)
    monkeypatch.setattr(listing, "count_matching", lambda *_, **__: int(go_on.wait(60)))
    client = site.client("read")
    with ThreadPoolExecutor(6) as threads:
        searches = [threads.submit(client.get, "/jobs.json?count=1&reason=x") for _ in range(6)]
        eventually(lambda: sum(search.done() for search in searches) == 3, "three are refused", 60)
        go_on.set()
        assert sorted(search.result(60).status for search in searches) == [200] * 3 + [429] * 3
