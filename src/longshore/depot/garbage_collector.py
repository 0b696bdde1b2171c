"""Run Python's garbage collector rarely while many rows are written. Loads nothing else, because `add` needs it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

COLLECT_AFTER: Final = 50_000  # container objects more than before


@contextmanager
def rare_collections(*, ours: bool) -> Iterator[None]:
    """Run the garbage collector rarely during the block if no other code shares the process: a run makes few cycles."""
    if not ours:
        yield
        return
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
