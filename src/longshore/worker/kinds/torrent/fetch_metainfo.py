"""A .torrent behind a URL, fetched by our own transfer: its network policy, its limits, its reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from longshore.errors import Reasoned
from longshore.transfer import FetchRequest, Memory
from longshore.worker.kinds.torrent.add_to_client import Fetch

if TYPE_CHECKING:
    from longshore.transfer import Transfer

DEADLINE_S: Final = 120.0


def fetcher(transfer: Transfer, max_bytes: int) -> Fetch:
    """Make the function that fetches .torrent files."""

    async def fetch(url: str) -> bytes:
        sink = Memory()
        await transfer.fetch(FetchRequest(url, max_bytes=max_bytes, deadline_s=DEADLINE_S), sink)
        if sink.body[:512].lstrip()[:1] == b"<":
            raise Reasoned("html_page", "an HTML page came instead of the .torrent file")
        return sink.body

    return fetch
