"""`longshore delete`: delete artifacts with their bytes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from longshore.cli.filters import named_values
from longshore.cli.options import Call, common
from longshore.cli.output.writer import say, size
from longshore.cli.run_command import OK
from longshore.cli.time_spans import MOST_DAYS, TimeRange
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.depot.maintenance.deletion import Chosen

FILTERS = ("artifact_type", "sha256", "work_id", "url", "metadata", "days")


@click.command("delete")
@click.argument("ids", nargs=-1, metavar="[ARTIFACT …]")
@click.option("--job", "job_ids", multiple=True, metavar="JOB", help="The results of this job; repeatable.")
@click.option("--type", "artifact_type", metavar="TYPE", help="Artifacts of this type.")
@click.option("--sha256", metavar="HASH", help="Artifacts with this hash.")
@click.option("--work", "work_id", metavar="ID", help="Artifacts of this work.")
@click.option("--url", metavar="URL", help="Artifacts of this URL.")
@click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="Artifacts with this metadata; repeatable.")
@click.option(
    "--older-than",
    "days",
    type=TimeRange(min=0, max=MOST_DAYS),
    metavar="DAYS",
    help="Only artifacts that are older, by themselves or with another filter.",
)
@click.option("--why", metavar="TEXT", help="Reason, for the tombstones and the audit log.")
@click.option("--dry-run", is_flag=True, help="Show how many; delete nothing.")
@click.option("--expect", type=click.IntRange(min=0), metavar="N", help="Delete without asking if exactly N match.")
@common
def command(
    call: Call,
    ids: tuple[str, ...],
    job_ids: tuple[str, ...],
    why: str | None,
    expect: int | None,
    *,
    dry_run: bool,
    **given: Any,
) -> int:
    """Delete artifacts, and their bytes if no other artifact has them. Tombstones and a line in the audit log remain.

    Named artifacts are deleted at once. With a filter, the command asks for the number of artifacts; --expect answers. The
    jobs stay; asking for the same again makes a new job. An input of an unfinished job is not deleted (exit 3).
    """
    from longshore.depot.maintenance.deletion import chosen_artifacts, delete, ids_and_bytes
    from longshore.ledger.operations.deleting import By

    with call.depot() as depot:
        chosen = _chosen(depot.ledger, call.scope, ids, job_ids, given)
        found, found_bytes = ids_and_bytes(chosen_artifacts(depot.ledger, call.scope, chosen))
        told = f"{_counted(len(found))} ({size(found_bytes)})"
        if dry_run:
            return _tell(call, found, found_bytes, {}, f"{told} would be deleted", dry_run=True)
        if chosen.wanted is not None or chosen.job_ids or expect is not None:
            _confirm(call, len(found), told, expect)
        done = delete(depot.ledger, depot.store, call.scope, found, By("command line", why=why))
    for artifact_id, job_id in done.used.items():
        say(f"not deleted: artifact {artifact_id} is an input of the unfinished job {job_id}")
    for problem in done.failed:
        say(f"bytes not removed yet, `longshore reconcile` tries again: {problem}")
    text = f"{_counted(len(done.artifact_ids))} deleted, {size(done.bytes)} freed"
    code = _tell(call, done.artifact_ids, done.bytes, done.used, text, dry_run=False)
    return 3 if done.used or done.failed else code


def _chosen(ledger: Any, scope: Any, ids: tuple[str, ...], job_ids: tuple[str, ...], given: dict[str, Any]) -> Chosen:
    from longshore.cli.job_ids import full_ids
    from longshore.depot.maintenance.deletion import Chosen
    from longshore.ledger import ArtifactFilter

    filtered = any(given[name] for name in FILTERS) or given["days"] is not None
    if not (ids or job_ids or filtered):
        raise BadInput("name artifacts, jobs or a filter", hint="`longshore delete --help`")
    if filtered and (ids or job_ids):
        raise BadInput("name artifacts and jobs, or a filter, not both")
    jobs = tuple(full_ids(ledger, scope, job_ids))
    if not filtered:
        return Chosen(ids, jobs)
    wanted = ArtifactFilter(
        sha256=given["sha256"].lower() if given["sha256"] else None,
        url=given["url"],
        work_id=given["work_id"],
        artifact_type=given["artifact_type"],
        metadata=named_values(given["metadata"]) or None,
    )
    before = None if given["days"] is None else ledger.now() - int(given["days"] * 86_400_000_000)
    return Chosen(wanted=wanted, before=before)


def _confirm(call: Call, count: int, told: str, expect: int | None) -> None:
    """Ask for the number of artifacts, unless it was given."""
    if expect is None and count:
        if call.json or not sys.stdin.isatty():
            raise BadInput(f"{told} would be deleted; nothing was", hint=f"add `--expect {count}` to delete them")
        expect = click.prompt(
            f"{told} will be deleted with their bytes. Type the number to delete them", type=int, err=True
        )
    if expect is not None and expect != count:
        raise BadInput(f"{_counted(count)} found, not {expect}; nothing was deleted")


def _counted(count: int) -> str:
    return f"{count} artifact" if count == 1 else f"{count} artifacts"


def _tell(call: Call, found: list[str], found_bytes: int, used: dict[str, str], text: str, *, dry_run: bool) -> int:
    if call.json:
        facts = {"artifact_ids": found, "count": len(found), "bytes": found_bytes, "used": used, "dry_run": dry_run}
        call.output.record("deleted", facts)
    elif call.verbosity >= 0:
        say(text)
    return OK
