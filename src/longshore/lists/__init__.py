"""Readers for lists of URLs in common formats. `read_list` streams jobs; an invalid line is yielded as a `BadLine`."""

from __future__ import annotations

from longshore.lazy_imports import names_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from longshore.lists.detect_format import FORMATS, read_list
    from longshore.lists.lines import BadLine, ListFacts, NoDownload, WithoutFile
else:
    __getattr__ = names_of(
        __name__,
        {
            "BadLine": ".lines",
            "FORMATS": ".detect_format",
            "ListFacts": ".lines",
            "NoDownload": ".lines",
            "WithoutFile": ".lines",
            "read_list": ".detect_format",
        },
    )


__all__ = [
    "FORMATS",
    "BadLine",
    "ListFacts",
    "NoDownload",
    "WithoutFile",
    "read_list",
]
