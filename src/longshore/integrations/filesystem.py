"""A depot as a read-only file system for fsspec: pandas, DuckDB, PyArrow, Hugging Face datasets read through it.

    longshore://works/WORK/NAME          the artifacts of a work; WORK is percent-encoded (a URL is a work, too)
    longshore://sha256/HASH              by hash
    longshore://artifacts/ID             by the id of the registry
    longshore://manifest.parquet         every job and result, as `longshore export parquet` writes it
    longshore://projects/PROJECT/…       the same for another project of the tenant

Bytes are read from the store only after the whole blob was proven, once per instance and blob. Artifacts whose bytes are
lost are not listed.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final, NoReturn
from urllib.parse import quote, unquote

from longshore.integrations.extras import missing

try:
    from fsspec.spec import AbstractFileSystem
except ImportError as error:
    raise missing("fsspec", error) from None

from longshore.depot import Depot
from longshore.domain.file_names import safe_name, url_name, with_hash
from longshore.domain.model import Artifact, Scope
from longshore.errors import BlobDamaged, LongshoreError, NotFound
from longshore.exports.manifest import write_parquet
from longshore.exports.read_ledger import manifest_rows
from longshore.ledger.queries.history import last_event
from longshore.ledger.queries.listing import ArtifactFilter
from longshore.ledger.queries.lookup import projects

Info = dict[str, Any]
ROOTS: Final = ("artifacts", "projects", "sha256", "works")
MANIFEST: Final = "manifest.parquet"
_HASH: Final = 64


class LongshoreFileSystem(AbstractFileSystem):
    """The artifacts of a depot as files. Options: `depot`, `tenant`, `project`, `ledger`, `store`, as everywhere."""

    protocol = "longshore"
    root_marker = ""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        known = ("depot", "ledger", "store", "tenant", "project")
        self._given = {name: options[name] for name in known if options.get(name) is not None}
        self._opened: tuple[int, Depot] | None = None
        self._proven: set[tuple[Scope, str]] = set()
        self._manifests: dict[Scope, tuple[str, str]] = {}  # what it shows, and its file
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def depot(self) -> Depot:
        """Open the depot; in a forked child again, because connections and locks are the parent's."""
        if self._opened is None or self._opened[0] != os.getpid():
            flags = dict(self._given)
            self._opened = (os.getpid(), Depot(flags.pop("depot", None), create=False, **flags))
        return self._opened[1]

    def close(self) -> None:
        """Close the depot; the next call opens it again."""
        if self._opened is not None and self._opened[0] == os.getpid():
            self._opened[1].close()
        self._opened = None

    # Looking

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """List a directory, or one file."""
        path = self._strip_protocol(path).strip("/")
        scope, parts, base = self._located(path)
        found = _Tree(self, scope, base).listed(parts)
        if found is None:
            found = [self.info(path)]
        return found if detail else sorted(one["name"] for one in found)

    def info(self, path: str, **kwargs: Any) -> Info:
        """Return name, size, type and, for a file, sha256, artifact_id, content_type, created and mtime."""
        path = self._strip_protocol(path).strip("/")
        scope, parts, base = self._located(path)
        found = _Tree(self, scope, base).info(path, parts)
        if found is None:
            raise FileNotFoundError(path)
        return found

    def ukey(self, path: str) -> str:
        """Return the SHA-256 of a file: the same bytes have the same key."""
        return str(self._file(path)["sha256"])

    def checksum(self, path: str) -> int:
        """Return the SHA-256 as a number."""
        return int(self.ukey(path), 16)

    def created(self, path: str) -> datetime:
        """Return when the artifact was registered."""
        found: datetime = self._file(path)["created"]
        return found

    def modified(self, path: str) -> datetime:
        """Return the same as `created`: an artifact does not change."""
        return self.created(path)

    def _file(self, path: str) -> Info:
        found = self.info(path)
        if found["type"] != "file":
            raise IsADirectoryError(path)
        return found

    def _located(self, path: str) -> tuple[Scope, list[str], str]:
        """Return the project, the parts of the path inside it, and the path of its directory."""
        parts = path.split("/") if path else []
        own = self.depot.scope
        if len(parts) >= 2 and parts[0] == "projects":
            return Scope(own.tenant_id, parts[1]), parts[2:], f"projects/{parts[1]}/"
        return own, parts, ""

    # Reading

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> BinaryIO:
        if mode != "rb":
            _refuse(path)
        found = self._file(path)
        if (manifest := found.get("manifest")) is not None:
            return open(manifest, "rb")
        return self._blob(found["artifact"])

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Return the bytes of a file, or a range of them."""
        with self._open(path) as file:
            size = file.seek(0, io.SEEK_END)
            first, last, _ = slice(start, end).indices(size)
            file.seek(first)
            return file.read(max(0, last - first))

    def _blob(self, artifact: Artifact) -> BinaryIO:
        key = (artifact.scope, artifact.sha256)
        if key not in self._proven:
            if not self.depot.prove(artifact):
                raise FileNotFoundError(f"the bytes of artifact {artifact.artifact_id} are lost or damaged")
            self._proven.add(key)
        try:
            return self.depot.store.open(artifact.scope, artifact.pointer)
        except (NotFound, BlobDamaged):
            raise FileNotFoundError(artifact.artifact_id) from None

    def manifest(self, scope: Scope) -> str:
        """Write the manifest of a project to a temporary file, unless the last one still fits; return its path."""
        ledger = self.depot.ledger
        stands = f"{ledger.read(last_event, scope)} {ledger.counts(scope)}"
        known = self._manifests.get(scope)
        if known is None or known[0] != stands:
            self._folder = self._folder or tempfile.TemporaryDirectory(prefix="longshore-")
            name = os.path.join(self._folder.name, hashlib.sha256(f"{scope} {stands}".encode()).hexdigest()[:24])
            with open(name, "wb") as out:
                write_parquet(manifest_rows(ledger, scope), out)
            known = self._manifests[scope] = (stands, name)
        return known[1]

    # Writing

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Refuse."""
        _refuse(path)

    makedirs = rm = rm_file = rmdir = touch = pipe_file = put_file = cp_file = mv = mkdir


