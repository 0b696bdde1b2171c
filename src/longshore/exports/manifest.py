"""The manifest as JSON lines, CSV or Parquet, a row at a time."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import IO, Any

from longshore.exports.manifest_rows import TABLE_COLUMNS, TELEMETRY, Rows, as_dict, flat

_BATCH = 5_000
_FORMULA_MARKS = frozenset("=+-@\t\r")


Wrap = Callable[[dict[str, Any]], dict[str, Any]]  # adds fields to a line


def write_jsonl(rows: Rows, out: IO[bytes], wrap: Wrap = dict) -> int:
    """Write one JSON object per line."""
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007 - the count is the result
        out.write(json.dumps(wrap(as_dict(row)), ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    return count


def write_csv(rows: Rows, out: IO[bytes]) -> int:
    """Write the manifest as CSV."""
    return _write_csv(map(flat, rows), TABLE_COLUMNS, out)


def _write_csv(lines: Iterator[dict[str, Any]], columns: Sequence[str], out: IO[bytes]) -> int:
    """Write CSV with a header; prefix a cell that a spreadsheet would run as a formula with an apostrophe."""
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    count = 0
    for count, line in enumerate(lines, 1):  # noqa: B007
        writer.writerow({name: _harmless(value) for name, value in line.items()})
    text.flush()
    text.detach()
    return count


def _harmless(value: Any) -> Any:
    """Prefix a formula with an apostrophe, also if it already has some: `add` removes exactly one."""
    return f"'{value}" if isinstance(value, str) and value.lstrip("'")[:1] in _FORMULA_MARKS else value


def write_parquet(rows: Rows, out: IO[bytes]) -> int:
    """Write the manifest as Parquet."""
    return _write_parquet(map(flat, rows), TABLE_COLUMNS, out)


def _write_parquet(lines: Iterator[dict[str, Any]], columns: Sequence[str], out: IO[bytes]) -> int:
    """Write Parquet in row groups, so that memory use is constant."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {name: pa.int64() for name in ("size_bytes", "attempts", "expected_size_bytes")}
    kinds["needs_headers"] = pa.bool_()
    arrow = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    kinds |= {name: arrow[kind] for name, kind in TELEMETRY.items()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in columns])
    count = 0
    with pq.ParquetWriter(out, schema, compression="zstd", write_page_checksum=True) as writer:
        while batch := list(islice(lines, _BATCH)):
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))
            count += len(batch)
    return count


WRITERS: dict[str, Callable[[Rows, IO[bytes]], int]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
    "parquet": write_parquet,
}


def write_sums(rows: Rows, out: IO[bytes], name_of: Callable[[Any], str]) -> int:
    """Write `SHA256SUMS` in the format of coreutils, including its escapes for newlines and backslashes in names."""
    count = 0
    for row in rows:
        if row.sha256 is None:
            continue
        name = name_of(row)
        escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        mark = "\\" if escaped != name else ""
        out.write(f"{mark}{row.sha256}  {escaped}\n".encode())
        count += 1
    return count


# Columns of the failures as a table; `source_ref` as in the manifest, so that `add` reads its cells in the same way.
_FAILURES = (
    "url", "work_id", "source_ref", "name", "mirrors", "sha256", "size_bytes", "media_type", "digests", "needs_headers",
    "reason",
)  # fmt: skip


def write_failures(rows: Rows, out: IO[bytes], wrap: Wrap = dict) -> int:
    """Write the failed jobs with their reasons, as a list that `longshore add` accepts."""
    count = 0
    for count, line in enumerate(_failures(rows), 1):  # noqa: B007
        line["artifact_id"] = line.pop("source_ref")
        known = {name: value for name, value in line.items() if value not in (None, (), {})}
        out.write(json.dumps(wrap(known), ensure_ascii=False).encode() + b"\n")
    return count


def write_failures_csv(rows: Rows, out: IO[bytes]) -> int:
    """Write the failed jobs as CSV."""
    return _write_csv(map(_flat_failure, _failures(rows)), _FAILURES, out)


def write_failures_parquet(rows: Rows, out: IO[bytes]) -> int:
    """Write the failed jobs as Parquet."""
    return _write_parquet(map(_flat_failure, _failures(rows)), _FAILURES, out)


def _failures(rows: Rows) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row.url is None:
            continue
        yield {
            "url": row.url,
            "work_id": row.work_id,
            "source_ref": row.source_ref,
            "name": row.name,
            "mirrors": row.mirrors,
            "sha256": row.expected_sha256,
            "size_bytes": row.expected_size_bytes,
            "media_type": row.expected_media_type,
            "digests": row.expected_digests,
            "needs_headers": row.needs_headers or None,
            "reason": row.reason,
        }


def _flat_failure(line: dict[str, Any]) -> dict[str, Any]:
    digests = json.dumps(line["digests"], sort_keys=True) if line["digests"] else None
    return line | {"mirrors": " ".join(line["mirrors"]) or None, "digests": digests}


FAILURE_WRITERS: dict[str, Callable[[Rows, IO[bytes]], int]] = {
    "csv": write_failures_csv,
    "parquet": write_failures_parquet,
}
