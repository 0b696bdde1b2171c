"""Small lists that would become very large in memory, or take very long."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from longshore.domain.model import JobRequest
from longshore.errors import BadInput
from longshore.lists.detect_format import read_list
from longshore.lists.integrity import whole
from longshore.lists.tables import read_parquet

READ = """
import resource, sys
from longshore.domain.model import JobRequest
from longshore.errors import BadInput
from longshore.lists.tables import read_parquet
import pyarrow.parquet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    count = sum(1 for _ in read_parquet(open(sys.argv[1], "rb")))
except BadInput:
    count = -1
print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("length", [400_000, 4_000_000])
def test_one_long_text_in_many_rows_needs_little_memory(tmp_path: Path, length: int) -> None:
    path = tmp_path / "bomb.parquet"
    url = "https://h.example/" + "x" * length
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 4_000, pa.int32()), pa.array([url]))
    parquet.write_table(pa.table({"url": values}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 5_000
    ran = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    count, mib = map(int, ran.stdout.split())
    assert count in (4_000, -1)
    assert mib < 200, f"{mib} MiB"


def test_a_column_that_expands_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    table = pa.table({"url": ["https://h.example/" + "x" * 300_000 + str(n) for n in range(1_000)]})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    with open(path, "rb") as file, pytest.raises(BadInput, match="expands to"):
        list(read_parquet(file))


def test_ordinary_parquet_is_read_as_before() -> None:
    out = io.BytesIO()
    parquet.write_table(
        pa.table({"url": [f"https://h.example/{n % 7}" for n in range(5_000)], "title": ["same"] * 5_000}), out
    )
    urls = [one.url for one in read_parquet(out) if isinstance(one, JobRequest)]
    assert urls == [f"https://h.example/{n % 7}" for n in range(5_000)]


def test_an_xml_attribute_without_end_is_refused_soon() -> None:
    text = (
        b'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="' + b"x" * 30_000_000 + b'"></file></metalink>'
    )
    started = time.perf_counter()
    with pytest.raises(BadInput, match="more than 1 MiB"):
        list(read_list(whole(io.BytesIO(text))))
    assert time.perf_counter() - started < 2
