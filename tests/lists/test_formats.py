"""Each format becomes the same kind of jobs; what is inside decides which format it is."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable

import pyarrow as pa
import pytest
from pyarrow import parquet

from longshore.domain.model import JobRequest
from longshore.errors import BadInput
from longshore.exports.manifest_rows import TABLE_COLUMNS
from longshore.lists import FORMATS, BadLine, WithoutFile, read_list
from longshore.lists.detect_format import recognise
from longshore.lists.record_fields import NOT_UNDERSTOOD, UNKNOWN, field_of

SHA = "ab" * 32


def read(text: str | bytes, kind: str | None = None, **more: str) -> list[JobRequest | BadLine]:
    return list(read_list(io.BytesIO(text.encode() if isinstance(text, str) else text), kind, **more))  # type: ignore[arg-type]


def jobs(items: Iterable[JobRequest | BadLine]) -> list[JobRequest]:
    made = [item for item in items if isinstance(item, JobRequest)]
    assert len(made) == len(list(items)), items
    return made


def test_url_lines_with_comments_blanks_and_windows_line_ends() -> None:
    items = jobs(read("# mine\r\n\r\nhttps://a.example/1\r\n  https://a.example/2  \nhttps://a.example/3"))

    assert [item.url for item in items] == [f"https://a.example/{n}" for n in (1, 2, 3)]


def test_aria2_mirrors_and_options() -> None:
    text = (
        "https://a.example/x.pdf\thttps://b.example/x.pdf\thttps://c.example/x.pdf\n"
        f"  out=paper one.pdf\n  checksum=sha-256={SHA}\n  header=Referer: https://a.example/\n"
        "\tuser-agent=Me/1\n  split=5\n"
        "https://a.example/y\n"
    )

    first, second = jobs(read(text))

    assert first.mirrors == ("https://b.example/x.pdf", "https://c.example/x.pdf")
    assert (first.name, first.expect.sha256) == ("paper one.pdf", SHA)
    assert first.headers == (("Referer", "https://a.example/"), ("User-Agent", "Me/1"))
    assert (second.url, second.mirrors, second.name) == ("https://a.example/y", (), None)


def test_jsonl_has_all_fields() -> None:
    record = {
        "url": "https://a.example/x",
        "work_id": "w",
        "artifact_id": "a",
        "sha256": SHA.upper(),
        "size_bytes": 12,
        "media_type": "application/pdf",
        "mirrors": ["https://b.example/x"],
        "priority": 7,
        "md5": "0" * 32,
        "unknown": {"is": "ignored"},
    }

    (item,) = jobs(read(json.dumps(record) + "\n\n"))

    assert (item.work_id, item.source_ref, item.priority) == ("w", "a", 7)
    assert (item.expect.sha256, item.expect.size_bytes, item.expect.media_type) == (SHA, 12, "application/pdf")
    assert item.expect.digests == (("md5", "0" * 32),)
    assert item.mirrors == ("https://b.example/x",)


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_csv_with_its_own_separator_order_and_quotes(mark: str) -> None:
    header = mark.join(["work_id", "URL", "size_bytes", "mirrors", "note"])
    row = mark.join(['"a ""work"""', '"https://a.example/x"', "12", "https://b.example/x|https://c.example/x", ""])

    (item,) = jobs(read(f"\ufeff{header}\r\n{row}\r\n"))

    assert (item.work_id, item.url, item.expect.size_bytes) == ('a "work"', "https://a.example/x", 12)
    assert item.mirrors == ("https://b.example/x", "https://c.example/x")


def test_csv_with_one_column() -> None:
    assert [item.url for item in jobs(read("url\nhttps://a.example/1\nhttps://a.example/2\n"))] == [
        "https://a.example/1",
        "https://a.example/2",
    ]


METALINK = f"""<?xml version="1.0" encoding="UTF-8"?>
<metalink xmlns="urn:ietf:params:xml:ns:metalink">
  <published>2009-05-15T12:23:23Z</published>
  <file name="dir/example.ext">
    <size>14471447</size>
    <hash type="sha-256">{SHA}</hash>
    <hash type="sha-1">{"c" * 40}</hash>
    <hash type="weird">zz</hash>
    <pieces length="10" type="sha-256"><hash>{"d" * 64}</hash></pieces>
    <url location="de" priority="2">ftp://ftp.example.com/example.ext</url>
    <url location="fr" priority="1">https://example.com/example.ext?a=1&amp;b=2</url>
    <url>https://last.example/example.ext</url>
    <metaurl mediatype="torrent">https://example.com/example.ext.torrent</metaurl>
  </file>
  <file name="two"><url>https://example.com/two</url></file>
</metalink>
"""


