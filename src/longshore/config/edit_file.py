"""Change single settings in `longshore.toml`; comments and all other lines stay as they are.

The file is edited as lines, because the standard library reads TOML but does not write it. The result is parsed and
compared with the table that was meant before it replaces the file, so a form that the editor does not know (inline tables,
dotted keys) is refused instead of damaged.
"""

from __future__ import annotations

import copy
import fcntl
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from longshore.config.load import NAMED, check_table, key_named, keys_of, read_table, sections
from longshore.config.parse_values import read_value
from longshore.domain.settings import Key, Secret
from longshore.errors import BadInput, NotFound

Name = tuple[str, ...]  # of a setting: (key,), (section, key) or (section, host, key)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")


def parse_name(text: str) -> Name:
    """Parse `SECTION.KEY`, a top-level `KEY`, or `hosts.HOST.KEY`."""
    section, dot, rest = text.partition(".")
    if not dot:
        return (section,)
    host, inner, key = rest.rpartition(".")
    if inner and section in NAMED:
        return section, host.strip('"').lower(), key
    return section, rest


def key_of(name: Name) -> Key:
    """Return the declaration of a setting; raise `BadInput` for one that does not exist."""
    if len(name) == 3:
        return key_named(name[2], NAMED[name[0]].KEYS, f'[{name[0]}."{name[1]}"]')
    if name in {("depot",), ("hosts", "named"), ("credentials", "named")}:
        raise BadInput(f"{'.'.join(name)} cannot be set in the depot's own file")
    if len(name) == 2 and name[0] not in sections():
        raise BadInput(f"unknown section [{name[0]}]", hint="`longshore config` shows all settings")
    if len(name) == 2:
        return key_named(name[1], keys_of(name[0]), f"[{name[0]}]")
    return key_named(name[0], keys_of(""), "longshore.toml:")


def value_of(name: Name, words: Sequence[str]) -> Any:
    """Parse the words of a command line as the value of a setting; a list takes one word per entry."""
    key, dotted = key_of(name), ".".join(name)
    given: object = " ".join(words)
    if key.annotation == "tuple[str, ...]" and not str(given).lstrip().startswith("["):
        given = [word for text in words for word in text.replace(",", " ").split()]
    return read_value(key, given, dotted, "config set")


def set_value(path: str, name: Name, value: Any) -> None:
    """Write one setting. The file is created if it is missing."""
    with _locked(path):
        text = _read(path)
        wanted = copy.deepcopy(read_table(text, path))
        _put(wanted, name, _plain(value))
        _write(path, _with(_lines(text), name, f"{_key(name[-1])} = {_toml(_plain(value))}"), wanted)


def unset_value(path: str, name: Name) -> None:
    """Remove one setting, so that its default applies; also one that does not exist in this version."""
    with _locked(path):
        text = _read(path)
        wanted = copy.deepcopy(read_table(text, path))
        table: Any = wanted
        for part in name[:-1]:
            table = table.get(part, {}) if isinstance(table, Mapping) else {}
        if not isinstance(table, dict) or name[-1] not in table:
            raise NotFound(
                f"{'.'.join(name)} is not set in {path}", hint="`longshore config --changed` shows what is set"
            )
        del table[name[-1]]
        _write(path, _with(_lines(text), name, None), wanted, check=False)


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _put(table: dict[str, Any], name: Name, value: Any) -> None:
    for part in name[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise BadInput(f"{part} is not a section in the file; edit it")
    table[name[-1]] = value


def _plain(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


def _toml(value: Any) -> str:
    """Write a value as TOML: JSON is the same for text, numbers, truth and lists of text."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_toml(one)}" for name, one in value.items()) + " }"
    return json.dumps("" if value is None else value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if _BARE.match(name) else json.dumps(name, ensure_ascii=False)


def _with(lines: list[str], name: Name, line: str | None) -> list[str]:
    """Return the lines with an assignment replaced, inserted, or removed (None)."""
    section, key = name[:-1], name[-1]
    start, end = _section(lines, section)
    if start < 0:
        header = (
            ["", f"[{'.'.join(_key(part) for part in section)}]"] if lines else [f"[{'.'.join(map(_key, section))}]"]
        )
        return [*lines, *header, *([line] if line else [])]
    pattern = re.compile(rf"""\s*(?:{re.escape(key)}|"{re.escape(key)}")\s*=""")
    for at in range(start, end):
        if pattern.match(lines[at]):
            return [*lines[:at], *([line] if line else []), *lines[at + _length(lines, at, end) :]]
    at = _place(lines, start, end, key)
    return [*lines[:at], *([line] if line else []), *lines[at:]]


def _section(lines: Sequence[str], section: Name) -> tuple[int, int]:
    """Return the lines after a section's header, up to the next header; (-1, 0): there is none."""
    start = 0 if not section else -1
    for at, line in enumerate(lines):
        if not line.lstrip().startswith("["):
            continue
        try:
            header = _path(tomllib.loads(line))
        except tomllib.TOMLDecodeError:  # an entry of a list over several lines
            continue
        if start >= 0:
            return start, at
        if header == section:
            start = at + 1
    return start, len(lines)


def _path(table: Mapping[str, Any]) -> Name:
    """Return the name of a header from the empty tables that it makes."""
    found: Name = ()
    while table:
        name = next(iter(table))
        found, table = (*found, name), table[name]
        if not isinstance(table, Mapping):
            return ()
    return found


def _length(lines: Sequence[str], at: int, end: int) -> int:
    """Return how many lines an assignment has: the fewest that parse."""
    for count in range(1, end - at + 1):
        try:
            tomllib.loads("\n".join(lines[at : at + count]))
        except tomllib.TOMLDecodeError:
            continue
        return count
    return 1


def _place(lines: Sequence[str], start: int, end: int, key: str) -> int:
    """Return where a new assignment goes: after its commented default, or at the end of its section."""
    for at in range(start, end):
        if re.match(rf"\s*#\s*{re.escape(key)}\s*=", lines[at]):
            return at + 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return end


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold the depot's directory, so that two writers do not overwrite each other's change."""
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
        os.fsync(directory)
    finally:
        os.close(directory)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not valid TOML: {error}") from None


def _write(path: str, lines: Sequence[str], wanted: Mapping[str, Any], *, check: bool = True) -> None:
    """Replace the file atomically, if it now says what is meant and is valid."""
    text = "\n".join(lines) + "\n"
    try:
        same = _without_empty(tomllib.loads(text)) == _without_empty(wanted)
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise BadInput(f"{path} is written in a form that is not changed automatically", hint="edit it by hand")
    if check:
        check_table(wanted, path)
    target = os.path.realpath(path)  # a link stays a link
    descriptor, new = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".longshore.toml.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            if os.path.exists(target):
                os.fchmod(file.fileno(), os.stat(target).st_mode & 0o777)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, target)
    except BaseException:
        os.unlink(new)
        raise


def _without_empty(table: Mapping[str, Any]) -> dict[str, Any]:
    """Drop empty sections: a header without keys means the same as none."""
    plain = {name: _without_empty(one) if isinstance(one, Mapping) else one for name, one in table.items()}
    return {name: one for name, one in plain.items() if one != {}}
