"""Requests that are made to hurt: none ends in a 500, holds the event loop, or gets an answer many times its size."""

from __future__ import annotations

import importlib.metadata
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

import longshore
from longshore.web.api import submit_batch
from longshore.web.dashboard import actions
from longshore.worker.kinds.custom import job_types
from tests.support.site import Answer, Client, Site

NDJSON = {"Content-Type": "application/x-ndjson"}
JSON = {"Content-Type": "application/json"}


@longshore.job_type("hostile_words")
def hostile_words(inputs: list[Any], params: dict[str, Any], ctx: Any) -> int:
    return len(inputs)


def batch(client: Client, body: str | bytes) -> list[Any]:
    answer = client.post("/api/v1/jobs:batch", body=body, headers=NDJSON)
    assert answer.status == 200, answer.text
    return [json.loads(line) for line in answer.body.splitlines()]


def session(site: Site, client: Client) -> tuple[dict[str, str], str]:
    """Sign in; return the cookie header and the CSRF token."""
    opened = site.stranger().post("/sign-in", form={"token": client.token})
    cookie = {"Cookie": opened.headers["set-cookie"].partition(";")[0]}
    page = site.stranger().get("/", headers=cookie).text
    return cookie, page.split('name="csrf" value="')[1].split('"')[0]


