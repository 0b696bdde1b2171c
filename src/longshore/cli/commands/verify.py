"""`longshore verify`: hash stored blobs and compare them with the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from longshore.cli.options import Call, common
from longshore.cli.output.progress import PLAIN_EVERY_S
from longshore.cli.output.writer import counted, on_terminal, say, size
from longshore.cli.run_command import DAMAGE, OK

if TYPE_CHECKING:
    from longshore.depot import Depot, Report


@click.command("verify")
@click.option("--all-tenants", is_flag=True, help="Of every tenant and project.")
@click.option(
    "--full", is_flag=True, help="Also run the independent checker: rows, leases, effects, history, every file."
)
@common
def command(call: Call, *, all_tenants: bool, full: bool) -> int:
    """Read every blob again and compare size and SHA-256. Exit 5 when something is damaged or missing.

    Damaged blobs are moved to quarantine, so that the right bytes can take their place; `longshore gc` removes them a
    week later. Missing blobs are marked; `longshore reconcile` and `longshore run` fetch them again.
    """
    with call.depot() as depot:
        report = depot.verify(everything=all_tenants, on_progress=_progress(call))
        if full:
            _witnessed(depot, report)
        aside = _quarantine(depot)
    tell_report(call, "verify", report)
    if report.quarantined and not call.json and call.verbosity >= 0:
        say(f"  → damaged bytes are kept in {aside} until `longshore gc` removes them")
    return DAMAGE if report.damage else OK


def _quarantine(depot: Depot) -> str:
    """Return the location of the quarantine for messages."""
    from longshore.depot.derived_settings import store_place

    if depot.store.backend != "local":
        return "the store, below .quarantine/,"
    return f"{store_place(depot.settings)}/.staging/quarantine"


def _witnessed(depot: Depot, report: Report) -> None:
    """Add the checker's findings; it shares no code with the ledger and reads all tenants."""
    from pathlib import Path

    from longshore.checker import check
    from longshore.checker.check import HEALABLE, LocalFiles
    from longshore.depot.derived_settings import ledger_place, store_place
    from longshore.domain.model import Scope

    local = depot.store.backend == "local"
    looked = check(str(ledger_place(depot.settings)), LocalFiles(Path(store_place(depot.settings))) if local else None)
    for found in looked.findings:
        message = found.detail + (" (reconcile heals it)" if found.kind in HEALABLE else "")
        report.found(found.kind, Scope(found.tenant_id, found.project_id), found.subject, message)


def tell_report(call: Call, command_name: str, report: Report, *, dry_run: bool = False) -> None:
    """Write findings and the summary."""
    for finding in report.findings:
        facts = {
            "kind": finding.kind,
            "subject": finding.subject,
            "message": finding.message,
            "healed": finding.healed,
            "remedy": finding.remedy,
            "tenant_id": finding.scope.tenant_id,
            "project_id": finding.scope.project_id,
        }
        if call.json:
            call.output.record("finding", facts, flush=False)
        else:
            call.output.text(
                f"{finding.kind}  {finding.subject}  {finding.message}" + ("  (healed)" if finding.healed else "")
            )
    healed = sum(finding.healed for finding in report.findings)
    counts = {"checked": report.checked, "bytes": report.bytes, "findings": len(report.findings), "healed": healed}
    if call.json:
        call.output.record("summary", {"command": command_name, **counts, "dry_run": dry_run})
    elif call.verbosity >= 0:
        say(_total(command_name, report, healed))
        for remedy in report.remedies:
            say(f"  → {remedy}")


def _total(command_name: str, report: Report, healed: int) -> str:
    """Return the last line of a report."""
    if report.findings:
        found = f"{counted(len(report.findings), 'finding')}, {healed} healed"
        return f"{counted(report.checked, 'blob')} checked, {size(report.bytes)}: {found}"
    if command_name == "verify":
        blobs = "the one blob" if report.checked == 1 else f"all {report.checked} blobs"
        return f"{blobs} verified, {size(report.bytes)}" if report.checked else "no blobs to verify"
    return f"{counted(report.checked, 'blob')} checked: rows and files agree"


def _progress(call: Call) -> Callable[[int, int], None]:
    every = 1.0 if on_terminal() else PLAIN_EVERY_S
    due = [time.monotonic() + every]

    def listen(blobs: int, nbytes: int) -> None:
        now = time.monotonic()
        if now >= due[0] and not call.json and call.verbosity >= 0:
            due[0] = now + every
            say(f"{blobs} checked, {size(nbytes)}")

    return listen
