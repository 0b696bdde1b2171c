"""`longshore put`: store local files."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
@click.option("--content-type", metavar="TYPE", help="Media type [default: detected from the content].")
@common
def command(call: Call, files: tuple[str, ...], name: str | None, artifact_type: str, content_type: str | None) -> int:
    """Hash, store and register local files; `-` reads stdin. The same bytes again are the same job.

    A file that cannot be read, or that changes while it is read, is refused; the others are stored (exit 3).
    """
    if name is not None and len(files) > 1:
        raise BadInput("--name goes with one file")
    bad = 0
    sources = [stdin_bytes() if file == "-" else file for file in files]
    with call.depot(create=True) as depot:
        for file, source in zip(files, sources, strict=True):
            try:
                got = depot.put(source, name=name, artifact_type=artifact_type, content_type=content_type)
            except BadInput as error:
                bad += 1
                tell_refused(call, file, str(error))
            else:
                tell_taken(call, got, name or file)
    return SOME_FAILED if bad else OK


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