class _Tree:
    """The directories of one project."""

    def __init__(self, system: LongshoreFileSystem, scope: Scope, base: str) -> None:
        self._system, self._scope, self._base = system, scope, base
        self._ledger = system.depot.ledger

    def listed(self, parts: list[str]) -> list[Info] | None:
        """Return the entries of a directory; None if the path is a file; raise FileNotFoundError if it is neither."""
        match parts:
            case []:
                return [self._folder(name) for name in ROOTS if name != "projects" or not self._base] + [
                    self._manifest()
                ]
            case ["projects"] if not self._base:
                names = self._ledger.read(projects, self._scope.tenant_id)
                return [self._folder(f"projects/{name}") for name in names]
            case ["artifacts"]:
                return [self._entry(f"artifacts/{one.artifact_id}", one) for one in self._available()]
            case ["sha256"]:
                by_hash = {one.sha256: one for one in self._available()}
                return [self._entry(f"sha256/{sha256}", one) for sha256, one in sorted(by_hash.items())]
            case ["works"]:
                return [self._folder(f"works/{quote(work, safe='')}") for work in self._works()]
            case ["works", work, *inner]:
                return self._in_work(work, inner)
        return None

    def info(self, path: str, parts: list[str]) -> Info | None:
        """Return one entry; None if there is none."""
        match parts:
            case [] | ["artifacts" | "sha256" | "works"]:
                return self._folder(path.removeprefix(self._base).rstrip("/"))
            case ["projects"] if not self._base:
                return self._folder("projects")
            case ["manifest.parquet"]:
                return self._manifest()
            case ["artifacts", artifact_id]:
                return self._named(path, lambda: self._ledger.artifact(self._scope, artifact_id))
            case ["sha256", sha256] if len(sha256) == _HASH:
                return self._named(path, lambda: self._ledger.held(self._scope, sha256))
            case ["works", work, *inner]:
                return self._work_info(work, inner)
        return None

    def _work_info(self, work: str, inner: list[str]) -> Info | None:
        files = self._files(work)
        name = "/".join(inner)
        if name in files:
            return self._entry(f"works/{work}/{name}", files[name])
        if not files or (name and not any(one.startswith(f"{name}/") for one in files)):
            return None
        return self._folder("/".join(["works", work, *inner]))

    def _in_work(self, work: str, inner: list[str]) -> list[Info] | None:
        files = self._files(work)
        name = "/".join(inner)
        if name in files:
            return None
        start = f"{name}/" if name else ""
        found: dict[str, Info] = {}
        for one, artifact in files.items():
            if one.startswith(start):
                first, slash, _ = one[len(start) :].partition("/")
                place = f"works/{work}/{start}{first}"
                found.setdefault(first, self._folder(place) if slash else self._entry(place, artifact))
        if not found:
            raise FileNotFoundError(f"{self._base}works/{work}/{name}".rstrip("/"))
        return list(found.values())

    def _files(self, work: str) -> dict[str, Artifact]:
        """Return the files of a work by name, the newest first; a name that another one has gets the hash."""
        work_id, files = unquote(work), dict[str, Artifact]()
        found = self._available(ArtifactFilter(work_id=work_id))
        for wanted in (found, self._available(ArtifactFilter(url=work_id)) if "://" in work_id else ()):
            for artifact in wanted:
                name = file_name(artifact, work_id)
                if files.get(name, artifact).sha256 != artifact.sha256:
                    name = with_hash(name, artifact.sha256)
                files.setdefault(name, artifact)
        return files

    def _available(self, wanted: ArtifactFilter | None = None) -> Iterator[Artifact]:
        after: str | None = None
        while True:
            page = self._ledger.artifacts(self._scope, wanted, after=after, limit=500)
            yield from (one for one in page.items if one.availability == "available")
            if (after := page.next) is None:
                return

    def _works(self) -> list[str]:
        return sorted({row.work_id for row in manifest_rows(self._ledger, self._scope, held=True) if row.work_id})

    def _named(self, path: str, find: Callable[[], Artifact | None]) -> Info | None:
        try:
            artifact = find()
        except LongshoreError:
            return None
        if artifact is None or artifact.availability != "available":
            return None
        return self._entry(path.removeprefix(self._base), artifact)

    def _folder(self, name: str) -> Info:
        return {"name": f"{self._base}{name}".rstrip("/"), "size": 0, "type": "directory"}

    def _entry(self, name: str, artifact: Artifact) -> Info:
        made = datetime.fromtimestamp(artifact.created_at / 1_000_000, UTC)
        return {
            "name": f"{self._base}{name}",
            "size": artifact.size_bytes,
            "type": "file",
            "sha256": artifact.sha256,
            "artifact_id": artifact.artifact_id,
            "content_type": artifact.content_type,
            "created": made,
            "mtime": made.timestamp(),
            "artifact": artifact,
        }

    def _manifest(self) -> Info:
        path = self._system.manifest(self._scope)
        made = datetime.fromtimestamp(os.path.getmtime(path), UTC)
        with open(path, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        name, size = f"{self._base}{MANIFEST}", os.path.getsize(path)
        times = {"created": made, "mtime": made.timestamp()}
        return {"name": name, "size": size, "type": "file", "sha256": sha256, "manifest": path, **times}


def file_name(artifact: Artifact, work_id: str) -> str:
    """Return the name of an artifact within its work, with the folders of a torrent."""
    inside = artifact.metadata.get("path")
    if isinstance(inside, str) and "/" in inside:
        return "/".join(safe_name(part) for part in inside.split("/"))
    name = artifact.name or (url_name(work_id) if "://" in work_id else "")
    return safe_name(name) if name else artifact.sha256


def _refuse(path: str) -> NoReturn:
    raise PermissionError(f"a depot is read-only here: {path}")
