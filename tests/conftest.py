"""For every test: nothing of one session may disturb its own end."""

from __future__ import annotations

import contextlib
import gc

import pytest


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