def test_metalink_orders_by_priority_and_keeps_hashes() -> None:
    first, second = jobs(read(METALINK))

    assert first.url == "https://example.com/example.ext?a=1&b=2"
    assert first.mirrors == ("ftp://ftp.example.com/example.ext", "https://last.example/example.ext")
    assert (first.name, first.expect.size_bytes, first.expect.sha256) == ("dir/example.ext", 14471447, SHA)
    assert first.expect.digests == (("sha1", "c" * 40),)
    assert second.url == "https://example.com/two"


def test_lists_for_many_programs_pass_over_schemes_that_are_not_fetched() -> None:
    magnet, first, second = "magnet:?xt=urn:btih:00", "http://a/x", "http://b/x"
    urls = "".join(
        f'<url priority="{at}">{url}</url>' for at, url in enumerate((magnet, first, "rsync://c/x", second), 1)
    )
    file = f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="m">{urls}</file></metalink>'
    (job,) = jobs(read(file, "metalink"))
    assert (job.url, job.mirrors) == (first, (second,))
    work = {"locations": [{"pdf_url": url} for url in (first, magnet, second)]}
    (job,) = jobs(read(json.dumps(work), "openalex"))
    assert (job.url, job.mirrors) == (first, (second,))


@pytest.mark.parametrize(
    ("kind", "text"),
    [("aria2", "http://a/x\tfile:///x\n"), ("jsonl", json.dumps({"url": "http://a/x", "mirrors": ["magnet:?xt=1"]}))],
)
def test_a_line_with_a_mirror_that_is_not_fetched_is_refused(kind: str, text: str) -> None:
    (bad,) = read(text, kind)
    assert isinstance(bad, BadLine) and "a mirror is a URL of http" in bad.message


def test_openalex_works_become_mirrors_in_order() -> None:
    work = {
        "id": "https://openalex.org/W123",
        "doi": "https://doi.org/10.1/ABC",
        "best_oa_location": {"pdf_url": "https://best.example/x.pdf"},
        "primary_location": {"pdf_url": None, "landing_page_url": "https://page.example"},
        "locations": [{"pdf_url": "https://best.example/x.pdf"}, {"pdf_url": "https://other.example/x.pdf"}, None],
    }
    closed = {"id": "https://openalex.org/W9", "locations": []}

    item, bad = read(json.dumps(work) + "\n" + json.dumps(closed))

    assert isinstance(item, JobRequest)
    assert (item.url, item.mirrors) == ("https://best.example/x.pdf", ("https://other.example/x.pdf",))
    assert (item.work_id, item.source_ref, item.expect.media_type) == ("doi:10.1/abc", "W123", "application/pdf")
    assert bad == WithoutFile(2, "the work has no location with a pdf_url")
    assert read(json.dumps(work), "openalex") == [item]


def test_unpaywall_prefers_pdfs() -> None:
    record = {
        "doi": "10.1/XyZ",
        "best_oa_location": {"url": "https://a.example/page", "url_for_pdf": "https://a.example/x.pdf"},
        "oa_locations": [
            {"url": "https://b.example/page", "url_for_pdf": None},
            {"url_for_pdf": "https://c.example/x"},
        ],
    }
    bare = {"doi": "10.1/q", "oa_locations": [{"url": "https://b.example/page", "url_for_pdf": None}]}

    first, second = jobs(read(json.dumps(record) + "\n" + json.dumps(bare)))

    assert (first.work_id, first.url, first.mirrors) == (
        "doi:10.1/xyz",
        "https://a.example/x.pdf",
        ("https://c.example/x",),
    )
    assert (second.url, second.expect.media_type) == ("https://b.example/page", None)


