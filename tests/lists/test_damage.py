"""Every format × every damage: a message with its place, nothing half-done, and the whole file afterwards gives what it should."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from longshore.lists import FORMATS
from tests.cli.conftest import LOOPBACK, Box

COUNT = 40
URLS = [f"https://a.example/file/{n}" for n in range(COUNT)]
SUMS = [f"{n:064x}" for n in range(COUNT)]


def parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(
        pa.table({"url": URLS, "work_id": [f"W{n}" for n in range(COUNT)]}),
        out,
        compression="none",
        write_page_checksum=True,
    )
    return out.getvalue()


def metalink() -> bytes:
    files = "\n".join(f'<file name="{n}"><url>{url}</url></file>' for n, url in enumerate(URLS))
    return f'<metalink xmlns="urn:ietf:params:xml:ns:metalink">\n{files}\n</metalink>\n'.encode()


def lines(each: Callable[[int, str], str], *, head: str = "") -> bytes:
    return (head + "".join(each(n, url) + "\n" for n, url in enumerate(URLS))).encode()


def openalex(n: int, url: str) -> str:
    place = {"pdf_url": url, "landing_page_url": None}
    return json.dumps({"id": f"https://openalex.org/W{n}", "doi": f"https://doi.org/10.1/{n}", "locations": [place]})


def unpaywall(n: int, url: str) -> str:
    return json.dumps({"doi": f"10.1/{n}", "oa_locations": [{"url_for_pdf": url, "url": url}]})


WHOLE: dict[str, bytes] = {
    "urls": lines(lambda _, url: url),
    "aria2": lines(lambda n, url: f"{url}\thttps://b.example/{n}\n  out={n}.pdf"),
    "jsonl": lines(lambda n, url: json.dumps({"url": url, "work_id": f"W{n}"})),
    "csv": lines(lambda n, url: f"{url},W{n}", head="url,work_id\n"),
    "metalink": metalink(),
    "openalex": lines(openalex),
    "unpaywall": lines(unpaywall),
    "arxiv": lines(lambda n, _: f"2401.{n:05d}"),
    "fetch": lines(lambda n, url: f"{url} - data/{n}"),
    "sums": lines(lambda n, _: f"{SUMS[n]}  data/{n}"),
    "parquet": parquet(),
}
CONTAINERS = ("metalink", "parquet", "gzip")


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut in the middle": lambda data: data[: len(data) // 2],
    "cut at the end": lambda data: data[:-9],
    "a byte flipped": flipped,
    "zeros in the middle": lambda data: data[: len(data) // 2] + bytes(64) + data[len(data) // 2 + 64 :],
    "a picture": lambda _: b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8,
    "a web page": lambda _: b"<!DOCTYPE html>\n<html><body>Not found</body></html>\n",
    "a database": lambda _: b"SQLite format 3\0" + bytes(4096),
    "prose": lambda _: b"Dear Sir,\nplease find the list attached.\n",
}
CASES = [*itertools.product(sorted(WHOLE), DAMAGES), *(("gzip", damage) for damage in DAMAGES)]
PLACE = re.compile(r"(line|byte|row|column) \d+|damaged\.list:\d+: ")


def test_every_format_has_a_file_here() -> None:
    assert WHOLE.keys() == FORMATS.keys()


def planned(box: Box) -> int:
    return sum(box.counts().values()) if box.depot.exists() else 0


@pytest.mark.parametrize(("kind", "damage"), CASES, ids=lambda value: str(value).replace(" ", "-"))
def test_damage_is_told_with_its_place_and_nothing_is_half_done(tmp_path: Path, kind: str, damage: str) -> None:
    good = gzip.compress(WHOLE["jsonl"], mtime=0) if kind == "gzip" else WHOLE[kind]
    box = Box(tmp_path, LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot")})
    named = () if kind == "gzip" else ("--format", kind)
    flags = (*named, "--base-url", "https://a.example/") if kind == "sums" else named
    damaged = box.write("damaged.list", DAMAGES[damage](good))

    ran = box("add", damaged, *flags)

    assert "Traceback" not in ran.stderr
    complete_by_chance = ran.code == 0 and kind not in CONTAINERS  # a cut between two lines, a flip inside a name
    assert ran.code in (2, 3) or complete_by_chance, ran.stderr
    if ran.code:
        assert PLACE.search(ran.stderr), ran.stderr
        assert "damaged.list" in ran.stderr
    if kind in CONTAINERS:
        assert planned(box) == 0, "a container that is not whole gives nothing"
    assert planned(box) <= COUNT + 1  # a flipped byte can make one other name
    before = planned(box)
    box("add", box.write("whole.list", good), *flags).ok()
    assert COUNT <= planned(box) <= COUNT + before


@pytest.mark.parametrize("kind", ["parquet", "metalink", "jsonl"])
def test_a_container_through_a_pipe_is_judged_first_too(tmp_path: Path, kind: str) -> None:
    box = Box(tmp_path, LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot")})
    data = gzip.compress(WHOLE[kind], mtime=0) if kind == "jsonl" else WHOLE[kind]
    assert box.process("add", "-", stdin=data[:-20]).code == 2
    assert planned(box) == 0
    box.process("add", "-", stdin=data).ok()
    assert planned(box) == COUNT


QUOTE = "url,name\n" + "".join(f"{url},n{n}\n" for n, url in enumerate(URLS))


@pytest.mark.parametrize("pipe", [False, True], ids=["file", "pipe"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("line", "broken"),
    [
        (12, QUOTE.replace(",n10\n", ',"n10\n')),  # never closed
        (12, QUOTE.replace(",n10\n", ',"n10\n').replace(",n20\n", ',"n20"\n')),  # closed where another one opens
        (14, QUOTE.replace(",n10\n", ',"two\nlines"\n').replace(",n11\n", ',"n11\n')),
        (41, QUOTE.replace(",n39\n", ',"n39\n')),  # in the last line
    ],
    ids=["never-closed", "closed-by-the-next", "after-a-good-one", "last-line"],
)
def test_a_quote_that_is_not_closed_refuses_the_list_with_its_line(
    tmp_path: Path, line: int, broken: str, *, packed: bool, pipe: bool
) -> None:
    box = Box(tmp_path, LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot")})
    data = gzip.compress(broken.encode(), mtime=0) if packed else broken.encode()
    name = "-" if pipe else box.write("quote.csv", data)
    ran = box.process("add", name, stdin=data if pipe else None)
    assert ran.code == 2
    assert f"line {line}: the quote that is opened here is not closed" in ran.stderr
    assert "nothing" in ran.stderr
    assert planned(box) == 0


def test_a_field_of_several_lines_is_no_damage_and_says_which_lines_it_joins(tmp_path: Path) -> None:
    box = Box(tmp_path, LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot")})
    text = 'url,work_id\nhttps://a.example/1,"two\nlines"\n"no url\nat all",x\nhttps://a.example/2,y\n'
    ran = box("add", box.write("lines.csv", text))
    assert "lines.csv:4: " in ran.stderr
    assert "joins the lines up to 5" in ran.stderr


def test_a_wrong_format_is_told_in_a_screenful(tmp_path: Path) -> None:
    box = Box(tmp_path, LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot")})
    ran = box("add", "--format", "jsonl", box.write("x.txt", WHOLE["urls"] * 5))
    assert ran.code == 3
    assert len(ran.stderr.splitlines()) < 30
    assert "… and 180 more" in ran.stderr
    assert "200 refused" in ran.stdout
