"""Lists as the input of `add` and `get`: their options, their requests, and what becomes of refused lines."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

import click

from longshore.cli.output.writer import one_line, say
from longshore.cli.standard_input import stdin_bytes
from longshore.domain.places import check_is_path
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.cli.options import Call
    from longshore.config import Settings
    from longshore.domain.identity.requests import Defaults
    from longshore.domain.model import JobRequest
    from longshore.lists import BadLine

F = TypeVar("F", bound=Callable[..., Any])
# Formats whose lines may stand in one file; rows of Parquet are written as JSON lines.
_FAMILIES: Final = {"aria2": "urls", "openalex": "jsonl", "unpaywall": "jsonl", "parquet": "jsonl"}


def list_options(function: F) -> F:
    """Add the options of commands that read lists."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option("--run", "run_id", metavar="NAME", help="The run of new jobs, unless their line names one."),
    click.option(
        "--media-type",
        metavar="TYPE",
        help="Expected type of all files, e.g. application/pdf; others fail. A line may name its own.",
    ),
    click.option(
        "--url-column",
        metavar="NAME",
        help="Column (CSV, Parquet) or key (JSONL) of the URL [default: url, or a similar name such as pdf_url].",
    ),
    click.option(
        "--rejects",
        metavar="FILE",
        help="Write all refused lines to FILE, each below its message; edit it and give it in again.",
    ),
)


class Listed:
    """One list while it is read: yields its requests and collects its invalid lines."""

    KEPT = 1_000
    SHOWN = 20  # to a person

    def __init__(
        self, name: str, stream: BinaryIO, format_: str | None, base_url: str | None, url_column: str | None
    ) -> None:
        from longshore.domain.policy.redaction import safe_url
        from longshore.lists import ListFacts, read_list

        self.name = "stdin" if name == "-" else safe_url(name) if "://" in name else name
        self.bad: list[BadLine] = []
        self.bad_count = 0
        self.passed_over = 0
        self.without_file = 0
        self.unknown: Counter[str] = Counter()
        self.about = ListFacts()
        self.rejects: Rejects | None = None
        self.defaults: Defaults | None = None
        known: dict[str, Any] = {"base_url": base_url, "url_column": url_column, "sums": _sums_beside(name)}
        try:
            self._items = read_list(stream, format_, unknown=self.unknown, about=self.about, **known)
        except BadInput as error:
            raise BadInput(f"{self.name}: {error}", hint=error.hint) from None

    def __iter__(self) -> Iterator[JobRequest]:
        from longshore.lists import BadLine, NoDownload, WithoutFile

        try:
            for item in self._items:
                if isinstance(item, NoDownload):
                    self.passed_over += 1
                elif isinstance(item, WithoutFile):
                    self.without_file += 1
                elif isinstance(item, BadLine):
                    self._refuse(item)
                else:
                    yield item if self.defaults is None else self.defaults.applied(item)
        except BadInput as error:
            raise BadInput(f"{self.name}: {error}", hint=error.hint) from None

    def _refuse(self, bad: BadLine) -> None:
        self.bad_count += 1
        if len(self.bad) < self.KEPT:
            self.bad.append(bad)
        if self.rejects is not None:
            self.rejects.write(self, bad)

    def unknown_text(self) -> str:
        """Return a message about unused fields, the most frequent first."""
        names = [f"{name[:40]!r} ({count})" for name, count in self.unknown.most_common(5)]
        return "fields that are not known were not used: " + ", ".join(names) + (" …" if len(self.unknown) > 5 else "")

    def report(self, call: Call) -> None:
        """Report the refused lines: all that are kept as JSON and with -v, otherwise the first ones and their number."""
        told = self.bad if call.json or call.verbosity > 0 else self.bad[: self.SHOWN]
        for bad in told:
            if call.json:
                facts = {"source": self.name, "line": bad.line, "message": bad.message}
                call.output.record("refused", facts, flush=False)
            elif call.verbosity > -2:
                say(f"{self.name}:{bad.line}: {bad.message}")
        if self.unknown and call.verbosity > -2:
            say(f"{self.name}: {self.unknown_text()}")
        if self.bad_count > len(told) and call.verbosity > -2:
            say(f"{self.name}: … and {self.bad_count - len(told)} more; --rejects FILE writes all of them")


