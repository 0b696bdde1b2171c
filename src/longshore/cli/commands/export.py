"""`longshore export`: manifests, checksum lists, bags, crates and trees of the stored artifacts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from longshore.cli.options import Call, LocalPath, common
from longshore.cli.output.writer import counted, lines_of, say, stdout_is_closed
from longshore.cli.run_command import DAMAGE, OK
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.config import Settings
    from longshore.depot import Depot
    from longshore.domain.model import Scope
    from longshore.exports.directory_formats import Place
    from longshore.exports.manifest import Wrap
    from longshore.exports.public_urls import Published
    from longshore.ledger import Ledger
    from longshore.ledger.queries.throughput import LostResult

FILES = ("jsonl", "csv", "parquet", "sums", "failures")
LINES = {"jsonl": "manifest", "failures": "list_item"}  # the type of a line with --json
EXACT = ("jsonl", "csv", "parquet", "failures")  # input of `add`: redacted URLs would make a different list
_FILE_NAMES = {"jsonl": "manifest.jsonl", "csv": "manifest.csv", "parquet": "manifest.parquet", "sums": "SHA256SUMS"}
DIRECTORIES = ("bag", "fetch-bag", "crate", "tree")
STATUSES = ("pending", "processing", "completed", "failed", "skipped", "canceled")


@click.command("export")
@click.argument("form", type=click.Choice(["manifest", *FILES, *DIRECTORIES]), default="jsonl")
@click.option("-o", "--output", "target", type=LocalPath(), help="File or directory [default: stdout, or -].")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["jsonl", "csv", "parquet"]),
    help="Format of the manifest or the failures.",
)
@click.option("--status", type=click.Choice(STATUSES), help="Only jobs with this status.")
@click.option("--type", "job_type", metavar="TYPE", help="Only jobs of this type.")
@click.option("--run", "run_id", metavar="NAME", help="Only jobs of this run.")
@click.option(
    "--template",
    default="{name}",
    show_default=True,
    help="File names in a tree, e.g. {host}/{sha256}.{ext}; {ext} follows the media type.",
)
@click.option("--no-secrets", is_flag=True, help="Leave URLs with secrets out of a fetch-bag; redact them in a crate.")
@common
def command(
    call: Call,
    form: str,
    target: str | None,
    format_: str | None,
    status: str | None,
    job_type: str | None,
    run_id: str | None,
    template: str,
    *,
    no_secrets: bool,
) -> int:
    """Write the manifest (jsonl, csv, parquet), SHA256SUMS, the failures as a list that `add` can read, a BagIt bag
    (with its bytes, or with a fetch.txt), an RO-Crate, or a tree of named files.

    The failures are what `longshore failures` counts: failed and not retried since. Bags and crates are made for others:
    their URLs never contain a login, and URLs that seem to contain another secret are counted in a warning.

    What needs the bytes leaves out results that are lost or damaged (`availability` in the manifest), names them and ends with 5.
    """
    from longshore.depot.output_paths import check_outside
    from longshore.domain.name_template import check_template
    from longshore.exports.public_urls import Published
    from longshore.ledger.queries.throughput import lost_results

    check_template(template)
    wanted = {"status": status, "job_type": job_type, "run_id": run_id}
    form, published = (format_ or "jsonl") if form == "manifest" else form, Published(no_secrets)
    written = (format_ or "jsonl") if form == "failures" else form
    if format_ not in (None, written):
        raise click.UsageError(f"--format is for the manifest and the failures; {form} has a format of its own")
    place = _place(target)
    if call.json and place is None and form in FILES and (form not in LINES or written not in (form, "jsonl")):
        raise click.UsageError(f"{written} is not JSON: omit --json, or name a file with -o")
    if no_secrets and form in EXACT:
        raise click.UsageError(f"{form} has every URL as it was given; --no-secrets is for fetch-bag and crate")
    if form in DIRECTORIES:
        if place is None:
            raise BadInput(f"a {form} is a directory: name it with -o")
        check_outside(place, call.settings)
        with call.depot() as depot:
            lost = depot.ledger.read(lost_results, depot.scope)
            count = _write_directory(depot, form, place, template, published, wanted)
    else:
        if place is not None and place.is_dir():
            example = place / (f"failures.{written}" if form == "failures" else _FILE_NAMES[form])
            raise BadInput(f"{place} is a directory, and {form} is one file", hint=f"name it: -o {example}")
        with call.ledger() as ledger, _opened(place, call.settings) as out:
            lost = ledger.read(lost_results, call.scope) if form == "sums" else []
            wrap = lines_of(LINES[form]) if call.json and place is None else dict
            count = _write_file(ledger, call.scope, form, written, out, wanted, wrap)
    if published.secrets and call.verbosity > -2:
        _warn(published.secrets)
    if place is not None:
        _summarize(call, form, count, published.secrets, place)
    return _tell_lost(call, lost)


def _place(target: str | None) -> Path | None:
    """Return the file or directory to write; None: stdout."""
    if target == "":
        raise click.UsageError("-o needs a name; this one is empty")
    return None if target is None or target == "-" else Path(target)


def _summarize(call: Call, form: str, count: int, secrets: int, place: Path) -> None:
    if call.json:
        facts = {"command": "export", "form": form, "items": count, "urls_with_secrets": secrets}
        call.output.record("summary", facts)
    elif call.verbosity >= 0:
        say(f"{count} written to {place}")


def _tell_lost(call: Call, lost: Sequence[LostResult]) -> int:
    """Name the results that were left out because their bytes are lost, and return the exit code."""
    from longshore.cli.output.failure_lines import EACH, LOST_REMEDY
    from longshore.domain.policy.redaction import LONGEST, safe_url

    if lost and call.verbosity > -2:
        say(f"warning: {counted(len(lost), 'result')} left out, because the bytes are lost or damaged")
        for one in lost[:EACH]:
            say(f"  {safe_url(one.url, LONGEST) if one.url else one.name or one.job_id}")
        if len(lost) > EACH:
            say(f"  … and {len(lost) - EACH} more: `longshore jobs` marks them `lost`")
        say(f"  → {LOST_REMEDY}")
    return DAMAGE if lost else OK


def _warn(secrets: int) -> None:
    """Warn about URLs with secrets: a package is made for others and rarely inspected before it is sent."""
    say(f"warning: {secrets} of the URLs written look as if they held a secret (a token, a key, a signature)")
    say("  → before you share it, export again with --no-secrets")


@contextmanager
def _opened(target: Path | None, settings: Settings) -> Iterator[IO[bytes]]:
    """Return stdout, or a file that appears complete or not at all."""
    from longshore.depot.output_paths import check_target
    from longshore.store.durability import filesystem

    if target is None:
        if stdout_is_closed():
            raise BadInput("stdout is closed: the bytes would go nowhere", hint="-o FILE names a file")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    check_target(target, settings)
    temporary = target.with_name(f".{target.name}.new")
    try:
        out = filesystem.create_private(temporary)  # a manifest has every URL as it is, secrets included
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


def _write_file(
    ledger: Ledger,
    scope: Scope,
    form: str,
    written: str,
    out: IO[bytes],
    wanted: dict[str, Any],
    wrap: Wrap,
) -> int:
    from longshore.exports import manifest
    from longshore.exports.file_names import Namer, with_file_names
    from longshore.exports.read_ledger import manifest_rows

    if form == "failures":
        failed = manifest_rows(ledger, scope, **(wanted | {"status": "failed"}), superseded=False)
        if written in manifest.FAILURE_WRITERS:
            return manifest.FAILURE_WRITERS[written](failed, out)
        return manifest.write_failures(failed, out, wrap)
    rows = manifest_rows(ledger, scope, **wanted, held=form == "sums")
    if form == "sums":
        return manifest.write_sums(rows, out, Namer())
    rows = with_file_names(rows)
    return manifest.write_jsonl(rows, out, wrap) if form == "jsonl" else manifest.WRITERS[form](rows, out)


def _write_directory(
    depot: Depot, form: str, target: Path, template: str, published: Published, wanted: dict[str, Any]
) -> int:
    from longshore.exports import directory_formats
    from longshore.exports.read_ledger import manifest_rows
    from longshore.exports.torrent_origins import torrent_origins

    rows, now = manifest_rows(depot.ledger, depot.scope, **wanted, held=True), depot.ledger.now()
    if form == "tree":
        origins = torrent_origins(depot.ledger, depot.scope)
        return directory_formats.link_tree(rows, target, _placing(depot, inside=target), template, origins)
    if form == "crate":
        name = depot.scope.project_id
        return directory_formats.write_crate(rows, target, _placing(depot), made_at=now, name=name, published=published)
    place = _placing(depot) if form == "bag" else None
    return directory_formats.write_bag(rows, target, place, made_at=now, published=published)


def _placing(depot: Depot, inside: Path | None = None) -> Place:
    from longshore.errors import NotFound
    from longshore.exports.manifest_rows import ManifestRow

    def place(row: ManifestRow, path: Path) -> None:
        artifacts = depot.ledger.results(depot.scope, row.job_id)
        named = [artifact for artifact in artifacts if artifact.artifact_id == row.artifact_id]
        if not named:
            raise NotFound(f"job {row.job_id} has no result {row.artifact_id}")
        depot.place(named[0], path, inside=inside)

    return place
