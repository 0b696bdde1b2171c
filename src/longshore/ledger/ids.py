"""Ids that sort by time (UUID version 7), so that every index on them appends."""

from __future__ import annotations

import os
import threading

from longshore.domain.model import Micros

_lock = threading.Lock()
_last = 0
_AHEAD = 60_000 << 12  # a clock that was set back by more than this starts anew: ids stay unique, not ordered


def new_ids(count: int, now: Micros) -> list[str]:
    """Make ids in ascending order, also across calls of one process."""
    global _last
    with _lock:
        base = (now // 1000) << 12  # milliseconds, then a 12-bit counter that carries over
        start = max(_last, base) if _last - base < _AHEAD else base
        _last = start + count
    noise = os.urandom(8 * count)
    texts = []
    for index in range(count):
        clock = start + index
        tail = int.from_bytes(noise[8 * index : 8 * index + 8], "big") & 0x3FFFFFFFFFFFFFFF | 0x8000000000000000
        text = f"{clock >> 12:012x}7{clock & 0xFFF:03x}{tail:016x}"
        texts.append(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
    return texts


def new_id(now: Micros) -> str:
    """Make one id."""
    return new_ids(1, now)[0]


def floor_id(at: Micros) -> str:
    """Give the smallest id of a moment: ids at or after it were made at or after it."""
    text = f"{at // 1000:012x}"
    return f"{text[:8]}-{text[8:12]}-7000-8000-000000000000"
