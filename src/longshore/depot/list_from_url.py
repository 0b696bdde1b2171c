"""A list that is given by its URL: fetched by the metadata client, and the pages of an OpenAlex answer joined to JSON lines."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from longshore.depot.derived_settings import network_policy
from longshore.domain.policy.redaction import safe_url
from longshore.domain.reasons import reason_named
from longshore.errors import BadInput, Reasoned
from longshore.transfer import Transfer
from longshore.transfer.metadata_client import MetadataClient

if TYPE_CHECKING:
    from longshore.domain.settings import Settings
    from longshore.transfer import Head

SCHEMES: Final = ("http://", "https://", "ftp://", "ftps://", "sftp://")
IN_MEMORY: Final = 16 << 20
MOST_PAGES: Final = 100_000
_FILES: Final = ("application/pdf", "image/", "audio/", "video/", "font/", "text/html", "application/epub+zip")


class ListNotRead(Reasoned):
    """A list behind a URL could not be fetched."""

    exit_code = 3


def open_list(url: str, settings: Settings, *, refresh: bool = False, note: Callable[[str], None]) -> BinaryIO:
    """Return the content of a list; raise `ListNotRead`. `note` gets what the caller should know."""
    with ExitStack() as stack:
        stream = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=IN_MEMORY))
        try:
            asyncio.run(_fetch(url, settings, stream, refresh=refresh, note=note))
        except Reasoned as error:
            told = f"the list {safe_url(url)} cannot be read: {error.reason}: {error}"
            raise ListNotRead(error.reason, told, hint=error.hint or reason_named(error.reason).remedy) from error
        stream.seek(0)
        stack.pop_all()  # the caller closes it
    return cast("BinaryIO", stream)


async def _fetch(url: str, settings: Settings, out: IO[bytes], *, refresh: bool, note: Callable[[str], None]) -> None:
    async with Transfer(settings, network_policy(settings)) as transfer:
        client = MetadataClient(transfer, settings, settings.tenant)
        seen: set[str] = set()
        following: str | None = url
        while following is not None and following not in seen:
            if len(seen) == MOST_PAGES:
                note(f"{safe_url(url)}: only the first {MOST_PAGES} pages were read")
                return
            seen.add(following)
            body = (await client.get(following, refresh=refresh, check=_check_head)).body
            page = _page_of(body)
            if page is None:
                out.write(body)
                return
            following = _write_page(following, page, out, note)


def _check_head(head: Head) -> None:
    """Refuse what is clearly a file, before its bytes come."""
    if (head.media_type or "").startswith(_FILES):
        raise BadInput(
            f"{safe_url(head.url)} is {head.media_type}, not a list", hint="add takes lists; `longshore get` takes URLs"
        )


def _page_of(body: bytes) -> dict[str, Any] | None:
    """Return a page of an OpenAlex answer; None for everything else."""
    if not body[:64].lstrip().startswith(b"{") or b'"results"' not in body or b'"meta"' not in body:
        return None
    try:
        page = json.loads(body)
    except (ValueError, RecursionError):
        return None
    known = isinstance(page, dict) and isinstance(page.get("results"), list) and isinstance(page.get("meta"), dict)
    return page if known else None


def _write_page(url: str, page: dict[str, Any], out: IO[bytes], note: Callable[[str], None]) -> str | None:
    """Write the works of a page as lines, and return the URL of the next page."""
    for work in page["results"]:
        out.write(json.dumps(work).encode() + b"\n")
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    cursor, count = page["meta"].get("next_cursor"), page["meta"].get("count")
    if not any(name == "cursor" for name, _ in query):
        if isinstance(count, int) and count > len(page["results"]):
            note(f"{safe_url(url)}: {len(page['results'])} of {count} works; `cursor=*` in the URL reads all pages")
        return None
    if not isinstance(cursor, str) or not cursor or not page["results"]:
        return None
    changed = [(name, cursor if name == "cursor" else value) for name, value in query]
    return urlunsplit(parts._replace(query=urlencode(changed)))
