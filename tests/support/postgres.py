"""A throw-away PostgreSQL cluster for this test process, and databases in it that are copied from templates.

The server listens on a Unix socket only, runs as `postgres` when we are root (initdb refuses root), and dies with the
test process even after a kill -9 of it: a small keeper waits for the end of a pipe. fsync is off, because no test cuts
the power of the server; synchronous_commit stays on, because an immediate stop of the server must not lose an answer.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

WAIT_S = 60.0
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "jit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "1h",
    "shared_buffers": "64MB",
    "max_connections": "120",
    "listen_addresses": "",
    "timezone": "UTC",
    "lc_messages": "C",
    "log_min_messages": "error",
}
_KEEPER = """
import os, shutil, signal, sys, time
base = sys.argv[1]
sys.stdin.read()
try:
    pid = int(open(base + "/data/postmaster.pid").readline())
    os.kill(pid, signal.SIGQUIT)
    for _ in range(1000):
        os.kill(pid, 0)
        time.sleep(0.01)
except (OSError, ValueError):
    pass
shutil.rmtree(base, ignore_errors=True)
"""


_EMPTY = """
DO $$
DECLARE
  name text;
  filled boolean;
BEGIN
  SET LOCAL session_replication_role = replica;
  FOR name IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
      AND relname NOT IN ('_meta', '_migrations', 'stage_moves') LOOP
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I)', name) INTO filled;
    IF filled THEN EXECUTE format('DELETE FROM %I', name); END IF;
  END LOOP;
END $$
"""


def binaries() -> Path | None:
    """Find the newest server's programs, or nothing."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda p: float(p.split("/")[-2]), reverse=True)
    for candidate in [*found, os.path.dirname(shutil.which("initdb") or "")]:
        if candidate and os.path.exists(os.path.join(candidate, "initdb")):
            return Path(candidate)
    return None


def require_postgres() -> Path:
    """Give the server's programs; without them skip, except in CI, where a missing component is a failure."""
    found = binaries()
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("PostgreSQL is missing and CI=true; scripts/components.sh installs it")
        pytest.skip("PostgreSQL is not installed; `make components` installs it")
    return found


class Cluster:
    """One server process with its data directory; may be stopped, crashed and started again."""

    def __init__(self, *, within: str = "/tmp", **settings: str) -> None:
        self.settings = SETTINGS | settings
        self.bin = require_postgres()
        self.base = Path(tempfile.mkdtemp(prefix="longshore-pg-", dir=within))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.base, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._as |= {"cwd": self.base, "env": {"PATH": os.environ["PATH"], "HOME": str(self.base), "LC_ALL": "C.UTF-8"}}
        self._names = itertools.count(1)
        self._templates: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper = subprocess.Popen([sys.executable, "-I", "-c", _KEEPER, str(self.base)], stdin=subprocess.PIPE)
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.close()
            raise

    def _initialise(self) -> None:
        command = [
            str(self.bin / "initdb"),
            "-D",
            str(self.base / "data"),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
        ]
        command += ["--locale=C.UTF-8", "--no-sync", "--no-instructions"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **self._as)

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        settings = self.settings | {"unix_socket_directories": str(self.base)}
        command = [str(self.bin / "postgres"), "-D", str(self.base / "data")]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with open(self.base / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._as)
        deadline = time.monotonic() + WAIT_S
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("PostgreSQL did not start:\n" + (self.base / "log").read_text(errors="replace"))
            time.sleep(0.01)

    def _ready(self) -> bool:
        assert self._process is not None
        try:
            lines = (self.base / "data" / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self._process.pid) and lines[7].strip() in ("ready", "standby")

    def stop(self, *, immediate: bool = False) -> None:
        """Stop the server; `immediate` is its own crash: no checkpoint, every connection cut."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        try:
            self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start again with the same data and the same socket."""
        self.stop(immediate=immediate)
        self.start()

    def freeze(self) -> None:
        """Let every process of the server stand still: connections stay, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on."""
        self._signal(signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the server for the block."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def _signal(self, number: int) -> None:
        assert self._process is not None
        found = subprocess.run(["pgrep", "-P", str(self._process.pid)], capture_output=True, text=True, check=False)
        for pid in (self._process.pid, *map(int, found.stdout.split())):
            with contextlib.suppress(ProcessLookupError):  # a process that ended meanwhile
                os.kill(pid, number)

    def close(self) -> None:
        """Stop the server and remove everything."""
        self.stop(immediate=True)
        if self._keeper.stdin:
            self._keeper.stdin.close()
        self._keeper.wait()

    def dsn(self, database: str = "postgres", *, user: str = "postgres", host: Path | None = None) -> str:
        """Give the URL of a database, as a user, through this socket or a proxy's."""
        return f"postgresql://{user}@/{database}?host={host or self.base}"

    def execute(self, sql: str, *, database: str = "postgres", user: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the superuser, outside any transaction."""
        with psycopg.connect(self.dsn(database, user=user), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def create(self, template: str = "template1") -> str:
        """Make a database with a name of its own from a template."""
        name = f"t{next(self._names)}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return name

    def drop(self, name: str) -> None:
        """Remove a database, whoever is connected."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def template(self, name: str, build: Callable[[str], None]) -> str:
        """Build a database once in this process and keep it to be copied; `build` gets its URL and must disconnect."""
        if name not in self._templates:
            self.drop(name)
            self.execute(f'CREATE DATABASE "{name}"')
            build(self.dsn(name))
            self._templates.add(name)
        return name

    @contextlib.contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        """Give the URL of a new database that is gone afterwards."""
        name = self.create(template)
        try:
            yield self.dsn(name)
        finally:
            self.drop(name)

    def emptied(self, name: str) -> str:
        """Give the URL of a database whose rows are gone, all but the schema's own; ten times faster than a new one."""
        self.kill_backends(name)
        with psycopg.connect(self.dsn(name), autocommit=True) as connection:
            connection.execute(_EMPTY.encode())
        return self.dsn(name)

    def kill_backends(self, database: str) -> int:
        """Cut every connection to a database from the server's side."""
        sql = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}'"
        return int(self.execute(sql)[0][0])


REPLICATED = {"wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on"}


class Standby(Cluster):
    """A copy of another cluster that follows it, until it is promoted."""

    def __init__(self, primary: Cluster) -> None:
        self._primary = primary
        super().__init__(**{**primary.settings, "synchronous_standby_names": ""})

    def _initialise(self) -> None:
        command = [str(self.bin / "pg_basebackup"), "-D", str(self.base / "data"), "-h", str(self._primary.base)]
        command += ["-U", "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **self._as)

    def promote(self) -> None:
        """Make it the primary and wait until it takes writes."""
        self.execute("SELECT pg_promote(true, 60)")


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[Cluster]:
    """The server of this test process. Tests that stop it start one of their own instead: `own_postgres_cluster`."""
    cluster = Cluster()
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def own_postgres_cluster() -> Iterator[Cluster]:
    """A server that the tests of one module may stop and crash, as long as they start it again."""
    cluster = Cluster()
    yield cluster
    cluster.close()


@pytest.fixture
def postgres_dsn(postgres_cluster: Cluster) -> Iterator[str]:
    """The URL of an empty database of one test."""
    with postgres_cluster.database() as dsn:
        yield dsn
