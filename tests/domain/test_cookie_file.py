"""Cookie files: where a cookie is sent, until when, and which lines are refused."""

from __future__ import annotations

import pytest

from longshore.domain.transfer.cookie_file import LONGEST, MOST, parse_cookies
from longshore.errors import BadInput

NOW = 1_700_000_000
TEXT = """# Netscape HTTP Cookie File
a.example\tFALSE\t/\tFALSE\t0\thost\t1

.b.example\tTRUE\t/\tFALSE\t2000000000\twide\t2
#HttpOnly_.b.example\tTRUE\t/deep\tTRUE\t0\tsecure\t3
b.example\tFALSE\t/\tFALSE\t1600000000\told\t4
c.example\tFALSE\t/deep\tFALSE\t0\tsame\tdeep
c.example\tFALSE\t/\tFALSE\t0\tsame\troot
127.0.0.1\tTRUE\t/\tFALSE\t0\taddress\t5
"""


@pytest.mark.parametrize(
    ("url", "pairs"),
    [
        ("http://a.example/x", {"host": "1"}),
        ("http://A.example:8080/x", {"host": "1"}),
        ("http://sub.a.example/", {}),
        ("http://b.example/", {"wide": "2"}),
        ("http://sub.b.example/deep/x", {"wide": "2"}),
        ("https://sub.b.example/deep/x", {"secure": "3", "wide": "2"}),
        ("https://b.example/deep", {"secure": "3", "wide": "2"}),
        ("https://b.example/deeper", {"wide": "2"}),
        ("http://notb.example/", {}),
        ("http://c.example/deep/x?/", {"same": "deep"}),
        ("http://c.example/?x=/deep/", {"same": "root"}),
        ("http://127.0.0.1/", {"address": "5"}),
        ("http://1.127.0.0.1/", {}),
        ("ftp://a.example/x", {}),
        ("not a url", {}),
    ],
)
def test_a_cookie_is_sent_where_it_belongs(url: str, pairs: dict[str, str]) -> None:
    assert parse_cookies(TEXT, "f").pairs(url, NOW) == pairs


def test_an_expired_cookie_is_not_sent() -> None:
    table = parse_cookies(TEXT, "f")
    assert "old" in table.pairs("http://b.example/", 1_500_000_000)
    assert "wide" not in table.pairs("http://b.example/", 2_000_000_000)


GOOD = "a.example\tFALSE\t/\tFALSE\t0\tn\tv"


@pytest.mark.parametrize(
    "line",
    [
        "a.example FALSE / FALSE 0 n v",
        "a.example\tFALSE\t/\tFALSE\t0\tn\tv\tmore",
        "\tFALSE\t/\tFALSE\t0\tn\tv",
        ".\tTRUE\t/\tFALSE\t0\tn\tv",
        "com\tTRUE\t/\tFALSE\t0\tn\tv",
        ".com\tTRUE\t/\tFALSE\t0\tn\tv",
        "a.example/x\tFALSE\t/\tFALSE\t0\tn\tv",
        "a.example\tperhaps\t/\tFALSE\t0\tn\tv",
        "a.example\tFALSE\tpath\tFALSE\t0\tn\tv",
        "a.example\tFALSE\t/\tFALSE\tsoon\tn\tv",
        "a.example\tFALSE\t/\tFALSE\t0\tn\tsecret; other=1",
        "a.example\tFALSE\t/\tFALSE\t0\tn\tsecret\rX: y",
        "a.example\tFALSE\t/\tFALSE\t0\tn\tsecret\x00",
        "a.example\tFALSE\t/\tFALSE\t0\tn=m\tsecret",
        "a.example\tFALSE\t/\tFALSE\t0\t\t",
        GOOD + "x" * LONGEST,
    ],
)
def test_a_hostile_line_is_refused_by_its_number_and_never_quoted(line: str) -> None:
    with pytest.raises(BadInput, match=r"^f:3: ") as caught:
        parse_cookies(f"# comment\n{GOOD}\n{line}\n", "f")
    assert "secret" not in str(caught.value)


def test_a_file_with_too_many_cookies_is_refused_and_a_header_is_bounded() -> None:
    with pytest.raises(BadInput):
        parse_cookies("\n".join([GOOD] * (MOST + 1)), "f")
    many = "\n".join(f"a.example\tFALSE\t/\tFALSE\t0\tn{number}\t{'v' * 1000}" for number in range(100))
    pairs = parse_cookies(many, "f").pairs("http://a.example/", NOW)
    assert 0 < sum(len(name) + len(value) for name, value in pairs.items()) <= LONGEST


def test_a_cookie_does_not_show_itself() -> None:
    assert "v" not in repr(parse_cookies(GOOD, "f")._cookies).replace("…", "")
