"""Lists as input: bad lines are skipped and kept, works without a file are counted, columns are guessed."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable

import pytest
from backports import zstd

from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing


def works(*pdf_urls: str | None) -> str:
    lines = [
        {"id": f"https://openalex.org/W{n}", "locations": [{"pdf_url": url}] if url else []}
        for n, url in enumerate(pdf_urls)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def urls(box: Box) -> list[str]:
    return sorted(line["url"] for line in box("jobs", "--json").ok().lines)


def test_get_skips_bad_lines_and_says_how_many(box: Box, origin: Origin) -> None:
    good = [origin.add(f"/{n}", Thing(b"%d" % n)) for n in range(3)]
    listed = box.write("list", "\n".join([good[0], *(f"nonsense {n}" for n in range(30)), *good[1:]]))

    ran = box("get", "-i", listed)

    assert ran.code == 3
    assert box.counts() == {"completed": 3}
    assert f"{listed}:2: " in ran.stderr
    assert f"{listed}:21: " in ran.stderr
    assert f"{listed}:22: " not in ran.stderr
    assert "10 more" in ran.stderr
    assert "30 refused" in ran.stderr
    told = box("get", "-i", listed, "--json")
    assert told.code == 3
    assert len(told.of("refused")) == 30
    assert told.of("summary")[0]["refused"] == 30
    assert box("get", "-i", listed, "--dry-run").code == 3


def test_works_without_a_file_are_no_error(box: Box, origin: Origin) -> None:
    listed = box.write("works", works(origin.add("/1", Thing(b"%PDF-1.4 1")), None, None))

    added = box("add", listed, "--json").ok()
    got = box("get", "-i", listed).ok()

    assert added.of("summary")[0]["without_file"] == 2
    assert added.of("summary")[0]["refused"] == 0
    assert "2 without a file" in box("add", listed).ok().stdout
    assert "2 without a file" in got.stderr


@pytest.mark.parametrize(
    "lines",
    [
        ["https://a.example/1", "nonsense", "\thttp//x"],
        ["https://a.example/1", "nonsense\n  out=x.pdf", "https://a.example/3"],
        ['{"url": "https://a.example/1"}', '{"url": "nonsense", "name": "ä"}', "{"],
        ["title;url", "One;https://a.example/1", '"Two; ""quoted""\nline";nonsense', "#3;oops"],
    ],
)
def test_refused_lines_can_be_corrected_and_given_in_again(box: Box, lines: list[str]) -> None:
    listed = box.write("list", "\n".join(lines) + "\n")
    rejects = box.home / "rejects"

    ran = box("add", listed, "--rejects", rejects)
    text = rejects.read_text()

    assert ran.code == 3
    refused = [line for line in text.splitlines() if line.startswith("# refused: ")]
    assert len(refused) == int(ran.stdout.split(" refused")[0].split()[-1])
    assert all(f"{listed}:" in line for line in refused)
    assert "nonsense" in text
    again = box("add", rejects, "--rejects", rejects)  # nothing was corrected: the same lines, from this file
    assert again.code == 3
    assert again.stdout.startswith("0 new, 0 known")
    assert [line for line in rejects.read_text().splitlines() if not line.startswith("#")] == [
        line for line in text.splitlines() if not line.startswith("#")
    ]
    rejects.write_text(text.replace("nonsense", "https://a.example/fixed"))
    box("add", rejects)
    assert "https://a.example/fixed" in urls(box)


def test_all_refused_lines_are_written_and_an_old_file_is_emptied(box: Box, origin: Origin) -> None:
    many = box.write("many", "".join(f"bad {n}\n" for n in range(1_500)))
    rejects = box.home / "rejects"

    assert box("get", "-i", many, "--rejects", rejects).code == 3
    assert sum(line.startswith("bad ") for line in rejects.read_text().splitlines()) == 1_500
    box("get", origin.add("/1", Thing(b"1")), "--rejects", rejects).ok()
    assert rejects.read_text() == ""


def test_lists_of_several_formats_have_no_common_rejects(box: Box) -> None:
    lists = [box.write("a", "https://a.example/1\n"), box.write("b", '{"url": "https://a.example/2"}\n')]

    ran = box("add", *lists, "--rejects", box.home / "rejects")

    assert ran.code == 2
    assert "one format" in ran.stderr
    assert not box.depot.exists()
    assert not (box.home / "rejects").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("title,year,pdf_url,doi\nx,2020,https://a.example/1,10.1234/x\n", ["https://a.example/1"]),
        ("Title;Download URL\nx;https://a.example/1\n", ["https://a.example/1"]),
        ("link,pdf_url\nhttps://page.example/,https://a.example/1\n", ["https://a.example/1"]),
        ("link,pdf_url\nhttps://page.example/,\n", ["https://page.example/"]),
        ('{"title": "x", "PDF-URL": "https://a.example/1"}\n', ["https://a.example/1"]),
        ('{"link": "https://a.example/1", "n": 1}\n', ["https://a.example/1"]),
        ("title,doi\nx,10.1234/ABC\n", ["https://doi.org/10.1234/ABC"]),
        ("10.1234/abc\ndoi:10.1234/a<b>\n", ["https://doi.org/10.1234/a%3Cb%3E", "https://doi.org/10.1234/abc"]),
        ('{"url": "doi:10.1234/abc"}\n', ["https://doi.org/10.1234/abc"]),
    ],
)
def test_the_column_of_the_url_is_guessed_and_dois_are_urls(box: Box, text: str, expected: list[str]) -> None:
    box("add", box.write("list", text)).ok()

    assert urls(box) == expected


def test_a_doi_is_the_id_of_its_work(box: Box) -> None:
    box("add", box.write("list", "doi:10.1234/ABC\n")).ok()
    box("add", box.write("list2", "https://doi.org/10.9999/x\n")).ok()

    assert [line["work_id"] for line in box("jobs", "--json").ok().lines] == [
        "https://doi.org/10.9999/x",  # a URL is what it was before: its key does not change
        "doi:10.1234/abc",
    ]


@pytest.mark.parametrize(
    "text", ["a,here,url\n1,https://a.example/1,https://b.example/\n", '{"HERE": "https://a.example/1"}']
)
def test_the_column_of_the_url_can_be_named(box: Box, text: str) -> None:
    box("add", box.write("list", text), "--url-column", "Here").ok()
    missing = box("add", box.write("list2", '{"url": "https://a.example/1"}'), "--url-column", "there")

    assert urls(box) == ["https://a.example/1"]
    assert missing.code == 3
    assert "'there'" in missing.stderr


def test_an_empty_pdf_url_is_a_work_without_a_file(box: Box) -> None:
    ran = box("add", box.write("list", "title,pdf_url,doi\na,https://a.example/1,10.1234/a\nb,,10.1234/b\n")).ok()

    assert "1 new" in ran.stdout
    assert "1 without a file" in ran.stdout
    assert box("add", box.write("list2", 'url,title\n"",x\n')).code == 3  # as ever


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zstd.compress])
def test_lists_may_be_compressed(box: Box, compress: Callable[[bytes], bytes]) -> None:
    text = b"".join(b"https://a.example/%d\n" % n for n in range(5_000))

    box("add", box.write("list", compress(text[:40_000]) + compress(text[40_000:]))).ok()
    box("add", "-", stdin=compress(text)).ok()

    assert box.counts() == {"pending": 5_000}


def test_zstd_without_its_package_says_what_to_do(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr("longshore.lists.compression.import_module", without)

    ran = box("add", box.write("list", zstd.compress(b"https://a.example/1\n")))

    assert ran.code == 2
    assert "longshore[zstd]" in ran.stderr


@pytest.mark.parametrize(
    "page", ["<a href='https://a.example/1'>x</a>", "<!-- x -->\n<!doctype html><p>", "<head>\n<br>"]
)
def test_a_web_page_is_not_a_list(box: Box, page: str) -> None:
    for words in (["add"], ["get", "-i"]):
        ran = box(*words, box.write("page.html", page))

        assert ran.code == 2
        assert "HTML page" in ran.stderr


def test_an_export_into_a_directory_says_that_it_is_a_file(box: Box) -> None:
    box("add", box.write("list", "https://a.example/1\n")).ok()
    (box.home / "dir").mkdir()

    ran = box("export", "csv", "-o", box.home / "dir")

    assert ran.code == 2
    assert f"{box.home}/dir/manifest.csv" in ran.stderr


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_failures_come_in_the_format_that_was_asked_for(box: Box, origin: Origin, form: str) -> None:
    url = origin.url("/missing?q==1")
    listed = json.dumps({"url": url, "sha256": "0" * 64, "name": "=cmd", "work_id": "w", "artifact_id": "-a"})
    assert box("get", "-i", box.write("list", listed + "\n")).code == 3

    target = box.home / f"failures.{form}"
    box("export", "failures", "--format", form, "-o", target).ok()
    again = box("add", target, "--json").ok()

    assert again.of("planned")[0]["created"] is False
    if form == "csv":
        assert target.read_text().startswith("url,work_id,")
    assert box("export", "sums", "--format", form).code == 2
