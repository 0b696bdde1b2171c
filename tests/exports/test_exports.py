"""Exports: what is written reads back equal, names cannot leave their directory, nothing needs memory."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import subprocess
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longshore.domain.file_names import safe_name
from longshore.errors import BadInput, BlobDamaged
from longshore.exports import directory_formats, manifest
from longshore.exports.file_names import Namer
from longshore.exports.manifest_rows import COLUMNS, TABLE_COLUMNS, ManifestRow, as_dict
from longshore.exports.public_urls import Published
from longshore.exports.summary import figures
from longshore.exports.used_names import UsedNames

BODIES = [b"one", b"two", b"three"]


def row(number: int, **changes: object) -> ManifestRow:
    body = BODIES[number % len(BODIES)]
    base = ManifestRow(
        job_id=f"job-{number}",
        job_type="download",
        status="completed",
        stage="INDEXED",
        url=f"https://example.org/papers/{number}.pdf",
        work_id=f"W{number}",
        source_ref=None,
        artifact_id=f"a-{number}",
        sha256=hashlib.sha256(body).hexdigest(),
        size_bytes=len(body),
        content_type="application/pdf",
        name=None,
        reason=None,
        message=None,
        attempts=1,
        created_at=1_700_000_000_000_000,
        completed_at=1_700_000_001_000_000,
        facts={"resume_decision": "no_part"},
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def rows(count: int = 3) -> Iterator[ManifestRow]:
    return (row(n) for n in range(count))


def place(entry: ManifestRow, path: Path) -> None:
    path.write_bytes(next(body for body in BODIES if hashlib.sha256(body).hexdigest() == entry.sha256))


def test_jsonl_reads_back_equal() -> None:
    out = io.BytesIO()
    assert manifest.write_jsonl(rows(), out) == 3
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [as_dict(entry) for entry in rows()]


def test_csv_has_every_column_and_no_formula() -> None:
    out = io.BytesIO()
    manifest.write_csv(iter([row(0, name="=cmd()", url="https://example.org/a,b\n")]), out)
    (read,) = csv.DictReader(io.StringIO(out.getvalue().decode()))
    assert tuple(read) == TABLE_COLUMNS
    assert read["name"] == "'=cmd()"
    assert json.loads(read["facts"]) == {"resume_decision": "no_part"}


def test_parquet_reads_back_equal(tmp_path: Path) -> None:
    with open(tmp_path / "m.parquet", "wb") as out:
        assert manifest.write_parquet(rows(12_000), out) == 12_000
    table = pq.read_table(tmp_path / "m.parquet")
    assert table.num_rows == 12_000
    assert table.column("job_id")[11_999].as_py() == "job-11999"
    assert table.column("size_bytes")[0].as_py() == 3


def test_no_column_is_a_pointer() -> None:
    """Where bytes lie never leaves the service: no export has a field for it."""
    assert not [name for name in COLUMNS if "pointer" in name or "path" in name]


def test_sums_are_what_coreutils_checks(tmp_path: Path) -> None:
    names = ["plain.pdf", "with\nnewline", "back\\slash"]
    entries = [row(n) for n in range(3)]
    for entry, name in zip(entries, names, strict=True):
        place(entry, tmp_path / name)
    with open(tmp_path / "SHA256SUMS", "wb") as out:
        manifest.write_sums(iter(entries), out, lambda entry: names[entries.index(entry)])
    checked = subprocess.run(
        ["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_failures_are_a_list_that_can_be_added() -> None:
    out = io.BytesIO()
    failed = row(1, status="failed", sha256=None, reason="http_404")
    assert manifest.write_failures(iter([failed, row(2, url=None)]), out) == 1
    assert json.loads(out.getvalue())["url"] == failed.url


def test_a_bag_is_complete_and_its_tags_are_summed(tmp_path: Path) -> None:
    bag = tmp_path / "bag"
    assert directory_formats.write_bag(rows(), bag, place, made_at=1_700_000_000_000_000) == 3
    listed = dict(line.split("  ", 1)[::-1] for line in (bag / "manifest-sha256.txt").read_text().splitlines())
    held = {f"data/{p.name}": hashlib.sha256(p.read_bytes()).hexdigest() for p in (bag / "data").iterdir()}
    assert listed == held
    assert "Payload-Oxum: 11.3" in (bag / "bag-info.txt").read_text()
    for line in (bag / "tagmanifest-sha256.txt").read_text().splitlines():
        digest, name = line.split("  ", 1)
        assert digest == hashlib.sha256((bag / name).read_bytes()).hexdigest()
    with pytest.raises(BadInput):
        directory_formats.write_bag(rows(), bag, place, made_at=0)


def test_a_bag_to_be_fetched_names_every_url(tmp_path: Path) -> None:
    directory_formats.write_bag(rows(), tmp_path / "bag", None, made_at=1_700_000_000_000_000)
    lines = (tmp_path / "bag" / "fetch.txt").read_text().splitlines()
    assert lines[0] == "https://example.org/papers/0.pdf 3 data/0.pdf"
    assert not list((tmp_path / "bag" / "data").iterdir())


def test_a_crate_describes_each_file(tmp_path: Path) -> None:
    directory_formats.write_crate(rows(), tmp_path / "crate", place, made_at=1_700_000_000_000_000, name="papers")
    graph = json.loads((tmp_path / "crate" / "ro-crate-metadata.json").read_text())["@graph"]
    root = next(item for item in graph if item["@id"] == "./")
    assert {part["@id"] for part in root["hasPart"]} == {item["@id"] for item in graph if item["@type"] == "File"}


def test_a_link_tree_keeps_two_files_of_one_name_apart(tmp_path: Path) -> None:
    entries = [row(0, name="paper.pdf"), row(1, name="Paper.pdf"), row(0, name="paper.pdf")]
    assert directory_formats.link_tree(iter(entries), tmp_path / "tree", place) == 2
    assert len({p.read_bytes() for p in (tmp_path / "tree").iterdir()}) == 2


@pytest.mark.parametrize("template", ["/etc/{name}", "../{name}", "a/../{name}", "{path}"])
def test_a_template_stays_inside(template: str) -> None:
    with pytest.raises(BadInput):
        Namer(template)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.text(max_size=300))
def test_a_name_is_one_component(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    name = safe_name(text)
    assert name not in {"", ".", ".."}
    assert "/" not in name
    assert "\0" not in name
    assert len(name.encode()) <= 200


def test_a_long_export_needs_no_memory() -> None:
    """Rows are written as they come: the peak of 5,000 rows is far below what they weigh together."""

    class Nowhere(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            return len(data)  # type: ignore[arg-type]

    tracemalloc.start()
    try:
        manifest.write_jsonl(rows(5_000), Nowhere())  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 400_000


def test_figures_of_many_downloads() -> None:
    """Shares and percentiles are those of the rows, to within the width of a bucket."""
    resumed = {"resume_decision": "resume", "resume_reason": "ok", "fsync_ms": 10.0, "stream_bytes": 5}
    many = [row(n, facts={"resume_decision": "fresh", "resume_reason": "no_part", "fsync_ms": 1.0}) for n in range(90)]
    many += [row(n, facts=resumed) for n in range(9)]
    many += [row(1, status="failed", sha256=None, facts=resumed)]
    gathered = figures(iter(many)).as_dict(damaged=0)
    assert (gathered["downloads"], gathered["completed"], gathered["resumed"]) == (100, 99, 10)
    assert gathered["resumed_success"] == 0.9
    assert gathered["resume_reasons"] == {"no_part": 90, "ok": 10}
    assert gathered["fsync_ms_p50"] == pytest.approx(1.0, rel=0.06)
    assert gathered["fsync_ms_p95"] == pytest.approx(10.0, rel=0.06)
    assert figures(iter([])).as_dict(damaged=0)["fsync_ms_p95"] is None


def test_names_that_are_taken_lie_beside_memory_and_come_back_in_order() -> None:
    taken = UsedNames()
    names = [f"name-{number % 50_000:06}" for number in range(60_000)]

    first = [taken.first(name) for name in names]

    assert first == [number < 50_000 for number in range(60_000)]
    assert list(taken) == names[:50_000]
    assert taken.owner("other", "a") == "a"
    assert taken.owner("other", "b") == "a"


SECRET = "https://files.example/1.pdf?token=CANARY"


def handed_on(tmp_path: Path, form: str, url: str, *, no_secrets: bool) -> tuple[str, Published]:
    entries, published = iter([row(1, url=url, work_id=url), row(2)]), Published(no_secrets)
    if form == "crate":
        directory_formats.write_crate(entries, tmp_path / form, place, made_at=0, name="papers", published=published)
        return (tmp_path / form / "ro-crate-metadata.json").read_text(), published
    directory_formats.write_bag(entries, tmp_path / form, None, made_at=0, published=published)
    return (tmp_path / form / "fetch.txt").read_text(), published


@pytest.mark.parametrize("url", ["https://me:CANARY@files.example/1.pdf", "https:\\\\me:CANARY@files.example/1.pdf"])
@pytest.mark.parametrize("no_secrets", [False, True])
@pytest.mark.parametrize("form", ["fetch-bag", "crate"])
def test_a_package_to_be_handed_on_has_no_login(tmp_path: Path, form: str, url: str, *, no_secrets: bool) -> None:
    text, published = handed_on(tmp_path, form, url, no_secrets=no_secrets)
    assert "CANARY" not in text
    assert "me:" not in text
    assert "files.example/1.pdf" in text
    assert published.secrets == 0


@pytest.mark.parametrize("form", ["fetch-bag", "crate"])
def test_a_secret_in_a_package_is_counted_or_not_there(tmp_path: Path, form: str) -> None:
    text, published = handed_on(tmp_path / "told", form, SECRET, no_secrets=False)
    assert SECRET in text
    assert published.secrets == 1
    text, published = handed_on(tmp_path / "hidden", form, SECRET, no_secrets=True)
    assert "CANARY" not in text
    assert ("files.example/1.pdf?token=***" in text) is (form == "crate")
    assert published.secrets == 0
    names = (tmp_path / "hidden" / form / "manifest-sha256.txt") if form == "fetch-bag" else None
    assert names is None or len(names.read_text().splitlines()) == 1, "a bag names no file that it cannot fetch"


@pytest.mark.parametrize("form", ["crate", "bag"])
def test_a_package_that_fails_leaves_no_description(tmp_path: Path, form: str) -> None:
    def failing(row: ManifestRow, path: Path) -> None:
        raise BlobDamaged("ab" * 32)

    with pytest.raises(BlobDamaged):
        if form == "crate":
            directory_formats.write_crate(rows(), tmp_path / "x", failing, made_at=0, name="papers")
        else:
            directory_formats.write_bag(rows(), tmp_path / "x", failing, made_at=0)
    assert [path for path in (tmp_path / "x").iterdir() if path.is_file()] == []


@pytest.mark.parametrize(
    "url", ["http:///u:CANARY@h.example", "http:\\\\u:CANARY@h.example\\x", "https://u:CANARY@h.example/x"]
)
def test_no_file_name_of_a_package_holds_a_login(url: str) -> None:
    for template in ("{name}", "{host}/{work_id}-{name}"):
        for one in (row(1, url=url, name=None, work_id=url), row(2, url=url, name=url, work_id=f"from {url}")):
            assert "CANARY" not in Namer(template)(one)
