"""Every regular expression of the program takes time linear in its input.

Input is hostile: one small request with a quadratic expression freezes the event loop for seconds. Each compiled pattern
of every module is run, as its module uses it (from the beginning, or searching), on repeated characters and pairs of
characters that it mentions. Four times the input may take about four times as long; quadratic growth would be sixteen.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]  # the only way to see what a pattern mentions
from typing import Any

import pytest

import longshore

SHORT, LONG = 3_000, 12_000
NOTICED_S = 0.004  # faster than this is harmless at LONG, whatever its growth
ALWAYS = "aA0 \t;:/=&\"'\\,.-@%"
SEARCHING = {"search", "sub", "subn", "findall", "finditer", "split"}
MOST_CHARACTERS = 14
PASSED_ON = {"_STRUCTURED": {"match"}, "_OLD_DIGEST": {"match"}}  # used under another name


def modules() -> Iterator[str]:
    for found in pkgutil.walk_packages(longshore.__path__, "longshore."):
        if not found.ispkg and not found.name.endswith("__main__"):
            yield found.name


def uses(tree: ast.Module) -> dict[str, set[str]]:
    """Return how each name of a module is called: `_URL.sub(…)` gives `_URL: {sub}`."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.setdefault(node.value.id, set()).add(node.attr)
    return found


def patterns() -> Iterator[tuple[str, re.Pattern[Any], set[str]]]:
    """Yield every compiled pattern of a module with the methods that are called on it anywhere in the program."""
    called: dict[str, set[str]] = {}
    loaded = []
    for name in modules():
        module = importlib.import_module(name)
        loaded.append(module)
        for key, methods in uses(ast.parse(Path(module.__file__ or "").read_text())).items():
            called.setdefault(key, set()).update(methods)
    for module in loaded:
        for key, value in vars(module).items():
            if isinstance(value, re.Pattern):
                yield f"{module.__name__}.{key}", value, PASSED_ON.get(key) or called.get(key, set())


def mentioned(parsed: Any) -> Iterator[str]:
    """Yield the characters that a parsed pattern mentions."""
    for kind, value in parsed:
        if kind in (_constants.LITERAL, _constants.NOT_LITERAL):
            yield chr(value)
        elif kind is _constants.RANGE:
            yield chr(value[0])
        elif kind is _constants.IN:
            yield from mentioned(value)
        elif kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT):
            yield from mentioned(value[2])
        elif kind is _constants.SUBPATTERN:
            yield from mentioned(value[3])
        elif kind is _constants.BRANCH:
            for branch in value[1]:
                yield from mentioned(branch)
        elif kind in (_constants.ASSERT, _constants.ASSERT_NOT):
            yield from mentioned(value[1])
        elif kind is _constants.ATOMIC_GROUP:
            yield from mentioned(value)


def inputs(pattern: re.Pattern[Any]) -> Iterator[str]:
    """Yield short texts that, repeated, are likely to make the pattern start and fail at many places."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    own = list(dict.fromkeys(mentioned(_parser.parse(source, pattern.flags & ~re.UNICODE))))[:MOST_CHARACTERS]
    singles = list(dict.fromkeys([*own, *ALWAYS]))
    yield from singles
    for pair in itertools.product(own, repeat=2):
        yield "".join(pair)
    for literal in re.findall(r"[a-zA-Z]{2,}[=:]?", source)[:20]:
        yield literal
        yield f";{literal}"


def took(call: Callable[[Any], object], text: Any) -> float:
    begun = time.thread_time()  # not the wall's: other processes take the processor from us
    call(text)
    return time.thread_time() - begun


def is_linear(call: Callable[[Any], object], once: Any) -> bool:
    if took(call, once * (LONG // len(once))) < NOTICED_S:
        return True
    for factor in (1, 2):  # a second look with longer input: the machine may have been busy
        short, long = once * (SHORT * factor // len(once)), once * (LONG * factor // len(once))
        quick = min(took(call, short) for _ in range(3))
        if min(took(call, long) for _ in range(2)) < max(9 * quick, NOTICED_S):
            return True
    return False


def problems(name: str, pattern: re.Pattern[Any], methods: set[str]) -> list[str]:
    binary = isinstance(pattern.pattern, bytes)
    found = []
    for once in inputs(pattern):
        if binary and not once.isascii():
            continue
        text: Any = once.encode() if binary else once
        calls: dict[str, Callable[[Any], object]] = {"match": pattern.match, "fullmatch": pattern.fullmatch}
        if methods & SEARCHING or not methods:
            calls = {"finditer": lambda body: sum(1 for _ in pattern.finditer(body))}
        found += [f"{name}.{how} of {once!r} repeated" for how, call in calls.items() if not is_linear(call, text)]
        if found:
            return found
    return found


PATTERNS = list(patterns())


def test_the_patterns_are_found() -> None:
    assert len(PATTERNS) > 60


@pytest.mark.parametrize(("name", "pattern", "methods"), PATTERNS, ids=[name for name, _, _ in PATTERNS])
def test_a_pattern_takes_linear_time(name: str, pattern: re.Pattern[Any], methods: set[str]) -> None:
    assert problems(name, pattern, methods) == []


@pytest.mark.parametrize("source", [rb'"(?:[^"\\]|\\.)*"', r"(;[^/?#]*(?:jsessionid|token|sid)=)[^/?#;]*"])
def test_quadratic_patterns_are_found(source: Any) -> None:
    """Both were in the program and froze it."""
    assert problems("known", re.compile(source), {"sub"})
