"""Parse the value of a setting from a file, an environment variable or a flag."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeGuard

from longshore.domain.settings import Key, Secret
from longshore.domain.sizes import SIZE_FORMS, parse_size
from longshore.errors import BadInput

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


def _integer(value: object) -> int:
    if isinstance(value, str):
        value = int(value.replace("_", ""))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("a whole number")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError("a number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("a finite number")
    return number


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError("true or false")


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError("text")
    return str(value)


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError("a list of texts")
    return tuple(value)


def _table(value: object) -> Mapping[str, Any]:
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError("a table")
    return value


def _text_table(value: object) -> Mapping[str, str]:
    table = _table(value)
    if not all(isinstance(item, str) for item in table.values()):
        raise ValueError("a table of texts")
    return dict(table)


def _number_table(value: object) -> Mapping[str, float]:
    table = _table(value)
    if not all(type(item) in (int, float) and 0 < item < math.inf for item in table.values()):
        raise ValueError("a table of numbers above 0")
    return {name: float(item) for name, item in table.items()}


def _secret(value: object) -> Secret:
    return value if isinstance(value, Secret) else Secret(_text(value))


# annotation of the field -> (reader, what the user should write)
READERS: Final[dict[str, tuple[Callable[[object], Any], str]]] = {
    "int": (_integer, "a whole number"),
    "float": (_number, "a number"),
    "bool": (_truth, "true or false"),
    "str": (_text, "text"),
    "Secret": (_secret, "text"),
    "tuple[str, ...]": (_texts, 'a list of texts (in the environment as JSON: ["10.0.0.0/8"])'),
    "Mapping[str, str]": (_text_table, 'a table of texts (in the environment as JSON: {"/a": "/b"})'),
    "Mapping[str, float]": (_number_table, 'a table of numbers above 0 (in the environment as JSON: {"a": 30})'),
    "Mapping[str, HostSettings]": (_table, "a table for each host"),
    "Mapping[str, CredentialSettings]": (_table, "a table for each host"),
}


def read_value(key: Key, value: object, name: str, origin: str) -> Any:
    """Parse one value; raise `BadInput` with the setting, its origin and the expected type."""
    annotation = key.annotation
    optional = annotation.endswith(" | None")
    if optional and value in (None, ""):
        return None
    reader, wanted = READERS[annotation.removesuffix(" | None")]
    in_bytes = is_size(name)
    wanted = SIZE_FORMS if in_bytes else wanted
    try:
        result = reader(parse_size(value) if in_bytes and _has_unit(value) else value)
    except (ValueError, TypeError):
        secret = annotation.startswith("Secret")
        raise BadInput(f"{origin}: {name} takes {wanted}" + ("" if secret else f", not {_quoted(value)}")) from None
    _check_bounds(key, result, name, origin)
    return result


def is_size(name: str) -> bool:
    """Return whether a setting is a number of bytes, which may be written with a unit."""
    return "bytes" in name.rpartition(".")[2].split("_")


def _has_unit(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value.strip()[-1:].isalpha()


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def _check_bounds(key: Key, value: Any, name: str, origin: str) -> None:
    if key.least is not None and value < key.least:
        raise BadInput(f"{origin}: {name} is at least {key.least:g}, not {value}")
    if key.most is not None and value > key.most:
        raise BadInput(f"{origin}: {name} is at most {key.most:g}, not {value}")
