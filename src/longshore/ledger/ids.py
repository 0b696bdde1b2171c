"""Ids that sort by time (UUID version 7), so that every index on them appends."""

from __future__ import annotations

import os
import threading

from longshore.domain.model import Micros

_lock = threading.Lock()
_last = 0
_VARIANT = {f"{digit:x}": "89ab"[digit & 3] for digit in range(16)}  # two bits say which kind of UUID this is
_AHEAD = 60_000 << 12  # a clock that was set back by more than this starts anew: ids stay unique, not ordered


def new_ids(count: int, now: Micros) -> list[str]:
    """Make ids in ascending order, also across calls of one process."""
    global _last
    with _lock:
        base = (now // 1000) << 12  # milliseconds, then a 12-bit counter that carries over
        start = max(_last, base) if _last - base < _AHEAD else base
        _last = start + count
    noise = os.urandom(8 * count).hex()
    texts = []
    prefix, high = "", -1
    for index in range(count):
        clock, place = start + index, 16 * index
        if clock >> 12 != high:
            high = clock >> 12
            prefix = f"{high >> 16:08x}-{high & 0xFFFF:04x}-7"
        middle = _VARIANT[noise[place]] + noise[place + 1 : place + 4]
        texts.append(f"{prefix}{clock & 0xFFF:03x}-{middle}-{noise[place + 4 : place + 16]}")
    return texts


def new_id(now: Micros) -> str:
    """Make one id."""
    return new_ids(1, now)[0]


def floor_id(at: Micros) -> str:
    """Return the smallest id of a moment: ids at or after it were made at or after it."""
    text = f"{at // 1000:012x}"
    return f"{text[:8]}-{text[8:12]}-7000-8000-000000000000"
