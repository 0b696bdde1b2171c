"""A shard directory that was replaced by a link or a file: every command calls its blobs missing, and `get` fetches again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing

pytestmark = pytest.mark.slow

BODY = b"the bytes " * 500
INSTEAD = ["link", "file", "loop", "dangling"]


@pytest.fixture
def url(box: Box, origin: Origin) -> str:
    url = origin.add("/a", Thing(BODY))
    box("get", url).ok()
    return url


def replace_shard(box: Box, what: str) -> Path:
    (shard,) = [path for path in (box.depot / "store/default/default").iterdir() if path.is_dir()]
    shard.rename(box.home / "moved")
    match what:
        case "link":
            shard.symlink_to(box.home / "moved")
        case "file":
            shard.write_text("x")
        case "loop":
            shard.symlink_to(shard)
        case "dangling":
            shard.symlink_to(box.home / "nowhere")
    return shard


def healed(box: Box, shard: Path) -> None:
    assert shard.is_dir()
    assert not shard.is_symlink()
    (blob,) = shard.iterdir()
    assert blob.read_bytes() == BODY
    box("verify").ok()
    box("reconcile").ok()
    assert [path.read_bytes() for path in (box.home / "moved").iterdir()] == [BODY]  # nothing is lost behind a link


@pytest.mark.parametrize("what", INSTEAD)
def test_verify_and_reconcile_agree_and_run_repairs(box: Box, url: str, what: str) -> None:
    shard = replace_shard(box, what)
    ran = box("verify", "--json")
    assert (ran.code, [line["kind"] for line in ran.of("finding")]) == (5, ["missing"])
    ran = box("reconcile", "--json")
    assert "missing_blob" in [line["kind"] for line in ran.of("finding")]
    box("run").ok()
    healed(box, shard)


@pytest.mark.parametrize("what", INSTEAD)
def test_reconcile_finds_it_without_verify(box: Box, url: str, what: str) -> None:
    replace_shard(box, what)
    assert [line["kind"] for line in box("reconcile", "--dry-run", "--json").of("finding")] == ["missing_blob"]


@pytest.mark.parametrize("what", INSTEAD)
@pytest.mark.parametrize("how", ["plain", "placed", "stdout"])
def test_get_fetches_again(box: Box, origin: Origin, url: str, what: str, how: str) -> None:
    shard = replace_shard(box, what)
    before = len(origin.requests)
    out = box.home / "out"
    words: dict[str, list[object]] = {"plain": [], "placed": ["-o", out], "stdout": ["-o", "-"]}
    ran = box("get", url, *words[how]).ok()
    assert len(origin.requests) > before
    if how == "placed":
        assert out.read_bytes() == BODY
    if how == "stdout":
        assert ran.stdout.encode() == BODY
    healed(box, shard)


@pytest.mark.parametrize("what", INSTEAD)
def test_put_of_the_same_bytes_brings_them_back(box: Box, url: str, what: str) -> None:
    shard = replace_shard(box, what)
    box("put", box.write("same", BODY)).ok()
    assert [path.read_bytes() for path in shard.iterdir()] == [BODY]


def test_what_lay_in_the_way_is_in_quarantine_and_gc_removes_it(box: Box, url: str) -> None:
    replace_shard(box, "link")
    box("get", url).ok()
    (aside,) = [path for path in (box.depot / "store/.staging/quarantine").iterdir() if path.suffix != ".json"]
    assert aside.is_symlink()
    (collected,) = box("gc", "--grace", 0, "--json").ok().of("collected")
    assert (collected["action"], collected["sha256"]) == ("removed", "")
    assert [path.read_bytes() for path in (box.home / "moved").iterdir()] == [BODY]
