"""A worker process that does nothing but lease and complete: `python -m tests.support.leaser WHERE OWNER BATCH TTL`.

Prints one line per job that the ledger accepted as completed by it; ends when nothing is left.
"""

from __future__ import annotations

import sys
import time

from longshore.domain.model import Scope
from longshore.domain.outcomes import Completed
from longshore.errors import Unavailable
from longshore.ledger import Ledger, Settled

PATIENCE_S = 60.0


def opened(where: str) -> Ledger:
    """Open the ledger; a server that is being restarted in this very moment is waited for, as a supervisor would."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return Ledger.open(where)
        except Unavailable:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def main(where: str, owner: str, batch: int, ttl_s: float) -> None:
    """Work until every job of the project is over."""
    scope = Scope("a", "p")
    with opened(where) as ledger:
        print("ready", flush=True)
        while True:
            leases = ledger.claim(owner, limit=batch, ttl_s=ttl_s)
            for answer in ledger.settle([(lease, Completed(())) for lease in leases]):
                if isinstance(answer, Settled):
                    print(answer.job_id, flush=True)
            if not leases:
                if not any(n for status, n in ledger.counts(scope).items() if status in ("pending", "processing")):
                    return
                time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
