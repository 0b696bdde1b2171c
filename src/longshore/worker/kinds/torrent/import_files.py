"""Import finished files into the store: hash them, then link or copy them; never move or modify them.

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
from longshore.domain.model import Blob, Lease, NewArtifact
from longshore.domain.settings import QbittorrentSettings
from longshore.errors import DiskFull, LeaseLost, PublishFailed
from longshore.ledger import Ledger
from longshore.store import Part, Staged, Store
from longshore.store.staging.borrowed_file import ForeignPart
from longshore.worker.kinds.torrent.client import ClientFile
from longshore.worker.kinds.torrent.client_files import Digest, digest, opened
from longshore.worker.publish_protocol import publish_now

failpoints.declare("torrent.import.hashed", "torrent.import.linked")


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
        """Hard-link the file into the store; return None if that is impossible."""
        with contextlib.suppress(DiskFull):  # a second name takes no room, but the tenant's budget counts it
            self.store.reserve(self.lease.scope, file.size_bytes).release()
        found = digest(fd, each=self._alive)
        staged = self._staged(file, found, ordinal, ForeignPart(fd, found.sha256, found.size_bytes, found.head))
        try:
            return self._publish(staged)
        except PublishFailed:
            return None  # another file system, or hard links to other users' files are forbidden: copy

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
        try:
            return publish_now(self.ledger, self.store, self.lease, staged)
        finally:
            self.store.clean([staged])

    def _alive(self, piece: bytes) -> None:
        if self.lost.is_set():
            raise LeaseLost("the import's lease was lost or the job canceled")

    def _into(self, write: Callable[[bytes], None]) -> Callable[[bytes], None]:
        def each(piece: bytes) -> None:
            self._alive(piece)
            write(piece)

        return each
