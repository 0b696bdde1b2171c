"""Records with names: JSON lines, CSV with a header, Parquet. Each may also be a work of OpenAlex or Unpaywall."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, Final

from longshore.domain.identity.requests import check_fetched, download_request
from longshore.domain.kinds import kind_of
from longshore.domain.model import JobRequest
from longshore.errors import BadInput
from longshore.lists.lines import (
    REJECTED,
    REJECTS,
    BadLine,
    ListFacts,
    NoDownload,
    WithoutFile,
    split_lines,
    text_lines,
)
from longshore.lists.record_fields import (
    DOI,
    NUMBERS,
    OTHER_DIGESTS,
    PASSED,
    TEXTS,
    UNKNOWN,
    Record,
    check_heading,
    field_of,
    fields_of,
    plain_name,
    unique_keys,
    url_rank,
    with_url,
)
from longshore.lists.scholarly_works import NoFile, bare_doi, doi_of, openalex_work, unpaywall_work

Make = Callable[[Record], JobRequest]
EXPANDED_BYTES: Final = 256 << 20  # of one column of a row group, if it is also many times what is stored
EXPANSION: Final = 100
_FORMULA: Final = re.compile(r"'+[=+\-@]")  # how Longshore's CSV escapes formulas


def request_of(record: Record, unknown: Counter[str] | None = None, url_column: str | None = None) -> JobRequest:
    """Return the job for a record of any kind; count the unknown field names."""
    if url_column is None:
        if record.get("url") or any(value and field_of(name) == "url" for name, value in record.items()):
            return _plain(fields_of(record, unknown))
        if "oa_locations" in record:
            return unpaywall_work(record)
        if "locations" in record or "primary_location" in record or "best_oa_location" in record:
            return openalex_work(record)
    found = with_url(record, url_column)
    if found is None:
        return _by_doi(record, unknown, url_column)
    if not found["url"] and "url" not in map(field_of, record):
        raise NoFile("the record has no URL")  # e.g. a work of a catalogue with an empty pdf_url
    return _plain(fields_of(found, unknown))


def _by_doi(record: Record, unknown: Counter[str] | None, url_column: str | None) -> JobRequest:
    """Return the job for a record that has a DOI and no field for a URL."""
    doi = next((value for name, value in record.items() if plain_name(name) == DOI), None)
    if url_column is not None or not isinstance(doi, str) or (found := doi_of(doi)) is None:
        known = "the record has no url" if url_column is None else f"the record has no field {url_column!r:.80}"
        raise BadInput(known, hint="--url-column names the column or key of the URL")
    others = {name: value for name, value in record.items() if plain_name(name) != DOI}
    return _plain({"work_id": found.work_id} | fields_of(others, unknown) | {"url": found.url})


def _plain(record: Record) -> JobRequest:
    url = record.get("url")
    if not url:
        raise BadInput("the record has no url")
    if not isinstance(url, str):
        raise BadInput(f"url must be text, not {type(url).__name__}")
    known: dict[str, Any] = {}
    for name in TEXTS:
        if (value := record.get(name)) not in (None, ""):
            known[name] = _text(name, value)
    if record.get("source_ref"):  # a line of a Longshore manifest: its `artifact_id` is the ledger's
        known["artifact_id"] = _text("source_ref", record["source_ref"])
    for name in NUMBERS:
        if (value := record.get(name)) not in (None, ""):
            known[name] = _whole(name, value)
    if mirrors := record.get("mirrors"):
        known["mirrors"] = _mirrors(mirrors)
    if headers := record.get("headers"):
        known["headers"] = _headers(headers)
    if (doi := bare_doi(url)) is not None:
        url = doi.url
        known.setdefault("work_id", doi.work_id)
    if digests := [(name, _text(name, record[name])) for name in OTHER_DIGESTS if record.get(name)]:
        known["digests"] = digests
    return check_fetched(download_request(url.strip(), **known))


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


def _attempt(number: int, record: Record, make: Make) -> JobRequest | BadLine:
    if (job_type := record.get("job_type")) and "source_ref" in record and not kind_of(str(job_type)).of_url:
        return NoDownload(number, f"a job of the type {job_type!r:.80} fetches nothing")
    try:
        return make(record)
    except NoFile as error:
        return WithoutFile(number, str(error))
    except BadInput as error:
        return BadLine(number, str(error))


def read_jsonl(blocks: Iterator[bytes], make: Make = request_of) -> Iterator[JobRequest | BadLine]:
    """Read one JSON object per line."""
    for number, line in split_lines(blocks):
        if isinstance(line, BadLine):
            yield line
        elif (bare := line.strip()) and not bare.startswith(b"#"):
            made = _json_line(number, line, make)
            yield replace(made, text=line) if type(made) is BadLine else made


def _json_line(number: int, line: bytes, make: Make) -> JobRequest | BadLine:
    try:
        record = json.loads(line, object_pairs_hook=unique_keys)
    except BadInput as error:
        return BadLine(number, str(error))
    except UnicodeDecodeError as error:
        return BadLine(number, f"not UTF-8 at byte {error.start + 1}")
    except json.JSONDecodeError as error:
        return BadLine(number, f"not JSON: {error.msg} at column {error.colno}; each line must be one complete object")
    except RecursionError:
        return BadLine(number, "not acceptable JSON: nested too deeply")
    except ValueError as error:
        return BadLine(number, f"not JSON: {error}")
    if not isinstance(record, dict):
        return BadLine(number, f"the line must be a JSON object, not {type(record).__name__}")
    return _attempt(number, record, make)


def read_csv(
    blocks: Iterator[bytes], make: Make = request_of, about: ListFacts | None = None
) -> Iterator[JobRequest | BadLine]:
    """Read CSV with a header, which determines the separator."""
    row_lines: list[str] = []
    for row in csv_rows(blocks, row_lines, about):
        made = row if isinstance(row, BadLine) else _csv_row(*row, make)
        if type(made) is BadLine and made.text is None:
            made = replace(made, text="".join(row_lines).encode().rstrip(b"\n"))
        yield made


def csv_rows(
    blocks: Iterator[bytes], row_lines: list[str] | None = None, about: ListFacts | None = None
) -> Iterator[tuple[int, int, list[str], list[str]] | BadLine]:
    """Yield for each row its first and last line, the header and the cells.

    An unclosed quote swallows all lines after it, so the rows are ambiguous: raise `BadInput`. `row_lines` gets the
    lines of the current row, `about` the heading.
    """
    bad: list[BadLine] = []
    row_lines = [] if row_lines is None else row_lines
    lines = _kept(_good_lines(blocks, bad), row_lines)
    above = 1
    header_line = next(lines, "")
    while header_line and (not header_line.strip() or header_line.startswith("#")):
        header_line, above = next(lines, ""), above + 1
    if about is not None:
        about.heading = header_line.rstrip("\n")
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
    """Return an error with the line of the last unclosed quote."""
    opened, is_open = number, False
    for place, line in enumerate(row_lines, number):
        was_open, is_open = is_open, is_open != bool(line.count('"') % 2)
        opened = place if is_open and not was_open else opened
    return BadInput(
        f"line {opened}: the quote that is opened here is not closed; the rest is ambiguous, so nothing was added",
        hint="close it, or write it twice inside a quoted field",
    )


def _good_lines(blocks: Iterator[bytes], bad: list[BadLine]) -> Iterator[str]:
    marked = False  # a file of `--rejects`, in which comments name the refused lines
    for number, line in text_lines(blocks):
        marked = marked or (number == 1 and isinstance(line, str) and line.startswith(REJECTS.decode()))
        if isinstance(line, BadLine):
            bad.append(line)
            yield "\n"  # keeps the numbers of the following lines correct
        elif marked and line.startswith(REJECTED.decode()):
            yield "\n"
        else:
            yield line + "\n"


def _csv_row(number: int, last: int, header: list[str], row: list[str], make: Make) -> JobRequest | BadLine:
    record = {name: cell.strip() for name, cell in zip(header, row, strict=False)}
    if "source_ref" in record:
        record = {name: _unquoted(cell) for name, cell in record.items()}
    if len(row) > len(header):
        made: JobRequest | BadLine = BadLine(number, f"{len(row)} fields under {len(header)} headings")
    else:
        made = _attempt(number, record, make) if len(record) == len(row) else _twice(number, header, record, make)
    if type(made) is BadLine and last > number:
        return BadLine(number, f"{made.message} (a quoted field joins the lines up to {last})")
    return made


def _twice(number: int, header: list[str], record: Record, make: Make) -> JobRequest | BadLine:
    """Read a row under a header with duplicate columns; reject it if the values are ambiguous."""
    try:
        check_heading(header)
    except BadInput as error:
        return BadLine(number, str(error))
    return _attempt(number, record, make)


def _unquoted(cell: str) -> str:
    return cell[1:] if _FORMULA.match(cell) else cell


def read_parquet(
    stream: BinaryIO, unknown: Counter[str] | None = None, url_column: str | None = None
) -> Iterator[JobRequest | BadLine]:
    """Read a Parquet file in batches; numbers are rows, counted from 1."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise BadInput("Parquet needs pyarrow", hint="pip install 'longshore[parquet]'") from None
    if not stream.seekable():
        raise BadInput("Parquet cannot be read from a pipe", hint="give the file's name")  # `whole` spools a pipe
    stream.seek(0, io.SEEK_SET)
    number = 0
    try:
        file = parquet.ParquetFile(stream, page_checksum_verification=True)
        check_heading(file.schema_arrow.names)
        columns = _parquet_columns(file, unknown, url_column)
        _check_expansion(file, columns)
        stream.seek(0, io.SEEK_SET)
        texts = [
            field.name
            for field in file.schema_arrow
            if pa.types.is_string(field.type) or pa.types.is_binary(field.type)
        ]
        file = parquet.ParquetFile(stream, page_checksum_verification=True, read_dictionary=texts)
        make = partial(request_of, url_column=url_column)
        for batch in file.iter_batches(batch_size=2048, columns=columns):
            for record in _records(batch):
                number += 1
                made = _attempt(number, record, make)
                yield replace(made, text=_as_json(record)) if type(made) is BadLine else made
    except BadInput:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:  # e.g. text that is not UTF-8
        raise BadInput(f"the Parquet file is damaged after row {number}: {str(error)[:300]}") from None


