"""A process that leases and completes jobs until none are left: `python -m tests.ledger.worker WHERE OWNER BATCH [TTL_S]`.

It prints one line per batch it settled (`done N`), and dies where a failpoint says so. It never looks at the clock.
"""

from __future__ import annotations

import sys
import time

from longshore.domain.model import Blob, Lease, NewArtifact
from longshore.domain.outcomes import Completed
from longshore.domain.settings import HostsSettings
from longshore.errors import LongshoreError
from longshore.ledger import Ledger, Move

FREE = HostsSettings(concurrency=1_000_000)


def outcome(lease: Lease) -> Completed:
    name = lease.job_id.replace("-", "") * 2
    return Completed((NewArtifact(Blob(name, 1, f"p/{name}", "local", "text/plain")),))


def main() -> None:
    """Work until every job is over."""
    where, owner, batch, ttl_s = sys.argv[1], sys.argv[2], int(sys.argv[3]), float((*sys.argv[4:], "600")[0])
    with Ledger.open(where) as ledger:
        while True:
            leases = ledger.claim(owner, limit=batch, ttl_s=ttl_s, defaults=FREE)
            if not leases:
                if ledger.next_due() is None:
                    return
                time.sleep(0.01)
                continue
            ledger.advance([Move(lease, "STREAMING") for lease in leases])
            answers = ledger.settle([(lease, outcome(lease)) for lease in leases])
            done = sum(not isinstance(answer, LongshoreError) for answer in answers)
            sys.stdout.write(f"done {done}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
