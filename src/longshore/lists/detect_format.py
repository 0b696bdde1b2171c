"""Detect the format of a list by its contents, never by the file's name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import BinaryIO, Final

from longshore.domain.model import JobRequest
from longshore.errors import BadInput
from longshore.lists.integrity import check_root, closed_quotes, whole
from longshore.lists.lines import BadLine, Blocks, ListFacts
from longshore.lists.record_fields import URL_NAMES, plain_name

FORMATS: Final = {
    "urls": "one URL per line",
    "aria2": "aria2 input file: mirrors by TAB, indented options",
    "jsonl": "one JSON object per line, with url or a similar key",
    "csv": "CSV with a header, one column url or similar",
    "metalink": "Metalink 4",
    "openalex": "works of OpenAlex, JSON lines",
    "unpaywall": "records of Unpaywall, JSON lines",
    "arxiv": "arXiv ids, one per line",
    "fetch": "BagIt fetch.txt",
    "sums": "SHA256SUMS and the like, with --base-url",
    "parquet": "Parquet with a column url or similar",
}
_COMMENTS: Final = re.compile(rb"\A(?:[ \t\r]*(?:#[^\n]*)?\n)+")
_SEPARATORS: Final = re.compile(r"[,;\t]")


def read_list(
    stream: BinaryIO,
    format: str | None = None,  # noqa: A002 (the usual name)
    *,
    base_url: str | None = None,
    sums: Mapping[str, str] | None = None,
    unknown: Counter[str] | None = None,
    url_column: str | None = None,
    about: ListFacts | None = None,
) -> Iterator[JobRequest | BadLine]:
    """Yield the jobs of a list, and a `BadLine` for each invalid line; raise `BadInput` if the file is not a list.

    A damaged compressed, Parquet or XML file, or a CSV file with an unclosed quote, raises before the first job, so
    that it is never processed in part. `unknown` counts the unknown fields of records; `url_column` names the field
    with the URL; `about` gets the format and the heading.
    """
    if format is not None and format not in FORMATS:
        raise BadInput(f"unknown list format {format!r}; choose one of {', '.join(FORMATS)}")
    stream = whole(stream)
    start = stream.tell() if stream.seekable() else None
    blocks = Blocks(stream)
    about = about or ListFacts()
    about.format = kind = format or recognise(blocks.head, url_column)
    if kind == "csv":
        blocks = closed_quotes(stream, start, blocks)
    return _reader(about, blocks, base_url, sums, unknown, url_column)


def _reader(
    about: ListFacts,
    blocks: Blocks,
    base_url: str | None,
    sums: Mapping[str, str] | None,
    unknown: Counter[str] | None,
    url_column: str | None,
) -> Iterator[JobRequest | BadLine]:
    from longshore.lists import checksum_lists, metalink, scholarly_works, tables, urls

    rest, make = iter(blocks), partial(tables.request_of, unknown=unknown, url_column=url_column)
    match about.format:
        case "jsonl":
            return tables.read_jsonl(rest, make)
        case "openalex":
            return tables.read_jsonl(rest, scholarly_works.openalex_work)
        case "unpaywall":
            return tables.read_jsonl(rest, scholarly_works.unpaywall_work)
        case "csv":
            return tables.read_csv(rest, make, about)
        case "parquet":
            return tables.read_parquet(blocks.stream, unknown, url_column)
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


def recognise(head: bytes, url_column: str | None = None) -> str:
    """Return the format of a list by its first bytes; raise `BadInput` if they are clearly not a list."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if (at := head[:4096].find(b"\0")) >= 0:
        raise BadInput(f"this is a binary file, not a list: a zero at byte {at + 1}")
    start = _COMMENTS.sub(b"", head).lstrip()
    if start.startswith(b"{"):
        return "jsonl"
    if start.startswith(b"["):
        raise BadInput("line 1: this is one JSON array; a list has one JSON object per line", hint="jq -c '.[]' FILE")
    if start.startswith(b"<"):
        check_root(start)
        return "metalink"
    return _recognise_line(_first_line(head), url_column)


def _first_line(head: bytes) -> str:
    for line in head.decode(errors="replace").splitlines():
        if line.strip() and not line.startswith("#"):
            return line.rstrip()
    return ""


def _is_heading(line: str, url_column: str | None) -> bool:
    """Return whether a line is the heading of a CSV file: it has no URL, but a column for one."""
    names = {plain_name(cell.strip().strip('"')) for cell in _SEPARATORS.split(line)}
    return "://" not in line and not names.isdisjoint({*URL_NAMES, "doi", plain_name(url_column or "url")})


def _recognise_line(line: str, url_column: str | None) -> str:
    from longshore.lists.checksum_lists import BSD_LINE, FETCH_LINE, SUM_LINE
    from longshore.lists.scholarly_works import ARXIV_ID

    if _is_heading(line, url_column):
        return "csv"
    if SUM_LINE.match(line) or BSD_LINE.match(line):
        return "sums"
    if ARXIV_ID.match(line.strip()):
        return "arxiv"
    fetch = FETCH_LINE.match(line)
    if fetch and "://" in fetch[1]:
        return "fetch"
    return "urls"
