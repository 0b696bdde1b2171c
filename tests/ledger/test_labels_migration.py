"""What the migration fills in for older rows is what the program writes for new ones."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import apsw
import psycopg
import pytest

from longshore.domain.model import JobRequest
from longshore.domain.outcomes import Completed
from longshore.ledger import Ledger
from longshore.ledger.migrate import migrations
from tests.ledger.acts import HOME, held

VALUES: dict[str, Any] = {
    "text": "t-1", "unicode": "Grüße", "int": 7, "big": 10**17, "float": 0.25, "yes": True, "no": False, "none": None,
    "long": "x" * 201, "list": [1], "deep": {"a": 1}, "empty": "", "n" * 101: "x", "slash": 'a"b\\c',
}  # fmt: skip


@pytest.mark.parametrize("table", ["artifact_metadata", "job_params"])
def test_older_rows_get_the_labels_of_new_ones(ledger: Ledger, where: str, table: str) -> None:
    ledger.plan(HOME, [JobRequest("own", "k", params=VALUES), JobRequest("own", "plain")])
    leases = ledger.claim("w", limit=2, ttl_s=60)
    made = [replace(held(number).artifacts[0], metadata=VALUES) for number in range(2)]
    ledger.settle([(lease, Completed((one,))) for lease, one in zip(leases, made, strict=True)])
    text = next(step.text for step in migrations(ledger.dialect) if "CREATE TABLE artifact_metadata" in step.text)
    (fill,) = re.findall(rf"^INSERT INTO {table} .*?;$", text, re.MULTILINE | re.DOTALL)
    select = f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4, 5"
    if where.startswith("postgres"):
        with psycopg.connect(where, autocommit=True) as server:
            before = server.execute(select.encode()).fetchall()
            server.execute(f"DELETE FROM {table}".encode())
            server.execute(fill.encode())
            after = server.execute(select.encode()).fetchall()
    else:
        file = apsw.Connection(where)
        file.set_busy_timeout(10_000)
        before = file.execute(select).fetchall()
        file.execute(f"DELETE FROM {table}")
        file.execute(fill)
        after = file.execute(select).fetchall()
        file.close()
    assert {row[2] for row in before} == {"text", "unicode", "int", "big", "float", "yes", "no", "empty", "slash"}
    assert after == before
