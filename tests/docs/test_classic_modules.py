"""The classic modules' usage pattern runs as the page has it, on a real server; its ends, refusals and crashes."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from longshore import classic, compat
from longshore.checker import check
from longshore.checker.check import LocalFiles
from longshore.errors import BadInput, LeaseLost, NoDepot
from tests.support.origin import Origin, Thing, status

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "classic-modules.md"
BODY = b"%PDF-1.7\n" + b"1 0 obj\n" * 50
PAPER = "/pdf/2024.00001v1"
URL = "https://files.example/a"


@pytest.fixture
def origin() -> Iterator[Origin]:
    made = Origin()
    made.add(PAPER, Thing(BODY))
    with made:
        yield made


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    classic.close(tmp_path / "manifest.sqlite3")


def pattern(origin: Origin) -> dict[str, Any]:
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block.replace("https://files.example", origin.url("").rstrip("/")), str(PAGE), "exec"), names)
    return names


def make(home: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(home / "manifest.sqlite3")
    compat.apply_migration(connection)
    return connection


def plan(connection: Any, url: str = URL) -> str:
    return classic.plan_job_if_absent(connection, work_id="w", artifact_id="a", canonical_url=url)


def sound(home: Path) -> None:
    assert check(str(home / "manifest.sqlite3"), LocalFiles(home / "store")).findings == []


def test_the_page_runs_and_its_result_is_sound(home: Path, origin: Origin) -> None:
    names = pattern(origin)
    connection = names["conn"]
    rows = connection.execute("SELECT state, lease_owner FROM artifact_jobs").fetchall()
    assert [tuple(row) for row in rows] == [("INDEXED", None)]
    kinds = connection.execute("SELECT op_type, result_code FROM artifact_ops ORDER BY op_type").fetchall()
    assert [tuple(row) for row in kinds] == [("FINALIZE", "OK"), ("HEAD", "OK"), ("STREAM", "OK")]
    assert Path(names["finalize_result"]["final_path"]).read_bytes() == BODY
    assert Path("download.part").exists(), "the caller's own file is the caller's"
    asked = origin.count(PAPER)
    pattern(origin)
    assert origin.count(PAPER) == asked, "the second run finds it done"
    sound(home)


def test_a_failure_ends_the_job_as_the_pattern_says(home: Path, origin: Origin) -> None:
    origin.add(PAPER, status(500))
    with pytest.raises(OSError, match="500"):
        pattern(origin)
    connection = sqlite3.connect("manifest.sqlite3")
    assert connection.execute("SELECT state FROM artifact_jobs").fetchall() == [("FAILED",)]
    assert classic.lease_next_job(connection, owner="w", from_states=("PLANNED", "FAILED")) is None


def test_a_file_that_the_caller_moved_is_registered(home: Path) -> None:
    connection = make(home)
    job_id = plan(connection)
    assert plan(home / "manifest.sqlite3") == job_id, "a path and a connection are the same file"
    (job,) = [classic.lease_next_job(connection, owner="w")]
    assert job is not None
    assert (job["job_id"], job["artifact_id"], job["state"]) == (job_id, "a", "LEASED")
    (home / "mine.pdf").write_bytes(BODY)
    sha256 = hashlib.sha256(BODY).hexdigest()
    for stage in ("STREAMING", "FINALIZED"):
        classic.advance_state(connection, job_id=job_id, to_state=stage)
    with pytest.raises(RuntimeError, match="no confirmed FINALIZE"):
        classic.advance_state(connection, job_id=job_id, to_state="INDEXED")
    done = {"code": "OK", "sha256": sha256, "final_path": str(home / "mine.pdf")}
    key = compat.op_key("FINALIZE", job_id, sha256=sha256)
    classic.run_effect(connection, job_id=job_id, kind="FINALIZE", opkey=key, effect_fn=lambda: done)
    classic.advance_state(connection, job_id=job_id, to_state="INDEXED", allowed_from=("FINALIZED",))
    assert classic.get_current_state(connection, job_id=job_id) in ("INDEXED", "DEDUPED")
    assert classic.get_effect_result(connection, key) == done
    assert (home / "mine.pdf").read_bytes() == BODY
    assert not classic.release_lease(connection, job_id=job_id, owner="w")
    sound(home)


def test_a_file_with_other_bytes_is_not_registered(home: Path) -> None:
    connection = make(home)
    job_id = plan(connection)
    classic.lease_next_job(connection, owner="w")
    (home / "mine.pdf").write_bytes(b"other bytes")
    for stage in ("STREAMING", "FINALIZED"):
        classic.advance_state(connection, job_id=job_id, to_state=stage)
    done = {"sha256": hashlib.sha256(BODY).hexdigest(), "final_path": str(home / "mine.pdf")}
    classic.run_effect(connection, job_id=job_id, kind="FINALIZE", opkey="k", effect_fn=lambda: done)
    with pytest.raises(BadInput, match="has the SHA-256"):
        classic.advance_state(connection, job_id=job_id, to_state="INDEXED")
    assert classic.get_current_state(connection, job_id=job_id) == "FINALIZED"


def test_only_the_owner_renews_and_moves_are_checked(home: Path) -> None:
    connection = make(home)
    job_id = plan(connection)
    with pytest.raises(LeaseLost):
        classic.advance_state(connection, job_id=job_id, to_state="HEAD_DONE")
    classic.lease_next_job(connection, owner="w")
    assert classic.lease_next_job(connection, owner="other") is None
    assert classic.renew_lease(connection, job_id=job_id, owner="w")
    assert not classic.renew_lease(connection, job_id=job_id, owner="other")
    with pytest.raises(RuntimeError):
        classic.advance_state(connection, job_id=job_id, to_state="INDEXED", allowed_from=("FINALIZED",))
    with pytest.raises(RuntimeError):
        classic.advance_state(connection, job_id=job_id, to_state="FINALIZED", allowed_from=("STREAMING",))
    with pytest.raises(RuntimeError):
        classic.advance_state(connection, job_id=job_id, to_state="SKIPPED_DUPLICATE")
    assert classic.release_lease(connection, job_id=job_id, owner="w")
    assert classic.lease_next_job(connection, owner="other") is not None
    assert (compat.cleanup_stale_leases(connection), compat.cleanup_stale_ops(connection)) == (0, 0)  # type: ignore[arg-type]
    assert classic.reconcile_jobs(connection, staging_root=home / ".staging").forgotten_jobs == 0


def test_what_cannot_be_a_ledger_is_refused(home: Path) -> None:
    with pytest.raises(NoDepot) as none:
        plan(home / "none.db")
    assert "apply_migration" in str(none.value.hint)
    with pytest.raises(BadInput, match="no file"):
        classic.apply_migration(sqlite3.connect(":memory:"))
    earlier = apsw.Connection(str(home / "earlier.db"))
    earlier.execute("CREATE TABLE artifact_jobs (job_id TEXT)")
    with pytest.raises(Exception, match="no ledger") as refused:
        classic.apply_migration(earlier)
    assert "backfill" in str(getattr(refused.value, "hint", ""))
    classic.apply_migration(home / "new.db")
    classic.apply_migration(home / "new.db")
    assert plan(home / "new.db") == plan(home / "new.db")
    classic.close(home / "new.db")
