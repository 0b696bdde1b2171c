"""Name what is wrong with a body that is longer than its limit."""

from __future__ import annotations

from longshore.domain.transfer.response_head import Head
from longshore.errors import Reasoned


def overrun(head: Head | None, host: str, received: int, max_bytes: int) -> Reasoned | None:
    """Return the reason for a body with too many bytes; None if the body is not needed (a redirect or an error page)."""
    if head is None or head.status not in (200, 206):
        return None
    span = head.content_range.length if head.status == 206 and head.content_range else None
    if span is not None and received > span:
        return Reasoned("length_mismatch", f"{host}: more bytes than the range holds")
    if head.length is not None and received > head.length:
        return Reasoned("length_mismatch", f"{host}: more than the {head.length} declared bytes")
    return Reasoned("too_large", f"{host}: more than {max_bytes} bytes")
