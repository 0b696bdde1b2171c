"""kill -9 at system calls of one download, and errors instead of their answers: afterwards one honest run makes it right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ledgers import build_template
from tests.support.postgres import Cluster
from tests.support.postgres import postgres_cluster as postgres_cluster  # noqa: PLC0414 - the fixture
from tests.torture.sweeping import CALLS, Sweep

ERRORS = ("ENOSPC", "EIO", "EMFILE", "EDQUOT", "EROFS", "EACCES")
pytestmark = pytest.mark.timeout(1800)  # some 200 runs each, under strace
MOST = 400  # a run has fewer calls of one kind in one thread than this


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Sweep]:
    made = Sweep(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("inject", ["fsync:when=2", "linkat:when=1"])
def test_killed_at_some_calls(sweep: Sweep, inject: str) -> None:
    """A few of them on every run of the suite; `make torture` has all."""
    depot = sweep.home / "depot"
    call, _, when = inject.partition(":")
    sweep.struck(depot, f"{call}:signal=SIGKILL:{when}")
    sweep.healed(depot)


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("call", CALLS)
def test_killed_at_every_call(sweep: Sweep, call: str) -> None:
    """N = 1, 2, 3 … until a run is not hit any more."""
    step = 10 if call in ("openat", "fcntl", "write", "flock") else 1
    for n in range(1, MOST, step):
        depot = sweep.home / f"depot-{n}"
        struck = sweep.struck(depot, f"{call}:signal=SIGKILL:when={n}")
        sweep.healed(depot)
        if struck.returncode == 0:
            return


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("call", [*(call for call in CALLS if call not in ("flock", "fcntl")), "sendto", "recvfrom"])
def test_killed_at_every_call_on_postgres(tmp_path: Path, postgres_cluster: Cluster, call: str) -> None:
    """The same with the ledger in a server: what is sent and received on its socket is struck as well."""
    step = {"openat": 20, "write": 10, "sendto": 3, "recvfrom": 3}.get(call, 1)
    template = postgres_cluster.template("swept", build_template)
    for n in range(1, MOST, step):
        with postgres_cluster.database(template) as ledger:
            sweep = Sweep(tmp_path, ledger)
            try:
                depot = tmp_path / f"depot-{n}"
                struck = sweep.struck(depot, f"{call}:signal=SIGKILL:when={n}")
                sweep.healed(depot)
            finally:
                sweep.close()
        if struck.returncode == 0:
            return


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("call", ["openat", "pwrite64", "fsync", "linkat", "unlinkat"])
def test_killed_again_while_recovering(sweep: Sweep, call: str) -> None:
    """The first dies at the link, the next one at the N-th call of its recovery."""
    for n in range(1, MOST, 20 if call == "openat" else 1):
        depot = sweep.home / f"depot-{n}"
        sweep.struck(depot, "linkat:signal=SIGKILL:when=1")
        struck = sweep.struck(depot, f"{call}:signal=SIGKILL:when={n}")
        sweep.healed(depot)
        if struck.returncode == 0:
            return


@pytest.mark.torture
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    "call", ["openat", "pwrite64", "fsync", "syncfs", "linkat", "unlinkat", "mkdirat", "fallocate", "ftruncate"]
)
def test_an_error_at_every_call(sweep: Sweep, call: str, error: str) -> None:
    """The disk says no: a clear end, nothing half-published, and later it works."""
    for n in range(1, MOST, 25 if call == "openat" else 2):
        depot = sweep.home / f"depot-{n}"
        struck = sweep.struck(depot, f"{call}:error={error}:when={n}")
        assert struck.returncode >= 0, struck.stderr
        if call != "openat":  # Python itself may be missing a module
            assert b"Traceback" not in struck.stderr, struck.stderr.decode()
        sweep.healed(depot)
        if struck.returncode == 0:
            return
