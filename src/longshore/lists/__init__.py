"""Lists of work, in the formats people already have. `read_list` streams; a line that is no good is a value, not the end."""

from __future__ import annotations

TYPE_CHECKING = False  # every name is imported on first use: whoever needs one part need not wait for the others
if TYPE_CHECKING:
    from longshore.lists.lines import BadLine
    from longshore.lists.read import FORMATS, read_list
else:
    _HOME = {
        "BadLine": "lines",
        "FORMATS": "read",
        "read_list": "read",
    }

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'longshore.lists' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"longshore.lists.{_HOME[name]}"), name)


__all__ = [
    "FORMATS",
    "BadLine",
    "read_list",
]
