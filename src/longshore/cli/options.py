"""The common options of all commands, and the `Call` that is built from them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from longshore.cli.output.writer import Output, say
from longshore.cli.time_spans import TimeRange
from longshore.domain.places import check_is_path
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.config import Settings
    from longshore.depot import Depot
    from longshore.domain.scope import Scope
    from longshore.ledger import Ledger

F = TypeVar("F", bound=Callable[..., Any])


class LocalPath(click.Path):
    """A path on this machine; a URL is refused before a directory is made of it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check and convert one path."""
        check_is_path(param.human_readable_name if param else "the target", os.fspath(value))
        return super().convert(value, param, ctx)


def make_private(directory: str) -> None:
    """Make a directory and its missing parents, accessible by its owner only, regardless of the umask."""
    before = os.umask(0o077)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    finally:
        os.umask(before)


@dataclass(slots=True)
class Call:
    """One invocation of the program: its output, its settings and its depot."""

    output: Output
    verbosity: int = 0
    flags: dict[str, Any] = field(default_factory=dict)
    _settings: Settings | None = None

    @property
    def json(self) -> bool:
        """Return whether the output is JSON."""
        return self.output.json

    @property
    def settings(self) -> Settings:
        """Read the configuration once."""
        if self._settings is None:
            from longshore.config import load_settings

            flags = dict(self.flags)
            self._settings = load_settings(flags.pop("depot", None), **flags)
        return self._settings

    @property
    def scope(self) -> Scope:
        """Return tenant and project."""
        from longshore.domain.scope import Scope

        return Scope(self.settings.tenant, self.settings.project)

    def ledger(self, *, create: bool = False, bulk: bool = False) -> Ledger:
        """Open the ledger alone; commands that only plan or query need not load engine, store and libcurl."""
        from longshore.config.credentials import logins
        from longshore.depot.derived_settings import lost_ledger
        from longshore.ledger import Ledger

        if lost := lost_ledger(self.settings):
            raise lost
        on_server = "://" in self.settings.ledger
        if create and not on_server:
            self.tell_new()
            make_private(self.settings.depot)
        ledger = Ledger.open(self.settings.ledger, create=create and not on_server, bulk=bulk)
        if create and on_server:  # whose schema only `migrate` makes
            make_private(self.settings.depot)
        ledger.backend.budget, ledger.backend.logins = self.settings.quota.budget(), logins(self.settings)
        return ledger

    def depot(self, *, create: bool = False, store_lost: bool = False) -> Depot:
        """Open the depot; only commands that plan work create one."""
        from longshore.depot import Depot
        from longshore.depot.derived_settings import lost_ledger

        if create and not lost_ledger(self.settings):
            self.tell_new()
        return Depot(settings=self.settings, create=create, store_lost=store_lost)

    def tell_new(self) -> None:
        """Report where a new depot is created, so that a mistyped path is noticed."""
        where = self.settings.ledger
        if not self.json and self.verbosity >= 0 and "://" not in where and not os.path.exists(where):
            say(f"new depot: {self.settings.depot}")


def running(function: F) -> F:
    """Add the options of commands that run jobs; `apply_running` makes settings of them."""
    for option in reversed(_RUNNING):
        function = option(function)
    return function


def apply_running(call: Call, how: dict[str, Any]) -> None:
    """Put the options that are short forms of settings into the call."""
    transfer = {"concurrency": how.pop("jobs"), "max_rate": how.pop("limit_rate")}
    _check_rate(transfer["max_rate"])
    if chosen := {name: value for name, value in transfer.items() if value is not None}:
        call.flags["transfer"] = call.flags.get("transfer", {}) | chosen
    if (file := how.pop("cookies")) is not None:
        call.flags["network"] = call.flags.get("network", {}) | {"cookies": os.path.abspath(file)}
    if how["offline"]:
        call.flags["offline"] = True


def _check_rate(text: str | None) -> None:
    """Name the option that is wrong, not the setting that it stands for."""
    if text is None:
        return
    from longshore.domain.policy.max_rate import parse_max_rate

    try:
        parse_max_rate(text)
    except ValueError as error:
        raise click.BadParameter(str(error).removeprefix("max_rate "), param_hint="--limit-rate") from None


def common(function: F) -> F:
    """Add the common options to a command and pass it the `Call`."""

    @functools.wraps(function)
    def wrapped(**given: Any) -> Any:
        given |= _with_earlier(given)
        flags = {name: given.pop(name) for name in ("depot", "ledger", "store", "tenant", "project")}
        flags |= _settings_given(given.pop("set_"))
        if allowed := given.pop("allow_net"):
            flags["network"] = flags.get("network", {}) | {"allow": list(allowed)}
        flags = {name: value for name, value in flags.items() if value is not None}
        verbosity = given.pop("verbose") - given.pop("quiet")
        if verbosity > 1:
            _log_to_stderr(all_of_it=verbosity > 2)
        return function(Call(Output(json=given.pop("json_")), verbosity, flags), **given)

    for option in reversed(COMMON):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


def _with_earlier(given: dict[str, Any]) -> dict[str, Any]:
    """Return the common options with those that were given before the command; a later one wins, lists are joined."""
    earlier: dict[str, Any] = click.get_current_context().find_root().obj or {}
    return {name: _joined(value, given[name]) for name, value in earlier.items()}


def _joined(earlier: Any, later: Any) -> Any:
    if isinstance(earlier, bool):
        return earlier or later
    if isinstance(earlier, tuple | int):
        return earlier + later
    return earlier if later is None else later


def _log_to_stderr(*, all_of_it: bool) -> None:
    import logging
    import sys

    logging.basicConfig(level=logging.DEBUG if all_of_it else logging.INFO, stream=sys.stderr)


def _settings_given(pairs: Iterable[str]) -> dict[str, Any]:
    sections: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        section, dot, key = name.strip().partition(".")
        if not equals or not section:
            raise BadInput(f"--set takes SECTION.KEY=VALUE, not {pair!r}")
        if dot:
            sections.setdefault(section, {})[key] = value
        else:
            sections[section] = value
    return sections


COMMON = (
    click.option(
        "--depot", metavar="DIR", help="The depot (LONGSHORE_DEPOT) [default: ~/.local/share/longshore on Linux]."
    ),
    click.option("--ledger", metavar="PLACE", help="Its ledger: a path or postgresql://… (LONGSHORE_LEDGER)."),
    click.option("--store", metavar="PLACE", help="Its store: a path, s3://… or postgresql://… (LONGSHORE_STORE)."),
    click.option("--tenant", metavar="NAME", help="Tenant [default: default]."),
    click.option("--project", metavar="NAME", help="Project [default: default]."),
    click.option("--json", "json_", is_flag=True, help="Write JSON lines to stdout."),
    click.option("-q", "--quiet", count=True, help="Less output; twice: only errors."),
    click.option("-v", "--verbose", count=True, help="Say more."),
    click.option("--allow-net", multiple=True, metavar="CIDR", help="Also allow these non-public addresses."),
    click.option("--set", "set_", multiple=True, metavar="SECTION.KEY=VALUE", help="Any setting, for this call."),
)

_RUNNING = (
    click.option(
        "-j",
        "--jobs",
        type=click.IntRange(1, 4096),
        metavar="N",
        help="Transfers at the same time (transfer.concurrency).",
    ),
    click.option(
        "--limit-rate",
        metavar="RATE",
        help="Bytes per second of all transfers together: 500k, 2M (transfer.max_rate).",
    ),
    click.option(
        "--cookies",
        metavar="FILE",
        help="Send the cookies of this file (cookies.txt) to their hosts (network.cookies).",
    ),
    click.option(
        "--max-wait",
        type=TimeRange(min=0),
        metavar="S",
        help="Give up after S seconds without a finished job or a byte of a body (exit 4).",
    ),
    click.option(
        "--offline", is_flag=True, help="Open no connections; URLs that are not stored wait (reason `offline`, exit 4)."
    ),
)
