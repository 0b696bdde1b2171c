"""`longshore backfill`: an earlier ledger of either shape is adopted, and the result passes every check."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.cli.conftest import Box
from tests.ledger.test_import_earlier_ledger import old
from tests.support.origin import Origin, Thing

__all__ = ["old"]


def test_an_earlier_ledger_is_adopted_once_and_verifies(box: Box, old: Path) -> None:
    counts = {"adopted": 2, "planned": 4, "known": 0, "refused": 1}
    box("add", "-", stdin=b"https://h.example/other\n").ok()
    dry = box("backfill", old, "--dry-run", "--json")
    assert dry.code == 3
    (told,) = dry.of("backfilled")
    assert {name: told[name] for name in counts} == counts
    assert box.counts() == {"pending": 1}
    (told,) = box("backfill", old, "--json").of("backfilled")
    assert {name: told[name] for name in counts} == counts
    assert box.counts() == {"completed": 2, "pending": 5}
    box("verify", "--full").ok()
    (again,) = box("backfill", old, "--json").of("backfilled")
    assert (again["adopted"], again["planned"], again["known"]) == (0, 4, 2)
    box("get", "https://h.example/listed", "--offline").ok()


def test_what_is_adopted_is_not_fetched_again(box: Box, origin: Origin) -> None:
    import apsw

    url = origin.add("/a", Thing(b"paper"))
    (box.home / "files").mkdir()
    (box.home / "files/a.pdf").write_bytes(b"paper")
    old = apsw.Connection(str(box.home / "old.db"))
    old.execute("CREATE TABLE downloads (work_id TEXT, artifact_id TEXT, canonical_url TEXT, path TEXT, sha256 TEXT)")
    old.execute(
        "INSERT INTO downloads VALUES (?, ?, ?, 'a.pdf', ?)", (url, url, url, hashlib.sha256(b"paper").hexdigest())
    )
    old.close()
    assert "1 adopted" in box("backfill", box.home / "old.db", "--root", box.home / "files").ok().stderr
    (held,) = box("get", url, "--json").ok().of("held")
    assert held["sha256"] == hashlib.sha256(b"paper").hexdigest()
    assert origin.count("/a") == 0
    box("verify", "--full").ok()


@pytest.mark.parametrize("what", ["none", "text"])
def test_what_is_no_earlier_ledger_is_refused(box: Box, what: str) -> None:
    (box.home / "text").write_text("no database" * 100)
    assert box("backfill", box.home / what).code in (5, 10)
