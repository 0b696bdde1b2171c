"""Where things stand inside a bencoded text, without building it: the input is hostile until its hash is known.

The text is walked once with a stack; nothing is decoded but what is asked for, so a bomb of nested or empty lists costs
neither memory nor recursion.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from longshore.errors import Reasoned

MAX_DEPTH: Final = 64
MAX_TOKENS: Final = 1_000_000
_INTEGER = re.compile(rb"i(0|-?[1-9][0-9]{0,18})e")
_LENGTH = re.compile(rb"(0|[1-9][0-9]{0,9}):")


class Span(NamedTuple):
    """A value's place: `data[start:end]` is its raw bencoding."""

    start: int
    end: int


def _bad(why: str, at: int) -> Reasoned:
    return Reasoned("bad_torrent", f"not a torrent: {why} at byte {at}")


def string_at(data: bytes, at: int) -> tuple[Span, int]:
    """Return the content's place of the string that begins here, and where the string ends."""
    head = _LENGTH.match(data, at)
    if head is None:
        raise _bad("a string was expected", at)
    end = head.end() + int(head[1])
    if end > len(data):
        raise _bad("a string reaches beyond the end", at)
    return Span(head.end(), end), end


def integer(data: bytes, span: Span) -> int:
    """Read an integer."""
    found = _INTEGER.fullmatch(data, span.start, span.end)
    if found is None:
        raise _bad("an integer was expected", span.start)
    return int(found[1])


def text(data: bytes, span: Span) -> bytes:
    """Read a string."""
    content, end = string_at(data, span.start)
    if end != span.end:
        raise _bad("a string was expected", span.start)
    return data[content.start : content.end]


def _token(data: bytes, at: int, *, key: bool) -> tuple[int, bytes]:
    """Read one token: where the next begins, and what it opened or closed (b"d" b"l" b"e", else b"")."""
    first = data[at : at + 1]
    if first.isdigit():
        return string_at(data, at)[1], b""
    if first in (b"e", b"d", b"l") and not (key and first != b"e"):
        return at + 1, first
    if first == b"i" and not key:
        found = _INTEGER.match(data, at)
        if found is not None:
            return found.end(), b""
    raise _bad("the text ends too early" if not first else "something unexpected", at)


def end_of(data: bytes, at: int) -> int:
    """Walk over the value that begins here, checking it, and say where it ends."""
    open_: list[
        bool | None
    ] = []  # per level: None in a list, True when a dictionary expects a key, False for its value
    for _ in range(MAX_TOKENS):
        key = bool(open_) and open_[-1] is True
        at, kind = _token(data, at, key=key)
        if kind == b"e":
            if not open_ or open_[-1] is False:
                raise _bad("an end without a beginning or a key without a value", at - 1)
            open_.pop()
        elif key:
            open_[-1] = False
            continue
        if kind in (b"d", b"l"):
            if len(open_) == MAX_DEPTH:
                raise _bad("too many levels", at)
            open_.append(True if kind == b"d" else None)
            continue
        if not open_:
            return at
        if open_[-1] is False:
            open_[-1] = True
    raise _bad("too many values", at)


def members(data: bytes, at: int) -> tuple[dict[bytes, Span], int]:
    """Find the values of the dictionary that begins here, and its end. A repeated key is refused, not chosen from."""
    if data[at : at + 1] != b"d":
        raise _bad("a dictionary was expected", at)
    found: dict[bytes, Span] = {}
    at += 1
    while data[at : at + 1] != b"e":
        name, start = string_at(data, at)
        at = end_of(data, start)
        key = data[name.start : name.end]
        if key in found:
            raise _bad("a key stands twice", start)
        if len(found) == 1000:
            raise _bad("too many keys", start)
        found[key] = Span(start, at)
    return found, at + 1
