"""`longshore export`: what is held, for people and other programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from longshore.cli.options import Call, common
from longshore.cli.output import lines_of, say
from longshore.cli.program import OK
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.depot import Depot
    from longshore.exports.manifest import Wrap
    from longshore.exports.packages import Place

FILES = ("jsonl", "csv", "parquet", "sums", "failures")
LINES = {"jsonl": "manifest", "failures": "list_item"}  # the type of a line with --json
DIRECTORIES = ("bag", "fetch-bag", "crate", "tree")
STATUSES = ("pending", "processing", "completed", "failed", "skipped", "canceled")


@click.command("export")
@click.argument("form", type=click.Choice(["manifest", *FILES, *DIRECTORIES]), default="jsonl")
@click.option("-o", "--output", "target", type=click.Path(path_type=Path), help="File or directory [default: stdout].")
@click.option("--format", "format_", type=click.Choice(["jsonl", "csv", "parquet"]), help="Of the manifest.")
@click.option("--status", type=click.Choice(STATUSES), help="Only jobs with this status.")
@click.option("--type", "job_type", metavar="TYPE", help="Only jobs of this type.")
@click.option("--template", default="{name}", show_default=True, help="Names in a tree, e.g. {host}/{sha256}.{ext}.")
@common
def command(
    call: Call,
    form: str,
    target: Path | None,
    format_: str | None,
    status: str | None,
    job_type: str | None,
    template: str,
) -> int:
    """Write the manifest (jsonl, csv, parquet), SHA256SUMS, the failures as a list that `add` takes back, a BagIt bag
    (with its bytes, or with a fetch.txt), an RO-Crate, or a tree of named files.

    The failures are the downloads that `longshore failures` counts: failed, and not tried again since.
    """
    form = (format_ or "jsonl") if form == "manifest" else form
    if call.json and target is None and form in FILES and form not in LINES:
        raise click.UsageError(f"{form} is no JSON: leave --json out, or name a file with -o")
    with call.depot() as depot:
        if form in DIRECTORIES:
            if target is None:
                raise BadInput(f"a {form} is a directory: name it with -o")
            count = _write_directory(depot, form, target, template)
        else:
            with _opened(target) as out:
                wrap = lines_of(LINES[form]) if call.json and target is None else dict
                count = _write_file(depot, form, out, status, job_type, wrap)
    if target is not None:
        if call.json:
            call.output.record("summary", {"command": "export", "form": form, "items": count})
        elif call.verbosity >= 0:
            say(f"{count} written to {target}")
    return OK


@contextmanager
def _opened(target: Path | None) -> Iterator[IO[bytes]]:
    """Give stdout, or a file that appears whole or not at all."""
    if target is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    temporary = target.with_name(f".{target.name}.new")
    try:
        out = open(temporary, "wb")  # noqa: SIM115 - what cannot be opened is another mistake than a disk that fills up
    except OSError as error:
        raise BadInput(f"{target} cannot be written: {error.strerror}") from error
    try:
        with out:
            yield out
        temporary.replace(target)
    except OSError as error:
        error.filename = error.filename or str(target)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _write_file(depot: Depot, form: str, out: IO[bytes], status: str | None, job_type: str | None, wrap: Wrap) -> int:
    from longshore.exports import manifest
    from longshore.exports.names import Namer
    from longshore.exports.source import manifest_rows

    if form == "failures":
        failed = manifest_rows(depot.ledger, depot.scope, status="failed", job_type=job_type, superseded=False)
        return manifest.write_failures(failed, out, wrap)
    rows = manifest_rows(depot.ledger, depot.scope, status=status, job_type=job_type, held=form == "sums")
    if form == "sums":
        return manifest.write_sums(rows, out, Namer())
    return manifest.write_jsonl(rows, out, wrap) if form == "jsonl" else manifest.WRITERS[form](rows, out)


def _write_directory(depot: Depot, form: str, target: Path, template: str) -> int:
    from longshore.exports import packages
    from longshore.exports.source import manifest_rows

    rows, now = manifest_rows(depot.ledger, depot.scope, held=True), depot.ledger.now()
    if form == "tree":
        return packages.link_tree(rows, target, _placing(depot), template)
    if form == "crate":
        return packages.write_crate(rows, target, _placing(depot), made_at=now, name=depot.scope.project_id)
    return packages.write_bag(rows, target, _placing(depot) if form == "bag" else None, made_at=now)


def _placing(depot: Depot) -> Place:
    from longshore.errors import NotFound
    from longshore.exports.rows import ManifestRow

    def place(row: ManifestRow, path: Path) -> None:
        artifacts = depot.ledger.results(depot.scope, row.job_id)
        named = [artifact for artifact in artifacts if artifact.artifact_id == row.artifact_id]
        if not named:
            raise NotFound(f"job {row.job_id} has no result {row.artifact_id}")
        depot.place(named[0], path)

    return place
