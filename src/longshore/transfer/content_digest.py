"""Compare the content of one message with its Content-Digest (RFC 9530) before it reaches the sink.

Only parts (206) need this: the content of a 200 is the whole object, whose digests are compared at the end. The length
of a part is known, so a mismatch is raised before the last bytes reach the sink, and no piece is completed with wrong
bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from longshore.domain.transfer.declared_digests import message_digests
from longshore.domain.transfer.response_head import Head
from longshore.errors import Reasoned


def checked_write(head: Head, host: str, write: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    """Return `write`, wrapped in a digest check if the message declares its digest."""
    declared = message_digests(head.headers)
    length = head.content_range.length if head.content_range else None
    if not declared or length is None:
        return write
    hashes = {name: hashlib.new(name, usedforsecurity=False) for name in declared}
    left = length

    def take(data: bytes) -> bool:
        nonlocal left
        left -= len(data)
        for one in hashes.values():
            one.update(data)
        if left == 0 and any(one.hexdigest() != declared[name] for name, one in hashes.items()):
            raise Reasoned("digest_mismatch", f"{host}: a part does not match its Content-Digest")
        return write(data)

    return take
