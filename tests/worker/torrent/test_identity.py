"""Who a torrent is, against libtorrent's own answer, and what hostile bytes come to."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longshore.domain.torrents.model import Identity
from longshore.errors import BadInput, Reasoned
from longshore.worker.kinds.torrent import bencode
from longshore.worker.kinds.torrent.identity import from_magnet, from_metainfo, trackerless
from tests.support.qbt import make_torrent

V1 = "1f132272a9f9a7c8c3f593e58be3f654d0467810"
V2 = "2c70cfcb7e5f67d436a29b7ae469c1fb4b3f47bbb28e3e9dc084c03ee41f3a84"


@pytest.mark.parametrize("version", ["v1", "v2", "hybrid"])
@pytest.mark.parametrize("folder", [False, True])
def test_agrees_with_libtorrent(tmp_path: Path, version: str, folder: bool) -> None:
    path = tmp_path / "thing"
    if folder:
        (path / "inner").mkdir(parents=True)
        (path / "inner" / "a.txt").write_bytes(b"a" * 40_000)
        (path / "b.txt").write_bytes(b"b" * 10)
    else:
        path.write_bytes(b"c" * 70_000)
    made = make_torrent(path, version=version)
    assert from_metainfo(made.data) == Identity(made.v1, made.v2)
    assert from_magnet(made.magnet) == Identity(made.v1, made.v2)


def test_ids_name_every_id_the_client_may_use() -> None:
    assert Identity(V1, V2).ids == (V2[:40], V1)
    assert Identity(v1=V1).ids == (V1,)
    assert Identity(v1=V1).overlaps(Identity(V1, V2))
    assert not Identity(v1=V1).overlaps(Identity(v2=V2))
    assert not Identity().overlaps(Identity())


def test_magnets_in_every_spelling() -> None:
    short = base64.b32encode(bytes.fromhex(V1)).decode()
    for uri in (
        f"magnet:?xt=urn:btih:{V1}",
        f"MAGNET:?dn=x&xt=urn:btih:{V1.upper()}",
        f"magnet:?xt=urn:btih:{short}",
        f"magnet:?xt=urn:btih:{short.lower()}&tr=http%3A%2F%2Fx%2Fannounce",
        f"magnet:?xt.1=urn:btih:{V1}&xt.2=urn:ed2k:0123",
    ):
        assert from_magnet(uri).v1 == V1
    assert from_magnet(f"magnet:?xt=urn:btmh:1220{V2}").v2 == V2


@pytest.mark.parametrize(
    "uri",
    [
        "magnet:?dn=nothing",
        "magnet:",
        "http://example.org/?xt=urn:btih:" + V1,
        f"magnet:?xt=urn:btih:{V1[:-1]}",
        f"magnet:?xt=urn:btih:{V1}&xt=urn:btih:{V1[::-1]}",
        f"magnet:?xt=urn:btih:{V1}\n",
        "magnet:?xt=urn:btih:" + "a" * 70_000,
        "magnet:?" + "&".join(f"a{i}=1" for i in range(1100)),
    ],
)
def test_magnets_that_are_none(uri: str) -> None:
    with pytest.raises(BadInput):
        from_magnet(uri)


def test_trackerless_magnets_are_told_apart() -> None:
    assert trackerless(f"magnet:?xt=urn:btih:{V1}")
    assert not trackerless(f"magnet:?xt=urn:btih:{V1}&tr=udp%3A%2F%2Fx")
    assert not trackerless(f"magnet:?xt=urn:btih:{V1}&x.pe=127.0.0.1:1")


GOOD_INFO = b"d6:lengthi3e4:name1:a12:piece lengthi16384e6:pieces20:" + b"x" * 20 + b"e"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<!DOCTYPE html><html></html>",
        b"d",
        b"de",
        b"le",
        b"i1e",
        b"d4:infoi1ee",
        b"d4:infodee",
        b"d4:info" + GOOD_INFO,  # no end
        b"d4:info" + GOOD_INFO + b"4:info" + GOOD_INFO + b"e",  # which one?
        b"d4:info" + GOOD_INFO + b"egarbage",
        b"d04:info" + GOOD_INFO + b"e",
        b"d4:infod4:name99999999999:ae" + b"e",
        b"d4:infod4:name500:ae" + b"e",
        b"d4:infod6:lengthi-0e6:pieces0:ee",
        b"d4:infod6:lengthi007e6:pieces0:ee",
        b"d4:infodi1ei2eee",
        b"d4:infod6:piecesee",
        b"d1:a" + b"l" * 100 + b"e" * 100 + b"e",
        b"d1:a" + b"l" * 100_000 + b"e",
    ],
)
def test_what_is_no_torrent(data: bytes) -> None:
    with pytest.raises(Reasoned) as caught:
        from_metainfo(data)
    assert caught.value.reason == "bad_torrent"


def test_a_bomb_of_empty_lists_is_refused_in_bounded_work() -> None:
    with pytest.raises(Reasoned, match="too many"):
        from_metainfo(b"d1:al" + b"le" * 3_000_000 + b"ee")


def test_a_trailing_line_end_is_forgiven() -> None:
    plain = b"d4:info" + GOOD_INFO + b"e"
    assert from_metainfo(plain + b"\r\n") == from_metainfo(plain)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_an_answer_or_our_error(data: bytes) -> None:
    for text in (data, b"d4:info" + data + b"e", b"d" + data):
        try:
            from_metainfo(text)
        except Reasoned as error:
            assert error.reason == "bad_torrent"


_values = st.recursive(
    st.integers(-(10**18), 10**18) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.binary(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def _encode(value: object) -> bytes:
    match value:
        case int():
            return b"i%de" % value
        case bytes():
            return b"%d:%s" % (len(value), value)
        case list():
            return b"l" + b"".join(map(_encode, value)) + b"e"
        case dict():
            return b"d" + b"".join(_encode(k) + _encode(v) for k, v in sorted(value.items())) + b"e"
    raise AssertionError(value)


@settings(max_examples=100, deadline=None)
@given(_values, st.binary(max_size=10))
def test_the_walk_ends_exactly_where_the_value_ends(value: object, after: bytes) -> None:
    data = _encode(value)
    assert bencode.end_of(data + after, 0) == len(data)
    for cut in range(len(data)):
        with pytest.raises(Reasoned):
            bencode.end_of(data[:cut], 0)


def test_members_and_scalars() -> None:
    data = b"d1:ai-5e1:b3:xyze"
    found, end = bencode.members(data, 0)
    assert end == len(data)
    assert bencode.integer(data, found[b"a"]) == -5
    assert bencode.text(data, found[b"b"]) == b"xyz"
    with pytest.raises(Reasoned):
        bencode.integer(data, found[b"b"])
    with pytest.raises(Reasoned):
        bencode.text(data, found[b"a"])


def test_ten_megabytes_of_pieces_are_one_token() -> None:
    info = b"d4:name1:a6:pieces%d:" % (10 << 20) + b"p" * (10 << 20) + b"e"
    assert from_metainfo(b"d4:info" + info + b"e").v1
