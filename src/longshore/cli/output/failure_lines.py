"""Failures on the screen: the first of each reason with a hint, the others counted and grouped at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from longshore.cli.output.writer import counted, size
from longshore.domain.reasons import reason_named

LOST_REMEDY: Final = "`longshore reconcile` and `longshore run` fetch what has a source"
EACH: Final = 3  # failures of one reason that get a line of their own
HOSTS: Final = 4  # hosts of one reason that are named at the end


class FailureLines:
    """Decides which failures of a run get a line."""

    def __init__(self, *, all_of_them: bool = False) -> None:
        self._seen: Counter[str] = Counter()
        self._all = all_of_them

    def text(self, word: str, reason: str, item: str, message: str) -> str | None:
        """Return the line of one failure, with a hint for the first of its reason; None: it is only counted."""
        self._seen[reason] += 1
        seen = self._seen[reason]
        if seen > EACH + 1 and not self._all:
            return None
        if seen == EACH + 1 and not self._all:
            return f"{word:<9} {reason}  … further ones are only counted"
        line = f"{word:<9} {reason}  {item}: {message}"
        return f"{line}\n  → {remedy(reason)}" if seen == 1 else line


def lost_text(artifacts: int, nbytes: int) -> str:
    """Return the sentence for artifacts whose bytes were found lost or damaged, with the remedy."""
    return f"{counted(artifacts, 'artifact')} lost or damaged, {size(nbytes)}: {LOST_REMEDY}"


def grouped(failures: Mapping[tuple[str, str], int]) -> list[str]:
    """Return the failures of a run by reason, the hosts within, and the hint of each; empty if each had its line."""
    reasons: dict[str, Counter[str]] = {}
    for (reason, host), count in failures.items():
        reasons.setdefault(reason, Counter())[host or "-"] += count
    if all(hosts.total() <= EACH for hosts in reasons.values()):
        return []
    lines = []
    for reason, hosts in sorted(reasons.items(), key=lambda one: (-one[1].total(), one[0])):
        named = [f"{host} ({count})" for host, count in hosts.most_common(HOSTS)]
        more = f" and {len(hosts) - HOSTS} more hosts" if len(hosts) > HOSTS else ""
        lines += [f"{hosts.total():>7}  {reason}  {', '.join(named)}{more}", f"         → {remedy(reason)}"]
    return lines


def remedy(reason: str) -> str:
    """Return the remedy for a job that failed for good for this reason."""
    try:
        known = reason_named(reason)
    except KeyError:
        return "see `longshore show JOB`"
    if known.remedy.startswith("tried "):  # all automatic attempts are used up
        return "`longshore retry` when the cause is gone"
    return known.remedy
