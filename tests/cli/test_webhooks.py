"""`longshore webhooks`, as people type it, and a server that sends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Box
from tests.depot.test_webhooks import Endpoint, endpoint
from tests.support.program import eventually, started

__all__ = ["endpoint"]


def put(box: Box, name: str) -> str:
    (taken,) = box("put", box.write(name, name), "--json").ok().of("taken")
    return str(taken["artifact_id"])


def test_an_endpoint_from_its_beginning_to_its_end(
    box: Box, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(box, "before")
    made = box("webhooks", "add", endpoint.url)
    secret, name = made.ok().stdout.strip(), made.stderr.split()[1].rstrip(";")
    assert secret.startswith("whsec_")
    listed = box("webhooks", "list").ok().stdout
    assert name in listed and "active" in listed and secret not in listed
    first = put(box, "a")
    assert "1 sent" in box("webhooks", "deliver").ok().stderr
    assert [event.get_subject() for event in endpoint.events(secret)] == [first]
    monkeypatch.setattr("longshore.depot.webhooks.RETRIES_S", ())
    monkeypatch.setattr("longshore.depot.webhooks.Deliverer.__init__.__defaults__", ((), lambda: False))
    endpoint.answers.append(500)
    put(box, "b")
    failed = box("webhooks", "deliver", "--json")
    assert (failed.code, failed.of("delivered")[0]["given_up"]) == (3, 1)
    (letter,) = box("webhooks", "failures", name).ok().of("dead_letter")
    assert (letter["message_id"], letter["reason"]) == (endpoint.ids[-1], "http_500")
    box("webhooks", "redeliver", name).ok()
    assert box("webhooks", "failures", name).ok().lines == []
    box("webhooks", "remove", name).ok()
    assert box("webhooks", "remove", name).code != 0
    assert box("webhooks", "redeliver", name).code != 0


def test_what_is_no_endpoint_is_said(box: Box) -> None:
    put(box, "a")
    for words in (["add", "ftp://a.example/"], ["add", "https://a.example/", "--change", "deleted"], ["add"]):
        assert box("webhooks", *words).code == 2, words


def test_serve_sends(box: Box, endpoint: Endpoint, tmp_path: Path) -> None:
    put(box, "before")
    (made,) = box("webhooks", "add", endpoint.url, "--json").ok().of("webhook")
    with started(tmp_path / "serve", "serve", "--port", 0, env=box.env) as server:
        eventually(lambda: "Longshore serves" in server.stderr, "it serves")
        artifact = put(box, "a")
        eventually(lambda: len(endpoint.got) == 1, "it sends")
        server.kill()
    (event,) = endpoint.events(made["secret"])
    assert event.get_subject() == artifact == json.loads(endpoint.got[0][1])["data"]["artifact_id"]
