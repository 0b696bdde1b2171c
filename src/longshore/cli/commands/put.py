"""`longshore put`: store local files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import one_line, say, size
from longshore.cli.run_command import OK, SOME_FAILED
from longshore.cli.standard_input import stdin_bytes
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.depot import Got


@click.command("put")
@click.argument("files", nargs=-1, required=True, metavar="FILE|- …")
@click.option("--name", metavar="NAME", help="Display name, for one file or for a stream.")
@click.option("--type", "artifact_type", default="raw_upload", show_default=True, metavar="TYPE", help="Artifact type.")
@click.option("--schema-version", metavar="VERSION", help="Version of the content's schema.")
@click.option(
    "--metadata",
    "described",
    multiple=True,
    metavar="NAME=VALUE",
    help="Metadata of the artifact; a JSON object sets several, of any type.",
)
@click.option("--run", "run_id", metavar="NAME", help="The run of new jobs.")
@click.option("--content-type", metavar="TYPE", help="Media type [default: detected from the content].")
@common
def command(call: Call, files: tuple[str, ...], name: str | None, described: tuple[str, ...], **how: str | None) -> int:
    """Hash, store and register local files; `-` reads stdin. The same bytes again are the same job, as it was: the name,
    type and metadata of the first one stay.

    A file that cannot be read, or that changes while it is read, is refused; the others are stored (exit 3).
    """
    if name is not None and len(files) > 1:
        raise BadInput("--name goes with one file")
    bad = 0
    about: dict[str, Any] = {**how, "metadata": _metadata(described)}
    sources = [stdin_bytes() if file == "-" else file for file in files]
    with call.depot(create=True) as depot:
        for file, source in zip(files, sources, strict=True):
            try:
                got = depot.put(source, name=name, **about)
            except BadInput as error:
                bad += 1
                tell_refused(call, file, str(error))
            else:
                tell_taken(call, got, name or file)
    return SOME_FAILED if bad else OK


def _metadata(described: tuple[str, ...]) -> dict[str, Any]:
    """Read `NAME=VALUE` and JSON objects; later ones win."""
    found: dict[str, Any] = {}
    for text in described:
        if text.lstrip().startswith("{"):
            found |= _object(text)
        else:
            name, equals, value = text.partition("=")
            if not equals or not name:
                raise BadInput(f"--metadata takes NAME=VALUE or a JSON object, not {text[:80]!r}")
            found[name] = value
    return found


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"--metadata is not JSON: {error}") from None
    return dict(value)


def tell_taken(call: Call, got: Got, name: str) -> None:
    """Report the result of one file."""
    assert got.artifact is not None
    if call.json:
        facts = {
            "job_id": got.job_id,
            "artifact_id": got.artifact.artifact_id,
            "name": name,
            "sha256": got.artifact.sha256,
            "size_bytes": got.artifact.size_bytes,
            "held": got.held_before,
        }
        call.output.record("taken", facts | ({"path": str(got.path)} if got.path else {}))
    elif call.verbosity >= 0:
        word = "held " if got.held_before else "taken"
        call.output.text(f"{word}  {got.artifact.sha256}  {size(got.artifact.size_bytes):>9}  {one_line(name)}")


def tell_refused(call: Call, name: str, message: str) -> None:
    """Report why one file was refused."""
    if call.json:
        call.output.record("refused", {"source": name, "line": 0, "message": message})
    else:
        say(f"refused  {one_line(name)}: {message}")
