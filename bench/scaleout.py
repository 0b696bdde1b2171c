"""`make bench-scaleout`: one to eight worker processes on one PostgreSQL and one store, same settings for every worker.

The database is as far away as `--rtt-ms` says: a proxy delays both directions and counts the round trips. Two origins: one that takes 200 ms per answer (what many workers are for), and one that answers at once (where CPU or
the database is the limit; the table says which, from CPU seconds per process and the database's own accounting).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psycopg

from longshore.domain.identity.requests import download_request
from longshore.domain.model import Scope
from longshore.ledger import Ledger
from tests.support.postgres import Cluster
from tests.support.weed import Weed

RESULTS = Path(__file__).parent / "results"
CORES = os.cpu_count() or 1
TICK = os.sysconf("SC_CLK_TCK")
# The servers stand for machines of their own: their files lie in memory, so that they do not queue at the workers' disk.
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else "/tmp"
DURABLE = {
    "fsync": "on", "full_page_writes": "on", "autovacuum": "on", "max_connections": "200",
    "shared_preload_libraries": "pg_stat_statements",
}  # fmt: skip
COUNTED = """SELECT (SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE dbid = d.oid),
 pg_stat_get_db_xact_commit(d.oid), pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')
 FROM pg_database AS d WHERE datname = %s"""


@dataclass(slots=True)
class Run:
    """What one number of workers came to."""

    origin: str
    workers: int
    jobs: int
    seconds: float  # from the first claim to the last completion, by the database's clock
    rate: float
    cpu: dict[str, float] = field(default_factory=dict)  # CPU seconds by what used them, starting up included
    watched_s: float = 1.0  # from the workers' start to their end
    database_s: float = 0.0  # time that sessions spent in statements
    waits: dict[str, int] = field(default_factory=dict)  # samples of active sessions by what they waited for
    speedup: float = 1.0
    rtt_ms: float = 0.0
    per_job: dict[str, float] = field(default_factory=dict)  # round trips, statements, commits, bytes of WAL

    @property
    def busy(self) -> float:
        """Share of the machine's cores that was used."""
        return sum(self.cpu.values()) / (self.watched_s * CORES)

    @property
    def limit(self) -> str:
        """What kept it from going faster."""
        locks = sum(n for name, n in self.waits.items() if name.startswith(("Lock", "LWLock")))
        if self.busy > 0.85:
            return f"CPU ({max(self.cpu, key=lambda name: self.cpu[name])} the largest part)"
        if locks > sum(self.waits.values()) / 2 and self.database_s > self.seconds * self.workers / 2:
            return "database (waits for locks)"
        if self.database_s > self.seconds * self.workers * 0.7:
            return "database"
        return "the origin's latency" if self.origin == "slow" else "none of these alone"


def cpu_of(pid: int) -> float:
    """Give the CPU seconds of a process, without its children: those are counted for themselves."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(fields[place]) for place in (11, 12)) / TICK


def children(pid: int) -> list[int]:
    """Name a process' children."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Watch:
    """Samples what the database's sessions wait for, and who uses CPU."""

    def __init__(self, ground: Ground, workers: list[int]) -> None:
        self._ground, self._workers = ground, workers
        self.waits: Counter[str] = Counter()
        self._last: dict[int, tuple[str, float]] = {}
        self._first: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        text = "SELECT coalesce(wait_event_type || ':' || wait_event, 'running') FROM pg_stat_activity"
        text += " WHERE state = 'active' AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        with psycopg.connect(self._ground.cluster.dsn(), autocommit=True) as connection:
            while not self._over.wait(0.05):
                self.waits.update(row[0] for row in connection.execute(text))
                self._cpu()

    def _cpu(self) -> None:
        postgres = self._ground.postgres_pid
        groups = {"PostgreSQL": [postgres, *children(postgres)], "workers": self._workers}
        groups |= {"S3 server": [self._ground.weed_pid], "origin": [self._ground.origin.pid]}
        for name, pids in groups.items():
            for pid in pids:
                used = cpu_of(pid)
                self._first.setdefault(pid, used if name in ("S3 server", "origin") or pid == postgres else 0.0)
                self._last[pid] = (name, max(used, self._last.get(pid, (name, 0.0))[1]))  # 0 once it is gone

    def close(self) -> dict[str, float]:
        """Stop; give CPU seconds by group. (Sessions of the database end with their workers and are counted until then.)"""
        self._over.set()
        self._thread.join()
        used: dict[str, float] = {}
        for pid, (name, last) in self._last.items():
            used[name] = used.get(name, 0.0) + last - self._first[pid]
        return {name: round(value, 2) for name, value in used.items()}