def _check_expansion(file: Any, columns: Sequence[str]) -> None:
    """Refuse a file whose columns become very large when they are decompressed."""
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        for column in (group.column(place) for place in range(group.num_columns)):
            if column.path_in_schema.partition(".")[0] not in columns:
                continue
            whole, stored = column.total_uncompressed_size, max(1, column.total_compressed_size)
            if whole > EXPANDED_BYTES and whole > stored * EXPANSION:
                raise BadInput(f"the Parquet column {column.path_in_schema[:100]!r} expands to {whole:,} bytes")


def _records(batch: Any) -> Iterator[Record]:
    """Yield the rows of a batch. Equal texts are stored once: as many rows at a time as their texts fit into memory."""
    longest = 1
    for column in batch.columns:
        if hasattr(column, "dictionary") and len(column.dictionary):
            longest = max(longest, column.dictionary.nbytes // len(column.dictionary), _longest(column.dictionary))
    rows = max(1, min(batch.num_rows, EXPANDED_BYTES // 8 // longest))
    for start in range(0, batch.num_rows, rows):
        yield from batch.slice(start, rows).to_pylist()


def _longest(texts: Any) -> int:
    from pyarrow import compute

    return compute.max(compute.binary_length(texts)).as_py() or 0


def _parquet_columns(file: Any, unknown: Counter[str] | None, url_column: str | None) -> list[str]:
    """Return the columns that are read: those of a request, and those that may have its URL."""
    names: list[str] = file.schema_arrow.names
    of_url = [name for name in names if url_rank(name, url_column) is not None]
    dois = [] if of_url else [name for name in names if plain_name(name) == DOI]
    if not (of_url or dois):
        raise BadInput(f"the Parquet file has no column {url_column or 'url'}", hint="--url-column names it")
    columns = [name for name in names if name in of_url + dois or field_of(name) not in (PASSED, UNKNOWN)]
    if unknown is not None:
        rows = file.metadata.num_rows
        unknown.update({name: rows for name in names if name not in columns and field_of(name) == UNKNOWN})
    return columns


def _as_json(record: Record) -> bytes:
    """Return a row as a line of JSON, which can be edited and read again."""
    return json.dumps(record, default=str, ensure_ascii=False).encode()
