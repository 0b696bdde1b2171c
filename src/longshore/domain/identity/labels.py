"""Labels: the short scalars of an artifact's metadata or a job's parameters, by which the ledger can look them up."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from longshore.errors import BadInput

MAX_NAME: Final = 100
MAX_VALUE: Final = 200


def labels_of(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the names and texts of the values that can be looked up. Longer texts, lists and objects are left out."""
    found = []
    for name, value in values.items():
        text = label_text(value)
        if text is not None and len(name) <= MAX_NAME and len(text) <= MAX_VALUE and "\0" not in name + text:
            found.append((name, text))
    return found


def label_text(value: object) -> str | None:
    """Return a scalar as its label has it, numbers and booleans as JSON writes them; None for everything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return json.dumps(value)
    return None


def wanted_labels(what: str, values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the labels of a look-up; raise `BadInput` for what cannot be looked up."""
    if not isinstance(values, Mapping):
        raise BadInput(f"{what} is a mapping of names to values, not {type(values).__name__}")
    found = labels_of(values)
    if len(found) != len(values):
        named = dict(found)
        wrong = next(name for name in values if name not in named)
        raise BadInput(
            f"{what} {wrong!r:.120} cannot be looked up: names have up to {MAX_NAME} characters, values are numbers,"
            f" booleans or texts of up to {MAX_VALUE}"
        )
    return found
