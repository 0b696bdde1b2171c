"""Claims on PostgreSQL beside others that hold rows."""

from __future__ import annotations

import psycopg

from longshore.ledger import Ledger
from tests.ledger.acts import HOME, downloads


def test_a_lane_whose_rows_are_all_held_by_others_ends_a_claim(postgres_ledger: str) -> None:
    """It used to look again and again inside its transaction, while the others waited for the lane: found by a fleet."""
    with Ledger.open(postgres_ledger) as ledger, psycopg.connect(postgres_ledger) as other:
        ledger.plan(HOME, downloads(5))
        other.execute("SELECT 1 FROM jobs FOR UPDATE")
        assert ledger.claim("w", limit=5, ttl_s=60) == []
        other.rollback()
        assert len(ledger.claim("w", limit=5, ttl_s=60)) == 5
