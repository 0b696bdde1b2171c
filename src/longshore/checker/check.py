"""The check itself: the statements, then every file against every row."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from longshore.checker.connections import Witness, statements, witness

_BLOB = re.compile(r"([0-9a-f]{64})((?:\.[a-z0-9]{1,8}){0,2})\Z")
_CHUNK = 1 << 20
_ARTIFACTS = (
    """SELECT tenant_id, project_id, artifact_id, sha256, byte_size, storage_pointer, availability FROM artifacts"""
)
_BLOBS = "SELECT storage_pointer FROM blobs"
_OVER = "SELECT job_id FROM jobs WHERE status NOT IN ('pending', 'processing')"
_KNOWN_JOBS = "SELECT job_id FROM jobs"

# What the files can have wrong; the ledger's own findings have their sentences in checks.sql.
SENTENCES = {
    "job_lost": "A job that was acknowledged is not there.",
    "ledger_damaged": "The database finds its own files damaged.",
    "file_missing": "An artifact that is said to be available has no file.",
    "file_wrong_size": "A file has another size than its artifact.",
    "file_wrong_hash": "A file's bytes do not hash to its name.",
    "file_writable": "A published file can be written to.",
    "file_foreign": "A file under the store does not have a name of the store's format.",
    "file_unregistered": "A published file has no row: a crash left it, reconcile takes it up.",
    "file_there_after_all": "An artifact is marked missing and its file is there and right.",
    "pointer_outside": "A pointer does not lie in its tenant's and project's own place.",
    "part_left": "A part of a job that is over, or of none, is still there.",
}
# A crash may leave these; reconcile heals them. Everything else is damage.
HEALABLE = frozenset({"file_unregistered", "part_left", "file_there_after_all", "effect_open"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it must be."""

    kind: str
    tenant_id: str
    project_id: str
    subject: str
    detail: str


@dataclass(slots=True)
class Report:
    """What was checked, and the findings."""

    findings: list[Finding] = field(default_factory=list)
    artifacts: int = 0
    files: int = 0
    bytes_read: int = 0

    @property
    def damage(self) -> list[Finding]:
        """What a crash cannot explain."""
        return [finding for finding in self.findings if finding.kind not in HEALABLE]


class Files(Protocol):
    """The blobs of a store, as an outsider sees them."""

    def entries(self) -> Iterator[tuple[str, int, bool]]:
        """Return (pointer, size, writable) of everything that lies where blobs lie."""

    def digest(self, pointer: str) -> tuple[str, int] | None:
        """Hash what lies there; None if nothing does."""

    def parts(self) -> Iterator[str]:
        """Return the job ids that parts are kept for."""


class LocalFiles:
    """A local store's directory, walked without the store's code."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def entries(self) -> Iterator[tuple[str, int, bool]]:
        """Walk tenants, projects and shards."""
        for directory, names, plain in os.walk(self._root):
            names[:] = [name for name in names if not name.startswith(".")]
            if Path(directory) == self._root:
                continue
            for name in plain:
                facts = os.lstat(os.path.join(directory, name))
                yield (
                    os.path.relpath(os.path.join(directory, name), self._root),
                    facts.st_size,
                    bool(facts.st_mode & 0o222),
                )

    def digest(self, pointer: str) -> tuple[str, int] | None:
        """Hash the file."""
        try:
            with open(self._root / pointer, "rb", buffering=0) as file:
                digest, size = hashlib.sha256(), 0
                while piece := file.read(_CHUNK):
                    digest.update(piece)
                    size += len(piece)
                return digest.hexdigest(), size
        except OSError:
            return None

    def parts(self) -> Iterator[str]:
        """Yield the jobs that own parts, read from the parts' metadata; a part without metadata has no owner."""
        import json

        for directory, _, plain in os.walk(self._root / ".staging"):
            if "facts.json" in plain:
                with (
                    suppress(OSError, ValueError, RecursionError, AttributeError),  # damaged: it has no owner either
                    open(os.path.join(directory, "facts.json"), encoding="utf-8") as file,
                ):
                    yield str(json.load(file).get("job_id"))


