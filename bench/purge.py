"""Purge 900,000 of 1,000,000 jobs while a worker claims and completes: what is touched, and how long a claim takes.

    python -m bench.purge [--rows 1000000] [--ledger postgresql://…/empty_database]

Of the jobs 90 % are over and nothing points to them (canceled and failed), 5 % hold artifacts, 5 % wait. A second
process plans, claims and completes jobs of its own throughout; its claims are timed before and during the purge.
Afterwards: every live job and artifact is as it was, and the archive reads back equal to what the manifest said.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from longshore.depot.maintenance.purge import retire
from longshore.domain.identity.requests import download_request
from longshore.domain.model import SECOND, Blob, NewArtifact, Scope
from longshore.domain.outcomes import Completed, Failed
from longshore.exports.manifest_rows import ManifestRow
from longshore.exports.read_ledger import manifest_rows
from longshore.ledger import Ledger, Move
from longshore.ledger.queries.listing import ArtifactFilter

SCOPE = Scope()
WORK = Scope("default", "work")  # of the worker that goes on meanwhile
BATCH = 2_000
HOSTS = 50
CLAIM = 16
OLD_S = 100 * 86_400


class Clock:
    """The ledger's time while it is filled: a hundred days ago."""

    def __init__(self) -> None:
        self.now = time.time_ns() // 1000 - OLD_S * SECOND

    def __call__(self) -> int:
        return self.now


def blob(number: int) -> Blob:
    """Make bytes that nobody has to write."""
    return Blob(f"{number:064x}", 4_096, f"p/{number}", "local", "application/pdf")


