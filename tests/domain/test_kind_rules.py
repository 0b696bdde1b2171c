"""The rules of `domain.kinds`: job types are compared nowhere else, and every stage is written by some path."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from longshore.domain.kinds import CANCELED, CUSTOM, DOWNLOAD, KINDS, TORRENT, UPLOAD

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/longshore"
OWN_MODULES = re.compile(
    r"worker/kinds/|domain/kinds|domain/torrents/|torrents?\.py$|/books\.py$|kind_hooks\.py$|upload"
)
NAMES = {"DOWNLOAD", "TORRENT", "UPLOAD"}
TYPES = {DOWNLOAD, TORRENT, UPLOAD}


def compared(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that compare something with a job type."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        parts = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
        named = any(isinstance(part, ast.Name) and part.id in NAMES for part in parts)
        of_type = any(isinstance(part, ast.Attribute) and part.attr == "job_type" for part in parts)
        literal = any(isinstance(part, ast.Constant) and part.value in TYPES for part in parts)
        if named or (of_type and literal):
            yield node.lineno


def test_no_module_but_the_kinds_own_compares_a_job_type() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not OWN_MODULES.search(path.relative_to(SOURCE).as_posix())
        for line in compared(ast.parse(path.read_text()))
    ]
    assert found == []


def test_no_statement_names_a_job_type() -> None:
    branch = re.compile(r"CASE (?:\w\.)?job_type\b|'(?:download|torrent|upload)'")
    index = "i.job_type = :job_type AND i.job_type <> 'download'"  # the condition of the partial index jobs_typed
    found = [
        f"{path.name}: {line}"
        for path in sorted((SOURCE / "ledger/sql").rglob("*.sql"))
        if path.name != "torrents.sql"
        for line in path.read_text().splitlines()
        if branch.search(line) and line != index
    ]
    assert found == []


def test_every_stage_is_written_by_some_path() -> None:
    moves = {
        stage
        for path in (SOURCE / "worker").rglob("*.py")
        for stage in re.findall(r'Move\(\w+, "(\w+)"', path.read_text())
    }
    for kind in (*KINDS.values(), CUSTOM):
        ends = {kind.first, kind.granted, kind.done, kind.done_known, kind.failed, kind.skipped, CANCELED}
        written = ends | {stage for path in kind.to_finalized.values() for stage in path} | moves
        unwritten = set(kind.stages) - written
        assert unwritten == ({"HEAD_DONE"} if kind.name == DOWNLOAD else set())
    assert "`HEAD_DONE` is written only by callers of `advance`" in (ROOT / "docs/reference/states.md").read_text()


def test_the_ways_to_the_finalized_stage_are_legal_moves() -> None:
    for kind in KINDS.values():
        for stage, path in kind.to_finalized.items():
            for before, after in zip((stage, *path), path, strict=False):
                assert after in kind.moves[before]
            assert path[-1] == kind.finalized
