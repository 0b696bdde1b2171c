"""`longshore doctor`: run the checks and print evidence and remedy of each."""

from __future__ import annotations

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import say
from longshore.cli.run_command import OK, UNEXPECTED

_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL", "skip": "–   "}


@click.command("doctor")
@click.option("--only", multiple=True, metavar="CHECK", help="Only these checks.")
@common
def command(call: Call, only: tuple[str, ...]) -> int:
    """Check this machine and this depot: versions, disk, clock, network, ledger, store, torrent client.

    Writes only a few probe bytes, which it removes again. Exit 1 when a check fails.
    """
    from longshore.depot.doctor.run_checks import checks

    done = []
    for check in checks(call.settings, set(only)):
        done.append(check)
        if call.json:
            facts = {"id": check.id, "status": check.status, "evidence": check.evidence, "remedy": check.remedy}
            call.output.record("check", facts)
        else:
            call.output.text(f"{_MARKS[check.status]}  {check.id:<16} {check.evidence}")
            if check.remedy and check.status in {"warn", "fail"}:
                call.output.text(f"      {'':<16} → {check.remedy}")
    counts = {status: sum(check.status == status for check in done) for status in _MARKS}
    if call.json:
        call.output.record("summary", {"command": "doctor", **counts})
    elif call.verbosity >= 0:
        warned = f"{counts['warn']} warning{'' if counts['warn'] == 1 else 's'}"
        say(f"{counts['ok']} ok, {warned}, {counts['fail']} failed, {counts['skip']} skipped")
    return UNEXPECTED if counts["fail"] else OK
