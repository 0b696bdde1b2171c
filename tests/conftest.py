"""For every test: nothing of one session may disturb its own end."""

from __future__ import annotations

import contextlib
import gc

import pytest

SERVERS = {
    "postgres",
    "postgres_cluster",
    "own_postgres_cluster",
    "postgres_dsn",
    "postgres_ledger",
    "weed",
    "nginx",
    "s3",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a server of the system; `make quick` leaves them out."""
    for item in items:
        needed = set(getattr(item, "fixturenames", ()))
        params = getattr(getattr(item, "callspec", None), "params", {}).values()
        if needed & SERVERS or any(value in ("postgres", "s3") for value in params if isinstance(value, str)):
            item.add_marker("servers")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Collect garbage before plugins import modules at the end.

    CPython 3.11.7 cannot parse Python while it parses Python: when the collector finds a task whose exception nobody
    retrieved during an import that pytest rewrites, formatting its traceback parses source, and the interpreter's
    SystemError ends a session of passed tests with an error.
    """
    gc.collect()
    with contextlib.suppress(ImportError):
        import schemathesis.reporting.html.writer  # noqa: F401  (what its plugin imports at the end)
    gc.collect()