class Distance:
    """A socket whose server is a round trip away."""

    def __init__(self, cluster: Cluster, rtt_ms: float) -> None:
        self.directory = tempfile.mkdtemp(prefix="longshore-far-")
        command = [sys.executable, "-m", "bench.delay", f"{cluster.base}/.s.PGSQL.5432", str(rtt_ms / 2000)]
        self._process = subprocess.Popen(
            [*command, f"{self.directory}/.s.PGSQL.5432"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def round_trips(self) -> int:
        """Return the number of round trips so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._line())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


class Ground:
    """The servers of one run."""

    def __init__(self, pause_s: float, rtt_ms: float) -> None:
        self.cluster, self.weed = Cluster(within=MEMORY, **DURABLE), Weed(MEMORY)
        self.cluster.execute("CREATE EXTENSION pg_stat_statements")
        self.rtt_ms, self.distance = rtt_ms, Distance(self.cluster, rtt_ms)
        self.weed.start()
        command = [sys.executable, "-m", "bench.slow_origin", str(pause_s)]
        self.origin = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.origin.stdout is not None
        self.port = int(self.origin.stdout.readline())

    @property
    def postgres_pid(self) -> int:
        return int((self.cluster.base / "data" / "postmaster.pid").read_text().splitlines()[0])

    @property
    def weed_pid(self) -> int:
        assert self.weed._process is not None
        return self.weed._process.pid

    def close(self) -> None:
        self.origin.kill()
        self.distance.close()
        self.weed.close()
        self.cluster.close()


def one_run(ground: Ground, name: str, workers: int, jobs: int, concurrency: int, home: Path, remote: bool) -> Run:
    """Plan the jobs, start the workers, wait for their end, ask the ledger how long it took."""
    database = ground.cluster.create()
    dsn, bucket = ground.cluster.dsn(database), ground.weed.bucket() if remote else ""
    with Ledger.open(dsn, create=True) as ledger:
        urls = [f"http://127.0.0.1:{ground.port}/{name}/{workers}/{n}" for n in range(jobs)]
        ledger.plan(Scope("default", "default"), [download_request(url) for url in urls])
    before = counted(ground, database)
    far = ground.cluster.dsn(database, host=Path(ground.distance.directory))
    store = f"s3://{bucket}/depot" if bucket else ""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "longshore", "run", "-q"],
            env=environment(ground, far, store, concurrency, home / f"{ground.rtt_ms}-{name}-{workers}-{number}"),
            stdout=subprocess.DEVNULL,
        )
        for number in range(workers)
    ]
    watch = Watch(ground, [one.pid for one in processes])
    started = time.monotonic()
    codes = [one.wait() for one in processes]
    cpu, watched_s = watch.close(), time.monotonic() - started
    run = measured(dsn, name, workers, jobs)
    if any(codes) or run.jobs != jobs:
        raise SystemExit(f"the workers ended with {codes}; {run.jobs} of {jobs} jobs are completed")
    names = ("round trips", "statements", "commits", "WAL bytes")
    spent = [after - first for after, first in zip(counted(ground, database), before, strict=True)]
    run.rtt_ms, run.per_job = ground.rtt_ms, {name: round(n / jobs, 3) for name, n in zip(names, spent, strict=True)}
    run.cpu, run.watched_s, run.waits = cpu, watched_s, dict(watch.waits.most_common(8))
    return run


def counted(ground: Ground, database: str) -> list[float]:
    """Return round trips, statements, commits and bytes of WAL so far."""
    with psycopg.connect(ground.cluster.dsn(), autocommit=True) as connection:
        (row,) = connection.execute(COUNTED, (database,)).fetchall()
    return [ground.distance.round_trips(), *map(float, row)]


def environment(ground: Ground, dsn: str, store: str, concurrency: int, depot: Path) -> dict[str, str]:
    """Give every worker the same settings, and a directory of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LONGSHORE_", "AWS_"))}
    return kept | {
        "LONGSHORE_DEPOT": str(depot),
        "LONGSHORE_LEDGER": dsn,
        **({"LONGSHORE_STORE": store} if store else {}),
        "LONGSHORE_S3__ENDPOINT": ground.weed.url,
        "LONGSHORE_S3__ACCESS_KEY_ID": ground.weed.key_id,
        "LONGSHORE_S3__SECRET_ACCESS_KEY": ground.weed.secret,
        "LONGSHORE_NETWORK__ALLOW": '["127.0.0.0/8"]',
        "LONGSHORE_TRANSFER__CONCURRENCY": str(concurrency),
        "LONGSHORE_HOSTS__CONCURRENCY": "1000",  # one origin stands for many: politeness is not what is measured
    }


def measured(dsn: str, name: str, workers: int, jobs: int) -> Run:
    """Read the figures from the ledger and from the database's own accounting."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*), max(completed_at) - (SELECT min(claimed_at) FROM job_claims) FROM jobs"
            " WHERE status = 'completed'"
        ).fetchone()
        time.sleep(1.2)  # sessions hand their figures in when they end, and the collector writes at its own pace
        active = connection.execute(
            "SELECT active_time FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    assert active is not None
    seconds = float(row[1] or 1) / 1e6
    return Run(
        name, workers, int(row[0]), round(seconds, 2), round(jobs / seconds, 1), database_s=round(active[0] / 1e3, 2)
    )


def table(runs: list[Run]) -> str:
    """Write the runs for people."""
    lines = [
        (
            "| database | origin | workers | files | s | files/s | × one | CPU used of the machine | CPU s: workers, PostgreSQL, S3, origin"
            " | database s | round trips, statements, commits per file | limit |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        parts = ", ".join(f"{run.cpu.get(name, 0):.1f}" for name in ("workers", "PostgreSQL", "S3 server", "origin"))
        counts = ", ".join(f"{run.per_job[name]:.2f}" for name in ("round trips", "statements", "commits"))
        lines.append(
            f"| {run.rtt_ms:g} ms | {run.origin} | {run.workers} | {run.jobs} | {run.seconds:.1f} | {run.rate:.0f} | {run.speedup:.2f} |"
            f" {run.busy:.0%} | {parts} | {run.database_s:.1f} | {counts} | {run.limit} |"
        )
    return "\n".join(lines)


def measure(given: argparse.Namespace, name: str, rtt_ms: float) -> list[Run]:
    """Run all numbers of workers against one origin."""
    runs: list[Run] = []
    ground = Ground(0.2 if name == "slow" else 0.0, rtt_ms)
    with tempfile.TemporaryDirectory(prefix="longshore-scaleout-") as home:
        try:
            jobs, places = getattr(given, f"{name}_jobs"), getattr(given, f"{name}_concurrency")
            for workers in given.workers:
                run = one_run(ground, name, workers, jobs, places, Path(home), given.store == "s3")
                run.speedup = round(run.rate / (runs or [run])[0].rate, 2)
                runs.append(run)
                print(
                    f"{name}, {rtt_ms:g} ms: {workers} workers, {run.rate:.0f} files/s, per file {run.per_job}",
                    flush=True,
                )
        finally:
            ground.close()
    return runs


def main() -> None:
    """Run everything, print the table, write bench/results/scaleout.json."""
    parser = argparse.ArgumentParser(prog="python -m bench.scaleout", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--slow-concurrency", type=int, default=4, help="transfers at once, per worker")
    parser.add_argument("--fast-concurrency", type=int, default=16, help="transfers at once, per worker")
    parser.add_argument("--slow-jobs", type=int, default=600)
    parser.add_argument("--fast-jobs", type=int, default=2000)
    parser.add_argument("--origins", nargs="*", default=["slow", "fast"])
    parser.add_argument("--rtt-ms", type=float, nargs="*", default=[0, 2, 10], help="how far away the database is")
    parser.add_argument("--store", choices=["s3", "local"], default="s3")
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    runs = [run for rtt_ms in given.rtt_ms for name in given.origins for run in measure(given, name, rtt_ms)]
    each = f"{given.slow_concurrency} (slow) or {given.fast_concurrency} (fast) transfers at once"
    print(f"{CORES} cores; every worker: {each}; 4 KiB files; the slow origin takes 200 ms per answer\n")
    print(table(runs))
    if not given.no_write:
        RESULTS.mkdir(exist_ok=True)
        facts = [asdict(run) | {"busy": round(run.busy, 3), "limit": run.limit} for run in runs]
        body = {
            "machine": f"{platform.machine()}, {CORES} cores, Linux {platform.release()}",
            "concurrency_per_worker": {"slow": given.slow_concurrency, "fast": given.fast_concurrency},
            "runs": facts,
        }
        (RESULTS / "scaleout.json").write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
