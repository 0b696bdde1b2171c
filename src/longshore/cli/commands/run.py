"""`longshore run`: run jobs until none is left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import click

from longshore.cli.options import Call, apply_running, common, running
from longshore.cli.output.writer import say
from longshore.cli.run_command import OK, SOME_FAILED, WORK_LEFT, code_of_signal, complain
from longshore.domain.run_events import REFUSED
from longshore.errors import Unavailable

if TYPE_CHECKING:
    from longshore.cli.multiprocess.child_pipe import ParentCommands
    from longshore.cli.output.progress import ProgressCounts
    from longshore.depot import Depot
    from longshore.domain.run_events import Listener
    from longshore.ledger import Ledger
    from longshore.worker.run_types import RunResult

FOLLOW_S: Final = 2.0  # how often the display counts the jobs that are left


@click.command("run")
@click.option("--forever", is_flag=True, help="Keep running and wait for new jobs.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, metavar="N", help="Worker processes [default: 1].")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N finished jobs (exit 4 if work is left)."
)
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only jobs of these types.")
@click.option("--run", "run_id", metavar="NAME", help="Only jobs of this run.")
@click.option("--all-tenants", is_flag=True, help="Run jobs of every tenant and project.")
@click.option("--while-stdin", is_flag=True, hidden=True)  # a child of `--workers`: ends when its parent does
@click.option("--counted", is_flag=True, hidden=True)  # a child too: reports counts, not single jobs
@click.option("--named", is_flag=True, hidden=True)  # a child too: runs only the jobs named on its stdin
@running
@common
def command(call: Call, **how: Any) -> int:
    """Run jobs until none is left; wait for retries and for jobs that other workers have leased.

    The first SIGINT or SIGTERM drains, the second aborts; both are safe. With --workers, each process has its own
    `transfer.concurrency` transfers. Exit 3 when a job failed for good in this run, also if work is left; 4 when work is
    left and nothing failed, or when the run stopped after `network.max_refusals` refusals in a row.
    """
    apply_running(call, how)
    if how["while_stdin"]:
        return _follow(call, how)
    if how["run_id"] is not None and how["all_tenants"]:
        raise click.UsageError("a run belongs to one tenant and project: omit --all-tenants or --run")
    jobs = count_once(call, how["run_id"])
    if not how["forever"] and not how["all_tenants"] and not jobs["pending"] + jobs["processing"]:
        return _nothing_to_do(call, jobs)
    if how["limit"] and (how["workers"] > 1 or how["forever"]):
        raise click.UsageError("--limit is for one worker that ends")
    if how["workers"] > 1:
        from longshore.cli.multiprocess.supervisor import run_fleet

        return run_fleet(call, how, jobs)
    return run_alone(call, how)


def count_once(call: Call, run_id: str | None = None) -> dict[str, int]:
    """Read the counts and close the ledger again, because workers are about to be started."""
    with call.ledger() as ledger:
        return counted(ledger, call, run_id)


def _nothing_to_do(call: Call, jobs: dict[str, int]) -> int:
    """Report that no job waits or runs, without starting a worker."""
    from longshore.cli.output.progress import ProgressCounts

    if call.json:
        summarize(call, jobs, ProgressCounts())
    elif call.verbosity >= 0:
        say("nothing to do: no job waits")
    return OK


def _follow(call: Call, how: dict[str, Any]) -> int:
    """Run as one process of several."""
    from longshore.cli.multiprocess.child_pipe import ParentCommands, drain_when_orphaned

    if not how["named"]:
        drain_when_orphaned()
        return run_alone(call, how)
    orders = ParentCommands(call)
    drain_when_orphaned(orders.hear)
    return run_alone(call, how, orders) if orders.begin() else OK


def run_alone(call: Call, how: dict[str, Any], orders: ParentCommands | None = None) -> int:
    """Run jobs in this process: all of them, or those named on stdin."""
    scope = None if how["all_tenants"] else call.scope
    with call.depot() as depot:
        if orders:
            orders.wake = depot.aio.notify
        run_id = how["run_id"]
        jobs = counted(depot.ledger, call, run_id)
        with told(call, counted_only=how["counted"]) as (score, listen):
            with follow_total(call, score, jobs, lambda: counted(depot.ledger, call, run_id), how["limit"]):
                result = depot.run(
                    scope=scope,
                    run_id=run_id,
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
        try:
            jobs = counted(depot.ledger, call, run_id)
        except Unavailable as away:
            return without_ledger(call, away, result)
        # A run that reached its limit may have finished the last job; the counters show whether work is left.
        left = result.left and (not how["limit"] or scope is None or bool(jobs["pending"] + jobs["processing"]))
        if not left and not how["types"] and not run_id and scope is not None and jobs["pending"]:
            left = _name_unhandled(call, depot)
        summarize(call, jobs, score, left=left)
    return code_of(result.failed, stopped_by=result.stopped_by, left=left)


def _name_unhandled(call: Call, depot: Depot) -> bool:
    """Print which jobs wait because nothing here can run their type; return whether there are some."""
    from longshore.cli.output.writer import counted as amount
    from longshore.domain.kinds import kind_of
    from longshore.ledger.queries.due_work import types_without_handler
    from longshore.worker.kinds.custom.job_types import known_types

    waiting = depot.ledger.read(types_without_handler, call.scope, tuple(known_types()))
    waiting = {name: count for name, count in waiting.items() if kind_of(name).declared}
    for name, count in waiting.items():
        say(
            f"{amount(count, 'job')} of type {name}: no handler for it is installed here; install the package that declares it"
        )
    return bool(waiting)


@contextmanager
def follow_total(
    call: Call,
    score: ProgressCounts,
    jobs: dict[str, int],
    recount: Callable[[], dict[str, int]],
    limit: int | None = None,
) -> Iterator[None]:
    """Keep the total of the display: the jobs that ended here and those that are left. Other workers may add or end some."""
    from longshore.cli.output.progress import every

    def take(now: dict[str, int]) -> None:
        score.total = min(score.ended + now["pending"] + now["processing"], limit or sys.maxsize) or None

    def follow() -> None:
        with suppress(Exception):  # a ledger that does not answer is the workers' business
            take(recount())

    take(jobs)
    if call.json or call.verbosity < 0:  # no display
        yield
        return
    with every(FOLLOW_S, follow):
        yield


@contextmanager
def told(call: Call, *, counted_only: bool) -> Iterator[tuple[ProgressCounts, Listener]]:
    """Return the score of a run, and the listener that updates it and reports to the terminal or the parent."""
    from longshore.cli.output.event_output import event_printer
    from longshore.cli.output.progress import ProgressCounts, show_progress

    if counted_only:
        from longshore.cli.multiprocess.child_pipe import counted_notes

        with counted_notes(call) as listen:
            yield ProgressCounts(), listen
        return
    with show_progress(call, event_printer(call, results=False)) as watched:
        yield watched


def without_ledger(call: Call, away: Unavailable, result: RunResult) -> int:
    """Report that the state cannot be read after a run that was stopped or gave up; return the exit code of the run."""
    if not result.left and not result.stopped_by:
        raise away
    code = code_of(result.failed, stopped_by=result.stopped_by, left=result.left)
    return complain(str(away), away.hint, code, as_json=call.json)


def code_of(failed: int, *, stopped_by: str | None, left: bool) -> int:
    """Return the exit code of a run: a signal wins, then refusals (4), then failures (3), then work that is left (4)."""
    if stopped_by in {"SIGINT", "SIGTERM"}:
        return code_of_signal(stopped_by)
    if stopped_by == REFUSED:  # a setting is missing: the queue is not to blame
        return WORK_LEFT
    if failed:
        return SOME_FAILED
    return WORK_LEFT if left or stopped_by else OK


def counted(ledger: Ledger, call: Call, run_id: str | None = None) -> dict[str, int]:
    """Count the jobs of each status, of one run or of all."""
    if run_id is None:
        return {status.value: count for status, count in ledger.counts(call.scope).items()}
    from longshore.ledger.queries.runs import run_counts

    return {status.value: count for status, count in ledger.read(run_counts, call.scope, run_id).items()}


def summarize(call: Call, jobs: dict[str, int], score: ProgressCounts, *, left: bool = True) -> None:
    """Report the result of the run and the state of the depot. `left`: a further run would find work."""
    from longshore.cli.output.event_output import next_steps, summary_text, tell_stop

    if call.json:
        done = {"completed": score.completed, "held": score.held, "failed": score.failed, "canceled": score.canceled}
        more = {"pending": jobs["pending"], "processing": jobs["processing"], "skipped": score.held}
        call.output.record("summary", {**done, **more, "retries": score.retries, "bytes": score.bytes, "jobs": jobs})
    elif call.verbosity >= 0:
        say(summary_text(score))
        waiting = jobs["pending"] + jobs["processing"] if left else 0
        for line in next_steps(score, waiting, again="`longshore run`"):
            say(line)
    tell_stop(call, score)
