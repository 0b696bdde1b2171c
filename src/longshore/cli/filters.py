"""Options that select jobs: by id or by common properties."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from longshore.cli.time_spans import seconds
from longshore.domain.kinds import CUSTOM, KINDS, Status
from longshore.domain.reasons import REASONS
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
    click.option("--since", metavar="SPAN", help="Only jobs changed in this time: 30m, 12h, 2d."),
)
NAMES: Final = ("statuses", "stage", "reason", "host", "job_type", "work_id", "url", "since")


def taken(given: dict[str, Any]) -> dict[str, Any]:
    """Take the filter's options from a command's options; raise BadInput for a value that no job can have."""
    chosen = {name: given.pop(name) for name in NAMES}
    if chosen["stage"] is not None:
        known = list(dict.fromkeys(stage for kind in (*KINDS.values(), CUSTOM) for stage in kind.stages))
        _check_word("stage", chosen["stage"], known, known)
    if chosen["reason"] is not None and not _HTTP.match(chosen["reason"]):
        _check_word("reason", chosen["reason"], list(REASONS), [*REASONS, "http_404", "http_403", "http_500"])
    return chosen


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
        updated_after=now - int(seconds(chosen["since"]) * SECOND) if chosen["since"] else None,
    )


def matching(ledger: Ledger, scope: Scope, chosen: dict[str, Any]) -> list[str]:
    """Return the selected jobs."""
    return ledger.matching_ids(scope, job_filter(chosen, ledger.now()))


def found_jobs(ledger: Ledger, scope: Scope, chosen: dict[str, Any], limit: int | None = None) -> Iterator[Job]:
    """Read the selected jobs page by page."""
    wanted = job_filter(chosen, ledger.now())
    after, left = None, limit
    while left is None or left > 0:
        page = ledger.jobs(scope, wanted, after=after, limit=min(PAGE, left or PAGE))
        yield from page.items
        after = page.next
        if after is None:
            return
        left = None if left is None else left - len(page.items)
