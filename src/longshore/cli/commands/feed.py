"""`longshore feed`: the changes of a project's artifacts, for programs that follow it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import moment
from longshore.cli.run_command import OK
from longshore.errors import BadInput, NotFound

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.ledger.queries.feed import FeedPage

PRINTED = "printed"


@click.command("feed")
@click.option("--consumer", metavar="NAME", help="Who reads: a name under which the position is kept.")
@click.option(
    "--ack",
    is_flag=False,
    flag_value=PRINTED,
    metavar="[CURSOR]",
    help="Acknowledge up to this cursor and print nothing; without a cursor: print, and acknowledge what was printed.",
)
@click.option("--follow", is_flag=True, help="Stay, and print changes as they come.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most about N changes [default: all].")
@click.option("--list", "list_", is_flag=True, help="List the consumers and where they stand.")
@click.option("--forget", is_flag=True, help="Forget the consumer; it begins again at the first change.")
@common
def command(
    call: Call,
    consumer: str | None,
    ack: str | None,
    limit: int | None,
    *,
    follow: bool,
    list_: bool,
    forget: bool,
) -> int:
    """Print which artifacts are new, changed or gone, as JSON lines, since what the consumer has acknowledged.

    Each line has a `cursor`. When its change is applied for good, acknowledge it: `longshore feed --consumer NAME --ack
    CURSOR`. Lines that are not acknowledged come again. Store each `new` and `changed` artifact under its id and remove each
    `gone` one: then the consumer equals the depot, whatever was killed in between.
    """
    with call.ledger() as ledger:
        if list_:
            return _list(call, ledger)
        if consumer is None:
            raise BadInput(
                "name the consumer with --consumer NAME", hint="`longshore feed --list` lists the known ones"
            )
        if forget:
            return _forget(call, ledger, consumer)
        if ack is not None and ack != PRINTED:
            return _acknowledge(call, ledger, consumer, ack)
        return _print(call, ledger, consumer, limit, ack=ack is not None, follow=follow)


def _print(call: Call, ledger: Ledger, consumer: str, limit: int | None, *, ack: bool, follow: bool) -> int:
    from longshore.depot.change_feed import PAGE, POLL_S, read_changes
    from longshore.ledger.operations.feed_consumers import feed_ack

    after: int | None = None
    left = limit
    while True:
        page = read_changes(ledger, call.scope, consumer, after=after, limit=min(PAGE, left or PAGE))
        _write(call, page)
        if ack and page.changes:
            ledger.write(feed_ack, call.scope, consumer, page.changes[-1].cursor)
        after = page.cursor
        left = None if left is None else left - len(page.changes)
        if left is not None and left <= 0:
            return OK
        if not page.more:
            if not follow:
                return OK
            time.sleep(POLL_S)


def _write(call: Call, page: FeedPage) -> None:
    """Write a page; flushed at its end, before anything is acknowledged."""
    from longshore.depot.change_feed import facts_of

    last = len(page.changes) - 1
    for place, change in enumerate(page.changes):
        facts = {"cursor": str(change.cursor), **facts_of(change)}
        call.output.record(change.kind, facts, change.at, flush=place == last)


def _acknowledge(call: Call, ledger: Ledger, consumer: str, cursor: str) -> int:
    from longshore.ledger.operations.feed_consumers import feed_ack

    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 20):
        raise BadInput(f"not a cursor: {cursor[:40]!r}", hint="acknowledge what a line has as `cursor`")
    stands = ledger.write(feed_ack, call.scope, consumer, int(cursor))
    if call.json:
        call.output.record("acknowledged", {"consumer": consumer, "cursor": str(stands)})
    return OK


def _forget(call: Call, ledger: Ledger, consumer: str) -> int:
    from longshore.ledger.operations.feed_consumers import feed_forget

    if not ledger.write(feed_forget, call.scope, consumer):
        raise NotFound(f"consumer {consumer} not found", hint="`longshore feed --list` lists the known ones")
    if call.json:
        call.output.record("forgotten", {"consumer": consumer})
    return OK


def _list(call: Call, ledger: Ledger) -> int:
    from longshore.ledger.queries.feed import feed_consumers

    consumers = ledger.read(feed_consumers, call.scope)
    rows: list[dict[str, Any]] = [
        {
            "consumer": one.name,
            "cursor": str(one.cursor),
            "behind": one.behind,
            "updated_at": moment(one.updated_at),
        }
        for one in consumers
    ]
    for row in rows:
        if call.json:
            call.output.record("consumer", row)
    if not call.json:
        table = [[row["consumer"], "behind" if row["behind"] else "up to date", row["updated_at"]] for row in rows]
        call.output.table(["CONSUMER", "STATE", "LAST ACKNOWLEDGED"], table)
    return OK
