"""A bad line is reported with its number and the rest goes on; a hostile file costs neither memory nor files."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longshore.domain.model import JobRequest
from longshore.errors import BadInput
from longshore.lists import FORMATS, BadLine, read_list
from longshore.lists.lines import MAX_LINE

GOOD = "https://a.example/good"


def read(data: bytes, kind: str | None = None) -> list[JobRequest | BadLine]:
    return list(read_list(io.BytesIO(data), kind))


def summary(data: bytes) -> list[int | str]:
    return [item.line if isinstance(item, BadLine) else str(item.url) for item in read(data)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{GOOD}\nnot a url\n{GOOD}2\n", [GOOD, 2, GOOD + "2"]),
        (f"{GOOD}\n\xff\n{GOOD}2\n", [GOOD, 2, GOOD + "2"]),
        (f"  out=x\n{GOOD}\n", [1, GOOD]),
        (f"{GOOD}\n  checksum=sha-256=xyz\n{GOOD}2\n", [1, GOOD + "2"]),
        (f"{GOOD}\n  checksum=abc\n{GOOD}2\n", [2, GOOD + "2"]),
        (f"{GOOD}\n  header=broken\n{GOOD}2\n", [2, GOOD + "2"]),
        (f"{GOOD}\n  header=X: a\x01b\n{GOOD}2\n", [1, GOOD + "2"]),
        ('{"url": "https://a.example/good"}\n{"url": 5}\n{\n[]\n{}\n{"url": "https://a.example/good"}', [GOOD, 2, 3, 4, 5, GOOD]),
        ('{"url": "https://a.example/good", "size_bytes": -1}\n{"url": "https://a.example/good", "size_bytes": 1.5}', [1, 2]),
        ('{"url": "https://a.example/good", "sha256": "zz"}\n{"url": "https://a.example/good", "mirrors": 5}', [1, 2]),
        ('{"url": "https://a.example/\\ud800"}\n{"url": "https://a.example/good"}', [1, GOOD]),
        (f'url,size_bytes\n{GOOD},x\n{GOOD},1,2,3\n{GOOD},5\n', [2, 3, GOOD]),
        (f'url,name\n"{GOOD}","two\nlines"\nnope,x\n{GOOD}2,y\n', [GOOD, 4, GOOD + "2"]),
        (f'url,name\n{GOOD},"a"b\n{GOOD}2,y\n', [2, GOOD + "2"]),
        (f"url\n\xff\n{GOOD}\n", [2, GOOD]),
        (f"# note\n\nurl\nnope\n{GOOD}\n", [4, GOOD]),
    ],
)  # fmt: skip
def test_a_bad_line_has_its_number_and_the_rest_goes_on(text: str, expected: list[int | str]) -> None:
    assert summary(text.encode("latin-1")) == expected


def test_a_line_without_end_is_skipped_without_keeping_it() -> None:
    def endless() -> Iterator[bytes]:
        yield b"https://a.example/1\n"
        for _ in range(MAX_LINE * 3 // 2 >> 20):
            yield b"x" * (1 << 20)
        yield b"\nhttps://a.example/2\n"

    class Pipe(io.RawIOBase):
        pieces = endless()

        def read1(self, _size: int = -1) -> bytes:
            return next(self.pieces, b"")

    tracemalloc.start()
    items = list(read_list(Pipe()))  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert [getattr(item, "line", None) or getattr(item, "url", None) for item in items] == [
        "https://a.example/1",
        2,
        "https://a.example/2",
    ]
    assert peak < 5 * MAX_LINE


def test_a_long_list_needs_no_memory() -> None:
    class Pipe(io.RawIOBase):
        left = 16

        def read1(self, _size: int = -1) -> bytes:
            self.left -= 1
            return b"https://a.example/0123456789\n" * 250 if self.left >= 0 else b""

    tracemalloc.start()
    count = sum(1 for _ in read_list(Pipe()))  # type: ignore[arg-type, misc]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert count == 4_000
    assert peak < 2 << 20


BOMB = b"""<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="&b;"><url>https://a.example/x</url></file></metalink>"""
OUTSIDE = b"""<?xml version="1.0"?>
<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>
<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="&e;"><url>https://a.example/x</url></file></metalink>"""
DTD = b"""<!DOCTYPE metalink SYSTEM "http://127.0.0.1:9/x.dtd">
<metalink xmlns="urn:ietf:params:xml:ns:metalink"/>"""
HEAD = b'<metalink xmlns="urn:ietf:params:xml:ns:metalink">\n'


@pytest.mark.parametrize("document", [BOMB, OUTSIDE, DTD])
def test_entities_and_document_types_are_refused(document: bytes) -> None:
    (bad,) = read(document)

    assert isinstance(bad, BadLine)
    assert "refused" in bad.message