def fill(where: str, rows: int) -> None:
    """Make the old ledger by its own verbs: of each batch 60 % canceled, 30 % failed, 5 % held, 5 % waiting."""
    clock = Clock()
    with Ledger.open(where, create=True, clock=clock) as ledger:
        for start in range(0, rows, BATCH):
            wanted = range(start, min(start + BATCH, rows))
            urls = [f"https://h{n % HOSTS}.example/file/{n}" for n in wanted]
            ids = [one.job_id for one in ledger.plan(SCOPE, [download_request(url) for url in urls])]
            first, second, third = (len(ids) * part // 100 for part in (60, 90, 95))
            ledger.cancel(SCOPE, ids[:first])
            finish(ledger, ids[first:second], held=False)
            finish(ledger, ids[second:third], held=True)
            clock.now += SECOND


def finish(ledger: Ledger, ids: list[str], *, held: bool) -> None:
    """End jobs as a worker would."""
    left = set(ids)
    while left:
        leases = ledger.claim("filler", limit=len(left), ttl_s=3600, scope=SCOPE, job_ids=sorted(left), ahead=BATCH)
        ledger.advance([Move(lease, "STREAMING") for lease in leases])
        numbers = [int((lease.job.request.url or "0").rpartition("/")[2]) for lease in leases]
        ends = [Completed((NewArtifact(blob(n)),)) if held else Failed("http_404", "gone") for n in numbers]
        ledger.settle(list(zip(leases, ends, strict=True)))
        left -= {lease.job_id for lease in leases}


def work(where: str, stop: Event, out: Path) -> None:
    """Plan, claim and complete until told to stop, or left alone; write down when each claim began and how long it took."""
    number, claims = 1 << 40, []
    parent = os.getppid()
    with Ledger.open(where) as ledger:
        while not stop.is_set() and os.getppid() == parent:
            urls = [f"https://w{n % HOSTS}.example/{number + n}" for n in range(CLAIM)]
            ledger.plan(WORK, [download_request(url) for url in urls])
            began = time.time()
            leases = ledger.claim("worker", limit=CLAIM, ttl_s=600, scope=WORK)
            claims.append((began, time.time() - began, len(leases)))
            ledger.advance([Move(lease, "STREAMING") for lease in leases])
            ends = [(lease, Completed((NewArtifact(blob(number + n)),))) for n, lease in enumerate(leases)]
            lost = [end for end in ledger.settle(ends) if isinstance(end, Exception)]
            assert not lost, lost
            number += CLAIM
    out.write_text(json.dumps(claims))


def digest(rows: Iterable[Any]) -> str:
    """Hash rows in an order of their own."""
    total = 0
    for row in rows:
        total ^= int.from_bytes(hashlib.sha256(repr(row).encode()).digest())
    return f"{total:064x}"


def facts(row: ManifestRow | dict[str, Any]) -> tuple[Any, ...]:
    """What an archived row must say."""
    get = row.get if isinstance(row, dict) else lambda name: getattr(row, name)
    return tuple(get(name) for name in ("job_id", "url", "status", "reason", "message", "attempts"))


def looked(ledger: Ledger) -> tuple[str, str, str]:
    """Hash what goes, what stays, and the artifacts."""
    gone: list[tuple[Any, ...]] = []
    stay: list[tuple[Any, ...]] = []
    for row in manifest_rows(ledger, SCOPE):
        (gone if row.status in ("canceled", "failed") else stay).append(facts(row))
    return digest(gone), digest(stay), digest(artifacts(ledger))


def artifacts(ledger: Ledger) -> Iterable[tuple[Any, ...]]:
    """Give every artifact of the old project."""
    after = None
    while True:
        page = ledger.artifacts(SCOPE, ArtifactFilter(), after=after, limit=5_000)
        yield from ((one.artifact_id, one.sha256, one.availability, one.created_by_job_id) for one in page.items)
        after = page.next
        if after is None:
            return


def archived(folder: Path) -> Iterable[tuple[Any, ...]]:
    """Read the archive back."""
    import pyarrow.parquet as pq

    for path in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(batch_size=5_000):
            yield from (facts(row) for row in batch.to_pylist())


def percentile(values: list[float], part: float) -> float:
    """Give one percentile in milliseconds."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] * 1000


def run(where: str, folder: Path, quiet_s: float) -> dict[str, Any]:
    """Let the worker run, purge beside it, and look at everything afterwards."""
    with Ledger.open(where) as ledger:
        before = looked(ledger)
        counted = {status.value: n for status, n in ledger.counts(SCOPE).items() if n}
        context = multiprocessing.get_context("spawn")
        stop, out = context.Event(), folder / "claims.json"
        worker = context.Process(target=work, args=(where, stop, out))
        worker.start()
        time.sleep(quiet_s)
        began = time.time()
        done = retire(ledger, SCOPE, before=ledger.now() - 90 * 86_400 * SECOND, target=folder / "archive")
        ended = time.time()
        stop.set()
        worker.join()
        assert worker.exitcode == 0, "the worker failed"
        left = looked(ledger)
        again = ledger.plan(SCOPE, [download_request(f"https://h{n % HOSTS}.example/file/{n}") for n in range(BATCH)])
    claims = json.loads(out.read_text())
    quiet = [took for at, took, _ in claims[1:] if at < began]
    during = [took for at, took, _ in claims if began <= at < ended]
    return {
        "counted": counted, "purged": done.jobs, "seconds": ended - began, "files": len(done.files),
        "archive_equal": digest(archived(folder / "archive")) == before[0],
        "live_untouched": left[1] == before[1] and left[0] == digest([]), "artifacts_untouched": left[2] == before[2],
        "planned_again_made_jobs": sum(one.created for one in again),
        "claims": [len(quiet), len(during)], "worked_during": sum(n for at, _, n in claims if began <= at < ended),
        "p50_ms": [percentile(quiet, 0.5), percentile(during, 0.5)],
        "p99_ms": [percentile(quiet, 0.99), percentile(during, 0.99)],
        "mean_ms": [statistics.fmean(quiet) * 1000, statistics.fmean(during) * 1000],
    }  # fmt: skip


def main() -> None:
    """Fill, purge, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--ledger", help="an empty PostgreSQL database; otherwise SQLite")
    parser.add_argument("--filled", action="store_true", help="the ledger is filled already")
    parser.add_argument("--quiet-s", type=float, default=15.0, help="how long the worker runs before the purge")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        where = given.ledger or str(Path(name, "ledger.db"))
        if not given.filled:
            began = time.perf_counter()
            fill(where, given.rows)
            print(f"{given.rows:,} jobs made in {time.perf_counter() - began:.0f} s", flush=True)
        print(json.dumps(run(where, Path(name), given.quiet_s), indent=1))


if __name__ == "__main__":
    main()
