"""A store belongs to one ledger: another one is refused before it can take the first one's blobs for rubbish."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.cli.conftest import Box
from tests.support.disks import small_disk
from tests.support.origin import Origin


def files(store: Path) -> set[str]:
    return {str(path) for path in store.rglob("*")}


@pytest.fixture
def taken(box: Box) -> Path:
    """Give a store that the ledger of another depot has bytes in."""
    store = box.home / "shared"
    box("put", box.write("p.txt", "precious"), "--depot", box.home / "alice", "--store", store).ok()
    return store


@pytest.mark.parametrize(
    "command", [["reconcile"], ["gc", "--grace", "0"], ["verify"], ["run", "--forever"], ["put", "p.txt"]]
)
def test_another_ledger_is_refused_and_changes_nothing(
    box: Box, taken: Path, origin: Origin, command: list[str]
) -> None:
    box("add", box.write("l.txt", origin.url("/a"))).ok()
    before = files(taken)
    command = [str(box.home / one) if one == "p.txt" else one for one in command]
    refused = box(*command, "--store", taken)
    assert refused.code == 2
    assert "belongs to another ledger" in refused.stderr
    assert ".ledger.json" in refused.stderr
    assert files(taken) == before
    box("verify", "--depot", box.home / "alice", "--store", taken).ok()


def test_get_with_a_new_ledger_is_refused(box: Box, taken: Path, origin: Origin) -> None:
    assert box("get", origin.url("/a"), "--store", taken).code == 2
    assert origin.requests == []


def test_doctor_says_whose_the_store_is(box: Box, taken: Path) -> None:
    box("put", box.write("q.txt", "own")).ok()
    told = box("doctor", "--store", taken, "--only", "store")
    assert told.code != 0
    assert "belongs to another ledger" in told.stdout + told.stderr
    box("doctor", "--only", "store").ok()


def test_an_owner_that_is_gone_can_be_removed(box: Box, taken: Path) -> None:
    (taken / ".ledger.json").unlink()
    box("put", box.write("q.txt", "own"), "--store", taken).ok()
    assert box("verify", "--depot", box.home / "alice", "--store", taken).code == 2


def test_a_store_of_an_older_version_is_claimed(box: Box) -> None:
    box("put", box.write("p.txt", "precious")).ok()
    (box.depot / "store/.ledger.json").unlink()
    with sqlite3.connect(box.depot / "ledger.db") as ledger:
        ledger.execute("DELETE FROM _meta WHERE key = 'ledger_id'")
    ledger.close()
    box("verify").ok()
    with sqlite3.connect(box.depot / "ledger.db") as ledger:
        [(owner,)] = ledger.execute("SELECT value FROM _meta WHERE key = 'ledger_id'")
    ledger.close()
    assert json.loads((box.depot / "store/.ledger.json").read_text()) == {"ledger": owner}


def test_the_id_goes_along_with_copies_backups_and_restores(box: Box) -> None:
    box("put", box.write("p.txt", "precious")).ok()
    owner = (box.depot / "store/.ledger.json").read_bytes()
    box("store", "copy", box.home / "other").ok()
    assert (box.home / "other/.ledger.json").read_bytes() == owner
    box("verify", "--store", box.home / "other").ok()
    box("backup", box.home / "backup").ok()
    box("restore", box.home / "backup", "--depot", box.home / "restored").ok()
    assert (box.home / "restored/store/.ledger.json").read_bytes() == owner
    shutil.rmtree(box.depot / "store")
    os.rename(box.home / "restored/store", box.depot / "store")
    box("verify").ok()


@pytest.mark.parametrize("instead", [b"", b"[]", b"{", b'{"ledger": 3}'])
def test_an_owner_that_cannot_be_read_is_no_owner(box: Box, instead: bytes) -> None:
    box("put", box.write("p.txt", "precious")).ok()
    (box.depot / "store/.ledger.json").write_bytes(instead)
    refused = box("verify")
    assert refused.code == 1
    assert "damaged" in refused.stderr


def test_a_fifo_in_the_place_of_a_mark_is_not_waited_for(box: Box) -> None:
    box("put", box.write("p.txt", "precious")).ok()
    for name in (".ledger.json", ".layout.json"):
        mark = box.depot / "store" / name
        whole = mark.read_bytes()
        mark.unlink()
        os.mkfifo(mark)
        assert box("verify").code == 1
        mark.unlink()
        mark.write_bytes(whole)
    box("verify").ok()


def test_a_backup_that_does_not_fit_is_not_damage(box: Box) -> None:
    box("put", box.write("p.txt", "precious")).ok()
    with small_disk("100k") as disk:
        full = box("backup", disk / "backup")
        assert full.code == 1
        assert "no space" in full.stderr
    box("backup", box.home / "backup").ok()
