"""Names of a package that are imported when somebody uses them: whoever needs one part need not wait for the others.

Type checkers and readers see ordinary imports below `if TYPE_CHECKING`; a test compares both.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` would be half of what `longshore --help` costs
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def names_of(package: str, home: Mapping[str, str]) -> Callable[[str], object]:
    """Make a package's `__getattr__` from where its names live: `".module"`, or `".module:other"` under another name."""

    def named(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        module, _, other = home[name].partition(":")
        return getattr(import_module(module, package), other or name)

    return named
