"""Detect the format of a list by its contents, never by the file's name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import BinaryIO, Final

from longshore.domain.model import JobRequest
from longshore.errors import BadInput
from longshore.lists.integrity import closed_quotes, whole
from longshore.lists.lines import BadLine, Blocks

FORMATS: Final = {
    "urls": "one URL per line",
    "aria2": "aria2 input file: mirrors by TAB, indented options",
    "jsonl": "one JSON object per line, with url",
    "csv": "CSV with a header, one column url",
    "metalink": "Metalink 4",
    "openalex": "works of OpenAlex, JSON lines",
    "unpaywall": "records of Unpaywall, JSON lines",
    "arxiv": "arXiv ids, one per line",
    "fetch": "BagIt fetch.txt",
    "sums": "SHA256SUMS and the like, with --base-url",
    "parquet": "Parquet with a column url",
}
_HEADING: Final = re.compile(r'(?:^|[,;\t])\s*"?url"?\s*(?:$|[,;\t])', re.IGNORECASE)


def read_list(
    stream: BinaryIO,
    format: str | None = None,  # noqa: A002 (the usual name)
    *,
    base_url: str | None = None,
    sums: Mapping[str, str] | None = None,
    unknown: Counter[str] | None = None,
) -> Iterator[JobRequest | BadLine]:
    """Yield the jobs of a list, and a `BadLine` for each invalid line; raise `BadInput` if the file is not a list.

    A damaged gzip, Parquet or XML file, or a CSV file with an unclosed quote, raises before the first job, so that it
    is never processed in part. `unknown` counts the unknown fields of records.
    """
    if format is not None and format not in FORMATS:
        raise BadInput(f"unknown list format {format!r}; choose one of {', '.join(FORMATS)}")
    stream = whole(stream)
    start = stream.tell() if stream.seekable() else None
    blocks = Blocks(stream)
    kind = format or recognise(blocks.head)
    if kind == "csv":
        blocks = closed_quotes(stream, start, blocks)
    return _reader(kind, blocks, base_url, sums, unknown)


def _reader(
    kind: str, blocks: Blocks, base_url: str | None, sums: Mapping[str, str] | None, unknown: Counter[str] | None
) -> Iterator[JobRequest | BadLine]:
    from longshore.lists import checksum_lists, metalink, scholarly_works, tables, urls

    rest, make = iter(blocks), partial(tables.request_of, unknown=unknown)
    match kind:
        case "jsonl":
            return tables.read_jsonl(rest, make)
        case "openalex":
            return tables.read_jsonl(rest, scholarly_works.openalex_work)
        case "unpaywall":
            return tables.read_jsonl(rest, scholarly_works.unpaywall_work)
        case "csv":
            return tables.read_csv(rest, make)
        case "parquet":
            return tables.read_parquet(blocks.stream, unknown)
        case "metalink":
            return metalink.read_metalink(rest)
        case "arxiv":
            return scholarly_works.read_arxiv(rest)
        case "fetch":
            return checksum_lists.read_fetch(rest, sums)
        case "sums":
            return checksum_lists.read_sums(rest, base_url)
        case _:
            return urls.read_urls(rest)


def recognise(head: bytes) -> str:
    """Return the format of a list by its first bytes; raise `BadInput` if they are clearly not a list."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if (at := head[:4096].find(b"\0")) >= 0:
        raise BadInput(f"this is a binary file, not a list: a zero at byte {at + 1}")
    start = head.lstrip()
    if start.startswith(b"{"):
        return "jsonl"
    if start.startswith(b"["):
        raise BadInput("line 1: this is one JSON array; a list has one JSON object per line", hint="jq -c '.[]' FILE")
    if start.startswith(b"<"):
        return _recognise_markup(start)
    return _recognise_line(_first_line(head))


def _recognise_markup(start: bytes) -> str:
    if re.match(rb"<(!doctype\s+html|html)", start, re.IGNORECASE):
        raise BadInput("line 1: this is an HTML page, not a list")
    return "metalink"


def _first_line(head: bytes) -> str:
    for line in head.decode(errors="replace").splitlines():
        if line.strip() and not line.startswith("#"):
            return line.rstrip()
    return ""


def _recognise_line(line: str) -> str:
    from longshore.lists.checksum_lists import BSD_LINE, FETCH_LINE, SUM_LINE
    from longshore.lists.scholarly_works import ARXIV_ID

    if "://" not in line and _HEADING.search(line):
        return "csv"
    if SUM_LINE.match(line) or BSD_LINE.match(line):
        return "sums"
    if ARXIV_ID.match(line.strip()):
        return "arxiv"
    fetch = FETCH_LINE.match(line)
    if fetch and "://" in fetch[1]:
        return "fetch"
    return "urls"
