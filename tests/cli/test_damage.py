"""One bit of a stored blob flips: right bytes never lose against it, and wrong ones never leave the store."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import pytest

from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing, status

BODY = random.Random(4).randbytes(70_000)  # seeded: a changed byte must differ from the one it replaces
SHA256 = hashlib.sha256(BODY).hexdigest()
LARGE = random.Random(5).randbytes((3 << 20) + 11)


def blobs(box: Box) -> list[Path]:
    return [path for path in (box.depot / "store").glob("[!.]*/*/??/*") if path.is_file()]


def flip(box: Box) -> None:
    """Flip one bit of the only blob, past the program."""
    [path] = blobs(box)
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 8
    path.chmod(0o600)
    path.write_bytes(bytes(body))
    path.chmod(0o444)


def aside(box: Box) -> list[str]:
    names = os.listdir(box.depot / "store/.staging/quarantine")
    return [name for name in names if not name.endswith(".json")]


def healed(box: Box, body: bytes = BODY) -> None:
    [path] = blobs(box)
    assert path.read_bytes() == body
    assert len(aside(box)) == 1
    assert box("verify").code == 0


@pytest.mark.parametrize("body", [BODY, LARGE, b"x"], ids=["small", "large", "one"])
def test_force_replaces_a_flipped_blob(box: Box, origin: Origin, body: bytes) -> None:
    url = origin.add("/a", Thing(body))
    box("get", url).ok()
    flip(box)
    ran = box.process("get", url, "--force", "-o", box.home / "out").ok()
    assert (box.home / "out").read_bytes() == body
    assert "is damaged (fresh bytes: wrong_hash); it was moved to quarantine" in ran.stderr
    healed(box, body)


def test_another_url_with_the_same_bytes_replaces_a_flipped_blob(box: Box, origin: Origin) -> None:
    box("get", origin.add("/a", Thing(BODY))).ok()
    flip(box)
    box("get", origin.add("/b", Thing(BODY)), "-d", box.home / "out").ok()
    assert (box.home / "out/b").read_bytes() == BODY
    healed(box)


def test_put_replaces_a_flipped_blob(box: Box) -> None:
    source = box.home / "file"
    source.write_bytes(BODY)
    box("put", source).ok()
    flip(box)
    ran = box("put", source, "--json").ok()
    assert not ran.of("held")
    healed(box)
    assert box("put", source, "--json").ok().code == 0
    assert len(aside(box)) == 1


def test_adopt_replaces_a_flipped_blob(box: Box) -> None:
    (box.home / "dir").mkdir()
    (box.home / "dir/file").write_bytes(BODY)
    box("adopt", box.home / "dir").ok()
    flip(box)
    box("adopt", box.home / "dir").ok()
    healed(box)


@pytest.mark.parametrize(
    "how",
    [(), ("--hardlink",), ("--sha256", SHA256), ("--overwrite",)],
    ids=["plain", "hardlink", "sha256", "overwrite"],
)
def test_a_flipped_blob_is_fetched_again_to_be_placed(box: Box, origin: Origin, how: tuple[str, ...]) -> None:
    url = origin.add("/a", Thing(BODY))
    box("get", url).ok()
    flip(box)
    ran = box("get", url, "-o", box.home / "out", *how).ok()
    assert (box.home / "out").read_bytes() == BODY
    assert "damaged" in ran.stderr
    assert len(origin.requests) <= 3
    healed(box)
    assert [name for name in os.listdir(box.home) if name.startswith(".longshore-")] == []


def test_a_flipped_blob_is_fetched_again_for_a_directory(box: Box, origin: Origin) -> None:
    urls = [origin.add("/a", Thing(BODY)), origin.add("/b", Thing(BODY))]
    box("get", *urls).ok()
    flip(box)
    box("get", *urls, "-d", box.home / "out").ok()
    assert {path.name: path.read_bytes() for path in (box.home / "out").iterdir()} == {"a": BODY, "b": BODY}
    healed(box)


def test_a_flipped_blob_never_goes_to_stdout(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing(b"text that can be read\n" * 100))
    box("get", url).ok()
    flip(box)
    ran = box("get", url, "-o", "-").ok()
    assert ran.stdout == "text that can be read\n" * 100
    healed(box, b"text that can be read\n" * 100)


def test_what_cannot_be_fetched_again_is_damage(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY))
    box("get", url).ok()
    flip(box)
    origin.add("/a", status(404))
    ran = box("get", url, "-o", box.home / "out")
    assert ran.code == 5
    assert not (box.home / "out").exists()
    assert blobs(box) == []
    assert len(aside(box)) == 1
    assert [name for name in os.listdir(box.home) if name.startswith(".longshore-")] == []


def test_a_tree_of_a_flipped_blob_is_refused(box: Box, origin: Origin) -> None:
    box("get", origin.add("/a", Thing(BODY))).ok()
    flip(box)
    ran = box("export", "tree", "-o", box.home / "tree")
    assert ran.code == 5
    assert [path for path in (box.home / "tree").rglob("*") if path.is_file()] == []
    assert "missing" in box("verify", "--json").stdout or box("verify").code == 5


def test_a_tree_again_trusts_no_other_bytes_of_its_names(box: Box, origin: Origin) -> None:
    box("get", origin.add("/a", Thing(BODY))).ok()
    box("export", "tree", "-o", box.home / "tree").ok()
    box("export", "tree", "-o", box.home / "tree").ok()
    [file] = (path for path in (box.home / "tree").rglob("*") if path.is_file())
    file.write_bytes(BODY[:-1] + b"?")
    ran = box("export", "tree", "-o", box.home / "tree")
    assert ran.code == 1
    assert "exists already" in ran.stderr


def test_a_backup_again_replaces_a_flipped_copy(box: Box, origin: Origin) -> None:
    box("get", origin.add("/a", Thing(BODY))).ok()
    box("backup", box.home / "copy").ok()
    [path] = (box.home / "copy/store").glob("*/*/??/*")
    path.chmod(0o600)
    path.write_bytes(BODY[:-1] + bytes([BODY[-1] ^ 1]))
    box("backup", box.home / "copy").ok()
    assert path.read_bytes() == BODY


def test_a_lost_blob_is_fetched_again_to_be_placed(box: Box, origin: Origin) -> None:
    """It vanishes between the answer that it is held and its placing: the second name finds nothing."""
    urls = [origin.add("/a", Thing(BODY)), origin.add("/b", Thing(BODY))]
    box("get", *urls).ok()
    flip(box)
    ran = box("get", *urls, "-d", box.home / "out", "--hardlink", "--json").ok()
    assert len(ran.of("placed")) == 2
    assert sum(one.path in {"/a", "/b"} for one in origin.requests) <= 4


def test_what_is_fetched_again_has_its_name_even_with_other_bytes(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY))
    box("get", url).ok()
    flip(box)
    origin.add("/a", Thing(LARGE, etag='"v2"'))
    box("get", url, "-d", box.home / "out").ok()
    assert {path.name: path.read_bytes() for path in (box.home / "out").iterdir()} == {"a": LARGE}


def test_a_backup_of_damaged_and_missing_blobs_says_so(box: Box, origin: Origin) -> None:
    urls = [origin.add(f"/{number}", Thing(BODY + bytes([number]))) for number in range(4)]
    box("get", *urls).ok()
    gone, flipped, directory, _ = sorted(blobs(box))
    gone.unlink()
    flipped.chmod(0o600)
    flipped.write_bytes(b"?" + flipped.read_bytes()[1:])
    directory.unlink()
    directory.mkdir()
    ran = box("backup", box.home / "copy")
    assert ran.code == 5
    assert "1 blob copied" in ran.stderr
    assert "2 damaged, 1 missing" in ran.stderr
    assert f"missing  {gone.name[:64]}" in ran.stdout
    assert f"damaged  {flipped.name[:64]}" in ran.stdout
    again = box("backup", box.home / "copy", "--json")
    assert again.code == 5
    [summary] = again.of("summary")
    assert (summary["damaged"], summary["missing"], summary["there"]) == (2, 1, 1)


@pytest.mark.parametrize("full", [True, False])
def test_a_directory_under_a_blobs_name_is_set_aside(box: Box, origin: Origin, *, full: bool) -> None:
    url = origin.add("/a", Thing(BODY))
    box("get", url).ok()
    [path] = blobs(box)
    path.unlink()
    path.mkdir()
    if full:
        (path / "x").write_text("x")
    box("get", url, "--force", "--max-wait", "10").ok()
    healed(box)
    assert len(aside(box)) == 1
    assert origin.count("/a") <= 3


def test_verify_sets_a_directory_under_a_blobs_name_aside(box: Box, origin: Origin) -> None:
    box("get", origin.add("/a", Thing(BODY))).ok()
    [path] = blobs(box)
    path.unlink()
    path.mkdir()
    (path / "x").write_text("x")
    ran = box("verify")
    assert ran.code == 5
    assert "moved to quarantine" in ran.stdout
    assert len(aside(box)) == 1


def test_a_damaged_blob_is_not_told_as_held_offline(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY))
    box("get", url).ok()
    flip(box)
    ran = box("get", url, "-o", box.home / "out", "--offline")
    assert ran.code == 5
    assert "already held" not in ran.stderr.splitlines()[-1]
    assert "1 held" not in ran.stderr


def test_a_second_file_of_a_blob_is_named_and_moved_away(box: Box, origin: Origin) -> None:
    box("get", origin.add("/a", Thing(BODY))).ok()
    [path] = blobs(box)
    second = path.with_name(path.name + ".pdf")
    second.write_bytes(BODY)
    second.chmod(0o444)
    (finding,) = box("verify", "--full", "--json").of("finding")
    assert (finding["kind"], finding["subject"]) == ("file_unregistered", SHA256)
    (would,) = box("gc", "--dry-run", "--json").ok().of("collected")
    assert (would["sha256"], would["action"]) == (SHA256, "would_quarantine")
    (healed,) = box("reconcile", "--json").ok().of("finding")
    assert (healed["kind"], healed["healed"]) == ("unreferenced_blob", True)
    assert blobs(box) == [path]
    assert box("reconcile", "--json").ok().of("finding") == []  # it stays in quarantine
    box("verify", "--full").ok()


def test_the_last_file_of_a_blob_stays_under_whatever_name(box: Box, origin: Origin) -> None:
    box("get", origin.add("/a", Thing(BODY))).ok()
    [path] = blobs(box)
    path.rename(path.with_name(path.name + ".pdf"))
    box("gc").ok()
    assert len(blobs(box)) == 1


@pytest.mark.parametrize("words", ["verify", "status", "jobs", "get http://127.0.0.1:1/a", "run", "reconcile"])
def test_a_ledger_that_is_gone_is_named_and_no_new_one_is_made(box: Box, words: str) -> None:
    box("put", box.write("mine", "mine")).ok()
    for path in box.depot.glob("ledger.db*"):
        path.unlink()
    ran = box(*words.split())
    assert ran.code == 10
    assert "ledger.db is gone" in ran.stderr
    assert "backup" in ran.stderr
    assert "get URL" not in ran.stderr
    assert not (box.depot / "ledger.db").exists()
    ran = box("doctor", "--json")
    assert [line["status"] for line in ran.of("check") if line["id"] == "ledger"] == ["fail"]
    assert ran.code != 0


def test_damaged_facts_of_a_part_stop_no_command(box: Box, origin: Origin) -> None:
    box("get", origin.add("/a", Thing(BODY))).ok()
    part = box.depot / "store/.staging/parts/default/default/job/1"
    part.mkdir(parents=True)
    (part / "body").write_bytes(b"x")
    for damaged in ("[" * 300_000, "[]", "{", '{"v": 1, "job_id": []}'):
        (part / "facts.json").write_text(damaged)
        for words in ("reconcile", "verify --full", "run"):
            ran = box(*words.split())
            assert "nternal" not in ran.stderr + ran.stdout, words
            assert ran.code in (0, 5)


def test_what_is_lost_is_said_everywhere_until_it_is_back(box: Box, origin: Origin) -> None:
    lost, kept = origin.add("/lost.bin", Thing(BODY)), origin.add("/kept.bin", Thing(LARGE))
    box("get", lost).ok()
    flip(box)
    box("get", kept).ok()
    assert box("verify").code == 5

    (line,) = box("status", "--json").ok().lines
    assert line["held"] == {
        "artifacts": 1, "bytes": len(LARGE), "saved_bytes": 0, "missing_artifacts": 1, "missing_bytes": len(BODY)
    }  # fmt: skip
    sentence = "1 artifact lost or damaged, 68.4 KiB: `longshore reconcile` and `longshore run` fetch what has a source"
    assert sentence in box("status").ok().stdout
    ran = box("failures").ok()
    assert sentence in ran.stdout
    assert "nothing failed" not in ran.stderr
    (line,) = box("failures", "--json").ok().lines
    assert (line["type"], line["artifacts"], line["bytes"]) == ("lost", 1, len(BODY))
    assert {job["url"]: job["availability"] for job in box("jobs", "--json").ok().lines} == {
        lost: "missing", kept: "available"
    }  # fmt: skip
    assert ["lost" in job.split() for job in box("jobs").ok().stdout.splitlines()] == [False, True]
    rows = box("export", "manifest", "--json").ok().lines
    assert {row["url"]: row["availability"] for row in rows} == {lost: "missing", kept: "available"}
    for form in (["tree", "-o", box.home / "tree"], ["sums", "-o", box.home / "sums"]):
        ran = box("export", *form)
        assert ran.code == 5
        assert "1 result left out" in ran.stderr
        assert lost in ran.stderr
    assert os.listdir(box.home / "tree") == ["kept.bin"]

    box("reconcile")
    box("run").ok()
    (line,) = box("status", "--json").ok().lines
    assert (line["held"]["artifacts"], line["held"]["missing_artifacts"]) == (2, 0)
    assert box("export", "tree", "-o", box.home / "again").code == 0
    assert sorted(os.listdir(box.home / "again")) == ["kept.bin", "lost.bin"]
