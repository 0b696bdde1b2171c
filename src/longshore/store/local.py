"""The local store: blobs are files named by their hash, published by a link that replaces nothing.

write → fsync → link → fsync directory → (the ledger's transaction) → unlink the private name. Each arrow is a barrier
for a whole batch. Whatever happens between two steps, a name that exists has all of its bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, Final

from longshore import failpoints
from longshore.domain.model import Blob, Scope
from longshore.errors import NotFound, PublishFailed, StoreError
from longshore.store import disk, names
from longshore.store.barriers import Barrier, Barriers
from longshore.store.contract import Held, Staged
from longshore.store.parts import Part
from longshore.store.settings import StoreSettings
from longshore.store.staging import Staging
from longshore.store.waiting import Recovering, write_small

LAYOUT: Final = 1
LAYOUT_FILE: Final = ".layout.json"
STAGING: Final = ".staging"
COUNT_AGAIN_S: Final = 60.0
failpoints.declare(
    "stage.write", "stage.barrier", "link.mkdir", "link.link", "link.dirsync", "clean.unlink", "blob.unlink"
)


class LocalStore(Recovering):
    """Blobs below one directory, parts in `.staging` on the same file system."""

    backend = "local"

    def __init__(self, root: Path, settings: StoreSettings | None = None) -> None:
        self.settings = settings or StoreSettings()
        self.root = Path(os.path.realpath(root))
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(self.root, disk.DIRECTORY)
            self._check_layout()
            self.staging = Staging(self._fd, STAGING, self.settings, self._count)
            self._check_same_file_system()
        except OSError as error:
            raise disk.typed(error, f"opening the store at {self.root}") from error
        self._barriers = Barriers(self._fd)
        self._settled: set[tuple[Scope, str]] = set()  # directories whose own names are known to be durable
        self._repair = threading.Lock()
        self._counted: dict[str, tuple[float, int]] = {}

    def _check_layout(self) -> None:
        wanted = {"layout": LAYOUT, "shard_width": self.settings.shard_width}
        try:
            with os.fdopen(os.open(LAYOUT_FILE, disk.READ, dir_fd=self._fd), "rb") as file:
                found = json.loads(file.read(4096))
        except FileNotFoundError:
            self._write_layout(wanted)
            return
        except ValueError:
            found = None
        if found != wanted:
            raise StoreError(
                f"the store at {self.root} is laid out as {found}, not as {wanted}",
                hint="set shard.width as it was, or copy the store with `longshore store copy`",
            )

    def _write_layout(self, wanted: dict[str, int]) -> None:
        name = f"{LAYOUT_FILE}.{uuid.uuid4().hex}"
        fd = os.open(name, disk.CREATE, 0o600, dir_fd=self._fd)
        try:
            disk.write_all(fd, json.dumps(wanted).encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(name, LAYOUT_FILE, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        os.fsync(self._fd)

    def _check_same_file_system(self) -> None:
        if os.fstat(self._fd).st_dev != os.fstat(self.staging.fd).st_dev:
            raise StoreError(
                f"{self.root}/{STAGING} is on another file system than {self.root}",
                hint="a part becomes a blob by a link: remove the mount",
            )

    def stage(self, items: Sequence[Staged]) -> list[StoreError | None]:
        """Make every item durable under a private name, with one barrier for all of them."""
        results: list[StoreError | None] = [None] * len(items)
        with self._barriers.open(len(items), "stage.barrier") as barrier:
            for scope, indices in _by_scope(items).items():
                self._stage_scope(scope, items, indices, results, barrier)
            try:
                barrier.wait()
            except OSError as error:
                self._give_up(items)
                return [PublishFailed(f"the batch could not be made durable: {error.strerror}") for _ in items]
        return results

    def _stage_scope(
        self,
        scope: Scope,
        items: Sequence[Staged],
        indices: list[int],
        results: list[StoreError | None],
        barrier: Barrier,
    ) -> None:
        directory = self.staging.small(scope)
        try:
            for index in indices:
                try:
                    self._stage_one(items[index], directory, barrier)
                except OSError as error:
                    results[index] = disk.typed(error, "staging a body")
                except StoreError as error:
                    results[index] = error
        finally:
            os.close(directory)

    def _stage_one(self, item: Staged, directory: int, barrier: Barrier) -> None:
        failpoints.hit("stage.write")
        names.check_sha256(item.sha256)
        body = item.body
        if isinstance(body, Part):
            if body.size_bytes != item.size_bytes or body.sha256 != item.sha256:
                raise PublishFailed("the part is not what was announced")
            body.seal()
            barrier.cover(body.fd)
            return
        if len(body) != item.size_bytes:
            raise PublishFailed("the body is not as long as was announced")
        barrier.take(write_small(self.staging, directory, item))

    def link(self, items: Sequence[Staged]) -> list[Blob | StoreError]:
        """Publish staged items under their hashes without replacing anything, with one barrier for all of them."""
        results: list[Blob | StoreError] = [PublishFailed("not staged") for _ in items]
        with self._barriers.open(len(items), "link.dirsync") as barrier:
            fresh: set[tuple[Scope, str]] = set()
            for scope, indices in _by_scope(items).items():
                self._link_scope(scope, items, indices, results, barrier, fresh)
            try:
                barrier.wait()
            except OSError as error:
                return [PublishFailed(f"the names could not be made durable: {error.strerror}") for _ in items]
            self._settled |= fresh
        return results

    def _link_scope(
        self,
        scope: Scope,
        items: Sequence[Staged],
        indices: list[int],
        results: list[Blob | StoreError],
        barrier: Barrier,
        fresh: set[tuple[Scope, str]],
    ) -> None:
        width = self.settings.shard_width
        small = self.staging.small(scope)
        try:
            ordered = sorted(indices, key=lambda index: items[index].sha256[:width])
            for shard, group in itertools.groupby(ordered, key=lambda index: items[index].sha256[:width]):
                try:
                    directory = self._open_shard(scope, shard, barrier, fresh)
                except OSError as error:
                    for index in group:
                        results[index] = disk.typed(error, "opening a shard")
                    continue
                for index in group:
                    results[index] = self._link_one(items[index], directory, small)
                barrier.take(directory)
        finally:
            os.close(small)

    def _open_shard(self, scope: Scope, shard: str, barrier: Barrier, fresh: set[tuple[Scope, str]]) -> int:
        """Open a shard's directory; until its own name is known to be durable, its parents join the barrier."""
        path = (names.encode(scope.tenant_id), names.encode(scope.project_id), shard)[: 3 if shard else 2]
        if (scope, shard) in self._settled:
            return disk.open_path(path, self._fd)
        failpoints.hit("link.mkdir")
        fd = os.dup(self._fd)
        for name in path:
            try:
                below = disk.open_directory(name, fd, create=True)
            except OSError:
                os.close(fd)
                raise
            barrier.take(fd)
            fd = below
        if any(map(names.is_hashed, path)):
            self._write_scope_note(scope, path)
        fresh.add((scope, shard))
        return fd

    def _write_scope_note(self, scope: Scope, path: tuple[str, ...]) -> None:
        """A hashed name cannot be read back: say beside it what it stands for."""
        fd = disk.open_path(path[:2], self._fd)
        try:
            with contextlib.suppress(FileExistsError):
                note = os.open(".scope.json", disk.CREATE, 0o600, dir_fd=fd)
                try:
                    disk.write_all(note, json.dumps(list(scope)).encode())
                    os.fsync(note)
                finally:
                    os.close(note)
        finally:
            os.close(fd)

    def _link_one(self, item: Staged, directory: int, small: int) -> Blob | StoreError:
        if not isinstance(item.body, Part) and item.staged_as is None:
            return PublishFailed("not staged")
        file = item.sha256 + _extension(item)
        try:
            held = self._publish(item, file, directory, small)
        except OSError as error:
            return disk.typed(error, "publishing a blob")
        if not held:
            self._add_to_count(item.scope.tenant_id, item.size_bytes)
        pointer = names.place(item.scope, item.sha256, file[64:], self.settings.shard_width).pointer
        return Blob(item.sha256, item.size_bytes, pointer, self.backend, item.content_type, deduplicated=held)

    def _publish(self, item: Staged, file: str, directory: int, small: int) -> bool:
        """Link; True if the very bytes were there before."""
        try:
            _name(item, file, directory, small)
        except FileExistsError:
            pass
        else:
            return False
        if _fits(file, directory, item.size_bytes):
            return True
        with self._repairing():  # damaged: one at a time, and look again
            if _fits(file, directory, item.size_bytes):
                return True
            with contextlib.suppress(FileNotFoundError):
                self.staging.quarantine(file, directory, f"not a file of {item.size_bytes} bytes")
            try:
                _name(item, file, directory, small)
            except FileExistsError:
                return True  # somebody published in between, with the same protocol
        return False

    @contextlib.contextmanager
    def _repairing(self) -> Iterator[None]:
        with self._repair:
            fd = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.staging.fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                yield
            finally:
                os.close(fd)

    def clean(self, items: Sequence[Staged]) -> None:
        """Forget the private names, after the registering transaction (or instead of it)."""
        for scope, indices in _by_scope(items).items():
            with contextlib.suppress(OSError):  # what stays behind is the reconciler's
                directory = self.staging.small(scope)
                try:
                    for index in indices:
                        self._clean_one(items[index], directory)
                finally:
                    os.close(directory)

    def _clean_one(self, item: Staged, directory: int) -> None:
        failpoints.hit("clean.unlink")
        if isinstance(item.body, Part):
            item.body.discard()
        elif item.staged_as is not None:
            disk.unlink(item.staged_as, directory)
            item.staged_as = None

    def _give_up(self, items: Sequence[Staged]) -> None:
        self.clean(items)

    def find(self, scope: Scope, sha256: str, content_type: str) -> Blob | None:
        """Find a blob by its hash and make sure that its name is durable."""
        blob = self.stat(scope, sha256)
        if blob is None:
            return None
        with self._barriers.open(1, "link.dirsync") as barrier:
            fresh: set[tuple[Scope, str]] = set()
            shard = sha256[: self.settings.shard_width]
            try:
                barrier.take(self._open_shard(scope, shard, barrier, fresh))
                barrier.wait()
            except OSError as error:
                raise disk.typed(error, "making a name durable") from error
            self._settled |= fresh
        return Blob(sha256, blob.size_bytes, blob.pointer, self.backend, content_type, deduplicated=True)

    def stat(self, scope: Scope, sha256: str) -> Blob | None:
        """Find a blob by its hash."""
        width = self.settings.shard_width
        wanted = names.place(scope, names.check_sha256(sha256), "", width)
        try:
            directory = disk.open_path(tuple(filter(None, wanted[:3])), self._fd)
        except FileNotFoundError:
            return None
        try:
            for ext in itertools.chain(names.EXTENSIONS, _other_extensions(directory, sha256)):
                with contextlib.suppress(FileNotFoundError):
                    stat = os.stat(sha256 + ext, dir_fd=directory, follow_symlinks=False)
                    if S_ISREG(stat.st_mode):
                        pointer = names.place(scope, sha256, ext, width).pointer
                        return Blob(sha256, stat.st_size, pointer, self.backend, "application/octet-stream")
        finally:
            os.close(directory)
        return None

    def path(self, scope: Scope, pointer: str) -> Path | None:
        """Name the blob's file."""
        return self.root.joinpath(*filter(None, names.parse(scope, pointer)))

    def open(self, scope: Scope, pointer: str) -> BinaryIO:
        """Open a blob for reading."""
        with self._at(scope, pointer) as (directory, file):
            return os.fdopen(os.open(file, disk.READ, dir_fd=directory), "rb")

    @contextlib.contextmanager
    def _at(self, scope: Scope, pointer: str) -> Iterator[tuple[int, str]]:
        place = names.parse(scope, pointer)
        try:
            directory = disk.open_path(tuple(filter(None, place[:3])), self._fd)
            try:
                yield directory, place.file
            finally:
                os.close(directory)
        except FileNotFoundError:
            raise NotFound(f"blob {place.sha256} is not in the store") from None
        except OSError as error:
            raise disk.typed(error, f"blob {place.sha256}") from error

    def remove(self, scope: Scope, pointer: str) -> bool:
        """Remove a blob that no row points to; False if it was gone."""
        failpoints.hit("blob.unlink")
        try:
            with self._at(scope, pointer) as (directory, file):
                os.unlink(file, dir_fd=directory)
        except NotFound:
            return False
        return True

    def quarantine(self, scope: Scope, pointer: str, why: str) -> str | None:
        """Move a blob out of reach and give its name there; None if it was gone."""
        try:
            with self._at(scope, pointer) as (directory, file):
                return self.staging.quarantine(file, directory, why)
        except NotFound:
            return None

    def walk(self) -> Iterator[Held]:
        """Give every blob of every tenant."""
        for tenant in sorted(os.listdir(self._fd)):
            if not tenant.startswith("."):
                yield from self._walk_tenant(tenant)

    def _walk_tenant(self, tenant: str) -> Iterator[Held]:
        for path, fd in _below((tenant,), self._fd):
            scope = _read_scope(path, fd)
            shards = _below((), fd) if self.settings.shard_width else [((), os.dup(fd))]
            for shard, directory in shards:
                for entry in os.scandir(directory):
                    if len(entry.name) < 64 or not entry.is_file(follow_symlinks=False):
                        continue
                    stat = entry.stat(follow_symlinks=False)
                    pointer = "/".join((*path, *shard, entry.name))
                    yield Held(scope, entry.name[:64], stat.st_size, pointer, stat.st_mtime_ns // 1000)
                if not self.settings.shard_width:
                    os.close(directory)

    def _count(self, tenant_id: str) -> int:
        known = self._counted.get(tenant_id)
        if known is None or time.monotonic() - known[0] > COUNT_AGAIN_S:
            try:
                total = sum(held.size_bytes for held in self._walk_tenant(names.encode(tenant_id)))
            except FileNotFoundError:
                total = 0
            known = self._counted[tenant_id] = (time.monotonic(), total)
        return known[1]

    def _add_to_count(self, tenant_id: str, nbytes: int) -> None:
        known = self._counted.get(tenant_id)
        if known is not None:
            self._counted[tenant_id] = (known[0], known[1] + nbytes)

    def close(self) -> None:
        """Let go of descriptors and threads."""
        self._barriers.close()
        self.staging.close()
        os.close(self._fd)


def _by_scope(items: Sequence[Staged]) -> dict[Scope, list[int]]:
    groups: dict[Scope, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        groups[item.scope].append(index)
    return groups


def _extension(item: Staged) -> str:
    if item.ext is not None:
        return names.check_extension(item.ext)
    return names.extension(item.body.head if isinstance(item.body, Part) else item.body[: names.HEAD_BYTES])


def _name(item: Staged, file: str, directory: int, small: int) -> None:
    """Give the staged inode its final name, or raise FileExistsError."""
    failpoints.hit("link.link")
    body = item.body
    try:
        if isinstance(body, Part):
            body.link_to(file, directory)
        else:
            assert item.staged_as is not None
            os.link(item.staged_as, file, src_dir_fd=small, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in disk.NO_LINKS:
            raise
        if isinstance(body, Part):
            body.move_to(file, directory)
        else:
            disk.rename_noreplace(str(item.staged_as), small, file, directory)


def _fits(file: str, directory: int, size_bytes: int) -> bool:
    try:
        stat = os.stat(file, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return S_ISREG(stat.st_mode) and stat.st_size == size_bytes


def _other_extensions(directory: int, sha256: str) -> Iterator[str]:
    yield from (name[64:] for name in os.listdir(directory) if name.startswith(sha256))


def _below(path: tuple[str, ...], parent: int) -> Iterator[tuple[tuple[str, ...], int]]:
    """Give the directories below a path, open while they are looked at."""
    top = disk.open_path(path, parent)
    try:
        for name in sorted(os.listdir(top)):
            if name.startswith("."):
                continue
            try:
                fd = disk.open_directory(name, top)
            except (NotADirectoryError, OSError):
                continue
            try:
                yield (*path, name), fd
            finally:
                os.close(fd)
    finally:
        os.close(top)


def _read_scope(path: tuple[str, ...], fd: int) -> Scope:
    if any(map(names.is_hashed, path)):
        with contextlib.suppress(OSError, ValueError):
            with os.fdopen(os.open(".scope.json", disk.READ, dir_fd=fd), "rb") as file:
                return Scope(*json.loads(file.read(1 << 20)))
    return Scope(names.decode(path[0]), names.decode(path[1]))
