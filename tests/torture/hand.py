"""A worker of the soak as a process of its own: `python -m tests.torture.hand DEPOT [weigh]`; settings by environment.

`LONGSHORE_TEST_CLOCK=SECONDS:READINGS` makes its ledger's clock jump once it was read so often;
`LONGSHORE_TEST_WALL=SECONDS` sets the whole machine's clock wrong for it. `weigh` works in three runs
and prints what the process holds after each: descriptors, threads, resident bytes.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import longshore
from longshore.domain.model import SECOND, Micros
from longshore.errors import Unavailable
from longshore.ledger import Ledger
from longshore.ledger.backends.sqlite.connection import wall_clock


def jumping(seconds: float, readings: int) -> Callable[[], Micros]:
    """Make a clock that is right until it was read so often."""
    left = [readings]

    def now() -> Micros:
        left[0] -= 1
        return wall_clock() + (int(seconds * SECOND) if left[0] < 0 else 0)

    return now


def set_clock(spec: str) -> None:
    """Give every ledger that is opened from now on a clock that jumps."""
    seconds, _, readings = spec.partition(":")
    plain = Ledger.open.__func__  # type: ignore[attr-defined]

    def opened(cls: type[Ledger], where: Any, *, create: bool = False, clock: Any = None) -> Ledger:
        ledger: Ledger = plain(cls, where, create=create, clock=clock or jumping(float(seconds), int(readings)))
        return ledger

    Ledger.open = classmethod(opened)  # type: ignore[method-assign,assignment]


def set_wall(skew_s: float) -> None:
    """Let this machine's clock be wrong for everybody in the process."""
    plain, plain_ns = time.time, time.time_ns
    time.time = lambda: plain() + skew_s
    time.time_ns = lambda: plain_ns() + int(skew_s * 1e9)


def weight() -> dict[str, int]:
    """Say what this process holds."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": threading.active_count(), "resident": resident}


def work(where: str) -> None:
    """Work until nothing is left. A server that is away when we begin is said in one line, as the command line does."""
    try:
        with longshore.open(where) as depot:
            depot.run(handle_signals=True)
    except Unavailable as away:
        print(away, file=sys.stderr)
        sys.exit(away.exit_code)


def main() -> None:
    where, *rest = sys.argv[1:]
    if spec := os.environ.get("LONGSHORE_TEST_CLOCK"):
        set_clock(spec)
    if skew := os.environ.get("LONGSHORE_TEST_WALL"):
        set_wall(float(skew))
    if not rest:
        work(where)
        return
    with longshore.open(where) as depot:
        weights: list[dict[str, int]] = []
        for _ in range(3):
            depot.run(max_wait_s=0 if len(weights) == 0 else None)
            weights.append(weight())
        print(json.dumps(weights))


if __name__ == "__main__":
    main()
