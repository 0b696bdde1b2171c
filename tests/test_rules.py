"""Rules of the code base that a reviewer would otherwise have to remember."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from longshore.config.load import keys_of, sections

SOURCE = Path(__file__).parents[1] / "src/longshore"
SQL = re.compile(
    r"\b(SELECT .+? FROM|SELECT \w+\(|INSERT (OR \w+ )?INTO|UPDATE \w+ SET|DELETE FROM|CREATE TABLE)\b", re.DOTALL
)
# Where Python may hold SQL, and why.
SQL_ALLOWED = {
    "checker/": "an independent check that shares no statement with the ledger, on purpose",
    "exports/used_names.py": "a private temporary database, not the ledger",
    "ledger/backends/": "what the transactions themselves are made of",
    "ledger/maintenance/copy.py": "statements for any table, made from its columns",
    "ledger/statements.py": "turns statements for one row into statements for many",
}
# Variables that are not settings, and who reads them.
ENVIRONMENT_ALLOWED = {
    "config/": "reads every setting",
    "cli/run_command.py": "shell completion, LONGSHORE_DEBUG",
    "cli/main.py": "shell completion",
    "cli/multiprocess/processes.py": "hands the environment on to a child",
    "cli/output/writer.py": "TERM",
    "depot/doctor/machine_checks.py": "names proxy variables that are ignored",
    "failpoints.py": "crash points for tests",
    "web/server.py": "the protocol of systemd",
}


def modules(allowed: dict[str, str]) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(tuple(allowed)):
            yield name, ast.parse(path.read_text())


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module that are not docstrings."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.lineno, node.value


def test_python_holds_no_sql() -> None:
    found = [f"{name}:{line}" for name, tree in modules(SQL_ALLOWED) for line, text in texts(tree) if SQL.search(text)]
    assert found == []


def test_only_the_configuration_reads_the_environment() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, tree in modules(ENVIRONMENT_ALLOWED)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"}
    ]
    assert found == []


def test_every_setting_is_read() -> None:
    read = {
        node.attr
        for name, tree in modules({"config/": "fills them"})
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    declared = {f"{section}.{name}": name for section in ["", *sections()] for name in keys_of(section)}
    unread = sorted(full for full, name in declared.items() if name not in read)
    assert unread == []


def test_an_allowance_is_removed_with_its_reason() -> None:
    for allowed in (SQL_ALLOWED, ENVIRONMENT_ALLOWED):
        assert [name for name in allowed if not (SOURCE / name).exists()] == []