def check(ledger: str, files: Files | None, *, read_bytes: bool = True, acknowledged: Iterable[str] = ()) -> Report:
    """Check the whole depot and return the findings; change nothing. All `acknowledged` jobs must exist."""
    report, looking = Report(), witness(ledger)
    try:
        _check_ledger(looking, report)
        _check_promises(looking, set(acknowledged), report)
        if files is not None:
            _check_files(looking, files, report, read_bytes=read_bytes)
    finally:
        looking.close()
    return report


def _check_ledger(looking: Witness, report: Report) -> None:
    report.findings.extend(Finding("ledger_damaged", "", "", "ledger", text) for text in looking.integrity())
    for statement in statements():
        report.findings.extend(
            Finding(statement.name, row[0], row[1], str(row[2]), str(row[3])) for row in looking.rows(statement.sql)
        )


def _check_promises(looking: Witness, acknowledged: set[str], report: Report) -> None:
    if acknowledged:
        acknowledged -= {str(row[0]) for row in looking.rows(_KNOWN_JOBS)}
    report.findings.extend(Finding("job_lost", "", "", job_id, "acknowledged") for job_id in sorted(acknowledged))


def _check_files(looking: Witness, files: Files, report: Report, *, read_bytes: bool) -> None:
    there = {pointer: (size, writable) for pointer, size, writable in files.entries()}
    report.files = len(there)
    registered = {str(row[0]) for row in looking.rows(_BLOBS)}
    bad = _check_names(there, registered, files, report, read_bytes=read_bytes)
    for tenant, project, artifact_id, sha256, size, pointer, availability in looking.rows(_ARTIFACTS):
        report.artifacts += 1
        kind = _judge(there, bad, sha256, size, pointer, availability, (tenant, project))
        if kind is not None:
            report.findings.append(Finding(kind, tenant, project, artifact_id, sha256))
    over = {str(row[0]) for row in looking.rows(_OVER)}
    known = {str(row[0]) for row in looking.rows(_KNOWN_JOBS)}
    for job_id in files.parts():
        if job_id in over or job_id not in known:
            report.findings.append(Finding("part_left", "", "", job_id, "part"))


def _check_names(
    there: dict[str, tuple[int, bool]], registered: set[str], files: Files, report: Report, *, read_bytes: bool
) -> set[str]:
    bad: set[str] = set()
    for pointer, (size, writable) in there.items():
        match = _BLOB.match(pointer.rsplit("/", 1)[-1])
        if match is None:
            report.findings.append(Finding("file_foreign", "", "", pointer, f"{size} bytes"))
            continue
        if writable:
            report.findings.append(Finding("file_writable", "", "", match[1], f"{size} bytes"))
        if pointer not in registered:
            report.findings.append(Finding("file_unregistered", "", "", match[1], f"{size} bytes"))
        if read_bytes:
            found = files.digest(pointer)
            report.bytes_read += size
            if found is None or found[0] != match[1]:
                bad.add(pointer)
                report.findings.append(Finding("file_wrong_hash", "", "", match[1], f"{size} bytes"))
    return bad


def _judge(
    there: dict[str, tuple[int, bool]],
    bad: set[str],
    sha256: str,
    size: int,
    pointer: str,
    availability: str,
    scope: tuple[str, str],
) -> str | None:
    pieces = pointer.split("/")
    if len(pieces) < 3 or (not pieces[0].startswith("=") and "=" not in pieces[0] and pieces[0] != scope[0]):
        return "pointer_outside"
    found = there.get(pointer)
    if found is None:
        return "file_missing" if availability == "available" else None
    if found[0] != size:
        return "file_wrong_size"
    if availability == "missing" and pointer not in bad and sha256 in pointer:
        return "file_there_after_all"
    return None
