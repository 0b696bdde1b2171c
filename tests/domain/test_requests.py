"""What a person hands in: canonical, checked, keyed, or refused with a word that helps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longshore.domain.identity.keys import host_of, job_key
from longshore.domain.identity.plain_urls import MAX_PLAIN
from longshore.domain.identity.requests import DIGEST_LENGTHS, download_request, plain_request
from longshore.domain.model import Expect
from longshore.errors import BadInput, LongshoreError, NotAUrl

STEADY = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
URL = "https://example.org/a.pdf"


def test_a_url_alone_stands_for_its_work_and_artifact() -> None:
    request = download_request("HTTPS://Example.org/a.pdf#page=2")
    assert (request.url, request.canonical_url) == ("HTTPS://Example.org/a.pdf#page=2", URL)
    assert (request.work_id, request.source_ref, request.host) == (URL, URL, "example.org")
    assert request.key == job_key(URL, URL, URL)
    assert request.expect == Expect()


def test_the_triple_is_the_seeds_key() -> None:
    request = download_request(URL, work_id="w-123", artifact_id="a-456")
    assert request.key == "7a37ddd41ded299e62a162b707b1c0f229195c84515518f3239ad3fa8019b7fd"
    assert (request.work_id, request.source_ref) == ("w-123", "a-456")


def test_what_is_expected_does_not_change_the_key() -> None:
    plain = download_request(URL)
    assert download_request(URL, sha256="ab" * 32, size_bytes=7, priority=3, name="n").key == plain.key


def test_digests_are_lower_case_and_sha256_is_its_own_field() -> None:
    request = download_request(URL, digests=[("SHA-256", "AB" * 32), ("MD5", " " + "CD" * 16)])
    assert request.expect.sha256 == "ab" * 32
    assert request.expect.digests == (("md5", "cd" * 16),)


@pytest.mark.parametrize(("algorithm", "length"), DIGEST_LENGTHS.items())
def test_a_digest_has_its_length(algorithm: str, length: int) -> None:
    download_request(URL, digests=[(algorithm, "a" * length)])
    for bad in ("a" * (length - 1), "a" * (length + 1), "g" * length, ""):
        with pytest.raises(BadInput):
            download_request(URL, digests=[(algorithm, bad)])


def test_an_unknown_digest_is_refused() -> None:
    with pytest.raises(BadInput, match="crc32"):
        download_request(URL, digests=[("crc32", "ab" * 4)])


@pytest.mark.parametrize("url", ["", "x", "/a", "//example.org/a", "http://", "http://a b/", "https://exa mple.org/"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(BadInput):
        download_request(url)


@pytest.mark.parametrize(
    "url", ["https://example.org/\n", "https://exam\tple.org/", "https://example.org/\x7f", " \x01"]
)
def test_control_characters_are_refused_not_dropped(url: str) -> None:
    with pytest.raises(NotAUrl):
        download_request(url)


def test_credentials_do_not_reach_the_error() -> None:
    with pytest.raises(NotAUrl) as caught:
        download_request("https://user:s3cret@exa mple.org/?token=s3cret")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 1.5},
        {"priority": True},
        {"priority": 10**9},
        {"size_bytes": -1},
        {"size_bytes": "7"},
        {"size_bytes": True},
        {"work_id": 7},
        {"work_id": "a\0"},
        {"artifact_id": "\ud800"},
        {"artifact_id": "x" * 1_000_000},
        {"mirrors": [""]},
        {"mirrors": ["nonsense"]},
        {"headers": [("Bad Name", "x")]},
        {"headers": [("X-A", "a\r\nX-B: b")]},
        {"headers": [("", "x")]},
        {"sha256": "abc"},
        {"name": "a\0b"},
        {"media_type": 7},
    ],
    ids=str,
)
def test_bad_fields_get_a_typed_error(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        download_request(URL, **fields)


@STEADY
@given(st.text())
def test_any_text_is_a_request_or_our_error(text: str) -> None:
    try:
        request = download_request(text)
    except LongshoreError:
        return
    assert request.canonical_url
    assert "#" not in request.canonical_url
    assert download_request(request.canonical_url).key == request.key


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example",
        "https://user:pass@a.example:8443/x?y#z",
        "http://a.example:80/",
        "http://[::1]:8080/x",
        "http://a.example?x=http://b.example/",
        "ftp://a@b@c.example/x",
        "foo://host?x=/y",
        "foo:bar://x",
        "foo:/.//not-a-host/",
        "mailto:a@b.example",
        "data:,//x",
        "file:///etc/x",
        "http://0x7f.1/",
        "http://bücher.example/ä",
        "sftp://h:22",
    ],
)
def test_the_host_is_the_parsers(url: str) -> None:
    """Reading the host out of the canonical URL gives what the parser gives."""
    request = download_request(url)
    assert request.canonical_url is not None
    assert request.host == host_of(request.canonical_url)


# Pieces of URLs on both sides of the line between "needs no parser" and "needs one".
_SCHEMES = st.sampled_from(["http", "https", "HTTP", "ftp", "file", "httpss", "ws"])
_HOSTS = st.sampled_from(
    [
        "example.org",
        "a.b-c.d_e.org",
        "x",
        "Example.org",
        "1.2.3.4",
        "1.2.3",
        "256.1.1.1",
        "01.2.3.4",
        "0x7f.1",
        "a.1",
        "xn--bcher-kva.ch",
        "xn--a",
        "a..b",
        "a.",
        ".a",
        "bücher.ch",
        "a%41",
        "u:p@a",
        "[::1]",
        "-a.b-",
        "a_b",
        "1.a",
        "a.0xg",
        "127.0.0.1",
        "255.255.255.255",
        "a.2b",
        "localhost",
        "",
        "a^b",
        "a|b",
        "a b",
        "\xad.org",
        "a\u200b.org",
    ]
)
_PORTS = st.sampled_from(
    ["", ":", ":80", ":443", ":8080", ":0", ":08", ":65535", ":65536", ":64999", ":99999", ":a", ":1"]
)
_PATHS = st.lists(
    st.sampled_from(["/", "a", "b.pdf", ".", "..", "%2e", "%2E%2e", "%41", "%zz", "%", "'", '"', "^", "|", "\\", "~", "\u00e9", " ", "{"])
    | st.text(st.characters(codec="ascii"), max_size=3),
    max_size=6,
).map("".join)  # fmt: skip
_TAILS = st.sampled_from(["", "?", "?a=b&c", "?a'b", "?%zz", "?a[0]=1", "#x", "?q#f", "?a b", "?\u00e9", "?a/b?c:d@e"])


@settings(STEADY, max_examples=2_000)
@given(_SCHEMES, _HOSTS, _PORTS, st.sampled_from(["/", ""]), _PATHS, _TAILS)
def test_the_short_way_gives_what_the_long_way_gives(
    scheme: str, host: str, port: str, slash: str, path: str, tail: str
) -> None:
    url = f"{scheme}://{host}{port}{slash}{path}{tail}"
    plain = plain_request(url)
    if plain is not None:
        assert plain == download_request(url)


@settings(STEADY, max_examples=300)
@given(st.text(max_size=40))
def test_the_short_way_takes_nothing_that_the_long_way_refuses(text: str) -> None:
    for url in (text, f"https://{text}", f"http://a.org/{text}"):
        if (plain := plain_request(url)) is not None:
            assert plain == download_request(url)


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "http://127.0.0.1:43211/1.bin",
        "https://a-b.example.org:8443/x/y%20z/(1)?a=b&c=%2F",
        "https://repo.example.org/bitstream/1/2/a;b=c,d'e.pdf",
    ],
)
def test_usual_urls_go_the_short_way(url: str) -> None:
    assert plain_request(url) == download_request(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://xn--bcher-kva.ch/",
        "http://a.org:80/",
        "https://a.org:443/",
        "http://a.org/./b",
        "http://a.org/%2e/b",
        "http://1.2.3/",
        "http://A.org/",
        "http://a.org",
        "http://a.org/#b",
        "http://a.org/\n",
    ],
)
def test_what_needs_a_parser_gets_one(url: str) -> None:
    assert plain_request(url) is None


def test_a_very_long_url_gets_the_parser_too() -> None:
    assert plain_request(f"http://a.org/{'x' * MAX_PLAIN}") is None


@pytest.mark.parametrize("digests", [[("md5", "0" * 32), ("md5", "1" * 32)], [("sha256", "0" * 64)]])
def test_two_digests_of_one_kind_must_agree(digests: list[tuple[str, str]]) -> None:
    with pytest.raises(BadInput, match="two different"):
        download_request("http://a.example/", sha256="1" * 64, digests=digests)
    download_request("http://a.example/", sha256="0" * 64, digests=[("SHA-256", "0" * 64)])


@pytest.mark.parametrize(
    "name", ["Content-Length", "transfer-encoding", "HOST", "Connection", "Range", "If-None-Match", "Expect"]
)
def test_framing_and_our_own_headers_are_not_a_jobs(name: str) -> None:
    with pytest.raises(BadInput, match="set by the program"):
        download_request("http://a.example/", headers=[(name, "5")])
