"""A process is killed at every failpoint of the publish protocol; the next one finds nothing half done."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from longshore.store import LocalStore
from tests.store.crasher import LARGE, SMALL
from tests.store.publishing import SCOPE, files_below, wrong_blobs

STEPS = [
    "part.create",
    "part.open",
    "part.write",
    "part.fsync",
    "part.facts",
    "part.rename",
    "part.dirsync",
    "part.adopt",
    "part.drop",
    "stage.write",
    "stage.barrier",
    "link.mkdir",
    "link.link",
    "link.dirsync",
    "clean.unlink",
]
EXPECTED = {hashlib.sha256(body).hexdigest(): body for body in (*SMALL, LARGE)}


def run(root: Path, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LONGSHORE_FAILPOINTS": failpoint}
    command = [sys.executable, "-m", "tests.store.crasher", str(root)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("step", STEPS)
def test_killed(step: str, tmp_path: Path) -> None:
    crashed = run(tmp_path / "store", f"{step}=kill@2")
    if crashed.returncode == 0:  # reached only once
        crashed = run(tmp_path / "again", f"{step}=kill")
        os.rename(tmp_path / "again", tmp_path / "store.killed")
    else:
        os.rename(tmp_path / "store", tmp_path / "store.killed")
    assert crashed.returncode == -9, crashed.stderr
    check_after(tmp_path / "store.killed", crashed.stdout)


def check_after(root: Path, said: str) -> None:
    assert wrong_blobs(root) == []
    for line in said.splitlines():
        if line.startswith("linked"):
            assert (root / line.split()[1]).exists()
    store = LocalStore(root)
    try:
        if "intent" in said:
            recover_all(store)
        for facts in list(store.parts()):
            store.drop_part(facts)
        left = [name for name in files_below(root) if not name.startswith(("acme/", ".layout"))]
        assert left == []
    finally:
        store.close()


def recover_all(store: LocalStore) -> None:
    """An intent without a blob is finished from what the dead process staged, or known to be fetched again."""
    for number, (sha256, body) in enumerate(EXPECTED.items()):
        job_id = f"small{number}" if number < len(SMALL) else "large"
        blob = store.recover(SCOPE, job_id, 9, sha256=sha256, size_bytes=len(body), content_type="x/y")
        if blob is not None:
            assert store.check(SCOPE, blob.pointer, sha256, len(body)) is None
        elif job_id == "large":
            pytest.fail("the whole body of the large part is there and must be adopted")


def test_run_to_the_end_nothing_is_left_over(tmp_path: Path) -> None:
    done = run(tmp_path / "store")
    assert done.returncode == 0, done.stderr
    assert "cleaned" in done.stdout
    assert len([name for name in files_below(tmp_path / "store") if name.startswith("acme/")]) == len(EXPECTED)
    assert [name for name in files_below(tmp_path / "store") if name.startswith(".staging")] == []


def test_every_failpoint_of_the_store_is_known_and_reached(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {**os.environ, "LONGSHORE_FAILPOINTS_LOG": str(log)}
    command = [sys.executable, "-m", "tests.store.crasher", str(tmp_path / "store")]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert set(STEPS) <= set(log.read_text().split())
