"""A list of plain URLs is read in one go, and is the same list."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longshore.domain.identity.plain_urls import MAX_PLAIN, are_plain, plain_key
from longshore.domain.identity.requests import download_request, plain_request
from longshore.lists import fast_urls, read_list
from longshore.lists.detect_format import recognise
from longshore.lists.fast_urls import plain_urls

STEADY = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
URL = "https://a.example/1"
# Lines on both sides of the line: what is plain, and what anybody could mistake for it.
LINES = st.sampled_from(
    [
        URL,
        "http://127.0.0.1:8080/x?y=z",
        "https://b.example/%20x",
        "",
        "# a comment",
        "#",
        "#\ttab, \x7f",
        "# a\x0burl,other",
        "# not ASCII: ä",
        "#\0",
        " https://a.example/indented",
        "  out=x.pdf",
        "https://a.example/1\thttps://b.example/1",
        "https://a.example/1\r",
        "https://A.example/",
        "https://a.example/x#y",
        "https://xn--bcher-kva.example/",
        "2101.00001",
        "url,name",
        "{",
        "<metalink>",
        "\ufeffhttps://a.example/bom",
        f"https://a.example/{'x' * MAX_PLAIN}",
    ]
)


@STEADY
@given(st.lists(LINES, max_size=6), st.booleans())
def test_whatever_is_read_in_one_go_is_what_the_reader_gives(lines: list[str], ended: bool) -> None:
    text = "\n".join(lines) + ("\n" if ended else "")
    with tempfile.NamedTemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        urls = plain_urls(file.name)
        if urls is None:
            return
        assert recognise(text.encode()) == "urls"
        with open(file.name, "rb") as stream:
            assert list(read_list(stream)) == [download_request(url) for url in urls]


@pytest.mark.parametrize("text", [f"{URL}\n", URL, f"# mine\n\n{URL}\n#\n", f"\n{URL}\n\n"])
def test_comments_and_blank_lines_do_not_hinder(tmp_path: Path, text: str) -> None:
    path = tmp_path / "list"
    path.write_text(text)

    assert plain_urls(str(path)) == [URL]


@given(st.lists(st.sampled_from([URL, "https://A.example/", "https://xn--bcher-kva.example/", "ftp://a.example/"])))
def test_many_are_plain_when_each_is(urls: list[str]) -> None:
    assert are_plain(urls) == all(plain_request(url) is not None for url in urls)


def test_the_key_of_a_plain_url_is_its_job_s() -> None:
    assert plain_key(URL) == download_request(URL).key


def test_what_is_no_plain_file_is_not_even_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening one for reading would let its writer begin

    assert plain_urls(str(tmp_path / "pipe")) is None
    assert plain_urls(str(tmp_path)) is None
    assert plain_urls(str(tmp_path / "absent")) is None
    assert plain_urls("a\0b") is None


def test_a_very_long_list_is_read_as_it_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "list"
    path.write_text(f"{URL}\n" * 3)
    monkeypatch.setattr(fast_urls, "LARGEST", 2 * len(URL))

    assert plain_urls(str(path)) is None
