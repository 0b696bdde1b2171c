"""How fast the ledger is, on one process with synchronous=FULL. Prints a table and JSON; nothing here is a test.

make bench-ledger               two minutes
make bench-ledger ROWS=3000000  with the big table
make bench-ledger PARTS=speed   one part of speed, growth, postgres; every part is kept in bench/results/ledger.json
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from longshore.domain.identity.keys import op_key
from longshore.domain.identity.requests import download_request
from longshore.domain.model import Blob, JobRequest, Lease, NewArtifact, Scope, Validators
from longshore.domain.outcomes import Completed, Outcome
from longshore.domain.settings import HostsSettings
from longshore.ledger import Intent, Ledger

PARTS = ["speed", "growth", "postgres"]
RESULTS = Path(__file__).parent / "results" / "ledger.json"
SCOPE = Scope("bench", "bench")
FREE = HostsSettings(concurrency=1_000_000)


def _url(number: int, hosts: int = 50) -> str:
    return f"https://host{number % hosts}.example/paper/{number}.pdf"


def requests(start: int, stop: int) -> list[JobRequest]:
    return [download_request(_url(n)) for n in range(start, stop)]


def own(start: int, stop: int) -> list[JobRequest]:
    return [JobRequest("task", f"key-{n}") for n in range(start, stop)]


def in_batches(size: int, total: int) -> Iterator[tuple[int, int]]:
    for start in range(0, total, size):
        yield start, min(start + size, total)


def rate(count: int, work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def plan_all(ledger: Ledger, make: Callable[[int, int], list[JobRequest]], total: int, batch: int = 1_000) -> None:
    for start, stop in in_batches(batch, total):
        ledger.plan(SCOPE, make(start, stop))


def outcome(number: int) -> Outcome:
    blob = Blob(f"{number:08x}" * 8, 16_384, f"bench/bench/{number:08x}", "local", "application/pdf")
    return Completed((NewArtifact(blob),), Validators(f'"{number}"'), facts={"bytes": 16_384, "elapsed_ms": 12})


def claim_and_complete(ledger: Ledger, batch: int, *, register: bool, intents: bool) -> int:
    done = 0
    while leases := ledger.claim("bench", limit=batch, ttl_s=120, defaults=FREE):
        if intents:
            ledger.begin([_intent(lease, done + place) for place, lease in enumerate(leases)])
        ended = [
            (lease, outcome((done + n) * 2_654_435_761 % 2**32) if register else Completed(()))
            for n, lease in enumerate(leases)
        ]
        ledger.settle(ended)
        done += len(leases)
    return done


def _intent(lease: Lease, number: int) -> Intent:
    sha256 = f"{number * 2_654_435_761 % 2**32:08x}" * 8
    return Intent(lease, "FINALIZE", op_key("FINALIZE", lease.job_id, sha256=sha256), request={"sha256": sha256})


def claim_latency_ms(ledger: Ledger, rounds: int = 300) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        leases = ledger.claim("latency", limit=1, ttl_s=120, defaults=FREE)
        times.append(time.perf_counter() - started)
        assert leases
    return statistics.median(times) * 1_000


def rss_mib() -> float:
    """Tell what this process keeps in memory now, file pages that SQLite maps included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def speed(folder: Path, count: int, batch: int) -> dict[str, float]:
    """Planning, planning again, claiming and completing on SQLite with synchronous=FULL."""
    figures: dict[str, float] = {}
    with Ledger.open(folder / "plan.db", create=True) as ledger:
        ready = [requests(start, stop) for start, stop in in_batches(1_000, count)]
        figures["plan, requests given (jobs/s)"] = rate(count, lambda: [ledger.plan(SCOPE, part) for part in ready])
        figures["plan again (jobs/s)"] = rate(count, lambda: [ledger.plan(SCOPE, part) for part in ready])
        figures["claim + FINALIZE intent + complete with artifact (jobs/s)"] = rate(
            count, lambda: claim_and_complete(ledger, batch, register=True, intents=True)
        )
    with Ledger.open(folder / "plan2.db", create=True) as ledger:
        figures["plan, from URLs (jobs/s)"] = rate(count, lambda: plan_all(ledger, requests, count))
        figures["claim + complete with artifact (jobs/s)"] = rate(
            count, lambda: claim_and_complete(ledger, batch, register=True, intents=False)
        )
    with Ledger.open(folder / "own.db", create=True) as ledger:
        plan_all(ledger, own, count)
        figures["claim + complete (jobs/s)"] = rate(
            count, lambda: claim_and_complete(ledger, batch, register=False, intents=False)
        )
    return figures


def against_peers(count: int) -> dict[str, float]:
    """Claim and complete on PostgreSQL: ours, PGQueuer and Procrastinate in one run on one server."""
    from bench.ledger_postgres import run

    return {f"PostgreSQL, {name}, claim + complete (jobs/s)": value for name, value in run(count, rounds=3).items()}


def growth(folder: Path, rows: int) -> dict[str, float]:
    """Claim latency and memory while one endless list is planned; SQLite's cache of 64 MiB fills first, then it is flat."""
    figures: dict[str, float] = {}
    marks = sorted({mark for mark in (30_000, 100_000, 300_000, 1_000_000, 3_000_000) if mark < rows} | {rows})
    planned = 0
    with Ledger.open(folder / "grow.db", create=True) as ledger:
        for mark in marks:
            for start in range(planned, mark, 5_000):
                ledger.plan(SCOPE, [download_request(_url(n)) for n in range(start, min(start + 5_000, mark))])
            planned = mark
            figures[f"memory at {mark:,} rows (MiB)"] = rss_mib()
            figures[f"claim of one at {mark:,} rows (ms)"] = claim_latency_ms(ledger)
    figures["claim of one, last against first"] = (
        figures[f"claim of one at {marks[-1]:,} rows (ms)"] / figures[f"claim of one at {marks[0]:,} rows (ms)"]
    )
    return figures


def keep(figures: dict[str, float]) -> None:
    """Write the figures beside the ones of the other parts, with the load they were measured beside."""
    RESULTS.parent.mkdir(exist_ok=True)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    load = round(os.getloadavg()[0], 2)
    for name, value in figures.items():
        kept[name] = {"value": round(value, 3), "load": load, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="speed, growth, postgres; none means all")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--folder", type=Path, default=None)
    chosen = parser.parse_args()
    parts = chosen.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"there is no part {min(unknown)}: {', '.join(PARTS)}")
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        if "speed" in parts:
            figures |= speed(Path(folder), chosen.count, chosen.batch)
        if "growth" in parts:
            figures |= growth(Path(folder), chosen.rows)
    if "postgres" in parts:
        figures |= against_peers(chosen.count // 5)
    for name, value in figures.items():
        sys.stdout.write(f"{name:60} {value:12,.2f}\n")
    sys.stdout.write(json.dumps({name: round(value, 3) for name, value in figures.items()}) + "\n")
    keep(figures)


if __name__ == "__main__":
    main()
