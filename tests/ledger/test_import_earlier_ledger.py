"""Earlier ledgers are adopted: verified files are completed, everything else is fetched again, twice is once."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import apsw
import pytest

from longshore import compat
from longshore.domain.model import Blob, Lease, Status
from longshore.errors import BadInput, Damaged, NoDepot, StoreError
from longshore.ledger import Ledger
from longshore.ledger.maintenance.import_earlier_ledger import backfill
from tests.ledger.acts import HOME

SEED_000 = """
CREATE TABLE _meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE artifact_jobs (job_id TEXT PRIMARY KEY, work_id TEXT NOT NULL, artifact_id TEXT NOT NULL,
  canonical_url TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'PLANNED', lease_owner TEXT, lease_until REAL,
  created_at REAL NOT NULL, updated_at REAL NOT NULL, idempotency_key TEXT NOT NULL);
CREATE TABLE artifact_ops (op_key TEXT PRIMARY KEY, job_id TEXT NOT NULL, op_type TEXT NOT NULL, started_at REAL NOT NULL,
  finished_at REAL, result_code TEXT, result_json TEXT);
CREATE TABLE downloads (work_id TEXT, artifact_id TEXT, url TEXT, path TEXT, sha256 TEXT);
"""


def take(lease: Lease, path: Path, sha256: str) -> Blob:
    body = path.read_bytes()
    if hashlib.sha256(body).hexdigest() != sha256:
        raise StoreError(f"{path.name} has other bytes")
    return Blob(sha256, len(body), f"p/{sha256}", "local", "application/pdf")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    connection = apsw.Connection(str(tmp_path / "old.db"))
    connection.execute(SEED_000)
    hashes = {}
    for name in ("good", "changed", "listed"):
        (tmp_path / f"{name}.pdf").write_bytes(name.encode())
        hashes[name] = hashlib.sha256(name.encode()).hexdigest()
    (tmp_path / "changed.pdf").write_bytes(b"something else")
    jobs = [
        ("good", "FINALIZED"),
        ("changed", "INDEXED"),
        ("gone", "FINALIZED"),
        ("never", "PLANNED"),
        ("cut", "FAILED"),
    ]
    hashes["gone"] = hashes["good"]
    for number, (name, state) in enumerate(jobs):
        row = (
            name,
            f"work-{name}",
            f"art-{name}",
            f"https://h.example/{name}",
            state,
            None,
            None,
            number,
            number,
            name,
        )
        connection.execute("INSERT INTO artifact_jobs VALUES (?,?,?,?,?,?,?,?,?,?)", row)
        if name in hashes:
            done = {"code": "OK", "final_path": f"{name}.pdf", "sha256": hashes[name]}
            connection.execute(
                "INSERT INTO artifact_ops VALUES (?,?,?,?,?,?,?)",
                (name, name, "FINALIZE", 1, 2, "OK", json.dumps(done)),
            )
    connection.execute("INSERT INTO artifact_ops VALUES ('c','cut','STREAM',1,2,'OK',?)", ('{"sha256": "abc',))
    connection.execute(
        "INSERT INTO downloads VALUES ('w','a','https://h.example/listed','listed.pdf',?)", (hashes["listed"].upper(),)
    )
    connection.execute("INSERT INTO downloads VALUES ('w','b','not a url','x.pdf','00')")
    connection.close()
    return tmp_path / "old.db"


def test_verified_files_are_completed_and_the_rest_is_fetched(ledger: Ledger, old: Path) -> None:
    result = backfill(ledger, old, HOME, take, root=old.parent, owner="backfill")
    assert (result.adopted, result.planned, result.known, len(result.refused)) == (2, 4, 0, 1)
    assert ledger.counts(HOME) == {status: {"completed": 2, "pending": 4}.get(status.value, 0) for status in Status}
    job_id = compat.plan_job_if_absent(
        ledger, HOME, work_id="work-good", artifact_id="art-good", canonical_url="https://h.example/good"
    )
    assert ledger.job(HOME, job_id).status is Status.COMPLETED
    assert ledger.results(HOME, job_id)[0].sha256 == hashlib.sha256(b"good").hexdigest()


def test_running_it_twice_changes_nothing(ledger: Ledger, old: Path) -> None:
    backfill(ledger, old, HOME, take, root=old.parent, owner="one")
    again = backfill(ledger, old, HOME, take, root=old.parent, owner="two")
    assert (again.adopted, again.planned, again.known) == (0, 4, 2)


def test_what_is_no_earlier_ledger_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(NoDepot):
        backfill(ledger, tmp_path / "none", HOME, take, root=tmp_path, owner="w")
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(Damaged):
        backfill(ledger, tmp_path / "text", HOME, take, root=tmp_path, owner="w")
    apsw.Connection(str(tmp_path / "other")).execute("CREATE TABLE downloads (a)")
    with pytest.raises(BadInput, match="artifact_id"):
        backfill(ledger, tmp_path / "other", HOME, take, root=tmp_path, owner="w")
