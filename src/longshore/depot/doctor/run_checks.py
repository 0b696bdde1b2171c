"""Run the checks of `doctor`: all of them in order, or named ones."""

from __future__ import annotations

from collections.abc import Iterator

from longshore.config import Settings
from longshore.depot.doctor.check import Check
from longshore.depot.doctor.depot_checks import DEPOT_CHECKS
from longshore.depot.doctor.machine_checks import MACHINE_CHECKS
from longshore.errors import BadInput, LongshoreError


def checks(settings: Settings, only: set[str]) -> Iterator[Check]:
    """Run all checks in order."""
    known = {**MACHINE_CHECKS, **DEPOT_CHECKS}
    if unknown := only - known.keys():
        raise BadInput(f"unknown check {min(unknown)!r}", hint=f"one of {', '.join(known)}")
    for name, check in known.items():
        if only and name not in only:
            continue
        try:
            yield check(settings)
        except LongshoreError as error:
            yield Check(name, "fail", str(error), error.hint)
        except OSError as error:
            yield Check(name, "fail", f"{error.filename or ''} {error.strerror or error}".strip(), "check the path")
