"""Uploads: submitted bytes are hashed, published and registered like downloads."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from longshore.depot import derived_settings
from longshore.depot.open_depot import OpenDepot, in_thread
from longshore.depot.output_paths import check_outside
from longshore.depot.records import Got
from longshore.domain.kinds import Status
from longshore.domain.model import Scope
from longshore.errors import BadInput
from longshore.worker.kinds.upload.session import Uploader, UploadRequest, UploadSession

if TYPE_CHECKING:
    from longshore.config import Settings

_CHUNK: Final = 1 << 20


class Uploads:
    """Stores local files."""

    def __init__(self, depot: OpenDepot) -> None:
        self._depot = depot

    async def put(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        *,
        name: str | None = None,
        content_type: str | None = None,
        artifact_type: str = "raw_upload",
        work_id: str | None = None,
        scope: Scope | None = None,
    ) -> Got:
        """Store one file or stream; the same bytes again are the same job."""
        meant = UploadRequest(name, artifact_type, content_type, work_id)
        if isinstance(source, (str, os.PathLike)):
            path = Path(source)
            with _open_plain(path) as file:
                size_bytes = os.fstat(file.fileno()).st_size
                return await in_thread(self._take, file, replace(meant, name=name or path.name), scope, size_bytes)
        return await in_thread(self._take, source, meant, scope)

    def _take(self, source: BinaryIO, meant: UploadRequest, scope: Scope | None, size_bytes: int = 0) -> Got:
        scope, liveness = scope or self._depot.scope, self._depot.runtime.liveness
        liveness.hold()
        worker = Uploader(liveness.owner, liveness.dead)
        taking = UploadSession(self._depot.ledger, self._depot.store, scope, meant, worker, size_bytes=size_bytes)
        try:
            while piece := source.read(_CHUNK):
                taking.write(piece)
            taken = taking.finish()
        finally:
            taking.discard()
        path = self._depot.store.path(scope, taken.artifact.pointer)
        return Got(taken.job_id, None, Status.COMPLETED, taken.held, taken.artifact, path, attempts=1)

    async def adopt(self, directory: str | os.PathLike[str], *, scope: Scope | None = None) -> list[Got]:
        """Hash and register every plain file below a directory; links are not followed."""
        root = Path(directory)
        found = []
        for path in await in_thread(lambda: list(plain_files(root, self._depot.settings))):
            got = await self.put(path, name=str(path.relative_to(root)), artifact_type="adopted", scope=scope)
            found.append(got)
            await asyncio.sleep(0)
        return found


def plain_files(root: Path, settings: Settings) -> Iterator[Path]:
    """Yield the plain files below a directory in order, except the depot and its store."""
    if not root.is_dir():
        raise BadInput(f"{root} is not a directory")
    check_outside(root.absolute(), settings)
    ours = [os.path.realpath(settings.depot), os.path.realpath(derived_settings.store_place(settings))]
    for directory, names, files in os.walk(root):
        names[:] = sorted(name for name in names if os.path.realpath(os.path.join(directory, name)) not in ours)
        for name in sorted(files):
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _open_plain(path: Path) -> BinaryIO:
    """Open a plain file for reading; the type is checked on the descriptor."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadInput(f"{path} is not a plain file")
    return os.fdopen(descriptor, "rb", buffering=0)
