"""`add`: plan from lists; bad lines have numbers, the rest goes on, adding again is harmless."""

from __future__ import annotations

import gzip
import json

from tests.cli.conftest import Box


def test_new_known_and_refused_are_told(box: Box) -> None:
    path = box.write("list.txt", "https://a.example/1\nnonsense\nhttps://a.example/2\nhttps://a.example/1\n")

    first = box("add", path, "--json")
    again = box("add", path)

    (bad,) = first.of("refused")
    (summary,) = first.of("summary")
    planned = first.of("planned")
    assert [(line["url"], line["created"], line["status"]) for line in planned] == [
        ("https://a.example/1", True, "pending"),
        ("https://a.example/2", True, "pending"),
        ("https://a.example/1", False, "pending"),
    ]
    assert planned[0]["job_id"] == planned[2]["job_id"]
    assert (bad["source"], bad["line"]) == (str(path), 2)
    assert "nonsense" in bad["message"]
    assert (summary["new"], summary["known"], summary["refused"]) == (2, 1, 1)
    assert first.code == again.code == 3
    assert again.stdout == "0 new, 3 known, 1 refused\n"
    assert f"{path}:2: not a URL" in again.stderr
    assert box.counts() == {"pending": 2}


def test_lists_from_stdin_and_of_several_formats(box: Box) -> None:
    lines = box.write("a.jsonl", json.dumps({"url": "https://a.example/1", "work_id": "w"}))
    table = box.write("b.csv", "url,priority\nhttps://a.example/2,5\n")
    packed = box.write("c.gz", gzip.compress(b"https://a.example/3\n"))

    ran = box("add", lines, table, packed, "-", stdin=b"https://a.example/4\thttps://b.example/4\n  out=x\n").ok()

    assert ran.stdout == "4 new, 0 known, 0 refused\n"


def test_checksum_lists_need_a_base_url(box: Box) -> None:
    path = box.write("SHA256SUMS", f"{'ab' * 32}  file.bin\n")

    refused = box("add", path)

    assert refused.code == 2
    assert "--base-url" in refused.stderr
    assert box("add", path, "--base-url", "https://a.example/").ok().stdout == "1 new, 0 known, 0 refused\n"


def test_a_bag_brings_its_checksums(box: Box) -> None:
    box.write("manifest-sha256.txt", f"{'ab' * 32}  data/x\n")
    path = box.write("fetch.txt", "https://a.example/x 12 data/x\n")

    box("add", path).ok()

    assert box.counts() == {"pending": 1}


def test_dry_run_reads_and_plans_nothing(box: Box) -> None:
    path = box.write("list.txt", "https://a.example/1\nnonsense\n")

    ran = box("add", path, "--dry-run", "--json")

    assert ran.code == 3
    assert ran.of("summary")[0]["readable"] == 1
    assert not box.depot.exists()


def test_what_is_no_list_changes_nothing(box: Box) -> None:
    for path, word in [
        (box.home / "missing.txt", "no such file"),
        (box.home, "is a directory"),
        (box.write("page.html", "<!DOCTYPE html><p>"), "HTML page"),
        (box.write("x.bin", b"\0\1\2"), "binary file"),
        (box.write("x.parquet", b"PAR1 broken"), "Parquet file is damaged"),
    ]:
        ran = box("add", path)
        assert ran.code == 2, path
        assert word in ran.stderr
    assert box("add").code == 2


def test_an_empty_list_is_no_error(box: Box) -> None:
    assert box("add", "-", stdin=b"").ok().stdout == "0 new, 0 known, 0 refused\n"
