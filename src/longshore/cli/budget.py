"""`longshore budget`: what a tenant may have."""

from __future__ import annotations

from typing import Any

import click

from longshore.cli.options import Call, common
from longshore.cli.output import size


class Limit(click.ParamType):  # type: ignore[type-arg]
    """A whole number, `none` for no limit, or `default` for what the settings say."""

    name = "number|none|default"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Read one limit."""
        if value in ("none", "default"):
            return 0 if value == "none" else "default"
        if not str(value).isdecimal() or int(value) < 1:
            self.fail(f"{value!r} is no whole number from 1, nor `none` or `default`", param, ctx)
        return int(value)


@click.command("budget")
@click.option("--bytes", "bytes_", type=Limit(), help="Bytes held, every blob once.")
@click.option("--items", type=Limit(), help="Artifacts held and jobs that are not over.")
@click.option("--jobs", type=Limit(), help="Jobs worked on at the same time, by all workers together.")
@common
def command(call: Call, bytes_: int | str | None, items: int | str | None, jobs: int | str | None) -> int:
    """Show what a tenant (--tenant) may have and has, over all its projects; with an option, change it first.

    What is set here wins over quota.tenant_bytes, tenant_items and tenant_jobs, and holds for every worker at once.
    Planning beyond the items is refused; bytes that do not fit end their job with quota_exceeded; jobs beyond the
    limit wait until one ends.
    """
    given = {"bytes": bytes_, "items": items, "jobs": jobs}
    changes = {name: None if value == "default" else int(value) for name, value in given.items() if value is not None}
    with call.ledger() as ledger:
        if changes:
            ledger.set_budget(call.scope.tenant_id, **changes)
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
