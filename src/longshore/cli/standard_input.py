"""Standard input as a source of bytes."""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

from longshore.errors import BadInput


def stdin_bytes() -> BinaryIO:
    """Return stdin for reading bytes; refuse one that was closed (`<&-`), for which `main` opened /dev/null."""
    if getattr(sys.stdin, "name", None) == os.devnull:
        raise BadInput("stdin is closed: there is nothing to read", hint="give it a file or a pipe")
    return sys.stdin.buffer
