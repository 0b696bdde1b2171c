"""Verify, reconcile, collect garbage, and place blobs outside the depot."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longshore.depot.depot_context import DepotContext, in_thread
from longshore.depot.maintenance.deletion import Chosen, Deletion, chosen_artifacts, delete, ids_and_bytes
from longshore.depot.maintenance.gc import Collection, collect
from longshore.depot.maintenance.missing_blobs import mark_damaged
from longshore.depot.maintenance.reconcile import Reconciler
from longshore.depot.maintenance.verify import Verifier
from longshore.depot.output_paths import check_target
from longshore.depot.records import Report
from longshore.domain.model import Artifact, Blob, Scope
from longshore.errors import BlobDamaged, NotFound
from longshore.ledger.operations.deleting import By
from longshore.ledger.queries.due_work import scopes_known
from longshore.ledger.queries.listing import ArtifactFilter
from longshore.store.local.place_outside import Mode, is_same, place

if TYPE_CHECKING:
    from longshore.ledger.maintenance.import_earlier_ledger import Backfilled


class Maintenance:
    """Verifies, reconciles, collects garbage, and places blobs."""

    def __init__(self, depot: DepotContext) -> None:
        self._depot = depot

    async def verify(
        self,
        *,
        scope: Scope | None = None,
        everything: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Report:
        """Read every blob again and compare size and hash; mark and report lost and damaged ones."""
        verifier = Verifier(self._depot.ledger, self._depot.store)
        where = await self._depot.ledger.read_async(scopes_known) if everything else [scope or self._depot.scope]
        return await in_thread(verifier.verify, where, on_progress)

    async def reconcile(self, *, dry_run: bool = False, store_lost: bool = False) -> Report:
        """Compare rows, files, parts and intents in both directions, and repair where possible.

        A store without any blob is assumed to be unmounted, unless `store_lost` is set.
        """
        reconciler = Reconciler(
            self._depot.ledger, self._depot.store, self._depot.settings.reconcile, Path(self._depot.settings.depot)
        )
        return await in_thread(lambda: reconciler.reconcile(dry_run, store_lost=store_lost))

    async def gc(self, *, grace_s: float, dry_run: bool = False) -> Collection:
        """Quarantine unreferenced blobs; remove blobs that were in quarantine longer than the grace period."""
        return await in_thread(lambda: collect(self._depot.ledger, self._depot.store, grace_s=grace_s, dry_run=dry_run))

    async def delete(
        self,
        artifacts: str | Sequence[str] | ArtifactFilter,
        *,
        scope: Scope | None = None,
        why: str | None = None,
        by: str = "python",
    ) -> Deletion:
        """Delete artifacts, by id or all that match a filter, with their bytes if no other artifact has them.

        Tombstones and a line in the audit log remain. Inputs of unfinished jobs are not deleted (`used`).
        """
        where, ledger = scope or self._depot.scope, self._depot.ledger

        def act() -> Deletion:
            if isinstance(artifacts, ArtifactFilter):
                ids, _ = ids_and_bytes(chosen_artifacts(ledger, where, Chosen(wanted=artifacts)))
            else:
                ids = [artifacts] if isinstance(artifacts, str) else list(artifacts)
            return delete(ledger, self._depot.store, where, ids, By(by, why=why))

        return await in_thread(act)

    async def backfill(
        self,
        source: str | os.PathLike[str],
        *,
        root: str | os.PathLike[str] | None = None,
        scope: Scope | None = None,
        dry_run: bool = False,
    ) -> Backfilled:
        """Adopt an earlier ledger (tables `artifact_jobs` or `downloads`) and the files that it names.

        Relative paths in it are below `root`, by default the ledger's own directory.
        """
        from longshore.depot.maintenance.backfill import adopt_earlier_ledger

        place = Path(source)
        where, base = scope or self._depot.scope, Path(root) if root is not None else place.parent
        liveness = self._depot.runtime.liveness
        liveness.hold()
        given = (self._depot.ledger, self._depot.store, where, place)
        return await in_thread(lambda: adopt_earlier_ledger(*given, root=base, owner=liveness.owner, dry_run=dry_run))

    async def place(
        self,
        artifact: Artifact,
        target: str | os.PathLike[str],
        *,
        mode: Mode = "reflink",
        overwrite: bool = False,
        inside: Path | None = None,
    ) -> Path:
        """Write an artifact's bytes to a file outside the depot, by reflink or copy; a hard link only on request.

        `mode`: "reflink" (shares the blocks where the filesystem can, otherwise copies), "copy", or "hardlink" (the file is
        the stored blob itself: whoever writes to it damages the depot; otherwise copies). An existing file with the same
        bytes is left as it is; any other is `Conflict` unless `overwrite`.

        Only plain files and links to them are replaced; a device, a FIFO or a path inside the depot is `BadInput`.
        `inside`: a directory that the file must be in, by default its own; it is created if needed, and below it no symbolic
        link is followed (`BadInput`). Set it if the target comes from names that others chose.

        The bytes are hashed while they are copied. If the blob is damaged, no file is created: the blob is quarantined,
        its artifacts are marked missing, and `BlobDamaged` is raised.
        """
        return await in_thread(
            lambda: self.place_blocking(artifact, target, mode=mode, overwrite=overwrite, inside=inside)
        )

    def place_blocking(
        self,
        artifact: Artifact,
        target: str | os.PathLike[str],
        *,
        mode: Mode = "reflink",
        overwrite: bool = False,
        inside: Path | None = None,
    ) -> Path:
        """Do the work of `place` in this thread; several threads may place at the same time."""
        path, store = Path(target), self._depot.store
        check_target(path, self._depot.settings)
        if not overwrite and is_same(path, artifact, inside):
            return path
        try:
            place(store, artifact.scope, artifact.pointer, path, mode=mode, overwrite=overwrite, inside=inside)
        except (BlobDamaged, NotFound):
            self._lose(artifact)
            raise
        return path

    async def prove(self, artifact: Artifact) -> bool:
        """Verify an artifact's bytes before they are read; False if they are missing or damaged, and marked so."""
        blob = Blob(
            artifact.sha256, artifact.size_bytes, artifact.pointer, self._depot.store.backend, artifact.content_type
        )
        if await in_thread(self._depot.store.prove, blob, artifact.scope, "reading"):
            return True
        await in_thread(self._lose, artifact)
        return False

    def _lose(self, artifact: Artifact) -> None:
        """Mark every artifact with the bytes of this one as missing, unless an intact blob has replaced it."""
        if self._depot.ledger.frozen or self._depot.store.sizes(artifact.scope, [artifact.pointer]) != [None]:
            return
        self._depot.ledger.write(mark_damaged, artifact.scope, artifact.sha256)
