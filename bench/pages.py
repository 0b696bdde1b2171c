"""Every page and list of the service with 10,000 and with 1,000,000 jobs: their times must not grow with the table.

    python -m bench.pages --rows 1000000                    SQLite
    python -m bench.pages --ledger postgresql://…/empty --ledger postgresql://…/also_empty
    python -m bench.pages --ledger small.db --ledger large.db --filled

`longshore ledger copy` brings a filled SQLite ledger to PostgreSQL in a tenth of the time that filling it there takes.

The ledger is filled once per size by the ledger's own verbs: 88 % completed, 5 % failed, 5 % waiting, 2 % canceled, over
fifty hosts, spread over the last thirty days.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from longshore.domain.identity.requests import download_request
from longshore.domain.model import SECOND, Blob, JobRequest, NewArtifact, Scope, Validators
from longshore.domain.outcomes import Completed, Failed, Outcome
from longshore.ledger import Ledger, Move
from longshore.ledger.operations.torrents import start_torrent
from longshore.store import open_store
from longshore.worker.kinds.torrent.service import request_of
from tests.support.site import Client, Site

BATCH = 2_000
DAYS = 30
SCOPE = Scope()
LIMIT = 2.0
REASONS = ("http_404", "blocked_challenge", "too_slow", "dns")


class Clock:
    """The ledger's time while it is filled."""

    def __init__(self) -> None:
        self.now = time.time_ns() // 1000 - DAYS * 86_400 * SECOND

    def __call__(self) -> int:
        return self.now


def requests(start: int, stop: int) -> list[JobRequest]:
    """Make jobs of fifty hosts."""
    return [download_request(f"https://h{n % 50}.example/file/{n}", work_id=f"W{n // 3}") for n in range(start, stop)]


