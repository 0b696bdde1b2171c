"""Every step of a download × every fault: what came of it. `make torture` writes the table in docs/proof.md from these runs."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.origin import Origin
from tests.support.postgres import Cluster
from tests.support.postgres import postgres_cluster as postgres_cluster  # noqa: PLC0414 - the fixture
from tests.torture.striking import CAME_AGAIN, Struck, cut_at, record
from tests.worker.test_crashes import REACHED

FAULTS = ("kill -9", "kill -9, and again in recovery", "EIO", "SIGSTOP past the lease", "canceled", "power cut")
ON_POSTGRES = ("kill -9", "connections lost")
# Where the page must have every fault; elsewhere it says what the last run did.
KEY = (
    "claim.after",
    "part.fsync",
    "publish.intents",
    "link.link",
    "publish.linked",
    "settle.before",
    "ledger.committed",
)
# A few on every run of the suite; `make torture` has all.
QUICK = {("SIGSTOP past the lease", "publish.linked"), ("canceled", "publish.intents")}


def _cases(faults: tuple[str, ...], quick: set[tuple[str, str]]) -> list[object]:
    return [
        pytest.param(fault, step, marks=[] if (fault, step) in quick else pytest.mark.torture, id=f"{fault}-{step}")
        for fault in faults
        for step in REACHED
    ]


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        yield server


def strike(struck: Struck, fault: str, step: str) -> str:
    """Do one fault to one worker at one step."""
    return {
        "EIO": lambda here: struck.raised(here, errno.EIO),
        "kill -9": struck.killed,
        "kill -9, and again in recovery": struck.killed_twice,
        "SIGSTOP past the lease": struck.stopped,
        "canceled": struck.canceled,
        "connections lost": struck.backends_killed,
    }[fault](step)


@pytest.mark.parametrize(("fault", "step"), _cases(FAULTS, QUICK))
def test_on_sqlite(fault: str, step: str, tmp_path: Path, origin: Origin) -> None:
    if fault == "power cut":
        with cut_at(step, tmp_path, origin) as after:
            after.recovered()
        outcome = CAME_AGAIN
    else:
        struck = Struck(tmp_path, origin)
        outcome = strike(struck, fault, step)
        struck.recovered()
    record("SQLite", fault, step, outcome)


@pytest.mark.parametrize(("fault", "step"), _cases(ON_POSTGRES, set()))
def test_on_postgres(fault: str, step: str, tmp_path: Path, origin: Origin, postgres_cluster: Cluster) -> None:
    struck = Struck(tmp_path, origin, postgres_cluster)
    try:
        outcome = strike(struck, fault, step)
        struck.recovered()
    finally:
        postgres_cluster.drop(struck.database)
    record("PostgreSQL", fault, step, outcome)
