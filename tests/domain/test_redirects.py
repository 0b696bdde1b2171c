"""Targets and hops: what is sent, and where a redirect may lead."""

from __future__ import annotations

from dataclasses import replace

import ada_url
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.domain.identity.keys import canonical_url
from longshore.domain.transfer.credentials import Credential, credential_for
from longshore.domain.transfer.job_headers import headers_for
from longshore.domain.transfer.redirects import _any_target, _usual_target, next_target, read_target
from longshore.errors import BadInput, Reasoned


@pytest.mark.parametrize(
    ("raw", "url", "host"),
    [
        ("http://a.example/x?y=1#frag", "http://a.example/x?y=1", "a.example"),
        ("http://A.Example:80/%7Ex/../y?q='%2f", "http://a.example/y?q=%27%2f", "a.example"),
        ("http://a.example/a/../b", "http://a.example/b", "a.example"),
        ("http://a.example/a/%2e%2E/b", "http://a.example/b", "a.example"),
        ("http://a.example/./b/.", "http://a.example/b/", "a.example"),
        ("http://a.example//a/%7e%2f|[x]", "http://a.example//a/%7e%2f|[x]", "a.example"),
        ("http://a.example/b?", "http://a.example/b?", "a.example"),
        ("http://u:p@a.example/b?#x", "http://a.example/b?", "a.example"),
        ("http://a.example/a@b/x", "http://a.example/a@b/x", "a.example"),
        ("http://a.example?@/../x", "http://a.example/?@/../x", "a.example"),
        ("https://a.example:443", "https://a.example/", "a.example"),
        ("https://a.example?q", "https://a.example/?q", "a.example"),
        ("http://a.example:8080/", "http://a.example:8080/", "a.example:8080"),
        ("http://a.example/a b/ü", "http://a.example/a%20b/%C3%BC", "a.example"),
        ("http://a.example\\@b.example/", "http://a.example/@b.example/", "a.example"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/", "xn--bcher-kva.example"),
        ("http://2130706433/", "http://127.0.0.1/", "127.0.0.1"),
        ("http://0x7f.1/", "http://127.0.0.1/", "127.0.0.1"),
        ("http://0177.0.0.1/x", "http://127.0.0.1/x", "127.0.0.1"),
        ("http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "[::ffff:7f00:1]"),
        ("http://１２７.０.０.１/", "http://127.0.0.1/", "127.0.0.1"),
        ("ftp://h.example/a/b.txt", "ftp://h.example/a/b.txt", "h.example"),
        ("sftp://h.example:22/a", "sftp://h.example/a", "h.example"),
    ],
)
def test_what_is_sent(raw: str, url: str, host: str) -> None:
    target = read_target(raw)
    assert (target.url, target.host) == (url, host)


def test_credentials_leave_the_url() -> None:
    target = read_target("http://us%40er:p%3Ass@a.example/x")
    assert target.url == "http://a.example/x"
    assert (target.username, target.password) == ("us@er", "p:ss")
    assert "p:ss" not in repr(target) and "p%3A" not in repr(target)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("file:///etc/passwd", "forbidden_scheme"),
        ("gopher://a.example/", "forbidden_scheme"),
        ("data:text/plain,x", "forbidden_scheme"),
        ("javascript:alert(1)", "forbidden_scheme"),
        ("dict://a.example/", "forbidden_scheme"),
        ("scp://a.example/x", "forbidden_scheme"),
        ("http://", "bad_url"),
        ("nonsense", "bad_url"),
        ("http://a.example/\r\nHost: b", "bad_url"),
        ("http://a.example/\x00", "bad_url"),
        ("http://a b/", "bad_url"),
        ("http://[::1/", "bad_url"),
        ("http://1.2.3.4.5/", "bad_url"),
        ("ftp://h.example/dir/", "bad_url"),
        ("ftp://h.example/", "bad_url"),
        ("ftp://h.example/x%0d%0aDELE%20y", "bad_url"),
        ("ftp://h.example/x;type=a", "bad_url"),
    ],
)
def test_refused(raw: str, reason: str) -> None:
    with pytest.raises(Reasoned) as caught:
        read_target(raw)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("base", "location", "url"),
    [
        ("http://a.example/x/y", "z", "http://a.example/x/z"),
        ("http://a.example/x/y", "/z?q", "http://a.example/z?q"),
        ("http://a.example/x", "//b.example/z", "http://b.example/z"),
        ("http://a.example/x", "https://b.example/z", "https://b.example/z"),
        ("https://a.example/x", "https://b.example/%7e?'", "https://b.example/%7e?%27"),
        ("https://a.example/x", "https://b.example/é".encode().decode("latin-1"), "https://b.example/%C3%A9"),
        ("https://a.example/x", "/caf\xe9?\xe9#\xe9", "https://a.example/caf%E9?%E9"),
        ("https://a.example/x", "//bücher.example/".encode().decode("latin-1"), "https://xn--bcher-kva.example/"),
        ("https://a.example/x/y", "../%2e/z", "https://a.example/z"),
        ("https://a.example/x", "?", "https://a.example/x?"),
    ],
)
def test_followed(base: str, location: str, url: str) -> None:
    assert next_target(read_target(base), location).url == url


