"""Names of files: what a header, a URL and a media type say about them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longshore.domain.file_names import disposition_name, extension_of, safe_name, split_extension, url_name


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ('attachment; filename="paper.pdf"', "paper.pdf"),
        ("attachment; filename=paper.pdf", "paper.pdf"),
        ('inline; FileName = "a b.pdf" ; size=3', "a b.pdf"),
        ("attachment; filename*=UTF-8''na%C3%AFve%20paper.pdf", "naïve paper.pdf"),
        ("attachment; filename=\"plain.pdf\"; filename*=UTF-8''%E2%82%AC.pdf", "€.pdf"),
        ("attachment; filename*=iso-8859-1'en'%A3.pdf; filename=x.pdf", "£.pdf"),
        ("attachment; filename*=UTF-8''%FF%FE; filename=x.pdf", "x.pdf"),
        ("attachment; filename*=koi8-r''x; filename=y.pdf", "y.pdf"),
        (r'attachment; filename="a \"quoted\" name.pdf"', "a _quoted_ name.pdf"),
        ('attachment; filename="a;b=c.pdf"; x=y', "a;b=c.pdf"),
        ('attachment; note="filename=no.pdf"; filename="yes.pdf"', "yes.pdf"),
        ('attachment; filename="na\u00c3\u00afve.pdf"', "naïve.pdf"),
        ('filename="x.pdf"', "x.pdf"),
        ('attachment; filename="../../etc/passwd"', "passwd"),
        (r'attachment; filename="C:\dir\file.pdf"', "file.pdf"),
        ("attachment; filename*=UTF-8''..%2F..%2Fx.pdf", "x.pdf"),
        ('attachment; filename=".."', None),
        ('attachment; filename=""', None),
        ('attachment; filename="/"', None),
        ("attachment; filename=.bashrc", "bashrc"),
        ('attachment; filename="x\x1b[31m.pdf"', "x_[31m.pdf"),
        ("attachment", None),
        ("", None),
        (None, None),
        ('attachment; filename="unclosed.pdf', None),
        ('attachment; filename="a.pdf", attachment; filename="b.pdf"', "a.pdf"),
    ],
)
def test_the_name_of_a_content_disposition(header: str | None, name: str | None) -> None:
    assert disposition_name(header) == name


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.text(st.characters(max_codepoint=255), max_size=80))
def test_no_header_gives_a_path(value: str) -> None:
    for header in (value, f'attachment; filename="{value}"', f"attachment; filename*=UTF-8''{value}"):
        name = disposition_name(header)
        assert name is None or (name == safe_name(name) and "/" not in name and name not in {"", ".", ".."})


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://a.example/file.pdf;jsessionid=8A7.node1", "file.pdf"),
        ("https://a.example/file.pdf;jsessionid=8A7;v=2?x=y;z=1", "file.pdf"),
        ("https://a.example/a;b.pdf", "a;b.pdf"),
        ("https://a.example/dir/x%20y.pdf?z=1#f", "x y.pdf"),
        ("https://a.example/get/..%2Fx.pdf", "x.pdf"),
        ("https://a.example/x%3Bjsessionid=1.pdf", "x;jsessionid=1.pdf"),
        ("https://a.example/", ""),
        ("https://a.example", ""),
        ("https://a.example/..", ""),
        (None, ""),
    ],
)
def test_the_name_of_a_url(url: str | None, name: str) -> None:
    assert url_name(url) == name


@pytest.mark.parametrize(
    ("name", "media_type", "ext"),
    [
        ("2101.12345", "application/pdf", "pdf"),
        ("2101.12345v2", "application/pdf", "pdf"),
        ("77", "application/pdf", "pdf"),
        ("paper.PDF", "application/pdf", "PDF"),
        ("download.php", "application/pdf", "pdf"),
        ("download.php", "application/zip", "zip"),
        ("photo.jpeg", "image/jpeg", "jpeg"),
        ("photo.jpe", "image/png", "png"),
        ("corpus.tar.gz", "application/gzip", "gz"),
        ("corpus.tgz", "application/gzip", "tgz"),
        ("table.tsv", "text/plain; charset=utf-8", "tsv"),
        ("script.pl", "text/plain", "pl"),
        ("data.001", "application/octet-stream", ""),
        ("data.bin", "application/octet-stream", "bin"),
        ("x.7z", "application/x-7z-compressed", "7z"),
        ("x.pdb", "chemical/x-pdb", "pdb"),
        ("x.v3", None, ""),
        ("x", None, ""),
        (".gz", None, ""),
    ],
)
def test_the_extension_is_that_of_the_type_never_a_number(name: str, media_type: str | None, ext: str) -> None:
    assert extension_of(name, media_type) == ext


def test_a_stem_keeps_its_numbers() -> None:
    assert split_extension("2101.12345") == ("2101.12345", "")
    assert split_extension("paper.v2.pdf") == ("paper.v2", "pdf")
