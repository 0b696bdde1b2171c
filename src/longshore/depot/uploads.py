"""Uploads: submitted bytes are hashed, published and registered like downloads."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from longshore.depot import derived_settings
from longshore.depot.depot_context import DepotContext, in_thread
from longshore.depot.output_paths import check_outside
from longshore.depot.records import Got
from longshore.domain.kinds import Status
from longshore.domain.model import Scope
from longshore.errors import BadInput
from longshore.worker.kinds.upload.session import Uploader, UploadRequest, UploadSession

if TYPE_CHECKING:
    from longshore.config import Settings

_CHUNK: Final = 1 << 20
TICK_NS: Final = 20_000_000  # twice the longest tick of the clock that the kernel stamps files with
COARSE_NS: Final = 2_000_000_000  # the granularity of FAT; HFS+, ext3 and some servers store whole seconds


class Uploads:
    """Stores local files."""

    def __init__(self, depot: DepotContext) -> None:
        self._depot = depot

    async def put(
        self,
        source: str | os.PathLike[str] | bytes | BinaryIO,
        *,
        name: str | None = None,
        content_type: str | None = None,
        artifact_type: str = "raw_upload",
        work_id: str | None = None,
        schema_version: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        request_id: str | None = None,
        scope: Scope | None = None,
    ) -> Got:
        """Store a file, by path or open for reading, or bytes; the same bytes again are the same job, as it was."""
        meant = UploadRequest(
            name,
            artifact_type,
            content_type,
            work_id,
            request_id=request_id,
            run_id=run_id,
            schema_version=schema_version,
            metadata=dict(metadata or {}),
        )
        if isinstance(source, (str, os.PathLike)):
            path = Path(source)
            with open_plain(path) as file:
                meant = replace(meant, name=name or path.name)
                return await in_thread(self._take, Source(file, str(path)), meant, scope)
        if isinstance(source, bytes | bytearray | memoryview):
            source = BytesIO(source)
        elif not hasattr(source, "read"):
            raise BadInput(f"put takes a path, bytes or a file open for reading, not {type(source).__name__}")
        return await in_thread(self._take, Source(source, "the input"), meant, scope)

    def _take(self, source: Source, meant: UploadRequest, scope: Scope | None) -> Got:
        scope, liveness = scope or self._depot.scope, self._depot.runtime.liveness
        liveness.hold()
        worker = Uploader(liveness.owner, liveness.dead)
        size = source.size_bytes
        taking = UploadSession(self._depot.ledger, self._depot.store, scope, meant, worker, size_bytes=size)
        try:
            for piece in source.pieces():
                taking.write(piece)
            taken = taking.finish()
        finally:
            taking.discard()
        path = self._depot.store.path(scope, taken.artifact.pointer)
        return Got(taken.job_id, None, Status.COMPLETED, taken.held, taken.artifact, path, attempts=1)

    async def adopt(self, directory: str | os.PathLike[str], *, scope: Scope | None = None) -> list[Got]:
        """Hash and register every plain file below a directory; links are not followed.

        A file that cannot be taken does not stop the others; `BadInput` is raised after the last one.
        """
        root = Path(directory)
        found: list[Got] = []
        refused: list[BadInput] = []
        for path in await in_thread(lambda: list(plain_files(root, self._depot.settings))):
            name = str(path.relative_to(root))
            try:
                found.append(await self.put(path, name=name, artifact_type="adopted", scope=scope))
            except BadInput as error:
                refused.append(error)
            await asyncio.sleep(0)
        if refused:
            total = len(found) + len(refused)
            raise BadInput(f"{len(refused)} of {total} files were refused, the others are stored: {refused[0]}")
        return found


class Source:
    """A file or stream that is read once. A regular file must not change meanwhile.

    A file that is written while it is read gives bytes that it never had at any one time. Its size and its times are compared
    before and after. Times are coarse: a second change within one tick of the kernel's clock (up to 10 ms; a second or two on
    file systems that store whole seconds) gets the time of the first. So a file that has just been changed is read after the
    tick is over. A change through a memory map that began before that may leave the times as they are.
    """

    def __init__(self, file: BinaryIO, label: str) -> None:
        self._file, self._label = file, label
        self._descriptor = _regular(file)

    @property
    def size_bytes(self) -> int:
        """The size of a regular file; 0 for a stream."""
        return 0 if self._descriptor is None else os.fstat(self._descriptor).st_size

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes; raise `BadInput` if they cannot be read, or after the last piece if the file has changed."""
        before = self._state()
        if before is not None and (wait_ns := _rest_of_tick(before)) > 0:
            time.sleep(wait_ns / 10**9)
            before = self._state()
        while piece := self._read():
            yield piece
        if self._state() != before:
            raise BadInput(
                f"{self._label} changed while it was read; nothing is stored of it: "
                "repeat this when no other program writes to it"
            )

    def _read(self) -> bytes:
        try:
            piece = self._file.read(_CHUNK)
        except OSError as error:
            raise BadInput(f"{self._label} cannot be read: {error.strerror or error}") from error
        if not isinstance(piece, bytes):
            raise BadInput(f"{self._label} gives {type(piece).__name__}, not bytes", hint="open it in binary mode")
        return piece

    def _state(self) -> tuple[int, int, int] | None:
        if self._descriptor is None:
            return None
        now = os.fstat(self._descriptor)
        return now.st_size, now.st_mtime_ns, now.st_ctime_ns


def _rest_of_tick(state: tuple[int, int, int]) -> int:
    """Return for how many nanoseconds another change could get the times that the file has now."""
    _, *times = state
    tick = TICK_NS if any(one % 10**9 for one in times) else COARSE_NS
    age = time.time_ns() - max(times)
    return tick - age if 0 <= age < tick else 0


def _regular(file: BinaryIO) -> int | None:
    """Return the descriptor of a regular file; None for a pipe, a socket or an object without a descriptor."""
    try:
        descriptor = file.fileno()
        return descriptor if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except (AttributeError, OSError):  # io.UnsupportedOperation is an OSError
        return None


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


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file for reading; the type is checked on the descriptor."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadInput(f"{path} is not a plain file")
    return os.fdopen(descriptor, "rb", buffering=0)