def outcome(number: int) -> Outcome:
    """End a job as most end."""
    if number % 20 == 7:
        return Failed(REASONS[number // 20 % len(REASONS)], "the server said no")
    blob = Blob(f"{number // 2:064x}", 16_384, f"p/{number}", "local", "application/pdf")
    return Completed((NewArtifact(blob, name=f"{number}.pdf"),), Validators(f'"{number}"'), facts={"bytes": 16_384})


def fill(where: str, rows: int) -> None:
    """Fill a ledger by its own verbs, in the past."""
    clock = Clock()
    step = DAYS * 86_400 * SECOND // max(1, rows // BATCH + 1)
    with Ledger.open(where, create=True, clock=clock) as ledger:
        for start in range(0, rows, BATCH):
            planned = ledger.plan(SCOPE, requests(start, min(start + BATCH, rows)))
            ids = [one.job_id for one in planned]
            left, work = ids[: len(ids) * 5 // 100], ids[len(ids) * 5 // 100 :]
            over, work = work[: len(ids) * 2 // 100], work[len(ids) * 2 // 100 :]
            ledger.cancel(SCOPE, over)
            _finish(ledger, work, start)
            _start_torrents(ledger, start)
            clock.now += step
            assert left


def _start_torrents(ledger: Ledger, start: int) -> None:
    """One book in a hundred jobs comes as a torrent: the smaller ledger fills the page of torrents, too."""
    for number in range(start, start + BATCH, 100):
        magnet = f"magnet:?xt=urn:btih:{number:040x}&dn=book-{number}"
        asked = request_of(SCOPE, magnet, user_id="reader", book_id=f"book-{number}", media_type="audiobook")
        ledger.write(start_torrent, asked)


def _finish(ledger: Ledger, ids: list[str], start: int) -> None:
    while ids:
        # Eight a host at once are allowed: fifty hosts make some hundreds in each round.
        leases = ledger.claim("filler", limit=len(ids), ttl_s=3600, scope=SCOPE, job_ids=ids, ahead=BATCH)
        ledger.advance([Move(lease, "STREAMING") for lease in leases])
        numbers = [int((lease.job.request.url or "0").rpartition("/")[2]) for lease in leases]
        ledger.settle([(lease, outcome(number)) for lease, number in zip(leases, numbers, strict=True)])
        done = {lease.job_id for lease in leases}
        ids = [job_id for job_id in ids if job_id not in done]


def asked(client: Client) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name what is measured."""
    jobs = client.get("/api/v1/jobs?limit=500").json()
    job = client.get("/api/v1/jobs?status=completed&limit=1").json()["jobs"][0]["job_id"]
    artifact = client.get("/api/v1/artifacts?limit=1").json()["artifacts"][0]
    paths = [
        "/", "/jobs", "/jobs?status=failed", "/jobs?status=failed&reason=http_404&host=h7.example", "/failures", "/hosts",
        "/artifacts", "/torrents", "/system", f"/jobs/{job}", f"/artifacts/{artifact['artifact_id']}", "/overview.json",
        "/api/v1/jobs?limit=100", f"/api/v1/jobs?limit=100&after={jobs['next']}", "/api/v1/jobs?status=completed&limit=100",
        "/api/v1/jobs?work_id=W77", "/api/v1/artifacts?limit=100", f"/api/v1/artifacts?sha256={artifact['sha256']}",
        "/api/v1/failures", "/api/v1/stats", "/api/v1/hosts", f"/api/v1/jobs/{job}/timeline", "/metrics", "/readyz",
    ]  # fmt: skip
    for path in paths:
        name = path.replace(job, "ID").replace(artifact["artifact_id"], "ID").replace(artifact["sha256"], "HASH")
        yield name.replace(str(jobs["next"]), "CURSOR"), partial(client.get, path)


def measure(places: list[str], stores: Path, rounds: int) -> list[dict[str, float]]:
    """Give the best time of every page in milliseconds, for each ledger. They take turns, so that a busy machine hits both."""
    found: list[dict[str, float]] = [{} for _ in places]
    with ExitStack() as stack:
        sites = [
            stack.enter_context(Site(Ledger.open(where), open_store(str(stores / f"{n}"))))
            for n, where in enumerate(places)
        ]
        for pair in zip(*(asked(site.client("admin")) for site in sites), strict=True):
            for _ in range(rounds):
                for times, (name, ask) in zip(found, pair, strict=True):
                    began = time.perf_counter()
                    answer = ask()
                    spent = (time.perf_counter() - began) * 1000
                    assert answer.status == 200, (name, answer.text[:300])
                    times[name] = min(spent, times.get(name, spent))
    return found


def main() -> None:
    """Fill, measure, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--ledger", action="append", default=[], help="two empty databases: the small one first")
    parser.add_argument("--filled", action="store_true", help="the named ledgers are filled already: only measure")
    parser.add_argument("--folder", type=Path, help="where the ledgers are made")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        places = given.ledger or [str(Path(folder, f"{rows}.db")) for rows in (given.small, given.rows)]
        for where, rows in () if given.filled else zip(places, (given.small, given.rows), strict=True):
            began = time.perf_counter()
            fill(where, rows)
            print(f"{rows:,} jobs planned and ended in {time.perf_counter() - began:.0f} s", flush=True)
        small, large = measure(places, Path(folder), given.rounds)
    report(small, large, given)


def report(small: dict[str, float], large: dict[str, float], given: argparse.Namespace) -> None:
    """Print the table; say which page grows."""
    print(f"| page | {given.small:,} jobs, best ms | {given.rows:,} jobs, best ms | ratio |\n|---|---:|---:|---:|")
    for name, before in small.items():
        print(f"| `{name}` | {before:.1f} | {large[name]:.1f} | {large[name] / before:.2f} |")
    grown = [name for name, before in small.items() if large[name] > LIMIT * before]
    print(f"more than {LIMIT} times: {', '.join(grown) or 'none'}")
    if given.out:
        rows = [{"page": name, "small_ms": before, "large_ms": large[name]} for name, before in small.items()]
        given.out.write_text(json.dumps({"small": given.small, "large": given.rows, "pages": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
