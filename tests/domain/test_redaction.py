"""URLs as they may be shown."""

from __future__ import annotations

import ada_url
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.domain.policy.redaction import safe_field, safe_source, safe_text, safe_url, says_all, without_login


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.example/x.pdf", "https://a.example/x.pdf"),
        ("https://u:CANARY@a.example/x", "https://***@a.example/x"),
        ("https://a.example/x?page=2&X-Amz-Signature=CANARY", "https://a.example/x?page=2&X-Amz-Signature=***"),
        ("https://a.example/x?token=CANARY#CANARY", "https://a.example/x?token=***"),
        ("https://a.example/x;jsessionid=CANARY?y=1", "https://a.example/x;jsessionid=***?y=1"),
        ("https://a.example/x?CANARYCANARYCANARYCANARY", "https://a.example/x?***"),
        ("https://a.example/x?sv=2020&sig=CANARY&se=1", "https://a.example/x?sv=2020&sig=***&se=1"),
    ],
)
def test_shown(url: str, shown: str) -> None:
    assert safe_url(url) == shown


def test_in_a_text() -> None:
    assert safe_text("cannot get 'https://u:CANARY@h/x?key=CANARY' now") == "cannot get 'https://***@h/x?key=***' now"
    assert safe_text("plain") == "plain"


@given(st.text(max_size=50), st.text(max_size=50))
def test_userinfo_never_shows(before: str, after: str) -> None:
    for separator in "/?#":
        before = before.replace(separator, "")
    assert "CANARY" not in safe_url(f"https://{before}CANARY@host/{after.replace('CANARY', '')}")


@pytest.mark.parametrize(
    ("magnet", "shown"),
    [
        ("magnet:?xt=urn:btih:" + "a" * 40, "magnet:?xt=urn:btih:" + "a" * 40),
        ("MAGNET:?xt.1=urn:btih:A&dn=The+Book&xl=5", "MAGNET:?xt.1=urn:btih:A&dn=The+Book&xl=5"),
        (
            "magnet:?xt=urn:btih:A&tr=https%3A%2F%2Fu%3Ap%40t.org%3A8443%2Fkey%2Fannounce",
            "magnet:?xt=urn:btih:A&tr=https://t.org:8443/***",
        ),
        ("magnet:?xt=urn:btih:A&tr.1=udp://t.org:80", "magnet:?xt=urn:btih:A&tr.1=udp://t.org:80/***"),
        ("magnet:?tr=http://t%1b[2J/x&x.pe=1.2.3.4:5&key", "magnet:?tr=***&x.pe=***&key=***"),
    ],
)
def test_a_magnet_link_keeps_what_it_is_and_not_whom_it_asks_with_what_key(magnet: str, shown: str) -> None:
    assert safe_url(magnet) == shown
    assert safe_source(magnet) == shown
    assert safe_text(f"from {magnet} it came") == f"from {shown if magnet[0] == 'm' else magnet} it came"


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30))
def test_no_field_of_a_magnet_link_but_its_identity_is_shown(text: str) -> None:
    assert "CANARY" not in safe_url(f"magnet:?xt=urn:btih:A&tr=http://t/{text.replace('&', '')}CANARY")


def test_a_members_key_in_a_path_is_hidden_where_torrents_come_from() -> None:
    url = "https://t.org/rss/download/12/0123456789abcdef0123456789abcdef/a.torrent?passkey=x&id=7"
    assert safe_source(url) == "https://t.org/rss/download/12/***/a.torrent?passkey=***&id=7"
    assert safe_source("file:///home/a1b2c3d4e5f6a1b2c3d4e5f6/a.torrent").endswith("f6/a.torrent")
    assert safe_source("https://t.org/a-book-by-somebody.torrent") == "https://t.org/a-book-by-somebody.torrent"


LONG = "https://a.example/" + "x" * 3_000 + "?page=2"


def test_a_url_is_whole_unless_a_limit_cuts_it_visibly() -> None:
    assert safe_url(LONG) == LONG
    assert safe_url(LONG + "&token=CANARY") == LONG + "&token=***"
    assert safe_url(LONG, 300) == LONG[:299] + "…"
    assert safe_source(LONG) == LONG
    assert safe_text(f"at {LONG}", limit=None) == f"at {LONG}"
    assert len(safe_text(f"at {LONG}")) < 500, "a message stays short"


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://a.example/x?page=2", True),
        ("https://a.example/x#part", True),
        ("https://a.example/x?token=CANARY", False),
        ("https://u:CANARY@a.example/x", False),
    ],
)
def test_whether_a_shown_url_asks_for_the_same(url: str, *, same: bool) -> None:
    assert says_all(url) is same


@pytest.mark.parametrize(
    "url",
    [
        "http:\\\\u:CANARY@h\\x",
        "http:u:CANARY@h/x",
        "http:///u:CANARY@h/x",
        "https:/\\u:CANARY@h/x",
        " http://u:CANARY@h/x",
        "\x01HTTP:u:CANARY@h/x",
        "ht\ttp://u:CAN\nARY@h/x",
        "http://u:CANARY@x@h/y",
        "sftp://u:CANARY@h/x",
        "ftp:u:CANARY@h/x",
        "https://h/x?%74oken=CANARY",
        "https://h/x?to%6ben=CANARY",
        "https://h/x?a=1;token=CANARY",
        "https://h/x?next=/x?token=CANARY",
        "https://h/x?next=%2Fx%3Ftoken%3DCANARY",
        "https://h/x?next=https%3A%2F%2Fu%3ACANARY%40h%2Fx",
        "https://h/x?next=https%253A%252F%252Fu%253ACANARY%2540h",
        "https://h/x?st=CANARY&e=1",
        "https://h/x?k=CANARY",
        "https://h/x?a=1#token=CANARY",
        "https://h/download/token/CANARY123/file.pdf",
        "https://h/apikey=CANARY123/file.pdf",
    ],
)
def test_secrets_are_found_where_the_parser_finds_them(url: str) -> None:
    assert "CANARY" not in safe_url(url).replace("\n", "")
    assert "#" in url or not says_all(url)
    assert "CANARY" not in safe_text(f"cannot get {url.translate({9: '', 10: '', 1: '', 32: ''})} now")
    assert safe_field(url) != url


@pytest.mark.parametrize(
    "url",
    [
        "https://h/x?page=2&sort=title&t=12",
        "https://h/search?q=a;b=c",
        "https://h/tokens/list",
        "https://h/authors/smith-2019/papers",
        "https://h/a:b@c.pdf",
        "https://h/x?q=name%40example.org",
        "https://h/redirect?to=https%3A%2F%2Fother%2Fx%3Fpage%3D2",
    ],
)
def test_what_is_not_a_secret_is_shown(url: str) -> None:
    assert safe_url(url) == url


@given(
    st.text("htps:/\\@u?#. \t\n%C", max_size=30), st.sampled_from(["http:", "https:", "HtTp:", "ftp:", "wss:", "sftp:"])
)
def test_what_the_parser_takes_for_a_login_never_shows(text: str, scheme: str) -> None:
    url = f"{scheme}{text}CANARY@h/"
    try:
        parsed = ada_url.URL(url)
    except ValueError:
        return
    if "CANARY" in parsed.password + parsed.username:
        assert "CANARY" not in safe_url(url)
        assert "CANARY" not in without_login(url)
