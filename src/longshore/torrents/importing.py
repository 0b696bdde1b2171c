"""Finished files into the store: hashed, linked or copied, never moved, never written to.

The client goes on seeding from its own files, so a crash costs nothing but the hashing: the same files give the same
blobs again.
"""

from __future__ import annotations

import contextlib
import mimetypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from longshore import failpoints
from longshore.domain.keys import op_key
from longshore.domain.model import Blob, Lease, NewArtifact
from longshore.domain.torrents import QbittorrentSettings
from longshore.errors import DiskFull, LeaseLost, LongshoreError, PublishFailed
from longshore.ledger import Intent, Ledger
from longshore.ledger.torrents import FINALIZE
from longshore.store import Part, Staged, Store
from longshore.store.foreign import ForeignPart
from longshore.torrents.client import ClientFile
from longshore.torrents.files import Digest, digest, opened

failpoints.declare("torrent.import.hashed", "torrent.import.intent", "torrent.import.linked")


@dataclass(frozen=True, slots=True)
class Import:
    """Takes the files of one finished torrent, in one thread."""

    ledger: Ledger
    store: Store
    settings: QbittorrentSettings
    lease: Lease
    lost: threading.Event  # set when the lease is gone: stop reading

    def take(self, save_path: str, files: Sequence[ClientFile]) -> list[NewArtifact]:
        """Take every file; the same list comes out whenever it is done again."""
        return [self._one(save_path, file, ordinal) for ordinal, file in enumerate(files)]

    def _one(self, save_path: str, file: ClientFile, ordinal: int) -> NewArtifact:
        with opened(self.settings, save_path, file) as fd:
            blob = self._linked(fd, file, ordinal) if self.settings.hardlink else None
            if blob is None:
                blob = self._copied(fd, file, ordinal)
        failpoints.hit("torrent.import.linked")
        return NewArtifact(
            blob, artifact_type="torrent", name=file.name.rpartition("/")[2], metadata={"path": file.name}
        )

    def _linked(self, fd: int, file: ClientFile, ordinal: int) -> Blob | None:
        """Give the very file a second name in the store; None where that is impossible."""
        with contextlib.suppress(DiskFull):  # a second name takes no room, but the tenant's budget counts it
            self.store.reserve(self.lease.scope, file.size_bytes).release()
        found = digest(fd, each=self._alive)
        staged = self._staged(file, found, ordinal, ForeignPart(fd, found.sha256, found.size_bytes, found.head))
        try:
            return self._publish(staged)
        except PublishFailed:
            return None  # another file system, or one that lets nobody link another's file: copy

    def _copied(self, fd: int, file: ClientFile, ordinal: int) -> Blob:
        room = self.store.reserve(self.lease.scope, file.size_bytes)
        part = self.store.part(self.lease.scope, f"{self.lease.job_id}.{ordinal}", self.lease.epoch)
        part.reservation = room
        try:
            found = digest(fd, each=self._into(part.write))
            return self._publish(self._staged(file, found, ordinal, part))
        finally:
            part.discard()

    def _staged(self, file: ClientFile, found: Digest, ordinal: int, body: Part) -> Staged:
        failpoints.hit("torrent.import.hashed")
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        part_id = f"{self.lease.job_id}.{ordinal}"
        return Staged(self.lease.scope, part_id, self.lease.epoch, found.sha256, found.size_bytes, kind, body)

    def _publish(self, staged: Staged) -> Blob:
        """Stage, commit the intent, link: the order that every publish has."""
        problem = self.store.stage([staged])[0]
        if problem is not None:
            raise problem
        request = {"sha256": staged.sha256, "size_bytes": staged.size_bytes}
        key = op_key(FINALIZE, self.lease.job_id, sha256=staged.sha256)
        begun = self.ledger.begin([Intent(self.lease, FINALIZE, key, "verifiable", staged.sha256, request)])[0]
        if isinstance(begun, LongshoreError):
            raise begun
        failpoints.hit("torrent.import.intent")
        blob = self.store.link([staged])[0]
        self.store.clean([staged])
        if not isinstance(blob, Blob):
            raise blob
        return blob

    def _alive(self, piece: bytes) -> None:
        if self.lost.is_set():
            raise LeaseLost("the import's lease was lost or the job canceled")

    def _into(self, write: Callable[[bytes], None]) -> Callable[[bytes], None]:
        def each(piece: bytes) -> None:
            self._alive(piece)
            write(piece)

        return each
