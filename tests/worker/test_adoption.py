"""Adopting what a dead epoch published: only under an intent of one's own."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

import longshore
from longshore.errors import LeaseLost
from longshore.worker.kinds.download import dedupe
from tests.support.origin import Origin, Thing
from tests.worker import crashing


def test_an_intent_that_was_refused_is_not_completed_all_the_same(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that had run out when the intent was written may live again when the end is: found by a fleet under load."""
    depot, url = tmp_path / "depot", origin.add("/a", Thing(b"published and not registered"))
    code, _, _ = crashing.run(depot, [url], LONGSHORE_FAILPOINTS="publish.linked=kill")
    assert code == -signal.SIGKILL
    refused: list[Any] = []

    def begin_once_refused(tx: Any, intents: Any) -> Any:
        if not refused:
            refused.append(intents)
            return [LeaseLost("for a moment") for _ in intents]
        return begin(tx, intents)

    begin = dedupe.begin  # type: ignore[attr-defined]
    monkeypatch.setattr(dedupe, "begin", begin_once_refused)
    settings: dict[str, Any] = {"network": {"allow": ["127.0.0.0/8"]}, "lease": {"ttl_s": 1.0, "renew_s": 0.2}}
    with longshore.open(depot, **settings) as opened:
        opened.run()
        assert refused, "nothing was adopted"
    assert origin.count("/a") == 1
    assert crashing.findings(depot, healed=True) == []
