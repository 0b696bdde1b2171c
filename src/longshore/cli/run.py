"""`longshore run`: work until nothing is left."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from longshore.cli.options import Call, common, waiting
from longshore.cli.output import say
from longshore.cli.program import OK, SOME_FAILED, WORK_LEFT, code_of_signal

if TYPE_CHECKING:
    from longshore.cli.following import Orders
    from longshore.cli.watching import Score
    from longshore.domain.notes import Listener
    from longshore.ledger import Ledger


@click.command("run")
@click.option("--forever", is_flag=True, help="Stay and wait for more.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, metavar="N", help="Worker processes [default: 1].")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="End when N jobs are over (exit 4 if work is left)."
)
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only jobs of these types.")
@click.option("--all-tenants", is_flag=True, help="Work for every tenant and project.")
@click.option("--while-stdin", is_flag=True, hidden=True)  # a worker of a fleet: ends when its parent does
@click.option("--counted", is_flag=True, hidden=True)  # the same: tells how many and not which
@click.option("--named", is_flag=True, hidden=True)  # the same: only the jobs that it is handed by its stdin
@waiting
@common
def command(call: Call, **how: Any) -> int:
    """Work until nothing is left; wait for retries and for what other workers hold.

    The first SIGINT or SIGTERM drains, the second aborts; both are safe. With --workers, each process has
    `transfer.concurrency` transfers of its own. Exit 3 when a job failed for good in this run, 4 when work is left.
    """
    if how["offline"]:
        call.flags["offline"] = True
    if how["while_stdin"]:
        return _follow(call, how)
    jobs = _jobs(call)
    if not how["forever"] and not how["all_tenants"] and not jobs["pending"] + jobs["processing"]:
        return _nothing_to_do(call, jobs)
    if how["limit"] and (how["workers"] > 1 or how["forever"]):
        raise click.UsageError("--limit is for one worker that ends")
    if how["workers"] > 1:
        from longshore.cli.fleet import run_fleet

        return run_fleet(call, how, jobs)
    return run_alone(call, how)


def _jobs(call: Call) -> dict[str, int]:
    """Look what there is, and close the ledger again: workers are started in a moment."""
    with call.ledger() as ledger:
        return counted(ledger, call)


def _nothing_to_do(call: Call, jobs: dict[str, int]) -> int:
    """Say that nothing waits and nothing is worked on, without starting a worker."""
    from longshore.cli.watching import Score

    if call.json:
        summarize(call, jobs, Score())
    elif call.verbosity >= 0:
        say("nothing to do: no job waits")
    return OK


def _follow(call: Call, how: dict[str, Any]) -> int:
    """Work in one process of a fleet."""
    from longshore.cli.following import Orders, drain_when_orphaned

    if not how["named"]:
        drain_when_orphaned()
        return run_alone(call, how)
    orders = Orders(call)
    drain_when_orphaned(orders.hear)
    return run_alone(call, how, orders) if orders.begin() else OK


def run_alone(call: Call, how: dict[str, Any], orders: Orders | None = None) -> int:
    """Work in this process: on everything, or on the jobs that we are handed."""
    scope = None if how["all_tenants"] else call.scope
    with call.depot() as depot:
        if orders:
            orders.wake = depot.aio.notify
        jobs = counted(depot.ledger, call)
        with told(call, counted_only=how["counted"]) as (score, listen):
            score.total = min(jobs["pending"] + jobs["processing"], how["limit"] or sys.maxsize) or None
            tally = depot.run(
                scope=scope,
                job_ids=() if orders else None,
                more=orders.take if orders else None,
                job_types=how["types"] or None,
                forever=how["forever"],
                max_wait_s=how["max_wait"],
                limit=how["limit"],
                on_note=listen,
                details=(call.json or call.verbosity > 0) and not how["counted"],
                handle_signals=True,
            )
        jobs = counted(depot.ledger, call)
        summarize(call, jobs, score)
    # A run that its limit ended may have ended with the last job: the counters know.
    left = tally.left and (not how["limit"] or scope is None or bool(jobs["pending"] + jobs["processing"]))
    return code_of(tally.failed, stopped_by=tally.stopped_by, left=left)


@contextmanager
def told(call: Call, *, counted_only: bool) -> Iterator[tuple[Score, Listener]]:
    """Give the score of a run and the listener that keeps it and tells people, machines or the fleet's first process."""
    from longshore.cli.telling import teller
    from longshore.cli.watching import Score, watching

    if counted_only:
        from longshore.cli.following import counted_notes

        with counted_notes(call) as listen:
            yield Score(), listen
        return
    with watching(call, teller(call, results=False)) as watched:
        yield watched


def code_of(failed: int, *, stopped_by: str | None, left: bool) -> int:
    """Give the exit code of a run."""
    if stopped_by in {"SIGINT", "SIGTERM"}:
        return code_of_signal(stopped_by)
    if failed:
        return SOME_FAILED
    return WORK_LEFT if left or stopped_by else OK


def counted(ledger: Ledger, call: Call) -> dict[str, int]:
    """Count the jobs of each status."""
    return {status.value: count for status, count in ledger.counts(call.scope).items()}


def summarize(call: Call, jobs: dict[str, int], score: Score) -> None:
    """Say what the run came to and how the depot stands."""
    from longshore.cli.telling import summary_text, what_next

    if call.json:
        done = {"completed": score.completed, "held": score.held, "failed": score.failed, "canceled": score.canceled}
        left = {"pending": jobs["pending"], "processing": jobs["processing"], "skipped": score.held}
        call.output.record("summary", {**done, **left, "retries": score.retries, "bytes": score.bytes, "jobs": jobs})
    elif call.verbosity >= 0:
        say(summary_text(score))
        for line in what_next(score, jobs["pending"] + jobs["processing"], again="`longshore run`"):
            say(line)
