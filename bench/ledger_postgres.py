"""Claim and complete on PostgreSQL: ours, Procrastinate and PGQueuer in one run on one server with fsync on.

python -m bench.ledger_postgres [--count N]

Each queue gets the same number of jobs that do nothing; measured is from the start of one worker to the last job done.
Peers run as their manuals recommend for throughput (one process, async tasks, batches where they have them).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable

import psycopg

from bench.ledger import claim_and_complete, own, plan_all
from longshore.ledger import Ledger
from tests.support.postgres import Cluster

BATCH = 256
DURABLE = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on", "shared_buffers": "256MB"}


def longshore(dsn: str, count: int) -> float:
    with Ledger.open(dsn, create=True) as ledger:
        plan_all(ledger, own, count)
        return timed(count, lambda: claim_and_complete(ledger, BATCH, register=False, intents=False))


def timed(count: int, work: Callable[[], int]) -> float:
    started = time.perf_counter()
    done = work()
    assert done == count, f"{done} of {count} done"
    return count / (time.perf_counter() - started)


def procrastinate(dsn: str, count: int) -> float:
    return asyncio.run(_procrastinate(dsn, count))


async def _procrastinate(dsn: str, count: int) -> float:
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=dsn, max_size=20))
    done = 0

    @app.task(name="nothing")  # type: ignore[untyped-decorator]
    async def nothing(number: int) -> None:
        nonlocal done
        done += 1

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, count, 1_000):
            await nothing.batch_defer_async(*({"number": n} for n in range(start, min(start + 1_000, count))))
        started = time.perf_counter()
        await app.run_worker_async(wait=False, concurrency=20, install_signal_handlers=False, listen_notify=False)
        elapsed = time.perf_counter() - started
    assert done == count
    return count / elapsed


def pgqueuer(dsn: str, count: int) -> float:
    return asyncio.run(_pgqueuer(dsn, count))


async def _pgqueuer(dsn: str, count: int) -> float:
    from pgqueuer import PgQueuer
    from pgqueuer.db import PsycopgDriver
    from pgqueuer.models import Job
    from pgqueuer.types import QueueExecutionMode

    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        queue = PgQueuer(PsycopgDriver(connection))
        await queue.qm.queries.install()
        done = 0

        @queue.entrypoint("nothing")  # type: ignore[untyped-decorator]
        async def nothing(job: Job) -> None:
            nonlocal done
            done += 1

        for start in range(0, count, 1_000):
            size = min(1_000, count - start)
            await queue.qm.queries.enqueue(["nothing"] * size, [None] * size, [0] * size)
        started = time.perf_counter()
        await queue.qm.run(batch_size=BATCH, mode=QueueExecutionMode.drain)
        elapsed = time.perf_counter() - started
        left = await connection.execute("SELECT count(*) FROM pgqueuer")
        assert (done, await left.fetchone()) == (count, (0,))
    return count / elapsed


QUEUES: dict[str, Callable[[str, int], float]] = {
    "longshore": longshore,
    "pgqueuer": pgqueuer,
    "procrastinate": procrastinate,
}


def run(count: int, rounds: int) -> dict[str, float]:
    """Measure in turn, several times; give the medians."""
    logging.disable(logging.CRITICAL)
    cluster = Cluster(**DURABLE)
    figures: dict[str, list[float]] = {name: [] for name in QUEUES}
    try:
        for _ in range(rounds):
            for name, measure in QUEUES.items():
                with cluster.database() as dsn:
                    figures[name].append(measure(dsn, count))
    finally:
        cluster.close()
    return {name: statistics.median(values) for name, values in figures.items()}


def main() -> None:
    """Print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    figures = run(chosen.count, chosen.rounds)
    for name, value in figures.items():
        sys.stdout.write(f"{name + ', claim + complete (jobs/s)':60} {value:12,.0f}\n")
    sys.stdout.write(json.dumps({name: round(value) for name, value in figures.items()}) + "\n")


if __name__ == "__main__":
    main()