@pytest.mark.parametrize(
    "location",
    [
        *("http://b.example/", "file:///etc/passwd", "ftp://b.example/x", "gopher://b/", "data:,x", "javascript:1"),
        *(
            "https://user:pw@b.example/",
            "https://user@b.example/",
            "https://[::1",
            "https://b.example/\x01",
            "sftp://b/x",
        ),
    ],
)
def test_not_followed(location: str) -> None:
    with pytest.raises(Reasoned) as caught:
        next_target(read_target("https://a.example/x"), location)
    assert caught.value.reason == "forbidden_redirect"
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("location", [None, ""])
def test_no_location(location: str | None) -> None:
    with pytest.raises(Reasoned) as caught:
        next_target(read_target("https://a.example/x"), location)
    assert caught.value.reason == "protocol_error"


_NAME = st.from_regex(r"[a-z0-9-]{1,12}(\.[a-z0-9-]{1,8}){0,3}", fullmatch=True)
_REST = st.from_regex(r"(/[ -~]{0,20})?", fullmatch=True)


@given(
    st.sampled_from(["http", "https"]),
    _NAME,
    st.sampled_from(["", ":80", ":443", ":8080", ":0", ":99999", ":080"]),
    _REST,
)
def test_the_quick_reading_is_the_full_one(scheme: str, name: str, port: str, rest: str) -> None:
    raw = f"{scheme}://{name}{port}{rest}"
    quick = _usual_target(raw)
    if quick is not None:
        assert quick == _any_target(raw)


@given(
    st.text(st.characters(codec="utf-8"), max_size=40), st.sampled_from(["http://h.example/", "https://u:p@h:81", ""])
)
def test_what_is_requested_is_what_is_compared(rest: str, start: str) -> None:
    """A request and a job's identity are made of the same bytes, but for credentials."""
    try:
        target, canonical = read_target(start + rest), canonical_url(start + rest)
    except (Reasoned, BadInput):  # refused by either: by identity also what is not in Unicode's normal form C
        return
    if target.scheme in ("http", "https"):
        parsed = ada_url.URL(canonical)
        parsed.username = parsed.password = ""
        assert target.url == parsed.href and target.url.isascii()
        assert read_target(target.url) == replace(target, username=None, password=None)


@given(st.text(st.characters(max_codepoint=255), max_size=40))
def test_any_location_is_a_target_or_a_reason(location: str) -> None:
    try:
        target = next_target(read_target("http://a.example/x"), location)
    except Reasoned as error:
        assert error.reason in ("forbidden_redirect", "protocol_error", "bad_url")
    else:
        assert target.url.isascii() and canonical_url(target.url) == target.url


@given(st.text(max_size=60))
def test_garbage_is_a_target_or_a_reason(raw: str) -> None:
    for text in (raw, "http://" + raw, "ftp://h/" + raw):
        try:
            read_target(text)
        except Reasoned as error:
            assert error.reason in ("bad_url", "forbidden_scheme")


def test_a_bare_name_serves_encrypted_schemes_only() -> None:
    one, two = Credential(token="one"), Credential(token="two")
    table = {"a.example": one, "http://b.example:8080": two}
    assert credential_for(table, "https", "a.example", "a.example") is one
    assert credential_for(table, "https", "a.example:8443", "a.example") is one
    assert credential_for(table, "http", "a.example", "a.example") is None
    assert credential_for(table, "http", "b.example:8080", "b.example") is two
    assert credential_for(table, "http", "b.example", "b.example") is None
    assert "one" not in repr(one)


def test_a_mirror_elsewhere_sees_only_harmless_headers() -> None:
    """A token was given for one origin; the same job's mirror on another host must not get it."""
    given = (("Authorization", "Bearer s3cret"), ("X-Api-Key", "k"), ("Accept", "application/pdf"))
    asked = "https://a.example/file"
    assert headers_for(given, asked, asked) == given
    assert headers_for(given, asked, "https://a.example:443/mirror") == given
    assert headers_for(given, asked, "https://b.example/file") == (("Accept", "application/pdf"),)
    assert headers_for(given, asked, "http://a.example/file") == (("Accept", "application/pdf"),)
