"""Verify: read every blob again and compare it with the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from longshore.depot.maintenance.missing_blobs import PLAN
from longshore.depot.records import Report
from longshore.domain.model import Artifact, Scope
from longshore.ledger.operations.artifact_registry import mark_available
from longshore.ledger.queries.due_work import anything_available, artifacts_after
from longshore.store import Problem

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Store

Progress = Callable[[int, int], None]  # blobs and bytes so far
PAGE: Final = 500
_Looked = tuple[Problem | None, bool]  # a blob's problem, and whether it is in quarantine now
_GONE: Final = frozenset({Problem.MISSING, Problem.WRONG_SIZE, Problem.WRONG_HASH})


class Verifier:
    """Compares the registry with the bytes. Blocks; run it in a thread."""

    def __init__(self, ledger: Ledger, store: Store) -> None:
        self._ledger, self._store = ledger, store

    def verify(self, scopes: Sequence[Scope], progress: Progress | None = None) -> Report:
        """Check every artifact of these tenants and projects; each blob is read once."""
        report = Report()
        if self._store.blank() and self._ledger.read(anything_available):
            report.found_no_store()
            return report
        for scope in scopes:
            seen: dict[str, _Looked] = {}
            for artifact in all_artifacts(self._ledger, scope):
                if artifact.sha256 not in seen:
                    seen[artifact.sha256] = self._check(artifact, report)
                    if progress:
                        progress(report.checked, report.bytes)
                self._conclude(artifact, seen[artifact.sha256], report)
        return report

    def _check(self, artifact: Artifact, report: Report) -> _Looked:
        problem = self._store.check(artifact.scope, artifact.pointer, artifact.sha256, artifact.size_bytes)
        report.checked += 1
        report.bytes += artifact.size_bytes if problem is None else 0
        if (
            problem in {Problem.WRONG_SIZE, Problem.WRONG_HASH} and not self._ledger.frozen
        ):  # quarantined, so that the bytes can be fetched again
            why = f"verify: {problem}"
            aside = self._store.set_aside(
                artifact.scope, artifact.pointer, artifact.sha256, artifact.size_bytes, why
            ) is not None  # fmt: skip
            report.quarantined += aside
            return problem, aside
        return problem, False

    def _conclude(self, artifact: Artifact, looked: _Looked, report: Report) -> None:
        problem, aside = looked
        if problem is None:
            if artifact.availability == "missing" and not self._ledger.frozen:
                self._ledger.write(mark_available, artifact.scope, [artifact.artifact_id])
            return
        if problem in _GONE and artifact.availability == "available" and not self._ledger.frozen:
            self._ledger.mark_missing(artifact.scope, [artifact.artifact_id])
        message = f"{artifact.sha256}: {problem.value.replace('_', ' ')}"
        if aside:
            message += "; moved to quarantine"
        report.found(problem.value, artifact.scope, artifact.artifact_id, message, remedy=PLAN)


def all_artifacts(ledger: Ledger, scope: Scope) -> Iterator[Artifact]:
    """Yield every artifact of a tenant and project, page by page."""
    after = ""
    while page := ledger.read(artifacts_after, scope, after, PAGE):
        yield from page
        after = page[-1].artifact_id
