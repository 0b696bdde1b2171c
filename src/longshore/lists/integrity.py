"""Check containers before the first job: compressed files, Parquet and XML show only at their end whether they are complete.

Line-based lists do not need this: each line is valid or is rejected by its number. Only CSV has quotes that join lines.
"""

from __future__ import annotations

import io
import re
import shutil
import tempfile
from collections.abc import Iterable
from typing import BinaryIO, Final
from xml.parsers import expat

from longshore.errors import BadInput
from longshore.lists.compression import MAGICS
from longshore.lists.lines import Blocks

_LARGEST_TOKEN: Final = 1 << 20
PARQUET: Final = b"PAR1"
_ROOT: Final = re.compile(
    rb"(?>(?:<\?[^>]*>|<!--.*?-->|\s)*)<(!doctype\s+html|[a-z][\w:.-]*)", re.IGNORECASE | re.DOTALL
)
_OF_A_PAGE: Final = frozenset(
    {
        "html", "head", "body", "title", "meta", "link", "script", "style", "a", "p", "div", "span", "table", "ul", "ol", "pre",
        "h1", "h2", "h3", "br", "hr", "img", "center", "form", "nav", "header", "main", "section", "article", "iframe", "font",
    }
)  # fmt: skip
_KEPT_IN_MEMORY: Final = 8 << 20


def whole(stream: BinaryIO) -> BinaryIO:
    """Return the stream, rewound, if its format shows no damage; raise `BadInput` otherwise."""
    head = _head(stream)
    markup = head.lstrip().startswith(b"<")
    if not (markup or head.startswith((*MAGICS, PARQUET))):
        return stream
    kept = stream if stream.seekable() else _spooled(stream)
    start = kept.tell()
    if head.startswith(PARQUET):
        _read_parquet(kept)
    else:
        _read_blocks(Blocks(kept))
    kept.seek(start)
    return kept


def check_root(head: bytes) -> None:
    """Raise `BadInput` for a web page."""
    match = _ROOT.match(head)
    if match and (match[1][:1] == b"!" or match[1].decode(errors="replace").lower() in _OF_A_PAGE):
        raise BadInput(
            "line 1: this is an HTML page, not a list", hint="a list has one URL per line; see docs/reference/lists.md"
        )


def closed_quotes(stream: BinaryIO, start: int | None, blocks: Blocks) -> Blocks:
    """Return the CSV blocks again from the start if every quote is closed; raise `BadInput` otherwise.

    `blocks` are those of the stream from `start`; without `start` they can be read only once and are spooled.
    """
    from longshore.lists.tables import csv_rows

    if start is None:
        stream, start = _kept_aside(blocks), 0
        blocks = Blocks(stream)
    for _ in csv_rows(iter(blocks)):
        pass
    stream.seek(start)
    return Blocks(stream)


def _kept_aside(blocks: Iterable[bytes]) -> BinaryIO:
    kept: BinaryIO = tempfile.SpooledTemporaryFile(_KEPT_IN_MEMORY)  # type: ignore[assignment]  # noqa: SIM115
    kept.writelines(blocks)
    kept.seek(0)
    return kept


def _head(stream: BinaryIO) -> bytes:
    if isinstance(stream, io.BufferedReader):
        return stream.peek(64)[:64]
    if not stream.seekable():
        return b""
    start = stream.tell()
    head = stream.read(64)
    stream.seek(start)
    return head


def _spooled(stream: BinaryIO) -> BinaryIO:
    kept: BinaryIO = tempfile.SpooledTemporaryFile(_KEPT_IN_MEMORY)  # type: ignore[assignment]  # noqa: SIM115
    shutil.copyfileobj(stream, kept)
    kept.seek(0)
    return kept


def _read_blocks(blocks: Blocks) -> None:
    if blocks.head.lstrip().startswith(b"<"):
        check_root(blocks.head)
        _read_markup(blocks)
        return
    for _ in blocks:
        pass


def _read_markup(blocks: Iterable[bytes]) -> None:
    parser = expat.ParserCreate()
    declared: list[str] = []
    fed = 0
    parser.StartDoctypeDeclHandler = lambda *_: declared.append("doctype")
    try:
        for block in blocks:
            parser.Parse(block, False)
            fed += len(block)
            if fed - parser.CurrentByteIndex > _LARGEST_TOKEN:  # the parser begins each again with every block
                raise BadInput(f"the XML has a tag or a text of more than {_LARGEST_TOKEN >> 20} MiB")
            if declared:
                return  # the reader rejects it with its own message, before any job
        parser.Parse(b"", True)
    except (ValueError, LookupError) as error:
        raise BadInput(f"the XML declares an encoding that cannot be read: {error}") from None
    except expat.ExpatError as error:
        if declared:
            return
        said = expat.ErrorString(error.code) or "damaged"
        raise BadInput(f"the XML is damaged or cut off at line {error.lineno}, column {error.offset}: {said}") from None


def _read_parquet(stream: BinaryIO) -> None:
    from longshore.lists.tables import read_parquet

    for _ in read_parquet(stream):
        pass
