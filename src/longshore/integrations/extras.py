"""The error for an adapter whose package is not installed."""

from __future__ import annotations


def missing(extra: str, error: ImportError) -> ImportError:
    """Return an ImportError that names the extra to install."""
    package = (error.name or extra).partition(".")[0]
    return ImportError(f"this needs the package {package}: pip install 'longshore[{extra}]'", name=error.name)
