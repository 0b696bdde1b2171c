"""Verbs that keep a depot in order: verify, reconcile, gc, cancel, retry, put, place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from longshore.depot.base import Base
from longshore.depot.collecting import Collection, collect
from longshore.depot.losses import mark_damaged
from longshore.depot.reconciling import Reconciler
from longshore.depot.records import Report
from longshore.depot.verifying import Verifier
from longshore.domain.model import Artifact, Blob, Scope
from longshore.engine.questions import scopes_known
from longshore.errors import BlobDamaged, NotFound
from longshore.store.placing import Mode, place


class Keeping(Base):
    """Verbs that look after what is there."""

    async def verify(
        self,
        *,
        scope: Scope | None = None,
        everything: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Report:
        """Read every blob again and compare size and hash; what is lost or damaged is marked and reported."""
        verifier = Verifier(self.ledger, self.store)
        where = await self.ledger.read_soon(scopes_known) if everything else [scope or self.scope]
        return await self._thread(verifier.verify, where, on_progress)

    async def reconcile(self, *, dry_run: bool = False, store_lost: bool = False) -> Report:
        """Compare rows, files, parts and intents, both ways, and heal what can be healed.

        A store without a trace of a blob is taken for one that is not mounted, unless it is said that it is lost.
        """
        reconciler = Reconciler(self.ledger, self.store, self.yard.engine.reconcile, Path(self.settings.depot))
        return await self._thread(lambda: reconciler.reconcile(dry_run, store_lost=store_lost))

    async def gc(self, *, grace_s: float, dry_run: bool = False) -> Collection:
        """Quarantine blobs that nothing refers to; remove what has been in quarantine for longer than the grace."""
        return await self._thread(lambda: collect(self.ledger, self.store, grace_s=grace_s, dry_run=dry_run))

    async def place(self, artifact: Artifact, target: Path, *, mode: Mode = "reflink", overwrite: bool = False) -> Path:
        """Give an artifact's bytes a name outside the store, by reflink or copy; a hard link only on request.

        The bytes are hashed on their way. If the blob is damaged, nothing gets the name: the blob goes to quarantine,
        its artifacts are marked missing, and `BlobDamaged` is raised.
        """
        try:
            await self._thread(_place, self.store, artifact, target, mode, overwrite)
        except (BlobDamaged, NotFound):
            await self._lose(artifact)
            raise
        return target

    async def prove(self, artifact: Artifact) -> bool:
        """Read an artifact's bytes before they are handed out; False if they are missing or damaged, and marked so."""
        blob = Blob(artifact.sha256, artifact.size_bytes, artifact.pointer, self.store.backend, artifact.content_type)
        if await self._thread(self.store.prove, blob, artifact.scope, "reading"):
            return True
        await self._lose(artifact)
        return False

    async def _lose(self, artifact: Artifact) -> None:
        """Mark every artifact that has the bytes of this one as missing, unless a sound blob has taken the place."""
        if self.ledger.frozen or await self._thread(self.store.sizes, artifact.scope, [artifact.pointer]) != [None]:
            return
        await self.ledger.soon(mark_damaged, artifact.scope, artifact.sha256)


def _place(store: Any, artifact: Artifact, target: Path, mode: Mode, overwrite: bool) -> None:
    place(store, artifact.scope, artifact.pointer, target, mode=mode, overwrite=overwrite)