@pytest.mark.parametrize(
    ("document", "line", "word"),
    [
        (b"<rss/>", 1, "not Metalink 4"),
        (b'<metalink xmlns="http://www.metalinker.org/" version="3.0"/>', 1, "not Metalink 4"),
        (HEAD + b"<file><url>" + b"x" * 100_000 + b"</url></file></metalink>", 2, "too much text"),
        (HEAD + b"<a>" * 100 + b"</a>" * 100 + b"</metalink>", 2, "nested too deeply"),
        (
            HEAD + b"<file><size>many</size><url>https://a.example/x</url></file></metalink>",
            2,
            "size must be one whole number",
        ),
        (HEAD + b"<file name='n'/></metalink>", 2, "has no url"),
    ],
)
def test_a_strange_metalink_says_where(document: bytes, line: int, word: str) -> None:
    (bad,) = read(document)

    assert isinstance(bad, BadLine)
    assert bad.line == line
    assert word in bad.message


def test_a_metalink_that_is_cut_off_gives_nothing() -> None:
    with pytest.raises(BadInput, match="cut off at line 3, column 6: no element found"):
        read(HEAD + b"<file><url>https://a.example/x</url></file>\n<file>")


@pytest.mark.parametrize("cut", [5, 15, -6, -1])
def test_a_cut_gzip_file_is_told(cut: int) -> None:
    whole = gzip.compress(b"https://a.example/1\n" * 1000)

    with pytest.raises(BadInput, match="gzip file is"):
        read(whole[:cut])


def test_a_damaged_parquet_file_is_told() -> None:
    with pytest.raises(BadInput, match="Parquet file is damaged"):
        read(b"PAR1" + b"x" * 100)


def test_deep_json_is_a_bad_line() -> None:
    items = read(b'{"url": ' + b"[" * 200_000 + b'\n{"url": "https://a.example/good"}')
    assert [type(item) for item in items] == [BadLine, JobRequest]


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=300), kind=st.sampled_from([None, *FORMATS]))
def test_no_bytes_break_a_reader(data: bytes, kind: str | None) -> None:
    try:
        items = list(read_list(io.BytesIO(data), kind, base_url="https://a.example/"))
    except BadInput:
        return
    assert all(isinstance(item, JobRequest | BadLine) for item in items)


@settings(max_examples=100, deadline=None)
@given(record=st.dictionaries(st.sampled_from(["url", "mirrors", "size_bytes", "sha256", "locations", "oa_locations", "doi", "priority"]), st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.just("https://a.example/x"), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["pdf_url", "url", "url_for_pdf"]), inner, max_size=2), max_leaves=6)))  # fmt: skip
def test_no_record_breaks_the_reader(record: dict[str, object]) -> None:
    (item,) = read(json.dumps(record).encode(), "jsonl")
    assert isinstance(item, JobRequest | BadLine)


SHA = "ab" * 32


def metalink(inner: str) -> list[JobRequest | BadLine]:
    return read(HEAD + f"<file name='n'>{inner}<url>https://a.example/x</url></file></metalink>".encode())


@pytest.mark.parametrize(
    ("inner", "word"),
    [
        (f"<hash type='sha3-256'>{SHA}</hash>", "no hash of the file can be computed"),
        ("<hash type='sha-384'>x</hash><hash type=''>y</hash>", "no hash of the file can be computed"),
        ("<hash>x</hash>", "no hash of the file can be computed"),
        (f"<hash type='sha-256'>{SHA}</hash><hash type='SHA256'>{'cd' * 32}</hash>", "two different sha256"),
        ("<hash type='sha-256'>short</hash>", "64 hexadecimal digits"),
        ("<size>1</size><size>2</size>", "one whole number"),
        ("<size>-1</size>", "one whole number"),
        ("<size>1_0</size>", "one whole number"),
        ("<size>\u0663</size>", "one whole number"),
        (f"<size>{'9' * 5000}</size>", "one whole number"),
        ("<size></size>", "one whole number"),
        ("<url priority='abc'>https://b.example/</url>", "priority"),
        ("<url priority='0'>https://b.example/</url>", "priority"),
        ("<url priority='-1'>https://b.example/</url>", "priority"),
        ("<url priority='\u0663'>https://b.example/</url>", "priority"),
        (f"<url priority='{'9' * 5000}'>https://b.example/</url>", "priority"),
        ("<url priority='1000000'>https://b.example/</url>", "priority"),
        ("<url>not a url</url>", "not a URL"),
    ],
)
def test_a_value_of_a_metalink_that_cannot_be_used_refuses_the_file(inner: str, word: str) -> None:
    (bad,) = metalink(inner)
    assert isinstance(bad, BadLine) and word in bad.message and bad.line == 2


