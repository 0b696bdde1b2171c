"""Environment variables that handlers of custom jobs see: an allow list, so that the depot's own secrets stay with the worker."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Final

ALLOWED: Final = frozenset(
    [
        "HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "PATH",
        "SHELL",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TERM",
        "TMPDIR",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
    ]
)
PREFIXES: Final = ("LC_", "PYTHON")


def inherited() -> dict[str, str]:
    """Return the variables that this process was started with."""
    return dict(os.environ)


def limit_environment(variables: Mapping[str, str], names: Collection[str]) -> None:
    """Leave this process the allowed variables and those that a job type declares."""
    kept = {
        name: value
        for name, value in variables.items()
        if name in ALLOWED or name in names or name.startswith(PREFIXES)
    }
    os.environ.clear()
    os.environ.update(kept)
