"""Compress pages for browsers that accept it.

The session cookie is SameSite=Strict, so another site cannot make a browser ask for a page that has both its text and a
secret: the length of the compressed answer tells it nothing.
"""

from __future__ import annotations

import gzip
from typing import Final

from fastapi import Request, Response

LEAST: Final = 1_000  # bytes; less is not worth it
LEVEL: Final = 4


def accepts_gzip(request: Request) -> bool:
    """Return whether a browser takes compressed answers."""
    return "gzip" in request.headers.get("accept-encoding", "")


def compressed(request: Request, answer: Response) -> Response:
    """Compress a whole answer."""
    answer.headers.add_vary_header("Accept-Encoding")
    body = bytes(answer.body)
    if len(body) >= LEAST and accepts_gzip(request):
        answer.body = gzip.compress(body, LEVEL, mtime=0)
        answer.headers["content-encoding"] = "gzip"
        answer.headers["content-length"] = str(len(answer.body))
    return answer
