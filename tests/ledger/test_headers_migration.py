"""Jobs that an older program planned with headers do not answer requests without them."""

from __future__ import annotations

from pathlib import Path

import apsw

from longshore.domain.identity.keys import job_key
from longshore.domain.identity.requests import download_request
from longshore.domain.model import Scope
from longshore.ledger import Ledger, migrate

URL = "http://a.example/report"


def test_a_job_with_headers_of_an_older_program_answers_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    _older_ledger(path)
    assert Ledger.apply_migration(path)[0] == 6
    with Ledger.open(path) as ledger:
        (bob,) = ledger.plan(Scope(), [download_request(URL)])
        (plain,) = ledger.plan(Scope(), [download_request("http://a.example/plain")])
        assert bob.created, "the job of a caller with headers is not the answer to one without"
        assert not plain.created


def _older_ledger(path: Path) -> None:
    """Make a ledger of schema 5 with one job that has headers and one that has none."""
    connection = apsw.Connection(str(path))
    for step in migrate.migrations("sqlite")[:5]:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(step.text)
        connection.execute(
            "INSERT INTO _migrations (version, name, checksum, applied_at) VALUES (?, ?, ?, 0)",
            (step.version, step.name, step.checksum),
        )
        connection.execute(
            "INSERT INTO _meta (key, value) VALUES ('schema_version', ?1) ON CONFLICT (key) DO UPDATE SET value = ?1",
            (str(step.version),),
        )
        connection.execute("COMMIT")
    connection.execute("INSERT INTO hosts (host, updated_at) VALUES ('a.example', 0)")
    connection.execute(
        "INSERT INTO lanes (tenant_id, project_id, host, job_type) VALUES ('default', 'default', 'a.example', 'download')"
    )
    for url, request in ((URL, '{"headers":[["Authorization","alice"]]}'), ("http://a.example/plain", None)):
        connection.execute(
            "INSERT INTO jobs (tenant_id, project_id, job_id, job_type, status, stage, ready, lane_id, created_at,"
            " updated_at, idempotency_key, canonical_url, host, request)"
            " VALUES ('default', 'default', ?, 'download', 'pending', 'PLANNED', 1, 1, 0, 0, ?, ?, 'a.example', ?)",
            (url, job_key(url, url, url), url, request),
        )
    connection.close()
