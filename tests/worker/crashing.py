"""Running workers as processes that are killed, and looking at what is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from longshore.checker import check
from longshore.checker.check import HEALABLE, LocalFiles

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "LONGSHORE_NETWORK__ALLOW": '["127.0.0.0/8"]',
    "LONGSHORE_RETRY__BASE_S": "0.01",
    "LONGSHORE_RETRY__CAP_S": "0.05",
    "LONGSHORE_RECONCILE__STALE_PART_S": "0",
}


def start(depot: Path, urls: Iterable[str], **extra: str) -> subprocess.Popen[str]:
    """Start a worker process on a depot."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LONGSHORE_")}
    environment |= {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **SETTINGS, **extra}
    command = [sys.executable, "-m", "tests.worker.child", str(depot), *urls]
    return subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(depot: Path, urls: Iterable[str], **extra: str) -> tuple[int, str, str]:
    """Run one to its end, whatever that is."""
    with start(depot, urls, **extra) as process:
        out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def findings(depot: Path, *, healed: bool) -> list[tuple[str, str]]:
    """Let the outside witness look; before healing a crash may have left what reconcile is for."""
    report = check(str(depot / "ledger.db"), LocalFiles(depot / "store"))
    return [(one.kind, one.detail) for one in report.findings if healed or one.kind not in HEALABLE]


def settings(**extra: str) -> Mapping[str, str]:
    """Give the environment's settings with changes."""
    return {**SETTINGS, **extra}
