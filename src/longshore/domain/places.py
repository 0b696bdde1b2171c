"""Distinguish paths from addresses, so that no directory is ever created with the name of a URL."""

from __future__ import annotations

import re
from typing import Final

from longshore.errors import BadInput

# `scheme:/…` and, of well-known schemes, also `scheme:…`: a forgotten slash must not make a directory.
_ADDRESS: Final = re.compile(
    r"(?:[a-z][a-z0-9+.-]*:/|(?:s3|gs|gcs|az|abfs|file|ftp|sftp|https?|mysql|sqlite|postgres|postgresql):)",
    re.IGNORECASE,
)


def is_address(text: str) -> bool:
    """Return whether a text is a URL or looks like one; `./s3:/x` is a path."""
    return _ADDRESS.match(text) is not None


def check_is_path(option: str, text: str) -> None:
    """Raise `BadInput` if a local path was wanted and an address was given."""
    if is_address(text):
        raise BadInput(
            f"{option} takes a path on this machine, not {without_login(text)}",
            hint=f"write ./{without_login(text)} if a directory has this name",
        )


def without_login(address: str) -> str:
    """Return an address without user and password."""
    scheme, colon, rest = address.partition("://")
    return f"{scheme}://********@{rest.rpartition('@')[2]}" if colon and "@" in rest else address
