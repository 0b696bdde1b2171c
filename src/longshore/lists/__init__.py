"""Lists of work, in the formats people already have. `read_list` streams; a line that is no good is a value, not the end."""

from longshore.lists.lines import BadLine
from longshore.lists.read import FORMATS, read_list

__all__ = ["FORMATS", "BadLine", "read_list"]
