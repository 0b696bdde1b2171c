"""Check the head of a successful answer against its request, before the body is taken."""

from __future__ import annotations

from longshore.domain.transfer.response_head import Head, part_fault
from longshore.errors import Reasoned
from longshore.transfer.api import FetchRequest


def check_range(head: Head, host: str, ask: FetchRequest, most_bytes: int) -> None:
    """Raise if the answer is not the range that was asked for, or declares more bytes than are allowed."""
    if (fault := part_fault(head, ranged=ask.ranged)) is not None:
        raise Reasoned("bad_range", f"{host}: {fault}")
    total = head.total if head.total is not None else head.length
    if total is not None and total > most_bytes:
        raise Reasoned("too_large", f"{host}: {total} bytes; {most_bytes} are allowed")
