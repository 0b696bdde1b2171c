"""`transfer.decode`: encoded bodies are refused, or stored decoded, whole and bounded, with both hashes."""

from __future__ import annotations

import base64
import gzip
import hashlib
import zlib
from pathlib import Path

import pytest

from longshore.errors import Reasoned
from longshore.transfer import FetchRequest, Memory
from longshore.transfer.segmented import fetch_in_pieces
from tests.cli.conftest import LOOPBACK
from tests.support.origin import Behaviour, Origin, Thing, answer, stamped
from tests.support.program import invoke
from tests.support.settings import tuned
from tests.transfer.wire import fetch, reason, within

BODY = stamped(1, 300_000)
GZIP = gzip.compress(BODY)
DECODED = tuned(decode="store_decoded", stall_s=60, max_bytes=64 << 20)
CODINGS = {"gzip": GZIP, "x-gzip": GZIP, "GZIP": GZIP, "deflate": zlib.compress(BODY)}


def encoded(data: bytes, coding: str = "gzip", length: int | None = None, **headers: str) -> Behaviour:
    further = {name.replace("_", "-"): value for name, value in headers.items()}
    declared = len(data) if length is None else length
    head = {"Content-Encoding": coding, "Content-Length": str(declared), "ETag": '"v1"', **further}
    return answer(200, head, data, then="keep" if length is None else "hangup")


@pytest.mark.parametrize("coding", CODINGS)
def test_a_body_is_decoded_and_both_hashes_are_known(origin: Origin, coding: str) -> None:
    data = CODINGS[coding]
    url = origin.add("/a", encoded(data, coding))
    assert reason(url) == "content_encoding"  # without being asked to
    got, body = fetch(url, settings=DECODED)
    assert body == BODY
    assert got.head.decoding is not None
    facts = got.head.decoding.facts()
    assert facts["encoded_sha256"] == hashlib.sha256(data).hexdigest()
    assert (facts["encoded_bytes"], facts["content_encoding"]) == (len(data), coding.lower())
    assert got.head.length is None
    assert got.head.validators.etag is None
    assert all(request.headers["accept-encoding"] == "identity" for request in origin.requests)


def test_several_members_and_an_empty_body(origin: Origin) -> None:
    two = gzip.compress(BODY[:1000]) + gzip.compress(BODY[1000:])
    assert fetch(origin.add("/two", encoded(two)), settings=DECODED)[1] == BODY
    assert fetch(origin.add("/none", encoded(b"")), settings=DECODED)[1] == b""


@pytest.mark.parametrize(
    ("behaviour", "word"),
    [
        (encoded(GZIP[:-1]), "truncated"),
        (encoded(GZIP[:1000]), "truncated"),
        (encoded(GZIP[:-9], length=len(GZIP)), "truncated"),
        (encoded(b"not gzip at all"), "content_encoding"),
        (encoded(GZIP[:-8] + bytes(8)), "content_encoding"),  # a wrong checksum
        (encoded(GZIP + b"trailing"), "content_encoding"),
        (encoded(GZIP, "br"), "content_encoding"),
        (encoded(GZIP, "gzip, gzip"), "content_encoding"),
        (encoded(zlib.compress(BODY)[2:-4], "deflate"), "content_encoding"),  # without zlib's checksum
    ],
)
def test_what_is_not_whole_or_not_known_fails(origin: Origin, behaviour: Behaviour, word: str) -> None:
    assert reason(origin.add("/a", behaviour), settings=DECODED) == word


def test_a_bomb_ends_early(origin: Origin) -> None:
    bomb = gzip.compress(bytes(60 << 20))
    assert len(bomb) < 100_000
    sink = Memory()
    with pytest.raises(Reasoned) as caught:
        url = origin.add("/bomb", encoded(bomb))
        within(lambda transfer: transfer.fetch(FetchRequest(url), sink), settings=DECODED)
    assert caught.value.reason == "too_large"
    assert sum(map(len, sink.pieces)) < 20 << 20


def test_the_largest_body_is_that_of_the_decoded_bytes(origin: Origin) -> None:
    settings = tuned(decode="store_decoded", max_bytes=200_000)
    assert reason(origin.add("/a", encoded(GZIP[:])), settings=settings) == "too_large"


def test_declared_digests_are_those_of_the_encoded_bytes(origin: Origin) -> None:
    right = base64.b64encode(hashlib.sha256(GZIP).digest()).decode()
    wrong = base64.b64encode(hashlib.sha256(BODY).digest()).decode()
    url = origin.add("/right", encoded(GZIP, Repr_Digest=f"sha-256=:{right}:"))
    assert fetch(url, settings=DECODED)[1] == BODY
    url = origin.add("/wrong", encoded(GZIP, Repr_Digest=f"sha-256=:{wrong}:"))
    assert reason(url, settings=DECODED) == "digest_mismatch"


def test_such_a_body_comes_as_one_stream(origin: Origin) -> None:
    url, sink = origin.add("/a", encoded(gzip.compress(stamped(1, 4 << 20), 1), Accept_Ranges="bytes")), Memory()
    within(lambda transfer: fetch_in_pieces(transfer, FetchRequest(url), sink, connections=4), settings=DECODED)
    assert sink.body == stamped(1, 4 << 20)
    assert len(origin.requests) == 1


def test_a_part_of_an_encoded_body_is_not_joined(origin: Origin) -> None:
    head = {"Content-Encoding": "gzip", "Content-Range": f"bytes 10-99/{len(GZIP)}", "Content-Length": "90"}
    url = origin.add("/a", answer(206, head, GZIP[10:100]))
    assert reason(FetchRequest(url, start=10), settings=DECODED) == "bad_range"


def test_a_depot_stores_the_decoded_bytes_and_starts_over_after_a_cut(origin: Origin, tmp_path: Path) -> None:
    large = stamped(1, 3 << 20)
    whole = gzip.compress(large, 1)
    url = origin.add("/a", encoded(whole[: len(whole) // 2], length=len(whole)), encoded(whole))
    env = LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot")}
    out = tmp_path / "out"
    invoke("get", url, "-o", out, "--set", "transfer.decode=store_decoded", env=env).ok()
    assert out.read_bytes() == large
    assert len(origin.requests) == 2
    assert all("range" not in request.headers for request in origin.requests)
    (job,) = invoke("jobs", "--status", "completed", "--json", env=env).ok().lines
    shown = invoke("show", job["job_id"], "--json", env=env).ok().stdout
    assert hashlib.sha256(whole).hexdigest() in shown
    assert '"content_encoding": "gzip"' in shown


def test_the_origins_own_objects_are_untouched(origin: Origin) -> None:
    got, body = fetch(origin.add("/plain", Thing(BODY)), settings=DECODED)
    assert body == BODY
    assert got.head.decoding is None
