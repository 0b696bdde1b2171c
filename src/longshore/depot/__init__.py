"""A depot: one ledger, one store, one configuration, and the verbs people use."""

from longshore.depot.aio import AsyncDepot
from longshore.depot.records import Added, Finding, Got, Overview, Refused, Report
from longshore.depot.sync import Depot

__all__ = ["Added", "AsyncDepot", "Depot", "Finding", "Got", "Overview", "Refused", "Report"]