def test_arxiv_ids_go_to_the_export_host() -> None:
    items = read("2101.00001\narXiv:2101.00002v3\nhep-th/9901001\nmath.GT/0309136\nnonsense\n")

    assert [getattr(item, "url", None) for item in items[:4]] == [
        "https://export.arxiv.org/pdf/2101.00001",
        "https://export.arxiv.org/pdf/2101.00002v3",
        "https://export.arxiv.org/pdf/hep-th/9901001",
        "https://export.arxiv.org/pdf/math.GT/0309136",
    ]
    assert isinstance(items[1], JobRequest)
    assert (items[1].work_id, items[1].source_ref) == ("arxiv:2101.00002", "arxiv:2101.00002v3")
    assert items[4] == BadLine(5, "not an arXiv id: 'nonsense'")


def test_bagit_fetch_lines() -> None:
    text = "https://a.example/x 12 data/a b.txt\nhttps://a.example/y\t-\tdata/%25y\nhttps://a.example/z 3 ../../etc/x\n"

    first, second, bad = list(
        read_list(io.BytesIO(text.encode()), sums={"data/a b.txt": SHA}),
    )

    assert isinstance(first, JobRequest)
    assert (first.name, first.expect.size_bytes, first.expect.sha256) == ("data/a b.txt", 12, SHA)
    assert isinstance(second, JobRequest)
    assert (second.name, second.expect.size_bytes) == ("data/%y", None)
    assert isinstance(bad, BadLine)
    assert bad.line == 3
    assert "outside" in bad.message


def test_checksum_lists_take_their_names_from_a_base_url() -> None:
    text = f"{SHA}  a file.bin\n{SHA} *./b.bin\n\\{SHA}  c\\nd\nSHA256 (e.bin) = {SHA}\n{'0' * 32}  f\n{SHA}  ../g\n"

    *good, bad = read(text, base_url="https://a.example/dir")

    assert [getattr(item, "url", item) for item in good] == [
        "https://a.example/dir/a%20file.bin",
        "https://a.example/dir/b.bin",
        "https://a.example/dir/c%0Ad",
        "https://a.example/dir/e.bin",
        "https://a.example/dir/f",
    ]
    assert all(isinstance(item, JobRequest) and item.expect.sha256 == SHA for item in good[:4])
    assert isinstance(bad, BadLine)
    with pytest.raises(BadInput, match="needs the base URL") as refused:
        read(text)
    assert "--base-url" in str(refused.value.hint)


def test_parquet_by_rows() -> None:
    table = pa.table(
        {
            "URL": ["https://a.example/1", "nonsense", "https://a.example/3"],
            "mirrors": [["https://b.example/1"], [], None],
            "size_bytes": [1, None, 3],
            "other": [b"x", b"y", b"z"],
        }
    )
    file = io.BytesIO()
    parquet.write_table(table, file)

    first, bad, third = read(file.getvalue())

    assert isinstance(first, JobRequest)
    assert (first.url, first.mirrors, first.expect.size_bytes) == ("https://a.example/1", ("https://b.example/1",), 1)
    assert bad == BadLine(2, "not a URL: 'nonsense'")
    assert isinstance(third, JobRequest)


def test_gzip_is_unpacked_on_the_way() -> None:
    packed = gzip.compress(b"https://a.example/1\n") + gzip.compress(b"https://a.example/2\n")

    assert [item.url for item in jobs(read(packed))] == ["https://a.example/1", "https://a.example/2"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("urls", "https://a.example/\n"),
        ("urls", "# c\nhttps://a.example/?url=,x\n"),
        ("urls", ""),
        ("jsonl", ' {"url": "x"}\n'),
        ("csv", "id,url\n"),
        ("csv", '"url";"x"\n'),
        ("metalink", METALINK),
        ("arxiv", "arXiv:2101.00001v2\n"),
        ("fetch", "https://a.example/x 12 data/x\n"),
        ("sums", f"{SHA}  x\n"),
        ("parquet", "PAR1...."),
    ],
)
def test_formats_are_recognised_by_content(kind: str, text: str) -> None:
    assert recognise(text.encode()) == kind
    assert kind in FORMATS


@pytest.mark.parametrize("text", ["[{}]", "<!DOCTYPE html><p>", "<HTML>", "\x00\x01\x02"])
def test_what_is_no_list_is_refused_whole(text: str) -> None:
    with pytest.raises(BadInput):
        read(text)


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(BadInput, match=r"'xlsx'.*urls"):
        read("x", "xlsx")


def test_no_column_of_the_manifest_is_unknown_to_add() -> None:
    assert [name for name in TABLE_COLUMNS if field_of(name) in (UNKNOWN, NOT_UNDERSTOOD)] == []
