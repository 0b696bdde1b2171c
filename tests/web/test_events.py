"""History as a stream: in order, once, and on from where it stopped."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

from longshore.domain.model import Scope
from longshore.domain.policy.tokens import secret_hash
from longshore.ledger.operations import tokens
from longshore.web.cursors import Cursors
from tests.support.site import Client, Site


@contextmanager
def stream(site: Site, secret: str, query: str = "", **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    connection.request("GET", "/api/v1/events" + query, headers={"Authorization": f"Bearer {secret}", **headers})
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    try:
        yield messages(answer)
    finally:
        connection.close()


def messages(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    fields: dict[str, str] = {}
    while line := answer.readline():
        text = line.decode().rstrip("\n")
        if text:
            name, _, value = text.partition(": ")
            fields[name] = value
        elif "data" in fields and "event" not in fields:
            yield {"id": fields.get("id"), **json.loads(fields["data"])}
            fields = {}
        else:
            fields = {}


def test_events_come_as_they_happen_and_go_on_after_the_last_one_seen(site: Site) -> None:
    scope = Scope("heard", "default")
    secret = site.token("read", tenant="heard")
    with stream(site, secret, "?after=0") as heard:
        site.fail("https://e.example/1", scope=scope)
        first = next(message for message in heard if message["kind"] == "failed")
    job = site.fail("https://e.example/2", scope=scope)
    with stream(site, secret, **{"Last-Event-ID": first["id"]}) as heard:
        again = next(message for message in heard if message["kind"] == "failed")
    assert again["job_id"] == job
    number = partial(Cursors.of(site.ledger).read, scope)
    assert number(again["seq"]) > number(first["seq"])
    assert again["id"] == again["seq"]


def test_a_slim_stream_has_only_kind_and_job(site: Site) -> None:
    scope = Scope("slim", "default")
    site.fail("https://e.example/1", scope=scope)
    with stream(site, site.token("read", tenant="slim"), "?after=0&slim=1") as heard:
        assert set(next(heard)) == {"id", "kind", "job_id"}


def test_a_stream_hears_nothing_of_another_tenant(site: Site) -> None:
    with stream(site, site.token("read", tenant="deaf"), "?after=0") as heard:
        site.fail("https://e.example/other", scope=Scope("noisy", "default"))
        mine = site.fail("https://e.example/mine", scope=Scope("deaf", "default"))
        assert next(heard)["job_id"] == mine


def test_a_stream_ends_with_its_token(site: Site) -> None:
    secret = site.token("read", tenant="ended")
    token = site.ledger.read(tokens.token_by_hash, secret_hash(secret))
    assert token is not None
    with stream(site, secret) as heard:
        site.ledger.write(tokens.revoke_token, token.token_id)
        assert list(heard) == []


def test_a_stream_ticks_when_jobs_are_planned(site: Site) -> None:
    """Planning has no event, but whoever watches must see that there is more to do."""
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    secret = site.token("read", tenant="ticks")
    connection.request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {secret}"})
    answer = connection.getresponse()
    assert answer.readline() == b"retry: 2000\n"
    site.plan("https://tick.example/", scope=Scope("ticks", "default"))
    while (line := answer.readline()) != b"event: tick\n":
        assert line != b""
    connection.close()


def test_an_odd_last_event_id_is_no_error(site: Site) -> None:
    secret = site.token("read", tenant="odd")
    for odd in ("abc", "9" * 20, "-1", "\u00b2"):
        with stream(site, secret, **{"Last-Event-ID": odd}):
            pass


def test_no_number_tells_what_other_tenants_did(site: Site) -> None:
    """Jobs and events of all tenants are numbered together: neither cursors nor ids may let a tenant count."""
    mine, other = Scope("counting", "default"), Scope("counted", "default")
    jobs = [site.fail(f"https://count.example/{n}", scope=mine) for n in range(3)]
    site.fail("https://count.example/other", scope=other)
    secret = site.token("read", tenant="counting")
    with stream(site, secret, "?after=0") as heard:
        texts = [message["id"] for message in islice(heard, 3)]
    texts += [
        event["seq"] for event in Client(site.port, secret).get(f"/api/v1/jobs/{jobs[0]}/timeline").json()["events"]
    ]
    page = Client(site.port, secret).get("/api/v1/jobs?limit=1")
    texts.append(page.json()["next"])
    assert page.json()["next"] in page.headers["link"]
    assert all(re.fullmatch("c[0-9a-f]{16}", text) for text in texts)
    for plain in ("1", "17", "9" * 18, "garbage", "C" + "0" * 16):
        for path in ("/api/v1/jobs", "/api/v1/events", "/api/v1/torrents"):
            assert Client(site.port, secret).get(f"{path}?after={plain}").status == 422, path


def test_pages_of_jobs_go_on_from_their_cursor_and_no_other_tenants(site: Site) -> None:
    scope = Scope("paging", "default")
    jobs = site.plan(*(f"https://page.example/{n}" for n in range(5)), scope=scope)
    client = Client(site.port, site.token("read", tenant="paging"))
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = client.get("/api/v1/jobs?limit=2" + (f"&after={after}" if after else "")).json()
        found += [job["job_id"] for job in page["jobs"]]
        after = page["next"]
    assert found == jobs[::-1]
    cursors = Cursors(b"key")
    for number in (0, 1, 2**31, 2**62 - 1):
        assert cursors.read(scope, cursors.seal(scope, number)) == number
    assert cursors.seal(scope, 7) != cursors.seal(Scope("other", "default"), 7)
    assert cursors.seal(scope, 7) != Cursors(b"other").seal(scope, 7)


def test_a_cursor_of_artifacts_is_an_id(site: Site) -> None:
    secret = site.token("read", tenant="arts")
    assert Client(site.port, secret).get("/api/v1/artifacts?after=garbage").status == 422


def test_a_digest_names_the_jobs_that_changed_in_one_message(site: Site) -> None:
    scope = Scope("digest", "default")
    jobs = [site.fail(f"https://digest.example/{n}", scope=scope) for n in range(3)]
    with stream(site, site.token("read", tenant="digest"), "?after=0&digest=1") as heard:
        first = next(heard)
        assert (set(first), first["jobs"]) == ({"id", "jobs"}, sorted(jobs))
        many = [site.fail(f"https://digest.example/many/{n}", scope=scope) for n in range(60)]
        seen: set[str] = set()
        while not set(many) <= seen:
            named = next(heard)["jobs"]
            seen |= set(many if named is None else named)
