"""History stays bounded: once a day a worker archives and forgets what is over for long enough and that nothing needs.

What stays for good is one row, its grants and its effects for every artifact that is held, and a tombstone (key and
outcome) for every job that went.
"""

from __future__ import annotations

import contextlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from longshore.domain.model import SECOND, Micros
from longshore.engine.questions import scopes_known
from longshore.exports.archive import retire
from longshore.ledger import tokens
from longshore.store import disk

if TYPE_CHECKING:
    from longshore.config.sections import RetentionSettings
    from longshore.ledger import Ledger

DAY: Final = 86_400 * SECOND
SEEN: Final = 7 * DAY  # a look forgets only what the look before it saw grow old: a clock may jump by years
STAMP: Final = "retention.last"
ARCHIVE: Final = "archive"


@dataclass(slots=True)
class Forgotten:
    """What one day's look came to."""

    jobs: int = 0
    lines: int = 0  # of the audit log, and remembered requests


class Retention:
    """Keeps one depot's history within its bounds. Blocks; run it in a thread."""

    def __init__(self, ledger: Ledger, settings: RetentionSettings, depot: Path) -> None:
        self._ledger, self._settings, self._depot = ledger, settings, depot

    def daily(self) -> Forgotten | None:
        """Do it if it was not done within a day, by the ledger's clock.

        If the last look was long ago, or is still to come, the clock may have jumped: this look is the first of its time,
        and tomorrow's forgets.
        """
        now, stamp = self._ledger.now(), self._depot / STAMP
        ago = None
        with contextlib.suppress(OSError, ValueError):
            ago = now - int(stamp.read_text("ascii"))
        if ago is not None and 0 <= ago < DAY:
            return None
        done = self.enforce(now) if ago is None or 0 < ago <= SEEN else None
        disk.write_private(stamp, str(now).encode())
        return done

    def enforce(self, now: Micros) -> Forgotten:
        """Forget what is older than its bound, in every project; in small transactions, while work goes on."""
        done, given = Forgotten(), self._settings
        form = "parquet" if importlib.util.find_spec("pyarrow") else "csv"
        for scope in self._ledger.read(scopes_known):
            if given.days:
                target = self._depot / ARCHIVE
                done.jobs += retire(self._ledger, scope, before=_before(now, given.days), target=target, form=form).jobs
            ages = {
                "audit_before": _before(now, given.audit_days) if given.audit_days else 0,
                "keys_before": _before(now, given.request_key_days) if given.request_key_days else 0,
            }
            while gone := self._ledger.write(tokens.forget_old, scope, **ages):
                done.lines += gone
        return done


def _before(now: Micros, days: float) -> Micros:
    return now - int(days * DAY)
