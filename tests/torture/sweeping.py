"""Runs one download under strace, which kills it or makes a system call fail at the N-th time; then lets it finish in peace."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from longshore.checker import check
from longshore.checker.check import LocalFiles
from tests.support.origin import Origin, Thing, stamped
from tests.support.program import SOURCES, environment, execute

BODY_BYTES = 400_000  # larger than what is kept in memory: parts, checkpoints and links are all on the way
# What touches the disk. A counter of strace counts per call and per thread.
CALLS = (
    "openat", "write", "pwrite64", "fsync", "fdatasync", "syncfs", "sync_file_range", "ftruncate", "fallocate",
    "linkat", "unlinkat", "unlink", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "flock", "fcntl",
)  # fmt: skip


class Sweep:
    """One origin with one body, and a fresh depot for each run."""

    def __init__(self, home: Path, ledger: str | None = None) -> None:
        self.home = home
        self.ledger = ledger  # a PostgreSQL server, or a file in each depot
        self.body = stamped(1, BODY_BYTES)
        self.origin = Origin()
        self.url = self.origin.add("/body", Thing(self.body))

    def close(self) -> None:
        self.origin.close()

    def struck(self, depot: Path, inject: str) -> subprocess.CompletedProcess[bytes]:
        """Run `get` with one injected fault."""
        call = inject.partition(":")[0]
        command = [
            "strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={inject}",
            os.path.realpath(sys.executable), "-m", "longshore", "get", self.url, "--depot", str(depot),
            "--allow-net", "127.0.0.0/8", "--max-wait", "0", "--set", "lease.ttl_s=5",
        ]  # fmt: skip
        extra = {"PYTHONPATH": os.pathsep.join([str(SOURCES), *_packages()]), "PYTHONDONTWRITEBYTECODE": "1"}
        extra |= self._where()
        return subprocess.run(command, env=environment(extra), capture_output=True, timeout=120, check=False)

    def _where(self) -> dict[str, str]:
        return {"LONGSHORE_LEDGER": self.ledger} if self.ledger else {}

    def healed(self, depot: Path) -> None:
        """Whatever happened before: one honest run, and everything is right."""
        where = self._where()
        execute("get", self.url, "--depot", depot, "--allow-net", "127.0.0.0/8", env=where).ok()
        execute("reconcile", "--depot", depot, "--set", "reconcile.stale_part_s=0", env=where).ok()
        report = check(self.ledger or str(depot / "ledger.db"), LocalFiles(depot / "store"))
        assert report.findings == []
        digest = hashlib.sha256(self.body).hexdigest()
        (blob,) = (depot / "store").glob(f"default/default/*/{digest}*")
        assert blob.read_bytes() == self.body


def _packages() -> list[str]:
    """Where the packages of this interpreter's environment are: the real interpreter does not know the environment."""
    return [path for path in sys.path if path.endswith("site-packages")]
