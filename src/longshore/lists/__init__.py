"""Lists of work, in the formats people already have. `read_list` streams; a line that is no good is a value, not the end."""

from __future__ import annotations

from longshore.first_use import names_of

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
