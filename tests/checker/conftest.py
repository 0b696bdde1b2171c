"""A small sound depot, made by the real ledger and the real store, for the checker to look at and tests to damage."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from longshore.domain.identity.keys import op_key
from longshore.domain.identity.requests import download_request
from longshore.domain.model import Lease, NewArtifact, Scope
from longshore.domain.outcomes import Completed, Failed, Reused
from longshore.errors import LongshoreError, StoreError
from longshore.ledger import Ledger
from longshore.ledger.records import Intent
from longshore.store import Staged, open_store

SCOPE = Scope()


@dataclass
class CheckedDepot:
    """Where the depot lies, and ways to damage it that go round every check."""

    ledger: Path
    store: Path

    def spoil(self, sql: str) -> None:
        """Change rows behind the ledger's back, constraints off, triggers gone."""
        connection = apsw.Connection(str(self.ledger))
        connection.execute("PRAGMA foreign_keys=OFF; PRAGMA ignore_check_constraints=ON")
        for (name,) in list(connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")):
            connection.execute(f"DROP TRIGGER {name}")
        before = connection.total_changes()
        connection.execute(sql)
        assert connection.total_changes() > before, "the damage must hit something"
        connection.close()

    def blobs(self) -> list[Path]:
        """Every published file."""
        return sorted(path for path in self.store.glob("default/default/*/*") if path.is_file())


@pytest.fixture
def runtime(tmp_path: Path) -> CheckedDepot:
    """Three downloads completed, one of them the same bytes as another, one skipped, one failed, one waiting."""
    place = CheckedDepot(tmp_path / "ledger.sqlite3", tmp_path / "store")
    with Ledger.open(place.ledger, create=True) as ledger:
        store = open_store(place.store)
        urls = [f"https://example.org/{n}" for n in range(6)]
        ledger.plan(SCOPE, [download_request(url) for url in urls])
        leases = ledger.claim("worker", limit=5, ttl_s=120)
        bodies = [b"one", b"two", b"one"]
        items = [_staged(lease, body) for lease, body in zip(leases, bodies, strict=False)]
        assert store.stage(items) == [None] * 3
        intents = [
            Intent(lease, "FINALIZE", op_key("FINALIZE", lease.job_id, sha256=item.sha256), "verifiable", None, {})
            for lease, item in zip(leases, items, strict=False)
        ]
        ledger.begin(intents)
        settled = []
        for lease, blob in zip(leases, store.link(items), strict=False):
            assert not isinstance(blob, StoreError)
            settled += ledger.settle([(lease, Completed((NewArtifact(blob),)))])
        store.clean(items)
        first = settled[0]
        assert not isinstance(first, LongshoreError)
        ledger.settle([(leases[3], Reused(first.job_id, first.artifact_ids[0]))])
        ledger.settle([(leases[4], Failed("http_404", "the server answered 404"))])
        store.close()
    return place


def _staged(lease: Lease, body: bytes) -> Staged:
    digest = hashlib.sha256(body).hexdigest()
    return Staged(lease.scope, lease.job_id, lease.epoch, digest, len(body), "text/plain", body)
