"""Verdicts on bodies: types by the first KiB, pages instead of files, lengths and digests."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.domain.model import Expect
from longshore.domain.transfer.content_checks import (
    SNIFF_BYTES,
    content_type,
    is_challenge,
    length_fault,
    page_instead,
    sniff,
    type_mismatch,
    unverified_length,
)
from longshore.domain.transfer.declared_digests import algorithms, declared_digests, digest_fault
from longshore.domain.transfer.ranges import ContentRange
from longshore.domain.transfer.response_head import Head
from longshore.errors import Reasoned

PAGE = b"<!DOCTYPE html><html><head><title>Hello</title></head><body>hi</body></html>"
LOGIN = b'<html><title>Sign in</title><form><input name=p type="password"></form></html>'
CLOUDFLARE = b"<!DOCTYPE html><html><head><title>Just a moment...</title></head></html>"
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n"


# These bodies are parameters of tests: the same in every worker, so nothing in them may tell the time.


def packed(*names: str, stored_first: bytes | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        if stored_first is not None:
            archive.writestr(zipfile.ZipInfo("mimetype"), stored_first)
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), b"x")
    return buffer.getvalue()


def tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("body", "ext", "media_type"),
    [
        (PDF, ".pdf", "application/pdf"),
        (b"\n\n\xef\xbb\xbfjunk " * 50 + PDF, ".pdf", "application/pdf"),
        (b"\0" * 1000 + PDF, ".pdf", "application/pdf"),
        (packed("a.txt"), ".zip", "application/zip"),
        (packed(), ".zip", "application/zip"),
        (packed(stored_first=b"application/epub+zip"), ".epub", "application/epub+zip"),
        (packed("[Content_Types].xml", "word/document.xml"), ".docx", None),
        (packed("xl/workbook.xml"), ".xlsx", None),
        (gzip.compress(b"x", mtime=0), ".gz", "application/gzip"),
        (tar(), ".tar", "application/x-tar"),
        (b"\x89PNG\r\n\x1a\n....", ".png", "image/png"),
        (b"\xff\xd8\xff\xe0....", ".jpg", "image/jpeg"),
        (b"GIF89a....", ".gif", "image/gif"),
        (b"RIFF....WEBPVP8 ", ".webp", "image/webp"),
        (PAGE, ".html", "text/html"),
        (b"\xef\xbb\xbf \n<HTML>", ".html", "text/html"),
        (b"<!-- a comment --><!doctype HTML>", ".html", "text/html"),
        (b'<?xml version="1.0"?><!DOCTYPE html><html xmlns="x">', ".html", "text/html"),
        (b"<html>%PDF-1.4</html>", ".html", "text/html"),
        (b'<?xml version="1.0"?><feed/>', ".xml", "application/xml"),
        (b'<?xml version="1.0"?><svg xmlns="x"/>', ".svg", "image/svg+xml"),
        (b'{"a": 1}', ".json", "application/json"),
        (b"[1, 2]", ".json", "application/json"),
        (b"hello\nworld\n", ".txt", "text/plain"),
        ("schön".encode(), ".txt", "text/plain"),
        ("ü".encode() * 2000, ".txt", "text/plain"),
        (b"x" + "ü".encode() * 2000, ".txt", "text/plain"),
        (b"\x00\x01\x02\x03", "", "application/octet-stream"),
        (b"\xfc\xfd latin", "", "application/octet-stream"),
        (b"", "", "application/x-empty"),
        (b"abc", ".txt", "text/plain"),
    ],
)
def test_sniff(body: bytes, ext: str, media_type: str | None) -> None:
    sniffed = sniff(body)
    assert sniffed.ext == ext
    assert media_type is None or sniffed.media_type == media_type


@given(st.binary(max_size=3000))
def test_a_type_depends_on_the_first_kib_only(body: bytes) -> None:
    assert sniff(body) == sniff(body[:SNIFF_BYTES])


@pytest.mark.parametrize(
    ("body", "url", "declared", "expected", "reason"),
    [
        (PAGE, "http://a/x.pdf", "application/pdf", None, "html_page"),
        (PAGE, "http://a/x.pdf", "text/html", None, "html_page"),
        (PAGE, "http://a/x.pdf?download=1", None, None, "html_page"),
        (PAGE, "http://a/download", "application/pdf", None, "html_page"),
        (PAGE, "http://a/download", "image/png", None, "html_page"),
        (PAGE, "http://a/download", "text/html", "application/pdf", "html_page"),
        (LOGIN, "http://a/x.pdf", "text/html", None, "blocked_challenge"),
        (CLOUDFLARE, "http://a/x.pdf", "application/pdf", None, "blocked_challenge"),
        (CLOUDFLARE, "http://a/x", "text/html", "application/pdf", "blocked_challenge"),
        (PAGE, "http://a/", "text/html", None, None),
        (PAGE, "http://a/page", None, None, None),
        (PAGE, "http://a/page.html", "text/html", None, None),
        (PAGE, "http://a/page.php", "text/html; charset=utf-8", None, None),
        (PAGE, "http://a/raw", "text/plain", None, None),
        (PAGE, "http://a/raw", "application/octet-stream", None, None),
        (PAGE, "http://a/x.pdf", "text/html", "text/html", None),
        (LOGIN, "http://a/login", "text/html", None, None),
        (PDF, "http://a/x.pdf", "text/html", None, None),
        (b"random\0", "http://a/x.pdf", "application/pdf", None, None),
        (b"", "http://a/x.pdf", "application/pdf", None, None),
    ],
)
def test_page_instead(body: bytes, url: str, declared: str | None, expected: str | None, reason: str | None) -> None:
    fault = page_instead(body, urls=[url], declared=declared, expected=expected)
    assert (fault.reason if fault else None) == reason


@pytest.mark.parametrize(
    ("body", "expected", "fits"),
    [
        (PDF, "application/pdf", True),
        (b"junk" + PDF, "application/pdf", True),
        (b"\0random", "application/pdf", False),
        (b"abc", "application/pdf", False),
        (b"", "application/pdf", False),
        (b"\0random", None, True),
        (PDF, "image/png", False),
        (packed("a"), "application/epub+zip", True),
        (packed(stored_first=b"application/epub+zip"), "application/zip", True),
        (gzip.compress(b"", mtime=0), "application/x-gzip", True),
        (b"\xff\xd8\xff", "image/jpg", True),
        (b"\xff\xd8\xff", "image/*", True),
        (PDF, "image/*", False),
        (b"a,b\n1,2\n", "text/csv", True),
        (PDF, "text/csv", False),
        (b'<?xml version="1.0"?><rss/>', "application/rss+xml", True),
        (b"\0\1", "application/x-netcdf", True),
        (PDF, "application/x-netcdf", False),
        (PDF, "application/octet-stream", True),
        (PAGE, "text/html; charset=utf-8", True),
    ],
)
def test_expected_types(body: bytes, expected: str | None, fits: bool) -> None:
    fault = type_mismatch(body, expected)
    assert (fault is None) is fits
    assert fault is None or fault.reason == "type_mismatch"


def test_recorded_type() -> None:
    assert content_type(PDF, "text/html") == "application/pdf"
    assert content_type(b"a,b\n", "text/csv; charset=utf-8") == "text/csv"
    assert content_type(b"\0", "application/x-netcdf") == "application/x-netcdf"
    assert content_type(b"\0", "application/pdf") == "application/octet-stream", "the bytes deny it"
    assert content_type(b"\0", None) == "application/octet-stream"
    assert content_type(b"\0", "nonsense") == "application/octet-stream"


def test_challenges_among_refusals() -> None:
    assert is_challenge(403, {"cf-mitigated": "challenge"}, b"")
    assert is_challenge(503, {}, CLOUDFLARE)
    assert not is_challenge(404, {}, CLOUDFLARE)
    assert not is_challenge(403, {}, PAGE)
    assert not is_challenge(429, {}, b"slow down")


def _head(
    status: int = 200, length: int | None = None, span: ContentRange | None = None, *, delimited: bool = True
) -> Head:
    return Head(status, "u", {}, length=length, content_range=span, delimited=delimited)


@pytest.mark.parametrize(
    ("head", "size", "received", "expect", "reason"),
    [
        (_head(length=10), 10, 10, Expect(), None),
        (_head(length=10), 9, 9, Expect(), "truncated"),
        (_head(length=10), 11, 11, Expect(), "length_mismatch"),
        (_head(), 5, 5, Expect(), None),
        (_head(), 5, 5, Expect(size_bytes=6), "size_mismatch"),
        (_head(length=5), 5, 5, Expect(size_bytes=5), None),
        (_head(206, 6, ContentRange(4, 9, 10)), 10, 6, Expect(), None),
        (_head(206, 3, ContentRange(4, 6, 10)), 7, 3, Expect(), "truncated"),
        (_head(206, None, ContentRange(4, 9, 10)), 12, 8, Expect(), "length_mismatch"),
        (_head(length=0), 0, 0, Expect(), None),
    ],
)
def test_lengths(head: Head, size: int, received: int, expect: Expect, reason: str | None) -> None:
    fault = length_fault(head, size=size, received=received, expect=expect)
    assert (fault.reason if fault else None) == reason


def test_unverified_length() -> None:
    assert unverified_length(_head(delimited=False)) and not unverified_length(_head(length=1))


BODY = b"hello"
SHA256 = hashlib.sha256(BODY).hexdigest()
SHA512 = hashlib.sha512(BODY).hexdigest()


def _field(name: str, hexadecimal: str) -> str:
    return f"{name}=:{base64.b64encode(bytes.fromhex(hexadecimal)).decode()}:"


def test_declared_digests() -> None:
    both = {"repr-digest": _field("sha-256", SHA256) + ", " + _field("sha-512", SHA512)}
    assert declared_digests(both) == {"sha256": SHA256, "sha512": SHA512}
    old = {"digest": "SHA-256=" + base64.b64encode(bytes.fromhex(SHA256)).decode()}
    assert declared_digests(old) == {"sha256": SHA256}
    for rubbish in ("", "sha-256", "sha-256=:!:", "sha-256=:aGk=:", "unixsum=:MTI=:", ",,,", "sha-256=aGk="):
        assert declared_digests({"repr-digest": rubbish}) == {}


def test_digests_are_compared() -> None:
    computed = {"sha256": SHA256, "sha512": SHA512}
    assert digest_fault(Expect(sha256=SHA256), {}, computed) is None
    wrong = "0" * 64
    for expect, headers in (
        (Expect(sha256=wrong), {}),
        (Expect(digests=(("sha512", "0" * 128),)), {}),
        (Expect(), {"repr-digest": _field("sha-256", wrong)}),
    ):
        fault = digest_fault(expect, headers, computed)
        assert isinstance(fault, Reasoned) and fault.reason == "digest_mismatch"
    assert algorithms(Expect(digests=(("md5", "0" * 32),)), {"repr-digest": _field("sha-512", SHA512)}) == {
        "md5",
        "sha512",
    }
    assert algorithms(Expect(sha256=SHA256), {}) == frozenset()