class Rejects:
    """The refused lines of lists, as they came, each below a comment with its number and message."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._empty = True

    def write(self, listed: Listed, bad: BadLine) -> None:
        """Write one line with all that belongs to it."""
        from longshore.lists.lines import REJECTED, REJECTS

        if self._empty:
            self._out.write(REJECTS + b" of `longshore`: correct them and give this file in again\n")
            if listed.about.heading:
                self._out.write(listed.about.heading.encode() + b"\n")
            self._empty = False
        self._out.write(REJECTED + one_line(f"{listed.name}:{bad.line}: {bad.message}").encode() + b"\n")
        if bad.text is not None:
            self._out.write(bad.text + b"\n")


@contextmanager
def read_lists(
    names: Sequence[str],
    settings: Settings,
    *,
    format_: str | None = None,
    base_url: str | None = None,
    url_column: str | None = None,
    rejects: str | None = None,
    defaults: Defaults | None = None,
) -> Iterator[list[Listed]]:
    """Open lists; their requests get the defaults. With `rejects`, write their refused lines to that file, which appears at the end of the block."""
    with ExitStack() as stack:
        streams = [(name, _opened(name, settings, stack)) for name in names]
        lists = [Listed(name, stream, format_, base_url, url_column) for name, stream in streams]
        for one in lists:
            one.defaults = None if defaults is None or defaults.empty else defaults
        if rejects is not None:
            _check_families(lists)
            file = stack.enter_context(_rejects_file(rejects, settings))
            for one in lists:
                one.rejects = file
        yield lists


def _check_families(lists: Sequence[Listed]) -> None:
    families = {_FAMILIES.get(one.about.format, one.about.format) for one in lists}
    if len(families) > 1 or (families == {"csv"} and len(lists) > 1):
        raise BadInput(
            "--rejects takes lists of one format, and one CSV file at a time, because its result is a list, too",
            hint="call it once for each list",
        )


@contextmanager
def _rejects_file(name: str, settings: Settings) -> Iterator[Rejects]:
    """Write a file that appears complete: it may be one of the lists that are read."""
    from pathlib import Path  # not loaded by the fast path of `get`

    from longshore.depot.output_paths import check_target

    check_is_path("--rejects", name)
    target = Path(os.path.abspath(name))
    check_target(target, settings)
    if target.is_dir():
        raise BadInput(f"{name} is a directory", hint="--rejects names a file")
    temporary = target.with_name(f".{target.name}.new")
    try:
        with open(temporary, "wb") as out:
            yield Rejects(out)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _opened(name: str, settings: Settings, stack: ExitStack) -> BinaryIO:
    """Open a list by its name or URL; `-` is stdin."""
    if name == "-":
        return stdin_bytes()
    try:
        return stack.enter_context(open(name, "rb"))
    except FileNotFoundError:
        if "://" in name:
            return stack.enter_context(_fetched(name, settings))
        raise BadInput(f"no such file: {name}") from None
    except IsADirectoryError:
        raise BadInput(f"{name} is a directory", hint="`longshore adopt` takes directories") from None


def _fetched(url: str, settings: Settings) -> BinaryIO:
    """Fetch a list: only this loads the network."""
    from longshore.depot.list_from_url import open_list

    return open_list(url, settings, note=say)


def _sums_beside(name: str) -> dict[str, str] | None:
    """Read the manifest of the bag that a fetch.txt belongs to."""
    manifest = os.path.join(os.path.dirname(name), "manifest-sha256.txt")
    if os.path.basename(name) != "fetch.txt" or not os.path.isfile(manifest):
        return None
    with open(manifest, encoding="utf-8") as file:
        pairs = (line.rstrip("\r\n").split(None, 1) for line in file if line.strip())
        return {pair[1]: pair[0] for pair in pairs if len(pair) == 2}
