"""The checker is silent on a sound depot, and names each kind of planted damage."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from longshore.checker import check
from longshore.checker.check import HEALABLE, SENTENCES, LocalFiles
from longshore.checker.connections import statements
from longshore.errors import Damaged, NoDepot
from tests.checker.conftest import CheckedDepot

FIRST = "(SELECT MIN(seq) FROM jobs WHERE status = 'completed')"
FIRST_ID = "(SELECT MIN(job_id) FROM jobs WHERE status = 'completed')"

# finding -> the damage that must be named so
LEDGER_DAMAGE = {
    "job_stuck": "UPDATE jobs SET ready = 0 WHERE status = 'pending'",
    "lane_closed": "UPDATE lanes SET ready = 0",
    "lane_wrong": "UPDATE jobs SET host = 'other.example' WHERE status = 'pending'",
    "lease_on_finished": f"UPDATE jobs SET lease_owner = 'zombie', lease_until = 1 WHERE seq = {FIRST}",
    "stage_unlike_status": f"UPDATE jobs SET stage = 'STREAMING' WHERE seq = {FIRST}",
    "attempts_over": f"UPDATE jobs SET max_attempts = 1, attempts = 2 WHERE seq = {FIRST}",
    "result_twice": f"INSERT INTO job_artifacts SELECT tenant_id, project_id, {FIRST_ID}, role, 1, artifact_id FROM job_artifacts LIMIT 1",
    "blob_unknown": "DELETE FROM blobs",
    "effect_unlike_grant": "UPDATE job_claims SET outcome = 'expired'",
    "result_missing": f"DELETE FROM job_artifacts WHERE job_id = {FIRST_ID}",
    "reuse_dangling": "UPDATE jobs SET reuse_of_job_id = 'nobody' WHERE status = 'skipped'",
    "key_twice": "DROP INDEX jobs_key; UPDATE jobs SET idempotency_key = 'same'",
    "epoch_gap": f"UPDATE jobs SET lease_epoch = lease_epoch + 1 WHERE seq = {FIRST}",
    "claim_open": f"UPDATE job_claims SET ended_at = NULL, outcome = NULL WHERE job_id = {FIRST_ID}",
    "claim_after_end": f"UPDATE jobs SET lease_epoch = 9 WHERE seq = {FIRST}",
    "effect_ahead": f"UPDATE effects SET epoch = 99 WHERE job_id = {FIRST_ID}",
    "effect_open": f"UPDATE effects SET state = 'intended' WHERE job_id = {FIRST_ID}",
    "finalize_unconfirmed": f"DELETE FROM effects WHERE job_id = {FIRST_ID}",
    "blob_unlike_artifact": "UPDATE blobs SET byte_size = byte_size + 1",
    "version_dangling": "UPDATE url_versions SET artifact_id = 'nobody'",
    "counter_wrong": "UPDATE counters SET n = n + 1 WHERE status = 'completed'",
    "failure_count_wrong": "UPDATE failure_counts SET n = n + 1",
    "book_state_wrong": "INSERT INTO books (tenant_id, project_id, book_id, state, updated_at) VALUES ('default', 'default', 'b', 'Library', 1)",
    "torrent_without_asset": f"UPDATE jobs SET job_type = 'torrent', stage = 'completed', book_id = 'b', media_type = 'm' WHERE seq = {FIRST}",
    "history_goes_on": f"INSERT INTO events (tenant_id, project_id, job_id, kind, at) VALUES ('default', 'default', {FIRST_ID}, 'deferred', 1)",
    "end_without_event": f"DELETE FROM events WHERE job_id = {FIRST_ID}",
    "file_missing": "UPDATE artifacts SET storage_pointer = storage_pointer || 'x'",
    "file_wrong_size": "UPDATE artifacts SET byte_size = byte_size + 1",
    "file_there_after_all": "UPDATE artifacts SET availability = 'missing'",
    "file_unregistered": "UPDATE blobs SET storage_pointer = 'elsewhere'",
    "pointer_outside": "UPDATE artifacts SET storage_pointer = 'other/default/ab/' || sha256",
}


def kinds(runtime: CheckedDepot) -> set[str]:
    return {finding.kind for finding in check(str(runtime.ledger), LocalFiles(runtime.store)).findings}


def test_a_sound_depot_has_no_findings(runtime: CheckedDepot) -> None:
    report = check(str(runtime.ledger), LocalFiles(runtime.store))
    assert report.findings == []
    assert report.artifacts == 3
    assert report.files == 2


@pytest.mark.parametrize("kind", LEDGER_DAMAGE)
def test_damage_in_the_ledger_is_named(runtime: CheckedDepot, kind: str) -> None:
    runtime.spoil(LEDGER_DAMAGE[kind])
    assert kind in kinds(runtime)


def test_a_flipped_bit_is_named(runtime: CheckedDepot) -> None:
    blob = runtime.blobs()[0]
    blob.chmod(0o600)
    body = bytearray(blob.read_bytes())
    body[0] ^= 1
    blob.write_bytes(body)
    blob.chmod(0o444)
    assert kinds(runtime) == {"file_wrong_hash"}


def test_a_blob_that_can_be_written_is_named(runtime: CheckedDepot) -> None:
    runtime.blobs()[0].chmod(0o644)
    assert kinds(runtime) == {"file_writable"}


def test_a_lost_file_is_named(runtime: CheckedDepot) -> None:
    runtime.blobs()[0].unlink()
    assert kinds(runtime) == {"file_missing"}


def test_a_foreign_file_is_named(runtime: CheckedDepot) -> None:
    (runtime.blobs()[0].parent / "notes.txt").write_text("mine")
    assert kinds(runtime) == {"file_foreign"}


def test_a_part_that_nobody_comes_back_to_is_named(runtime: CheckedDepot) -> None:
    part = runtime.store / ".staging" / "parts" / "gone"
    part.mkdir(parents=True)
    (part / "facts.json").write_text(json.dumps({"job_id": "gone"}))
    assert kinds(runtime) == {"part_left"}


def test_a_job_that_was_promised_and_is_not_there_is_named(runtime: CheckedDepot) -> None:
    report = check(str(runtime.ledger), LocalFiles(runtime.store), acknowledged=["never-planned"])
    assert [(finding.kind, finding.subject) for finding in report.findings] == [("job_lost", "never-planned")]


def test_a_corrupted_page_is_refused_or_named(runtime: CheckedDepot) -> None:
    """Whatever is read of a damaged file, the answer is never silence."""
    size = runtime.ledger.stat().st_size
    with open(runtime.ledger, "r+b") as file:
        for offset in range(4096, size, 4096):
            file.seek(offset + 100)
            file.write(os.urandom(2000))
    try:
        found = kinds(runtime)
    except Damaged:
        return
    assert "ledger_damaged" in found


def test_a_text_that_is_not_utf_8_is_damage(runtime: CheckedDepot) -> None:
    runtime.spoil("UPDATE artifacts SET storage_pointer = CAST(X'e631' AS TEXT)")
    with pytest.raises(Damaged, match="cannot be read"):
        kinds(runtime)


def test_no_ledger_is_said_plainly(runtime: CheckedDepot) -> None:
    shutil.move(runtime.ledger, runtime.ledger.with_suffix(".away"))
    with pytest.raises(NoDepot):
        check(str(runtime.ledger), None)


def test_every_kind_of_finding_is_planted_here() -> None:
    """A check that no test has seen find anything is no check."""
    tried = set(LEDGER_DAMAGE) | {
        "job_lost",
        "file_wrong_hash",
        "file_writable",
        "file_foreign",
        "part_left",
        "ledger_damaged",
    }
    assert tried == {statement.name for statement in statements()} | set(SENTENCES)


def test_only_what_a_crash_may_leave_is_not_damage() -> None:
    assert {"file_unregistered", "part_left", "file_there_after_all", "effect_open"} == HEALABLE
