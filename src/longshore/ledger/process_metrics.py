"""What this process has seen happen in the ledger, for its metrics. Not durable and not exact: a transaction may run twice."""

from __future__ import annotations

from collections import Counter
from typing import Final

LEASE_EVENTS: Final[Counter[str]] = Counter()  # fenced: writes of a lost lease; expired: leases that ran out
