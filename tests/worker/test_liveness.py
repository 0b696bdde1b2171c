"""A process that is gone is seen at once; one that lives never is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from longshore.worker.liveness import Liveness, new_owner

NEIGHBOUR = """
import sys
from pathlib import Path
from longshore.worker.liveness import Liveness, new_owner
alive = Liveness(Path(sys.argv[1]), new_owner())
alive.hold()
print(alive.owner, flush=True)
sys.stdin.read()
"""


def _neighbour(directory: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", NEIGHBOUR, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    return process, process.stdout.readline().strip()


def test_a_killed_process_is_dead_at_once_and_a_living_one_is_not(tmp_path: Path) -> None:
    ours = Liveness(tmp_path, new_owner())
    ours.hold()
    process, owner = _neighbour(tmp_path)
    assert ours.dead() == []
    process.kill()
    process.wait()
    assert ours.dead() == [owner]
    ours.forget([owner])
    assert ours.dead() == []
    ours.release()
    assert list(tmp_path.iterdir()) == []


def test_owners_are_unique_per_start() -> None:
    assert len({new_owner() for _ in range(100)}) == 100


def test_owners_of_another_machine_are_not_judged(tmp_path: Path) -> None:
    ours = Liveness(tmp_path, new_owner())
    (tmp_path / "elsewhere.deadbeef.1.00000000.alive").touch()
    assert ours.dead() == []
