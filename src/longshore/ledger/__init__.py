"""The ledger: jobs, leases, effects and artifacts that survive anything."""

from longshore.ledger.ledger import Ledger
from longshore.ledger.records import Begun, CancelResult, Effect, Intent, Move, Renewed, Settled

__all__ = ["Begun", "CancelResult", "Effect", "Intent", "Ledger", "Move", "Renewed", "Settled"]
