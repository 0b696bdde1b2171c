"""`Depot.get` beside other programs."""

from __future__ import annotations

from pathlib import Path

import pytest

import longshore
from longshore.depot.maintenance.purge import retire
from longshore.domain.run_events import RunEvent
from tests.support.origin import Origin, Thing


@pytest.mark.parametrize("how", ["refresh", "force"])
def test_a_purge_meanwhile_does_not_take_the_answer(tmp_path: Path, how: str) -> None:
    """`purge` may remove a job as soon as it is over, before `get` has read how it ended."""
    with Origin() as origin, longshore.open(tmp_path / "depot", network={"allow": ["127.0.0.0/8"]}) as depot:
        urls = [origin.add(f"/{n}", Thing(b"%d" % n)) for n in range(4)]
        before = depot.get(urls)

        def note(event: RunEvent) -> None:
            if event.kind in {"completed", "held"}:
                (tmp_path / "archive").mkdir(exist_ok=True)
                now = depot.ledger.now() + 1
                retire(depot.ledger, depot.scope, before=now, target=tmp_path / "archive", form="jsonl")

        got = depot.get(urls, on_note=note, refresh=how == "refresh", force=how == "force")
        assert [one.artifact.sha256 for one in got if one.artifact] == [
            one.artifact.sha256 for one in before if one.artifact
        ]
        assert all(origin.count(f"/{n}") <= 3 for n in range(4))
