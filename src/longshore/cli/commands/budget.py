"""`longshore budget`: the limits and the usage of a tenant."""

from __future__ import annotations

from typing import Any

import click

from longshore.cli.audited import act
from longshore.cli.options import Call, common
from longshore.cli.output.writer import size
from longshore.domain.sizes import SIZE_FORMS, parse_size


class Limit(click.ParamType):  # type: ignore[type-arg]
    """A number, `none` for no limit, or `default` for the setting's value; of bytes also with a unit."""

    name = "number|none|default"

    def __init__(self, *, in_bytes: bool = False) -> None:
        self._in_bytes = in_bytes
        self.name = "size|none|default" if in_bytes else self.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Parse one limit."""
        if value in ("none", "default"):
            return 0 if value == "none" else "default"
        try:
            number = parse_size(str(value)) if self._in_bytes else int(str(value))
        except ValueError:
            number = 0
        if number < 1:
            wanted = SIZE_FORMS if self._in_bytes else "a whole number from 1"
            self.fail(f"{value!r} must be {wanted}, `none` or `default`", param, ctx)
        return number


@click.command("budget")
@click.option(
    "--bytes", "bytes_", type=Limit(in_bytes=True), help="Bytes stored (2GiB, 500MB …); every blob counts once."
)
@click.option("--items", type=Limit(), help="Artifacts stored plus unfinished jobs.")
@click.option("--jobs", type=Limit(), help="Jobs running at the same time, over all workers.")
@common
def command(call: Call, bytes_: int | str | None, items: int | str | None, jobs: int | str | None) -> int:
    """Show the limits and the usage of a tenant (--tenant) over all its projects; with an option, change a limit first.

    Limits set here override quota.tenant_bytes, tenant_items and tenant_jobs, and apply to every worker at once.
    Planning beyond the items is refused; bytes that do not fit end their job with quota_exceeded; jobs beyond the
    limit wait until one ends.
    """
    from longshore.ledger.operations.tenant_budgets import set_budget

    given = {"bytes": bytes_, "items": items, "jobs": jobs}
    changes = {name: None if value == "default" else int(value) for name, value in given.items() if value is not None}
    with call.ledger() as ledger:
        if changes:
            act(ledger, call.scope, "set budget", set_budget, call.scope.tenant_id, changes, note=lambda _: changes)
        limits, used = ledger.budget(call.scope.tenant_id)
    rows = {"bytes": (used.bytes, limits.bytes), "items": (used.items, limits.items), "jobs": (used.jobs, limits.jobs)}
    if call.json:
        facts = {name: {"used": has, "limit": limit or None} for name, (has, limit) in rows.items()}
        call.output.record("budget", {"tenant": call.scope.tenant_id, **facts})
        return 0
    shown = [
        (name, _shown(name, has), _shown(name, limit) if limit else "no limit") for name, (has, limit) in rows.items()
    ]
    call.output.table(["budget", "used", "limit"], shown)
    return 0


def _shown(name: str, number: int) -> str:
    return size(number) if name == "bytes" else str(number)
