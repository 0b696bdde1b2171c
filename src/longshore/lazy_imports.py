"""Import a package's names on first use, so that importing one part does not load the others.

Type checkers and readers see ordinary imports below `if TYPE_CHECKING`; a test compares both.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` would double the time of `longshore --help`
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def names_of(package: str, home: Mapping[str, str]) -> Callable[[str], object]:
    """Return a package's `__getattr__` for names in submodules: `".module"`, or `".module:other"` to rename."""

    def named(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        module, _, other = home[name].partition(":")
        return getattr(import_module(module, package), other or name)

    return named
