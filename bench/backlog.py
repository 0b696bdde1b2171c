"""Backlog: how long a claim takes and how much memory a worker needs, with 10⁴ to 10⁷ jobs waiting.

The ledgers are grown by SQL in the ledger's own format (all constraints, indexes and triggers on; keys and ids in order, so
that ten million rows take minutes), and claimed from in turn, one claim each: what disturbs the machine disturbs all sizes.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from bench.machine import measure, nginx
from bench.peers import PROGRAM
from bench.report import Limit, Scene
from longshore.domain.identity.requests import download_request
from longshore.domain.model import Scope, Status
from longshore.domain.settings import HostsSettings
from longshore.ledger import Ledger

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
HOSTS = 1_000
CLAIMS = 1_000
STEP = 200_000
SCOPE = Scope()
_GROW = """
WITH RECURSIVE numbers (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)
INSERT INTO jobs (tenant_id, project_id, job_id, job_type, status, stage, ready, lane_id, priority, created_at, updated_at,
  idempotency_key, canonical_url, host)
SELECT 'default', 'default', printf('%08x-%04x-7%03x-8000-000000000000', n >> 28, (n >> 12) & 65535, n & 4095), 'download',
       'pending', 'PLANNED', 1, l.lane_id, 0, :now, :now, printf('%064x', n),
       printf('https://%s/papers/%d.pdf', l.host, n), l.host
  FROM numbers CROSS JOIN lanes AS l ON l.lane_id = 1 + n % :hosts
"""


def grown(home: Path, size: int) -> Path:
    """Give a depot whose ledger has `size` waiting jobs at a thousand hosts."""
    depot = home / str(size)
    if (depot / "whole").exists():
        Ledger.apply_migration(depot / "ledger.db")
        connection = apsw.Connection(str(depot / "ledger.db"))
        connection.execute("UPDATE hosts SET paused = 0; UPDATE lanes SET parked_until = NULL WHERE parked_until > 0")
        connection.close()
        return depot
    shutil.rmtree(depot, ignore_errors=True)
    depot.mkdir(parents=True)
    with Ledger.open(depot / "ledger.db", create=True) as ledger:
        ledger.plan(SCOPE, [download_request(f"https://host{n}.example.org/first.pdf") for n in range(HOSTS)])
        now = ledger.now()
    connection = apsw.Connection(str(depot / "ledger.db"))
    connection.pragma("foreign_keys", 1)
    connection.pragma("synchronous", 0)  # a half-built one is thrown away
    connection.pragma("cache_size", -262_144)
    for first in range(HOSTS, size, STEP):
        last = min(first + STEP, size) - 1
        connection.execute(_GROW, {"first": first, "last": last, "now": now, "hosts": HOSTS})
    connection.execute("UPDATE counters SET n = ? WHERE status = 'pending'", (size,))
    connection.pragma("wal_checkpoint", "TRUNCATE")
    connection.close()
    os.sync()
    (depot / "whole").touch()
    return depot


def claim_times(depots: dict[int, Path]) -> dict[int, list[float]]:
    """Claim one job at a time from every ledger in turn; seconds, each with its durable commit."""
    ledgers = {size: Ledger.open(depot / "ledger.db") for size, depot in depots.items()}
    times: dict[int, list[float]] = {size: [] for size in depots}
    try:
        for turn in range(-100, CLAIMS):  # the first hundred fill the caches
            for size, ledger in ledgers.items():
                started = time.perf_counter()
                leases = ledger.claim("bench", limit=1, ttl_s=3600, defaults=HostsSettings())
                if turn >= 0:
                    times[size].append(time.perf_counter() - started)
                if not leases:
                    raise SystemExit(f"backlog: nothing to claim among {size} jobs")
    finally:
        for ledger in ledgers.values():
            ledger.close()
    return times


def worker(depot: Path, port: int, count: int) -> str:
    """Plan `count` real files ahead of everything, let the other hosts rest, and give the command that runs them."""
    with Ledger.open(depot / "ledger.db") as ledger:
        requests = [download_request(f"http://127.0.0.1:{port}/{n}.bin", priority=5) for n in range(count)]
        ledger.plan(SCOPE, requests, again="always")
    connection = apsw.Connection(str(depot / "ledger.db"))
    connection.set_busy_timeout(60_000)
    connection.execute("UPDATE hosts SET paused = 1 WHERE host LIKE '%.example.org'")
    connection.close()
    options = f"--depot {depot} --allow-net 127.0.0.0/8 --set hosts.concurrency=32 --max-wait 0 -q"
    return f"{PROGRAM} run {options} || [ $? = 4 ]"  # 4: stopped with work left


def completed(depot: Path) -> int:
    """Count what is done."""
    with Ledger.open(depot / "ledger.db") as ledger:
        return ledger.counts(SCOPE)[Status.COMPLETED]


def backlog(work: Path, write_files: Callable[[Path, list[int]], None]) -> Scene:
    """Claim from 10⁴ to 10⁷ waiting jobs, and run 2,000 files in front of them."""
    sizes = [int(size) for size in os.environ.get("BENCH_BACKLOG", "").split()] or list(SIZES)
    home = Path(os.environ.get("BENCH_DIR", "/var/tmp"), "longshore-bench-backlog")
    scene = Scene(
        "backlog", f"one claim with {sizes[0]:,} to {sizes[-1]:,} jobs waiting; a worker with 2,000 files before them"
    )
    depots = {size: grown(home, size) for size in sizes}
    for size, seconds in claim_times(depots).items():
        ordered = sorted(seconds)
        median, worst = statistics.median(ordered), ordered[len(ordered) * 99 // 100]
        scene.extra[f"claim of one at {size:,}: p50, p99 (ms)"] = f"{median * 1000:.2f}, {worst * 1000:.2f}"
        scene.facts[f"p99 {size}"] = worst
    write_files(work / "backlog", [16_384] * 2_000)
    with nginx(work / "backlog") as (port, _):
        for size, depot in depots.items():
            command = worker(depot, port, 2_000)
            held = completed(depot)
            figure = measure(command, cwd=work, log=work / "backlog.log")
            if completed(depot) != held + 2_000:
                raise SystemExit(f"backlog: {completed(depot) - held} of 2000 files arrived")
            scene.note(f"longshore run at {size:,}", figure)
            scene.facts[f"rss {size}"] = figure.peak_rss_mib
    least, most = sizes[0], sizes[-1]
    ratio = scene.facts[f"p99 {most}"] / scene.facts[f"p99 {least}"]
    scene.limits.append(Limit(f"claim p99 at {most:,} beside {least:,}", ratio, 1.5, most_is_best=False))
    million = min(sizes, key=lambda size: abs(size - 1_000_000))
    scene.limits.append(
        Limit(f"worker's peak MiB at {million:,}", scene.facts[f"rss {million}"], 150, most_is_best=False)
    )
    if not os.environ.get("BENCH_KEEP"):
        shutil.rmtree(home, ignore_errors=True)
    return scene
