"""The outside witness: does what the ledger says agree with itself and with the files? It changes nothing.

It shares no code with the ledger: its own connection, its own statements (`checks.sql`: each finds nothing in a sound
ledger), its own walk over the files. `longshore verify --full` and the crash tests use it.
"""

from longshore.checker.check import Finding, Report, check

__all__ = ["Finding", "Report", "check"]
