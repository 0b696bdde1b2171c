"""Readers for lists of URLs in common formats. `read_list` streams jobs; an invalid line is yielded as a `BadLine`."""

from __future__ import annotations

from longshore.lazy_imports import names_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from longshore.lists.lines import BadLine, NoDownload
    from longshore.lists.read import FORMATS, read_list
else:
    __getattr__ = names_of(
        __name__,
        {
            "BadLine": ".lines",
            "FORMATS": ".read",
            "NoDownload": ".lines",
            "read_list": ".read",
        },
    )


__all__ = [
    "FORMATS",
    "BadLine",
    "NoDownload",
    "read_list",
]
