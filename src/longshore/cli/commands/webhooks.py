"""`longshore webhooks`: send changes of artifacts to other services."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import moment, say
from longshore.cli.run_command import OK, SOME_FAILED
from longshore.errors import NotFound

if TYPE_CHECKING:
    from longshore.depot.webhooks import Delivered, Deliverer
    from longshore.ledger import Ledger
    from longshore.ledger.operations.webhooks import Webhook

POLL_S = 1.0


@click.group("webhooks")
def command() -> None:
    """Send the changes of a project's artifacts to HTTP endpoints: signed, in order, each at least once.

    Requests have the headers of Standard Webhooks and a CloudEvents 1.0 body. `longshore serve` sends them; without it,
    `longshore webhooks deliver --follow`.
    """


@command.command("add")
@click.argument("url")
@click.option("--change", "kinds", multiple=True, metavar="KIND", help="Only new, changed or gone; repeatable.")
@click.option("--from-start", is_flag=True, help="Also send the changes that there are already.")
@common
def add(call: Call, url: str, kinds: tuple[str, ...], *, from_start: bool) -> int:
    """Add an endpoint. Its secret, for checking signatures, is printed once."""
    from longshore.ledger.operations.webhooks import add_webhook

    with call.ledger() as ledger:
        hook = ledger.write(add_webhook, call.scope, url, kinds, from_start=from_start)
    if call.json:
        call.output.record("webhook", _facts(hook) | {"secret": str(hook.secret)})
    else:
        call.output.text(str(hook.secret))
        say(f"webhook {hook.webhook_id}; its secret is not shown again")
    return OK


@command.command("list")
@common
def list_(call: Call) -> int:
    """List the endpoints and how they fare."""
    from longshore.ledger.operations.webhooks import webhooks

    with call.ledger() as ledger:
        hooks = ledger.read(webhooks, call.scope)
    for hook in hooks:
        if call.json:
            call.output.record("webhook", _facts(hook) | {"secret": None})
    if not call.json:
        rows = [[hook.webhook_id, ",".join(hook.kinds), _state(hook), hook.url] for hook in hooks]
        call.output.table(["ID", "CHANGES", "STATE", "URL"], rows)
    return OK


@command.command("remove")
@click.argument("webhook_id", metavar="ID")
@common
def remove(call: Call, webhook_id: str) -> int:
    """Remove an endpoint with its dead letters."""
    from longshore.ledger.operations.webhooks import remove_webhook

    with call.ledger() as ledger:
        ledger.write(remove_webhook, call.scope, webhook_id)
    if call.json:
        call.output.record("removed", {"webhook_id": webhook_id})
    return OK


@command.command("deliver")
@click.option("--follow", is_flag=True, help="Stay, and send changes as they come.")
@common
def deliver(call: Call, *, follow: bool) -> int:
    """Send what is due now to the endpoints of this project (exit 3 if some requests failed)."""
    with call.ledger() as ledger:
        deliverer = _deliverer(call, ledger)
        while True:
            done = deliverer.round(call.scope)
            if not follow:
                return _tell(call, done)
            time.sleep(POLL_S)


@command.command("failures")
@click.argument("webhook_id", metavar="ID")
@common
def failures(call: Call, webhook_id: str) -> int:
    """Print the messages that were given up, as JSON lines."""
    from longshore.ledger.operations.webhooks import dead_letters

    with call.ledger() as ledger:
        for letter in ledger.read(dead_letters, call.scope, webhook_id):
            facts = {"message_id": letter.message_id, "reason": letter.reason, "body": letter.body}
            call.output.record("dead_letter", facts, letter.failed_at)
    return OK


@command.command("redeliver")
@click.argument("webhook_id", metavar="ID")
@common
def redeliver(call: Call, webhook_id: str) -> int:
    """Send the messages that were given up once more, under the same ids (exit 3 if some requests failed)."""
    from longshore.ledger.operations.webhooks import webhooks

    with call.ledger() as ledger:
        if webhook_id not in {hook.webhook_id for hook in ledger.read(webhooks, call.scope)}:
            raise NotFound(f"webhook {webhook_id[:80]} not found", hint="`longshore webhooks list` lists them")
        return _tell(call, _deliverer(call, ledger).again(call.scope, webhook_id))


def _deliverer(call: Call, ledger: Ledger) -> Deliverer:
    from longshore.depot.derived_settings import network_policy
    from longshore.depot.webhooks import Deliverer

    return Deliverer(ledger, network_policy(call.settings), call.settings.network)


def _tell(call: Call, done: Delivered) -> int:
    if call.json:
        call.output.record("delivered", {"sent": done.sent, "failed": done.failed, "given_up": done.given_up})
    elif call.verbosity >= 0:
        say(f"{done.sent} sent, {done.failed} failed, {done.given_up} given up")
    return SOME_FAILED if done.failed else OK


def _facts(hook: Webhook) -> dict[str, Any]:
    return {
        "webhook_id": hook.webhook_id,
        "url": hook.url,
        "changes": list(hook.kinds),
        "created_at": moment(hook.created_at),
        "state": _state(hook),
        "attempts": hook.attempts,
        "reason": hook.reason,
    }


def _state(hook: Webhook) -> str:
    if hook.disabled_at is not None:
        return "disabled"
    return "failing" if hook.attempts else "active"
