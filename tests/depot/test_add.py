"""`Depot.add` plans a list while it is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import longshore
from longshore.depot.parse_items import BATCH
from longshore.domain.kinds import Status
from longshore.domain.run_events import RunEvent


def test_an_endless_list_is_planned_batch_by_batch(tmp_path: Path) -> None:
    """Each answer is durable when it is given, and no more than a batch was taken from the list."""
    taken: list[str] = []
    seen: list[tuple[int, int]] = []
    count = 2 * BATCH + 15

    def endless() -> Iterator[str]:
        for number in range(count):
            taken.append(f"https://h.example/{number}")
            yield taken[-1]

    with longshore.open(tmp_path / "depot") as depot:

        def note(event: RunEvent) -> None:
            if event.kind == "planned" and (not seen or seen[-1][0] != len(taken)):
                seen.append((len(taken), depot.ledger.counts(depot.scope)[Status.PENDING]))

        added = depot.add(endless(), on_note=note)
        again = depot.add(taken)
    assert seen == [(size, size) for size in (BATCH, 2 * BATCH, count)]
    assert (added.new, added.known, again.new, again.known) == (count, 0, 0, count)
