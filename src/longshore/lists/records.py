"""Records with names: JSON lines, CSV with a header, Parquet. Each may also be a work of OpenAlex or Unpaywall."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final

from longshore.domain.model import JobRequest
from longshore.domain.requests import DIGEST_LENGTHS, download_request
from longshore.domain.states import DOWNLOAD
from longshore.errors import BadInput
from longshore.lists.lines import BadLine, NoDownload, split_lines, text_lines
from longshore.lists.works import openalex_work, unpaywall_work

Record = Mapping[str, Any]
_TEXTS: Final = ("work_id", "artifact_id", "sha256", "media_type", "name")
_NUMBERS: Final = ("size_bytes", "priority")
_OURS: Final = ("job_type", "source_ref")  # what only our own manifest has
_FORMULA: Final = re.compile(r"'+[=+\-@]")  # how our CSV writes what a spreadsheet would run
_OTHER_DIGESTS: Final = tuple(name for name in DIGEST_LENGTHS if name != "sha256")
COLUMNS: Final = frozenset({"url", "mirrors", "headers", *_TEXTS, *_NUMBERS, *_OTHER_DIGESTS, *_OURS})


def request_of(record: Record) -> JobRequest:
    """Make a job of a record, whatever kind of record it is."""
    if record.get("url"):
        return _plain(record)
    if "oa_locations" in record:
        return unpaywall_work(record)
    if "locations" in record or "primary_location" in record or "best_oa_location" in record:
        return openalex_work(record)
    raise BadInput("the record has no url")


def _plain(record: Record) -> JobRequest:
    url = record["url"]
    if not isinstance(url, str):
        raise BadInput(f"url must be text, not {type(url).__name__}")
    known: dict[str, Any] = {}
    for name in _TEXTS:
        if (value := record.get(name)) not in (None, ""):
            known[name] = _text(name, value)
    if record.get("source_ref"):  # a line of our own manifest: there `artifact_id` is the registry's
        known["artifact_id"] = _text("source_ref", record["source_ref"])
    for name in _NUMBERS:
        if (value := record.get(name)) not in (None, ""):
            known[name] = _whole(name, value)
    if mirrors := record.get("mirrors"):
        known["mirrors"] = _mirrors(mirrors)
    if headers := record.get("headers"):
        known["headers"] = _headers(headers)
    if digests := [(name, _text(name, record[name])) for name in _OTHER_DIGESTS if record.get(name)]:
        known["digests"] = digests
    return download_request(url.strip(), **known)


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadInput(f"{name} must be text, not {type(value).__name__}")


def _whole(name: str, value: object) -> int:
    try:
        if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
            raise ValueError
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (ValueError, TypeError, OverflowError):
        raise BadInput(f"{name} must be a whole number, not {value!r:.80}") from None


def _mirrors(value: object) -> list[str]:
    if isinstance(value, str):
        return value.replace("|", " ").split()
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return [one.strip() for one in value]
    raise BadInput("mirrors must be a list of URLs")


def _headers(value: object) -> list[tuple[str, str]]:
    if isinstance(value, Mapping) and all(isinstance(one, str) for one in value.values()):
        return list(value.items())
    raise BadInput('headers must be an object: {"Referer": "…"}')


def _attempt(number: int, record: Record, make: Callable[[Record], JobRequest]) -> JobRequest | BadLine:
    if (job_type := record.get("job_type")) and "source_ref" in record and job_type != DOWNLOAD:
        return NoDownload(number, f"a job of the type {job_type!r:.80} fetches nothing")
    try:
        return make(record)
    except BadInput as error:
        return BadLine(number, str(error))


def read_jsonl(
    blocks: Iterator[bytes], make: Callable[[Record], JobRequest] = request_of
) -> Iterator[JobRequest | BadLine]:
    """Read one JSON object per line."""
    for number, line in split_lines(blocks):
        if isinstance(line, BadLine):
            yield line
        elif line.strip():
            yield _json_line(number, line, make)


def _json_line(number: int, line: bytes, make: Callable[[Record], JobRequest]) -> JobRequest | BadLine:
    try:
        record = json.loads(line)
    except UnicodeDecodeError as error:
        return BadLine(number, f"not UTF-8 at byte {error.start + 1}")
    except json.JSONDecodeError as error:
        return BadLine(number, f"not JSON: {error.msg} at column {error.colno}; each line holds one whole object")
    except RecursionError:
        return BadLine(number, "not JSON that anybody means: nested too deeply")
    except ValueError as error:
        return BadLine(number, f"not JSON: {error}")
    if not isinstance(record, dict):
        return BadLine(number, f"a JSON object is wanted, not {type(record).__name__}")
    return _attempt(number, record, make)


def read_csv(blocks: Iterator[bytes]) -> Iterator[JobRequest | BadLine]:
    """Read CSV with a header; the separator is the one that the header uses."""
    for row in csv_rows(blocks):
        yield row if isinstance(row, BadLine) else _csv_row(*row)


def csv_rows(blocks: Iterator[bytes]) -> Iterator[tuple[int, int, list[str], list[str]] | BadLine]:
    """Give the rows: their first and last line, the header, the cells.

    A quote that is never closed takes the lines after it along: then nobody knows what is meant, and `BadInput` ends it.
    """
    bad: list[BadLine] = []
    row_lines: list[str] = []
    lines = _kept(_good_lines(blocks, bad), row_lines)
    above = 1
    header_line = next(lines, "")
    while header_line and (not header_line.strip() or header_line.startswith("#")):
        header_line, above = next(lines, ""), above + 1
    delimiter = max(",;\t", key=header_line.count)
    try:
        header = [name.strip().lower() for name in next(csv.reader([header_line], delimiter=delimiter), [])]
    except csv.Error as error:
        raise BadInput(f"line {above}: the heading is not CSV: {error}") from None
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        number = rows.line_num + above + 1
        row_lines.clear()
        try:
            row = next(rows)
        except StopIteration:
            break
        except csv.Error as error:
            if len(row_lines) > 1 or "unexpected end" in str(error):
                raise _never_closed(number, row_lines) from None
            yield BadLine(number, f"not CSV: {error}")
            continue
        yield from bad
        bad.clear()
        if any(cell.strip() for cell in row):
            yield number, rows.line_num + above, header, row
    yield from bad


def _kept(lines: Iterator[str], row_lines: list[str]) -> Iterator[str]:
    for line in lines:
        row_lines.append(line)
        yield line


def _never_closed(number: int, row_lines: list[str]) -> BadInput:
    """Name the line of the last quote that was opened and stayed so."""
    opened, is_open = number, False
    for place, line in enumerate(row_lines, number):
        was_open, is_open = is_open, is_open != bool(line.count('"') % 2)
        opened = place if is_open and not was_open else opened
    return BadInput(
        f"line {opened}: the quote that is opened here is not closed: nothing after it can be read, so nothing was taken",
        hint="close it, or write it twice inside a quoted field",
    )


def _good_lines(blocks: Iterator[bytes], bad: list[BadLine]) -> Iterator[str]:
    for _, line in text_lines(blocks):
        if isinstance(line, BadLine):
            bad.append(line)
            yield "\n"  # keeps the numbers of the lines after it right
        else:
            yield line + "\n"


def _csv_row(number: int, last: int, header: list[str], row: list[str]) -> JobRequest | BadLine:
    record = {name: cell.strip() for name, cell in zip(header, row, strict=False)}
    if "source_ref" in record:
        record = {name: _unquoted(cell) for name, cell in record.items()}
    if len(row) > len(header):
        made: JobRequest | BadLine = BadLine(number, f"{len(row)} fields under {len(header)} headings")
    else:
        made = _attempt(number, record, request_of)
    if type(made) is BadLine and last > number:
        return BadLine(number, f"{made.message} (a quoted field joins the lines up to {last})")
    return made


def _unquoted(cell: str) -> str:
    return cell[1:] if _FORMULA.match(cell) else cell


def read_parquet(stream: BinaryIO) -> Iterator[JobRequest | BadLine]:
    """Read a Parquet file in batches; numbers are rows, counted from 1."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise BadInput("Parquet needs pyarrow", hint="pip install 'longshore[parquet]'") from None
    if not stream.seekable():
        raise BadInput("Parquet cannot come through a pipe", hint="give the file's name")  # `whole` keeps one aside
    stream.seek(0, io.SEEK_SET)
    number = 0
    try:
        file = parquet.ParquetFile(stream, page_checksum_verification=True)
        columns = [name for name in file.schema_arrow.names if name.lower() in COLUMNS]
        if "url" not in (name.lower() for name in columns):
            raise BadInput("the Parquet file has no column url")
        for batch in file.iter_batches(batch_size=2048, columns=columns):
            for record in batch.to_pylist():
                number += 1
                yield _attempt(number, _lowered(record), request_of)
    except BadInput:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:  # e.g. text that is not UTF-8
        raise BadInput(f"the Parquet file is damaged after row {number}: {str(error)[:300]}") from None


def _lowered(record: Record) -> Record:
    return {name.lower(): value for name, value in record.items()}
