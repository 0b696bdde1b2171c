"""Pointers appear in no answer, page, event or log of the service: every route that there is, asked by the mightiest token."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longshore.domain.model import Scope
from longshore.ledger.queries import history
from tests.support.site import Site

HOME = Scope("pointed", "project")


def routes(of: Any) -> Iterator[tuple[str, str]]:
    """Give method and path of every route, however deep it was included."""
    for route in of:
        if path := getattr(route, "path", None):
            yield from ((method, path) for method in sorted(route.methods or ["GET"]))
        inner: Any = getattr(route, "original_router", None) or getattr(route, "app", None)
        yield from routes(getattr(inner, "routes", ()))


@pytest.fixture(scope="module")
def named(site: Site) -> dict[str, str]:
    """What stands for the parts of paths: things that exist and have something to hide."""
    job_id, artifact_id = site.complete("https://pointed.example/a.txt", b"pointed bytes", scope=HOME, name="a.txt")
    return {
        "job_id": job_id,
        "artifact_id": artifact_id,
        "host": "pointed.example",
        "name": "live.js",
        "token_id": "none",
        "book_id": "none",
        "run_id": "none",
        "consumer": "nobody",
    }


def hidden(site: Site, artifact_id: str) -> list[str]:
    """What must not be seen: the pointer, its directory, the store's root, the names of the columns."""
    artifact = site.ledger.artifact(HOME, artifact_id)
    root = Path(site.ledger.backend.path.parent)  # type: ignore[attr-defined]
    assert (root / "store" / artifact.pointer).exists()
    return [artifact.pointer, artifact.pointer.rpartition("/")[0] + "/", str(root), "storage_pointer"]


def first_bytes(site: Site, token: str, path: str) -> str:
    """Read the beginning of a stream that does not end."""
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}", "Last-Event-ID": "0"})
        answer = connection.getresponse()
        text = b""
        while b"completed" not in text and (line := answer.fp.readline()):
            text += line
        return text.decode()
    finally:
        connection.close()


def test_no_route_tells_where_bytes_lie(site: Site, named: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    words = hidden(site, named["artifact_id"])
    client = site.client("admin", tenant=HOME.tenant_id, project=HOME.project_id)
    token = site.token("admin", tenant=HOME.tenant_id, project=HOME.project_id)
    there = sorted(set(routes(site.app.routes)))
    assert len(there) > 50
    for method, pattern in there:
        own = {}
        if method == "DELETE" and "{artifact_id}" in pattern:  # what it deletes is not asked for again
            own["artifact_id"] = site.complete("https://pointed.example/gone.txt", b"bytes to delete", scope=HOME)[1]
        path = pattern.format(**{**named, **own})  # a part that nobody named is a KeyError: name it above
        if pattern == "/api/v1/events":
            text = first_bytes(site, token, path)
            assert named["job_id"] in text
        elif method in ("GET", "HEAD"):
            text = client.ask(method, path).text
        else:
            text = client.ask(method, path, body=b"{}", headers={"Content-Type": "application/json"}).text
        found = [word for word in words if word in text]
        assert found == [], f"{method} {path} shows {found}"
    assert [word for word in words if word in caplog.text] == []


def test_no_event_and_no_effect_keeps_a_pointer(site: Site, named: dict[str, str]) -> None:
    pointer = hidden(site, named["artifact_id"])[0]
    timeline = site.ledger.timeline(HOME, named["job_id"])
    told = json.dumps([event.facts for event in site.ledger.read(history.events_after, HOME, 0)]) + repr(
        timeline.effects
    )
    assert named["artifact_id"] in told
    assert pointer not in told
