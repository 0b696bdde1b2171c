"""The checks of `doctor` that find what was done to a ledger by hand: its schema, and the chain of its audit log."""

from __future__ import annotations

from pathlib import Path

from longshore.config import Settings
from longshore.depot.doctor.check import Check, many, no_ledger, on_postgres, opened
from longshore.errors import NotPermitted
from longshore.ledger.operations import audit_log

_REMEDY = "find out who changed it; a new ledger has the right schema: longshore ledger copy"
_SHOWN = 10


def check_schema(settings: Settings) -> Check:
    """Compare tables, triggers, functions, policies and rights with what the program makes."""
    if no_ledger(settings):
        return Check("schema", "skip", "no ledger yet")
    try:
        found = _drift(settings)
    except NotPermitted as error:
        return Check("schema", "skip", f"only the owner's login can compare the schema: {error}")
    if not found:
        return Check("schema", "ok", "tables, triggers and rights are as the program makes them")
    told = "; ".join(found[:_SHOWN]) + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
    harmless = all(line.startswith("index ") and line.endswith("is not ours") for line in found)
    return Check("schema", "warn" if harmless else "fail", told, _REMEDY)


def _drift(settings: Settings) -> list[str]:
    if on_postgres(settings):
        from longshore.ledger.backends.postgres.schema import drift_postgres

        return drift_postgres(settings.ledger)
    from longshore.ledger.maintenance.snapshot import drift

    return drift(Path(settings.ledger))


def check_audit(settings: Settings) -> Check:
    """Follow the chain of the audit log of every project."""
    if no_ledger(settings):
        return Check("audit", "skip", "no ledger yet")
    lines, broken, newest = 0, [], []
    with opened(settings) as ledger:
        for scope in ledger.read(audit_log.audit_scopes):
            end = ledger.read(audit_log.check_chain, scope)
            place, lines = f"{scope.tenant_id}/{scope.project_id}", lines + end.lines
            if end.broken:
                broken.append(f"{place}: {end.broken}")
            else:
                newest.append(f"{place} ends with line {end.number} {end.hash[:16]}")
    if broken:
        return Check(
            "audit", "fail", "; ".join(broken[:_SHOWN]), "find out who changed the audit log; compare with a backup"
        )
    told = "; ".join(newest[:_SHOWN]) or "no lines"
    return Check("audit", "ok", f"{many(lines, 'line')}, no chain is broken; {told}")
