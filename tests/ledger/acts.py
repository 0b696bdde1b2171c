"""What the ledger's tests do all the time."""

from __future__ import annotations

from typing import Any, TypeVar

from longshore import compat
from longshore.domain.identity.keys import op_key
from longshore.domain.identity.requests import download_request
from longshore.domain.model import Blob, JobRequest, Lease, NewArtifact, Scope, Validators
from longshore.domain.outcomes import Completed, Outcome
from longshore.errors import LongshoreError
from longshore.ledger import Intent, Ledger, Settled

T = TypeVar("T")
HOME = Scope("home", "main")


def downloads(count: int, *, host: str = "h.example", start: int = 0, **fields: Any) -> list[JobRequest]:
    return [download_request(f"https://{host}/{number}", **fields) for number in range(start, start + count)]


def plan(ledger: Ledger, count: int = 1, *, scope: Scope = HOME, **fields: Any) -> list[str]:
    return [planned.job_id for planned in ledger.plan(scope, downloads(count, **fields))]


def own(ledger: Ledger, count: int = 1, *, scope: Scope = HOME, job_type: str = "task", **fields: Any) -> list[str]:
    requests = [JobRequest(job_type, f"{job_type}-{number}", **fields) for number in range(count)]
    return [planned.job_id for planned in ledger.plan(scope, requests)]


def lease(ledger: Ledger, owner: str = "w", ttl_s: float = 60) -> Lease:
    granted = compat.lease_next_job(ledger, owner, ttl_s, scope=None)
    assert granted is not None
    return granted


def blob(number: int, size: int = 10) -> Blob:
    return Blob(f"{number:064x}", size, f"home/main/{number:064x}", "local", "text/plain")


def held(number: int = 1, **facts: Any) -> Completed:
    return Completed((NewArtifact(blob(number)),), Validators('"v1"'), facts=facts)


def good(value: T | LongshoreError | None) -> T:
    assert value is not None
    assert not isinstance(value, LongshoreError), value
    return value


def settle(ledger: Ledger, granted: Lease, outcome: Outcome) -> Settled:
    return good(ledger.settle([(granted, outcome)])[0])


def finalize(granted: Lease, number: int = 1) -> Intent:
    sha256 = f"{number:064x}"
    key = op_key("FINALIZE", granted.job_id, sha256=sha256)
    return Intent(granted, "FINALIZE", key, "verifiable", None, {"sha256": sha256, "size": 10})
