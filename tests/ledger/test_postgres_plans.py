"""Query plans on PostgreSQL that row-level security could spoil: what is looked up by a hash goes through its index."""

from __future__ import annotations

from typing import Any

import pytest

from longshore.domain.model import Scope
from longshore.ledger import Ledger
from longshore.ledger.rows import encoded
from longshore.ledger.statements import statements
from tests.ledger.acts import downloads, held

HOME = Scope("default", "default")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("url_versions", {"tenant_id": ["default"] * 2, "project_id": ["default"] * 2, "canonical_url": ["a", "b"]}),
        ("url_artifacts", {"tenant_id": "default", "project_id": "default", "urls": encoded(["a", "b"])}),
    ],
)
def test_urls_are_looked_up_by_their_hash(postgres_ledger: str, name: str, given: dict[str, Any]) -> None:
    """In a join a function that is not leakproof is kept out of the index, and costs every row of the tenant."""
    with Ledger.open(postgres_ledger) as ledger:
        ledger.plan(HOME, downloads(300))
        leases = ledger.claim("w", limit=300, ttl_s=60)
        ledger.settle([(lease, held(number)) for number, lease in enumerate(leases)])

        def explained(tx: Any) -> str:
            tx.enter(HOME.tenant_id)
            tx._cursor.execute(
                "SET LOCAL enable_seqscan = off"
            )  # a small table is read whole; the index must be possible
            tx._cursor.execute("EXPLAIN " + statements("postgres")[name].text, given)
            return "\n".join(row[0] for row in tx._cursor.fetchall())

        plan = ledger.read(explained)
    assert "(url_hash = r.hash)" in plan.partition("Index Cond:")[2].partition("\n")[0], plan
