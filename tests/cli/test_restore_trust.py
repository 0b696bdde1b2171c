"""A restored backup brings no foreign trigger, no valid token and no name outside of the blobs; `doctor` finds what was changed."""

from __future__ import annotations

from pathlib import Path

import apsw
import psycopg
import pytest

from longshore.config import load_settings
from longshore.depot.doctor.depot_checks import check_role
from longshore.depot.doctor.ledger_checks import check_audit, check_schema
from tests.support.ledgers import postgres_ledger as postgres_ledger  # noqa: PLC0414 - the fixture
from tests.support.postgres import Cluster
from tests.support.postgres import postgres_cluster as postgres_cluster  # noqa: PLC0414 - the fixture
from tests.support.program import invoke

TRIGGER = "CREATE TRIGGER quiet AFTER INSERT ON audit_log BEGIN UPDATE tokens SET revoked_at = NULL; END"


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    (tmp_path / "f").write_bytes(b"bytes")
    invoke("put", tmp_path / "f", "--depot", tmp_path / "depot").ok()
    invoke("token", "create", "--scope", "admin", "--depot", tmp_path / "depot").ok()
    invoke("backup", tmp_path / "backup", "--depot", tmp_path / "depot").ok()
    return tmp_path / "backup"


def by_hand(ledger: Path, text: str) -> None:
    connection = apsw.Connection(str(ledger))
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute(text)
    connection.close()


def valid_tokens(depot: Path) -> int:
    return sum(line["revoked_at"] is None for line in invoke("token", "list", "--json", "--depot", depot).ok().lines)


def test_a_restored_token_opens_nothing_unless_asked(backup: Path, tmp_path: Path) -> None:
    ran = invoke("restore", backup, "--depot", tmp_path / "new").ok()
    assert "1 tokens of the backup were revoked" in ran.stderr
    assert valid_tokens(tmp_path / "new") == 0
    invoke("restore", backup, "--depot", tmp_path / "kept", "--keep-tokens").ok()
    assert valid_tokens(tmp_path / "kept") == 1


def test_a_foreign_trigger_is_refused_by_restore_unless_allowed(backup: Path, tmp_path: Path) -> None:
    by_hand(backup / "ledger.db", TRIGGER)
    ran = invoke("restore", backup, "--depot", tmp_path / "new")
    assert ran.code == 5
    assert "trigger quiet is not ours" in ran.stderr
    assert not (tmp_path / "new" / "ledger.db").exists()
    ran = invoke("restore", backup, "--depot", tmp_path / "new", "--allow-drift").ok()
    assert "trigger quiet is not ours" in ran.stderr


@pytest.mark.parametrize("pointer", [".layout.json", ".ledger.json", "default/default/ab/" + "0" * 64, "x/../y"])
def test_a_pointer_that_is_not_the_blobs_name_is_refused(backup: Path, tmp_path: Path, pointer: str) -> None:
    connection = apsw.Connection(str(backup / "ledger.db"))
    connection.execute("PRAGMA foreign_keys = OFF")
    text = connection.execute("SELECT sql FROM sqlite_schema WHERE name LIKE '%blobs%' AND type = 'trigger'").fetchall()
    assert not text
    connection.execute("UPDATE blobs SET storage_pointer = ?", (pointer,))
    connection.close()
    ran = invoke("restore", backup, "--depot", tmp_path / "new")
    assert ran.code == 5, ran.stderr
    assert not (tmp_path / "new" / "ledger.db").exists()


def test_a_directory_of_a_backup_that_is_a_link_is_not_followed(backup: Path, tmp_path: Path) -> None:
    (backup / "store" / "default").rename(tmp_path / "elsewhere")
    (backup / "store" / "default").symlink_to(tmp_path / "elsewhere")
    ran = invoke("restore", backup, "--depot", tmp_path / "new", "--json")
    assert ran.code == 5
    assert ran.of("summary")[0]["missing"] == 1


def test_doctor_names_a_changed_schema_and_a_broken_audit_log(backup: Path, tmp_path: Path) -> None:
    def found() -> dict[str, tuple[str, str]]:
        ran = invoke("doctor", "--only", "schema", "--only", "audit", "--json", "--depot", tmp_path / "depot")
        return {line["id"]: (line["status"], line["evidence"]) for line in ran.of("check")}

    assert {status for status, _ in found().values()} == {"ok"}
    assert "ends with line" in found()["audit"][1]
    ledger = tmp_path / "depot" / "ledger.db"
    by_hand(ledger, "CREATE INDEX mine ON jobs (url)")
    assert found()["schema"] == ("warn", "index mine is not ours")
    by_hand(ledger, "DROP TRIGGER audit_log_unchanged")
    by_hand(ledger, "UPDATE audit_log SET detail = '{}'")
    assert found()["schema"][0] == "fail"
    assert "trigger audit_log_unchanged is missing" in found()["schema"][1]
    assert found()["audit"] == ("fail", "default/default: line 1 was changed")


def test_doctor_on_postgresql_names_rights_that_were_given_by_hand(
    postgres_cluster: Cluster, postgres_ledger: str
) -> None:
    settings = load_settings(environ={"LONGSHORE_LEDGER": postgres_ledger})
    assert check_schema(settings).status == "ok", check_schema(settings).evidence
    assert check_audit(settings).status == "ok"
    with psycopg.connect(postgres_ledger, autocommit=True) as owner:
        owner.execute("GRANT INSERT ON tokens TO longshore_app")
        owner.execute("ALTER TABLE audit_log DISABLE TRIGGER audit_log_kept")
        owner.execute("GRANT CONNECT ON DATABASE " + owner.info.dbname + " TO PUBLIC")
    found = check_schema(settings)
    assert found.status == "fail"
    assert "rights on tokens differs" in found.evidence
    assert "trigger audit_log_kept differs" in found.evidence
    assert "every login of the server may connect" in check_role(settings).evidence


def test_a_workers_login_is_told_that_it_cannot_compare(postgres_cluster: Cluster, postgres_ledger: str) -> None:
    postgres_cluster.execute("DROP ROLE IF EXISTS looking")
    postgres_cluster.execute("CREATE ROLE looking LOGIN IN ROLE longshore_app")
    settings = load_settings(environ={"LONGSHORE_LEDGER": postgres_ledger.replace("//postgres@", "//looking@")})
    assert check_schema(settings).status == "skip"
    assert check_audit(settings).status == "ok"
