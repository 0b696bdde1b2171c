"""Retention: once a day a worker archives and deletes jobs that ended long enough ago and that nothing refers to.

What remains is one row with its grants and effects for every stored artifact, and a tombstone (key and outcome) for
every deleted job.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from longshore.depot.maintenance.deletion import Chosen, chosen_artifacts, delete, ids_and_bytes
from longshore.depot.maintenance.purge import retire
from longshore.domain.model import SECOND, Micros, Scope
from longshore.errors import NotPermitted
from longshore.ledger.operations import audit_log
from longshore.ledger.operations.deleting import By
from longshore.ledger.queries.due_work import scopes_known
from longshore.ledger.queries.listing import ArtifactFilter
from longshore.store.durability import filesystem

if TYPE_CHECKING:
    from longshore.domain.settings import RetentionSettings
    from longshore.ledger import Ledger
    from longshore.store import Store

DAY: Final = 86_400 * SECOND
SEEN: Final = 7 * DAY  # a pass deletes only if the previous pass was recent: a clock may jump by years
STAMP: Final = "retention.last"
ARCHIVE: Final = "archive"  # of purged jobs


@dataclass(slots=True)
class Forgotten:
    """The result of one daily pass."""

    jobs: int = 0
    artifacts: int = 0
    lines: int = 0  # entries of the audit log, and stored request keys


class Retention:
    """Keeps one depot's history bounded. Blocks; run it in a thread."""

    def __init__(self, ledger: Ledger, store: Store, settings: RetentionSettings, depot: Path) -> None:
        self._ledger, self._store, self._settings, self._depot = ledger, store, settings, depot

    def daily(self) -> Forgotten | None:
        """Run if the last pass was more than a day ago, by the ledger's clock.

        If the last pass was long ago or lies in the future, the clock may have jumped: this pass only records the time,
        and tomorrow's pass deletes.
        """
        now, stamp = self._ledger.now(), self._depot / STAMP
        ago = None
        with contextlib.suppress(OSError, ValueError):
            ago = now - int(stamp.read_text("ascii"))
        if ago is not None and 0 <= ago < DAY:
            return None
        done = self.enforce(now) if ago is None or 0 < ago <= SEEN else None
        filesystem.write_private(stamp, str(now).encode())
        return done

    def enforce(self, now: Micros) -> Forgotten:
        """Delete entries that are older than their limit in every project, in small transactions while workers run."""
        done, given = Forgotten(), self._settings
        form = "parquet" if importlib.util.find_spec("pyarrow") else "csv"
        for scope in self._ledger.read(scopes_known):
            if given.days:
                target = self._depot / ARCHIVE
                done.jobs += retire(self._ledger, scope, before=_before(now, given.days), target=target, form=form).jobs
            for artifact_type, days in given.artifact_days.items():
                done.artifacts += self._delete_old(scope, artifact_type, _before(now, days))
            done.lines += self._forget(audit_log.forget_keys, scope, now, given.request_key_days)
            with contextlib.suppress(NotPermitted):  # a worker's login; the service's process does it
                done.lines += self._forget(audit_log.forget_lines, scope, now, given.audit_days)
        return done

    def _delete_old(self, scope: Scope, artifact_type: str, before: Micros) -> int:
        """Delete the artifacts of a type that are older than its limit."""
        chosen = Chosen(wanted=ArtifactFilter(artifact_type=artifact_type), before=before)
        ids, _ = ids_and_bytes(chosen_artifacts(self._ledger, scope, chosen))
        by = By("retention", why=f"retention.artifact_days of {artifact_type}")
        return len(delete(self._ledger, self._store, scope, ids, by).artifact_ids) if ids else 0

    def _forget(self, verb: Callable[..., int], scope: Scope, now: Micros, days: float) -> int:
        count = 0
        while days and (gone := self._ledger.write(verb, scope, before=_before(now, days))):
            count += gone
        return count


def _before(now: Micros, days: float) -> Micros:
    return now - int(days * DAY)
