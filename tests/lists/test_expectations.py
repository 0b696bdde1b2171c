"""An expectation in a list is kept, or its line is refused; it is never dropped."""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import Any

import pytest

from longshore.domain.identity.requests import download_request
from longshore.domain.model import Expect, JobRequest
from longshore.errors import BadInput
from longshore.lists import BadLine, read_list

URL = "https://a.example/x"
SHA, OTHER = "ab" * 32, "cd" * 32
MD5 = "ab" * 16


def one(text: str, unknown: Counter[str] | None = None) -> JobRequest | BadLine:
    (item,) = read_list(io.BytesIO(text.encode()), unknown=unknown)
    return item


def of(item: JobRequest | BadLine) -> Expect:
    assert isinstance(item, JobRequest), item
    return item.expect


@pytest.mark.parametrize(
    ("fields", "expect"),
    [
        ({"digests": {"md5": MD5}}, Expect(digests=(("md5", MD5),))),
        ({"digests": {"SHA-256": SHA}}, Expect(SHA)),
        ({"expected_digests": {"sha1": "ab" * 20}}, Expect(digests=(("sha1", "ab" * 20),))),
        ({"expected_sha256": SHA}, Expect(SHA)),
        ({"SHA256": SHA}, Expect(SHA)),
        ({"sha-256": SHA}, Expect(SHA)),
        ({"Sha_512": "ab" * 64}, Expect(digests=(("sha512", "ab" * 64),))),
        ({"expected_size_bytes": 9}, Expect(None, 9)),
        ({"Size-Bytes": "9"}, Expect(None, 9)),
        ({"expected_media_type": "text/plain"}, Expect(None, None, "text/plain")),
        ({"sha256": SHA, "expected_sha256": SHA.upper()}, Expect(SHA)),
        ({"size": None, "checksum": "", "hash": None}, Expect()),
        ({"hashtag": "x", "shape": "round", "sizeable": True}, Expect()),
    ],
)
def test_names_of_expectations(fields: dict[str, Any], expect: Expect) -> None:
    assert of(one(json.dumps({"url": URL, **fields}))) == expect
    if all(isinstance(value, str) for value in fields.values()):
        line = ",".join(fields.values())
        assert of(one(f"url,{','.join(fields)}\n{URL},{line}\n")) == expect


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"checksum": f"sha-256={SHA}"}, "'checksum' is not understood"),
        ({"hash": SHA}, "'hash' is not understood"),
        ({"size": 9}, "'size' is not understood"),
        ({"fileSize": 9}, "not understood"),
        ({"sha384": "x"}, "not understood"),
        ({"file_sha256": SHA}, "not understood"),
        ({"contentDigest": SHA}, "not understood"),
        ({"blake2b": "x"}, "not understood"),
        ({"digests": {"sha256": "zz"}}, "hexadecimal"),
        ({"digests": {"crc32": "zz"}}, "digests are"),
        ({"digests": {"md5": 7}}, "must be an object"),
        ({"digests": "md5"}, "must be an object"),
        ({"digests": [["md5", MD5]]}, "must be an object"),
        ({"digests": {"sha256": SHA}, "sha256": OTHER}, "contradicts"),
        ({"sha256": SHA, "SHA-256": OTHER}, "contradicts"),
        ({"size_bytes": 9, "expected_size_bytes": 10}, "contradicts"),
        ({"media_type": "junk"}, "a type and a subtype"),
        ({"needs_headers": True}, "had headers"),
    ],
)
def test_what_is_not_understood_is_refused(fields: dict[str, Any], why: str) -> None:
    refused = one(json.dumps({"url": URL, **fields}))
    assert isinstance(refused, BadLine)
    assert why in refused.message


def test_headers_that_were_added_by_hand_are_enough() -> None:
    made = one(json.dumps({"url": URL, "needs_headers": True, "headers": {"X-Who": "me"}}))
    assert isinstance(made, JobRequest)
    assert made.headers == (("X-Who", "me"),)
    assert isinstance(one(json.dumps({"url": URL, "needs_headers": False})), JobRequest)
    assert isinstance(one(f"url,needs_headers\n{URL},False\n"), JobRequest)
    assert isinstance(one(f"url,needs_headers\n{URL},True\n"), BadLine)


@pytest.mark.parametrize("second", [SHA, OTHER])
def test_a_key_or_column_that_is_there_twice_is_refused(second: str) -> None:
    refused = one(f'{{"url":"{URL}","sha256":"{SHA}","sha256":"{second}"}}')
    assert isinstance(refused, BadLine)
    assert "'sha256' is given twice" in refused.message
    refused = one(f"url,sha256,SHA256\n{URL},{SHA},{second}\n")
    assert isinstance(refused, BadLine)
    assert "twice" in refused.message


def test_columns_that_are_not_known_may_be_there_twice() -> None:
    assert isinstance(one(f"url,note,note\n{URL},a,b\n"), JobRequest)


def test_parquet_has_the_same_names() -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for names, good in (({"SHA-256": SHA}, True), ({"hash": SHA}, False)):
        out = io.BytesIO()
        parquet.write_table(pa.table({"url": [URL], "title": ["x"], **{name: [v] for name, v in names.items()}}), out)
        unknown: Counter[str] = Counter()
        (item,) = read_list(io.BytesIO(out.getvalue()), unknown=unknown)
        assert isinstance(item, JobRequest) is good
        assert unknown == {"title": 1}
    out = io.BytesIO()
    twice = pa.Table.from_arrays([pa.array([URL]), pa.array([SHA]), pa.array([OTHER])], ["url", "sha256", "sha256"])
    parquet.write_table(twice, out)
    with pytest.raises(BadInput, match="twice"):
        list(read_list(io.BytesIO(out.getvalue())))


def test_unknown_fields_are_counted() -> None:
    unknown: Counter[str] = Counter()
    text = "".join(json.dumps({"url": URL, "title": "t", "status": "failed", "doi": None}) + "\n" for _ in range(3))
    assert len(list(read_list(io.BytesIO(text.encode()), unknown=unknown))) == 3
    assert unknown == {"title": 3, "doi": 3}


def test_a_metalink_with_hashes_of_pieces_only_is_refused() -> None:
    head = '<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="a">'
    pieces = f'<pieces length="500" type="sha-1"><hash>{"ab" * 20}</hash></pieces>'
    end = f"<url>{URL}</url></file></metalink>"
    refused = one(head + pieces + end)
    assert isinstance(refused, BadLine)
    assert "pieces" in refused.message
    assert of(one(f'{head}{pieces}<hash type="sha-256">{SHA}</hash>{end}')) == Expect(SHA)


@pytest.mark.parametrize("digests", [{"md5": MD5}, [("md5", MD5)], (("MD5", MD5.upper()),)])
def test_digests_may_be_a_mapping_or_pairs(digests: Any) -> None:
    assert download_request(URL, digests=digests).expect.digests == (("md5", MD5),)


@pytest.mark.parametrize("digests", [{"md5": 7}, {7: MD5}, ["md5"], [("md5",)], 7, [7], {"sha3": MD5}])
def test_digests_of_another_form_are_refused(digests: Any) -> None:
    with pytest.raises(BadInput):
        download_request(URL, digests=digests)
