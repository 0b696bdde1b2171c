"""A resolver asks for metadata through the depot, and the depot remembers it as HTTP allows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from longshore.depot import AsyncDepot, Depot
from longshore.domain.scope import Scope
from longshore.errors import BadInput, Reasoned
from tests.support.origin import Origin, Thing, status


def test_a_resolver_asks_once(tmp_path: Path) -> None:
    with Origin() as origin, Depot(tmp_path, network={"allow": ["127.0.0.0/8"]}) as depot:
        url = origin.add("/api", Thing(b"{}", extra={"Cache-Control": "max-age=60", "Date": ""}))
        assert [depot.metadata(url).source for _ in range(2)] == ["fetched", "stored"]
        assert depot.metadata(url).body == b"{}"
        assert depot.metadata(url, refresh=True).source == "validated"
        assert depot.metadata(url, scope=Scope("other", "p")).source == "fetched", "another tenant asks by itself"
        assert depot.jobs() == [], "no job was made"
        with pytest.raises(Reasoned, match="404"):
            depot.metadata(origin.add("/gone", status(404)))
        with pytest.raises(BadInput):
            depot.metadata(7)  # type: ignore[arg-type]


def test_the_same_in_a_loop(tmp_path: Path) -> None:
    async def ask(url: str) -> list[str]:
        async with AsyncDepot.open(tmp_path, network={"allow": ["127.0.0.0/8"]}) as depot:
            return [(await depot.metadata(url)).source for _ in range(2)]

    with Origin() as origin:
        url = origin.add("/api", Thing(b"{}", extra={"Cache-Control": "max-age=60", "Date": ""}))
        assert asyncio.run(ask(url)) == ["fetched", "stored"]
