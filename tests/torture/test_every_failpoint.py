"""No failpoint is for show: every declared one is passed by some program, and the program is killed there and comes again."""

from __future__ import annotations

import importlib
import pkgutil
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import longshore
from longshore import failpoints
from tests.store.test_crash import STEPS
from tests.support.origin import Origin
from tests.support.postgres import Cluster
from tests.support.postgres import postgres_cluster as postgres_cluster  # noqa: PLC0414 - the fixture
from tests.torture.hosts import HOSTS
from tests.torture.voyages import VOYAGES as OTHERS
from tests.torture.voyages import Remote, Voyage
from tests.worker.test_crashes import REACHED

VOYAGES = (*OTHERS, *HOSTS)
ROOT = Path(__file__).resolve().parents[2]
# Killed in the tests of their own area, which have what it takes to come that far; the file names each of them.
ELSEWHERE = {
    "tests/worker/test_crashes.py": tuple(REACHED),
    "tests/store/test_crash.py": tuple(STEPS),
    "tests/cli/test_maintenance_commands.py": ("put.staged", "put.planned", "put.linked", "put.settled", "reconcile.uploads"),
    "tests/ledger/test_schema.py": ("schema.create", "schema.rename", "schema.migrate"),
    "tests/web/test_serve.py": ("web.planned",),
    "tests/depot/test_delete.py": ("delete.rows", "delete.quarantined", "delete.removed", "delete.freed"),
    "tests/depot/test_webhooks.py": ("webhook.sent",),
    "tests/cli/test_disk_space.py": ("part.move", "disk.part"),
    "tests/cli/test_copy_commands.py": ("copy.page", "copy.finish"),
    "tests/worker/torrent/test_command.py": (
        "torrent.add.before", "torrent.add.after", "torrent.adopt.before", "torrent.cancel.before",
        "torrent.cancel.after", "torrent.cycle", "torrent.import.leased", "torrent.import.hashed",
        "torrent.import.linked", "torrent.import.before", "torrent.import.after",
    ),
}  # fmt: skip
KILLS = [(voyage, point) for voyage in VOYAGES for point in voyage.points]
# One of every area on every run of the suite; `make torture` has all.
QUICK = {
    "adopt.begun",
    "reconcile.marked",
    "upload.linked",
    "blob.damaged",
    "put.damaged",
    "place.name",
    "place.replace",
    "staging.mend",
    "link.rename",
}


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        yield server


@pytest.fixture
def far(postgres_cluster: Cluster) -> Iterator[str]:
    with postgres_cluster.database() as dsn:
        yield dsn


def begin(kind: type[Voyage], home: Path, origin: Origin, request: pytest.FixtureRequest) -> Voyage:
    voyage = kind(home, origin)
    if isinstance(voyage, Remote):
        voyage.server = request.getfixturevalue("far")
    return voyage


def all_declared() -> set[str]:
    """Import every module of the program, so that every failpoint is known."""
    for module in pkgutil.walk_packages(longshore.__path__, "longshore."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return set(failpoints.KNOWN)


def test_every_declared_failpoint_has_its_kill() -> None:
    killed = {point for _, point in KILLS} | {point for points in ELSEWHERE.values() for point in points}
    assert killed == all_declared()


def test_every_place_in_the_code_is_declared_and_every_declared_one_is_a_place() -> None:
    written = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r'failpoints\.hit\("([\w.]+)"\)', path.read_text("utf-8"))
    }
    named = {"stage.barrier", "link.dirsync", "part.fsync"}  # barriers hit by the name they are made with
    assert written | named == all_declared() | named
    assert named <= all_declared()


@pytest.mark.parametrize("path", sorted(ELSEWHERE))
def test_what_is_killed_elsewhere_is_named_there(path: str) -> None:
    text = (ROOT / path).read_text("utf-8")
    assert "kill" in text
    assert [point for point in ELSEWHERE[path] if not re.search(rf'"{re.escape(point)}[="]', text)] == []


@pytest.mark.parametrize("kind", VOYAGES, ids=lambda kind: kind.__name__)
def test_a_voyage_passes_its_failpoints(
    kind: type[Voyage], tmp_path: Path, origin: Origin, request: pytest.FixtureRequest
) -> None:
    voyage = begin(kind, tmp_path, origin, request)
    log = tmp_path / "log"
    voyage.run(LONGSHORE_FAILPOINTS_LOG=str(log))
    assert set(kind.points) <= set(log.read_text().split())


@pytest.mark.parametrize(
    ("kind", "point"),
    [pytest.param(kind, point, marks=[] if point in QUICK else pytest.mark.torture, id=point) for kind, point in KILLS],
)
def test_killed_there_it_comes_again(
    kind: type[Voyage], point: str, tmp_path: Path, origin: Origin, request: pytest.FixtureRequest
) -> None:
    voyage = begin(kind, tmp_path, origin, request)
    died = voyage.run(LONGSHORE_FAILPOINTS=f"{point}=kill")
    assert died.returncode == -signal.SIGKILL, died.stderr
    voyage.recovered()
    voyage.sound()