REQUESTS: dict[str, Callable[[Client], Answer]] = {
    "origin": lambda c: c.post("/sign-in", form={"token": "x"}, headers={"Origin": "http://["}),
    "referer": lambda c: c.post("/sign-in", form={"token": "x"}, headers={"Referer": "http://["}),
    "page": lambda c: c.get("/nothing", headers={"Referer": "http://[", "Accept": "text/html"}),
    "page of a form": lambda c: c.post("/add", form={}, headers={"Referer": "http://[", "Accept": "text/html"}),
    "superscript": lambda c: c.get("/api/v1/audit?after=%C2%B2"),
    "huge cursor": lambda c: c.get(f"/api/v1/audit?after={10**30}"),
    "cursor of 1,000 digits": lambda c: c.get(f"/api/v1/audit?after={'9' * 1000}"),
    "huge count": lambda c: c.post(
        "/api/v1/jobs:retry", doc={"filter": {"status": "failed"}, "expected_count": 10**30}
    ),
    "huge size": lambda c: c.post("/api/v1/jobs", doc={"url": "https://a.example/", "size_bytes": 10**40}),
    "number of 5,000 digits": lambda c: c.post(
        "/api/v1/jobs", body=b'{"url": "https://a.example/", "params": {"n": ' + b"9" * 5000 + b"}}", headers=JSON
    ),
    "surrogate in params": lambda c: c.post(
        "/api/v1/jobs", body=rb'{"url": "https://a.example/", "params": {"a": "\ud800"}}', headers=JSON
    ),
    "surrogate in a name": lambda c: c.post(
        "/api/v1/jobs", body=rb'{"url": "https://a.example/", "name": "\udfff"}', headers=JSON
    ),
    "surrogate as key": lambda c: c.post(
        "/api/v1/jobs", body=rb'{"url": "https://a.example/", "params": {"\ud800": 1}}', headers=JSON
    ),
    "not a number": lambda c: c.post(
        "/api/v1/jobs", body=b'{"url": "https://a.example/", "params": {"a": NaN}}', headers=JSON
    ),
    "huge event": lambda c: c.get(f"/api/v1/events?after={10**18}"),
    "huge wait": lambda c: c.get("/api/v1/jobs/x?wait=1e400"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_hostile_value_is_refused_and_is_not_an_error_of_the_service(site: Site, name: str) -> None:
    answer = REQUESTS[name](site.client("admin"))
    assert 400 <= answer.status < 500, answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_range_of_thousands_of_digits_is_ignored(site: Site) -> None:
    client = site.client("write")
    _, artifact_id = site.complete("https://range.example/", b"0123456789")
    path = f"/api/v1/artifacts/{artifact_id}/content"
    for spec in (f"{'9' * 5000}-", f"-{'9' * 5000}", f"0-{'9' * 5000}"):
        answer = client.get(path, headers={"Range": f"bytes={spec}"})
        assert (answer.status, answer.body) == (200, b"0123456789")
    assert client.get(path, headers={"Range": f"bytes={10**17}-"}).status == 416


def test_an_error_page_that_fails_keeps_the_security_headers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = site.app.middleware_stack
    while not hasattr(layer, "shown"):
        layer = layer.app

    def broken(*_: object) -> None:
        raise RuntimeError("no page")

    monkeypatch.setattr(layer, "shown", broken)
    answer = site.stranger().get("/api/v1/jobs", headers={"Host": "evil.example"})
    assert (answer.status, answer.headers["x-frame-options"]) == (421, "DENY")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_the_depth_of_json_cannot_be_hidden_by_its_encoding(site: Site, encoding: str) -> None:
    deep = '{"url": "https://a.example/", "name": "\u0122", "params": {"a": ' + "[" * 60 + "]" * 60 + "}}"
    answer = site.client("write").post("/api/v1/jobs", body=deep.encode(encoding), headers=JSON)
    assert answer.status == 400


def test_the_depth_of_a_batch_line_is_limited(site: Site) -> None:
    deep = '{"url": "https://deep.example/", "params": {"a": ' + "[" * 900 + "]" * 900 + "}}"
    [bad, good] = batch(site.client("write", tenant="deep"), deep + "\nhttps://deep.example/2\n")
    assert "nest" in bad["message"]
    assert good["created"]


def test_the_answer_to_bad_lines_is_bounded(site: Site) -> None:
    client = site.client("write", tenant="bad-lines")
    lines = batch(client, b"x\n" * 5000 + b"https://good.example/\n")
    assert [line["line"] for line in lines[:1000]] == list(range(1, 1001))
    good, last = lines[1000:]
    assert (good["line"], good["created"]) == (5001, True)
    assert (last["line"], last["bad_lines"], last["reason"]) == (None, 5000, "bad_input")


def test_a_batch_is_parsed_off_the_event_loop(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()
    read_line = submit_batch.read_line

    def seen(*args: Any) -> Any:
        threads.add(threading.current_thread())
        return read_line(*args)

    monkeypatch.setattr(submit_batch, "read_line", seen)
    batch(site.client("write", tenant="bad-lines"), b"x\n" * 2000)
    assert threads
    assert site._thread not in threads


def test_types_of_a_batch_are_resolved_once_and_unknown_ones_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for entry points reads the disk; in the transaction, per line, it held the only writer for seconds."""
    searches = []
    entry_points = importlib.metadata.entry_points

    def counted(**kw: Any) -> Any:
        searches.append(threading.current_thread())
        return entry_points(**kw)

    monkeypatch.setattr(importlib.metadata, "entry_points", counted)
    job_types._load_entry_points.cache_clear()
    known = "\n".join(json.dumps({"job_type": "hostile_words", "params": {"n": n}}) for n in range(700))
    lines = batch(site.client("write", tenant="types"), known + '\n{"job_type": "never_declared"}\n')
    assert [line.get("created") for line in lines[:700]] == [True] * 700
    assert "unknown job type 'never_declared'" in lines[700]["message"]
    assert len(searches) == 1
    assert site._thread not in searches
    one = site.client("write", tenant="types").post("/api/v1/jobs", doc={"job_type": "never_declared", "key": "k"})
    assert (one.status, one.json()["reason"]) == (422, "bad_input")


def test_a_pasted_list_is_read_off_the_event_loop(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()
    read = actions._read

    def seen(text: str) -> Any:
        threads.add(threading.current_thread())
        return read(text)

    monkeypatch.setattr(actions, "_read", seen)
    client = site.client("write", tenant="pasted")
    cookie, csrf = session(site, client)
    lines = "https://pasted.example/1\nmagnet:?xt=1\n\nmagnet:?xt=2\n"
    answer = site.stranger().post(
        "/add", form={"lines": lines, "csrf": csrf}, headers={**cookie, "Accept": "application/json"}
    )
    assert answer.status == 200, answer.text
    assert "line 2: " in answer.json()["told"]
    assert threads
    assert site._thread not in threads
