"""Compressed lists: read as they stream, damage is told before the first job, bombs cost no memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import subprocess
import sys
import tracemalloc
from collections.abc import Callable

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from longshore.errors import BadInput
from longshore.lists import read_list

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}),  # as `zstd` does
}
EACH = pytest.mark.parametrize("name", COMPRESSIONS)
LINES = b"".join(b"https://a.example/%d\n" % n for n in range(3_000))


def urls(data: bytes) -> list[str]:
    return [str(getattr(item, "url", None)) for item in read_list(io.BytesIO(data))]


@EACH
def test_members_in_a_row_are_one_list(name: str) -> None:
    pack = COMPRESSIONS[name]

    assert urls(pack(LINES)) == LINES.decode().split()
    assert urls(pack(LINES[:20_000]) + pack(b"") + pack(LINES[20_000:])) == LINES.decode().split()
    assert urls(pack(LINES) + b"\0" * 512) == LINES.decode().split()


@EACH
@pytest.mark.parametrize("cut", [7, 40, -9, -1])
def test_a_cut_file_is_told_before_the_first_job(name: str, cut: int) -> None:
    with pytest.raises(BadInput, match=f"{name} file is"):
        read_list(io.BytesIO(COMPRESSIONS[name](LINES)[:cut]))


@EACH
def test_damage_is_told_before_the_first_job(name: str) -> None:
    whole = bytearray(COMPRESSIONS[name](LINES))
    middle = len(whole) // 2
    whole[middle : middle + 4] = bytes(byte ^ 0xFF for byte in whole[middle : middle + 4])

    with pytest.raises(BadInput, match=f"{name} file is"):
        read_list(io.BytesIO(bytes(whole)))


@EACH
def test_a_bomb_needs_no_memory(name: str) -> None:
    bomb = COMPRESSIONS[name]((b"#" + b"x" * 1_000 + b"\n") * 50_000)
    assert len(bomb) < 1 << 20

    tracemalloc.start()
    items = list(read_list(io.BytesIO(bomb)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert items == []
    assert peak < 16 << 20  # the dictionary of xz has 8 MiB


def test_a_window_larger_than_memory_is_refused() -> None:
    packer = zstd.ZstdCompressor(
        options={zstd.CompressionParameter.window_log: 30, zstd.CompressionParameter.compression_level: 1}
    )
    header = packer.compress(
        b"https://a.example/1\n", packer.FLUSH_BLOCK
    )  # the size is not known: the window is declared

    with pytest.raises(BadInput, match="zstd file is damaged"):
        read_list(io.BytesIO(header + packer.flush()))


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.sampled_from(list(COMPRESSIONS)), st.binary(max_size=200))
def test_no_bytes_break_a_decompressor(name: str, data: bytes) -> None:
    try:
        list(read_list(io.BytesIO(COMPRESSIONS[name](LINES[:100])[:8] + data)))
    except BadInput as error:
        assert name in str(error)


def test_plain_lists_do_not_load_zstd() -> None:
    code = (
        "import io, sys; from longshore.lists import read_list;"
        "list(read_list(io.BytesIO(b'https://a.example/1\\n'))); print('backports.zstd' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