def test_a_hash_that_can_be_computed_is_enough() -> None:
    (got,) = metalink(f"<hash type='sha3-256'>x</hash><hash type='SHA-256'>{SHA.upper()}</hash><size> 7 </size>")
    assert isinstance(got, JobRequest) and got.expect.sha256 == SHA and got.expect.size_bytes == 7


def test_priorities_order_the_urls() -> None:
    (got,) = metalink("<url>https://c.example/</url><url priority='1'>https://b.example/</url>")
    assert isinstance(got, JobRequest) and got.url == "https://b.example/"


@pytest.mark.parametrize("encoding", ["hex", "utf-7", "nonsense", "idna", "rot13", "big5"])
def test_a_strange_encoding_is_told(encoding: str) -> None:
    document = f'<?xml version="1.0" encoding="{encoding}"?>'.encode() + HEAD + b"</metalink>"
    try:
        assert all(isinstance(item, BadLine) for item in read(document))
    except BadInput as error:
        assert str(error)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("fetch", f"https://a.example/x {'9' * 5000} name"),
        ("fetch", "https://a.example/x \u0663 name"),
        ("aria2", f"https://a.example/x\n  checksum=sha-256={SHA}\n  checksum=sha-256={'cd' * 32}"),
        ("arxiv", "\uff12\uff13\uff10\uff11.00001"),
        ("arxiv", f"2301.00001v{'9' * 5000}"),
        ("jsonl", '{"url": "https://a.example/x", "size_bytes": 1e999}'),
        ("jsonl", '{"url": "https://a.example/x", "priority": ' + "9" * 5000 + "}"),
        ("jsonl", '{"url": "https://a.example/x", "headers": {"X": "\\ud800"}}'),
        ("jsonl", '{"url": "https://a.example/x", "headers": {"X: y": "z"}}'),
        ("csv", "url,size_bytes\nhttps://a.example/x,inf"),
    ],
)
def test_a_value_that_cannot_be_used_is_a_bad_line(kind: str, text: str) -> None:
    (bad,) = read(text.encode(), kind)
    assert isinstance(bad, BadLine) and bad.message


def test_a_heading_that_cannot_be_read_is_told() -> None:
    for heading in ("url," + "x" * 200_000, "url,a\rb"):
        try:
            read(f"{heading}\nhttps://a.example/x,y\n".encode(), "csv")
        except BadInput as error:
            assert str(error)


_VALUE = st.one_of(
    st.text(max_size=20),
    st.text(st.characters(categories=["Nd", "No", "Cc", "Zs", "Lo"]), max_size=8),
    st.sampled_from(["9" * 5000, "-1", "1e9", "0x10", "inf", "nan", "\u0663", "", " ", "\ud800", "\0"]),
)
_SHAPES = {
    "urls": "https://a.example/{}",
    "aria2": "https://a.example/x\t{}\n  {}={}\n  checksum={}={}\n  header={}: {}\n  out={}",
    "csv": "url,size_bytes,sha256,priority,mirrors,name\nhttps://a.example/x,{},{},{},{},{}",
    "metalink": "<metalink xmlns='urn:ietf:params:xml:ns:metalink'><file name='{}'><size>{}</size>"
    "<hash type='{}'>{}</hash><url priority='{}'>{}</url></file></metalink>",
    "arxiv": "2301.0000{}v{}",
    "fetch": "https://a.example/{} {} {}",
    "sums": "{}  {}",
}


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(list(_SHAPES)), data=st.data())
def test_no_value_breaks_a_reader(kind: str, data: st.DataObject) -> None:
    shape = _SHAPES[kind]
    text = shape.format(*(data.draw(_VALUE) for _ in range(shape.count("{}"))))
    try:
        items = list(read_list(io.BytesIO(text.encode("utf-8", "surrogatepass")), kind, base_url="https://a.example/"))
    except BadInput as error:
        assert str(error)
        return
    assert all(isinstance(item, JobRequest) or (isinstance(item, BadLine) and item.message) for item in items)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _VALUE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_VALUE, inner, max_size=3),
    max_leaves=5,
)
_NAMES = ["mirrors", "headers", "size_bytes", "sha256", "sha512", "md5", "priority", "work_id", "artifact_id", "name"]


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([*_NAMES, "media_type", "job_type", "source_ref"]), _JSON, max_size=4))
def test_no_value_breaks_a_record(record: dict[str, object]) -> None:
    (item,) = read(json.dumps({"url": "https://a.example/x", **record}).encode(), "jsonl")
    assert isinstance(item, JobRequest) or (isinstance(item, BadLine) and item.message)
