"""Options that select jobs: by id or by common properties."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from longshore.cli.time_spans import seconds
from longshore.domain.kinds import CUSTOM, KINDS, Status
from longshore.domain.reasons import REASONS, is_code
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.domain.model import Job, Scope
    from longshore.ledger import JobFilter, Ledger

F = TypeVar("F", bound=Callable[..., Any])
PAGE: Final = 1_000
_OTHERWISE: Final = {"reason": "`longshore failures` shows those that occur; docs/reference/reasons.md has all"}
_HTTP: Final = re.compile(r"http_\d{3}\Z")


def filtered(function: F) -> F:
    """Add the options that select jobs to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option("--status", "statuses", multiple=True, type=click.Choice([one.value for one in Status])),
    click.option("--stage", metavar="STAGE", help="Only jobs in this stage."),
    click.option("--reason", metavar="REASON", help="Only jobs whose last attempt ended with this reason."),
    click.option("--host", metavar="HOST", help="Only jobs of this host."),
    click.option("--type", "job_type", metavar="TYPE", help="Only jobs of this type."),
    click.option("--work", "work_id", metavar="ID", help="Only jobs of this work."),
    click.option("--url", "url", metavar="URL", help="Only jobs of this URL."),
    click.option("--run", "run_id", metavar="NAME", help="Only jobs of this run."),
    click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Only jobs with this parameter."),
    click.option(
        "--metadata", multiple=True, metavar="NAME=VALUE", help="Only jobs with a result that has this metadata."
    ),
    click.option("--since", metavar="SPAN", help="Only jobs changed in this time: 30m, 12h, 2d."),
)
NAMES: Final = (
    "statuses", "stage", "reason", "host", "job_type", "work_id", "url", "run_id", "parameters", "metadata", "since",
)  # fmt: skip


def taken(given: dict[str, Any]) -> dict[str, Any]:
    """Take the filter's options from a command's options; raise BadInput for a value that no job can have."""
    chosen = {name: given.pop(name) for name in NAMES}
    if chosen["stage"] is not None:
        known = list(dict.fromkeys(stage for kind in (*KINDS.values(), CUSTOM) for stage in kind.stages))
        _check_word("stage", chosen["stage"], known, known)
    for name in ("parameters", "metadata"):
        chosen[name] = named_values(chosen[name])
    if chosen["reason"] is not None and not is_code(chosen["reason"]):
        _check_reason(chosen["reason"])
    return chosen


def named_values(given: tuple[str, ...]) -> dict[str, str]:
    """Split NAME=VALUE options."""
    for one in given:
        if not one.partition("=")[0] or "=" not in one:
            raise BadInput(f"{one!r:.120} is not NAME=VALUE")
    return dict(one.split("=", 1) for one in given)


def _check_reason(reason: str) -> None:
    if not _HTTP.match(reason):
        _check_word("reason", reason, list(REASONS), [*REASONS, "http_404", "http_403", "http_500"])


def _check_nothing_found(chosen: dict[str, Any]) -> None:
    """Raise BadInput for a reason that no job has and the program does not know: a code of one's own, or an error in typing."""
    if chosen["reason"] is not None:
        _check_reason(chosen["reason"])


def _check_word(what: str, word: str, known: list[str], near: list[str]) -> None:
    if word in known:
        return
    from difflib import get_close_matches

    by_case = {one.casefold(): one for one in near}
    close = get_close_matches(word.casefold(), by_case, n=1, cutoff=0.5)
    hint = f"did you mean {by_case[close[0]]}?" if close else _OTHERWISE.get(what) or f"there are {', '.join(known)}"
    raise BadInput(f"unknown {what} {word!r}", hint=hint)


def is_empty(chosen: dict[str, Any]) -> bool:
    """Return whether no filter was given."""
    return not any(chosen.values())


def job_filter(chosen: dict[str, Any], now: int) -> JobFilter:
    """Build the ledger's filter."""
    from longshore.domain.identity.keys import canonical_url
    from longshore.domain.model import SECOND
    from longshore.ledger import JobFilter

    return JobFilter(
        statuses=tuple(Status(one) for one in chosen["statuses"]),
        stage=chosen["stage"],
        reason=chosen["reason"],
        host=chosen["host"],
        job_type=chosen["job_type"],
        work_id=chosen["work_id"],
        canonical_url=canonical_url(chosen["url"]) if chosen["url"] else None,
        run_id=chosen["run_id"],
        parameters=chosen["parameters"] or None,
        metadata=chosen["metadata"] or None,
        updated_after=now - int(seconds(chosen["since"]) * SECOND) if chosen["since"] else None,
    )


def matching(ledger: Ledger, scope: Scope, chosen: dict[str, Any]) -> list[str]:
    """Return the selected jobs."""
    found = ledger.matching_ids(scope, job_filter(chosen, ledger.now()))
    if not found:
        _check_nothing_found(chosen)
    return found


def found_jobs(ledger: Ledger, scope: Scope, chosen: dict[str, Any], limit: int | None = None) -> Iterator[Job]:
    """Read the selected jobs page by page."""
    wanted = job_filter(chosen, ledger.now())
    after, left, found = None, limit, False
    while left is None or left > 0:
        page = ledger.jobs(scope, wanted, after=after, limit=min(PAGE, left or PAGE))
        yield from page.items
        after, found = page.next, found or bool(page.items)
        if after is None:
            break
        left = None if left is None else left - len(page.items)
    if not found:
        _check_nothing_found(chosen)
