"""When one body is fetched over several connections, and in which pieces. Pure decisions; `transfer.segmented` acts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from longshore.domain.identity.object_versions import Proof, Version, difference
from longshore.domain.transfer.declared_digests import declared_digests
from longshore.domain.transfer.response_head import Head

FAST_BYTES_S: Final = 64 << 20  # a single stream this fast is not the bottleneck
SHORT_S: Final = 1.5  # what one stream finishes within this is not worth more connections
PIECE_S: Final = 0.75  # how long one piece should take on one connection
SMALLEST_PIECE: Final = 256 << 10
LARGEST_PIECE: Final = 4 << 20
WINDOW_BYTES: Final = 48 << 20  # received but not yet delivered, at most


@dataclass(frozen=True, slots=True)
class Split:
    """How the rest of a body is divided: `count` connections, pieces of `piece` bytes, `window` bytes ahead at most."""

    count: int
    piece: int
    window: int


def identity(head: Head, start: int) -> tuple[str, int] | None:
    """Return entity tag and length of an object whose ranges can be trusted to be its own, or None.

    Without a strong validator, segments of two versions would be indistinguishable, so the body is not split.
    """
    etag, total = head.validators.strong_etag, head.total
    if etag is None or total is None or head.encoding is not None:
        return None
    if head.status == 200:
        offers = head.headers.get("accept-ranges", "").strip().lower() == "bytes"
        return (etag, total) if offers and start == 0 else None
    span = head.content_range
    right = span is not None and span.first == start and span.last == total - 1
    return (etag, total) if right else None


def split(*, left_bytes: int, rate_bytes_s: float, count: int, ours: bool) -> Split | None:
    """Split the remaining bytes; None if one stream is as fast. `ours`: our own side slowed the stream down."""
    if count < 2 or ours or left_bytes < 4 * SMALLEST_PIECE or rate_bytes_s >= FAST_BYTES_S:
        return None
    if left_bytes <= rate_bytes_s * SHORT_S:
        return None
    wanted = int(rate_bytes_s * PIECE_S) >> 16 << 16
    most = min(
        LARGEST_PIECE, WINDOW_BYTES // (2 * count), left_bytes // (2 * count)
    )  # so that all have something to do
    piece = max(SMALLEST_PIECE, min(most, wanted))
    count = min(count, max(2, left_bytes // piece))
    return Split(count, piece, min(WINDOW_BYTES, 3 * count * piece))


class Step(Enum):
    """What the coordination of one body does next."""

    FETCH = "fetch"  # start a stream for the next piece
    WAIT = "wait"  # a stream works, or the sink has to go on first
    ONE_STREAM = "one_stream"  # give the pieces up: one stream fetches the rest


def next_step(*, moving: int, parked: bool, connections: int, pieces: bool, held: bool, short: bool) -> Step:
    """Decide what happens after any event, so that a body that is not over always has something that moves it.

    `moving`: streams that receive or have all they need to; one that waits for a place is none. `parked`: the first stream has reached bytes that others are to fetch, and waits until one
    of them is known to. `connections`: how many streams are allowed, the parked one included. `pieces`: there is a piece to
    ask for. `held`: the sink has paused delivery and will resume it. `short`: descriptors are, so requests wait for places;
    the parked stream may hold the very place that a piece would wait for.
    """
    if pieces and not short and moving + parked < connections:
        return Step.FETCH
    if moving or (held and not parked):
        return Step.WAIT
    return Step.ONE_STREAM


def piece_fault(first: Head, head: Head, *, start: int, end: int) -> str | None:
    """Return why an answer is not the piece [start, end) of the object that the first answer began, or None.

    Pieces are asked for at the URL that gave the first answer; what they must share with it is decided by `difference`.
    """
    span = head.content_range
    if head.status != 206:
        return "no_accept_ranges"
    if head.encoding is not None:
        return "encoded"
    if span is None or (span.first, span.last, span.total) != (start, end - 1, first.total):
        return "bad_content_range"
    if head.length is not None and head.length != end - start:
        return "length_mismatch"
    stored = Version(first.url, first.url, first.validators, first.total, declared_digests(first.headers))
    answer = Version(first.url, head.url, head.validators, head.total, declared_digests(head.headers))
    return difference(stored, answer, Proof.ETAG)
