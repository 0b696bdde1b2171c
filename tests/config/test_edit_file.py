"""`config set` and `config unset`: one setting changes, everything else in the file stays."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from longshore.config import load_settings
from longshore.config.edit_file import parse_name, set_value, unset_value, value_of
from longshore.errors import BadInput, LongshoreError

FILE = """\
# our depot
offline = false  # for now

[network]
# the laboratory
allow = [
  "10.0.0.0/8",  # old
  "192.168.0.0/16",
]

[hosts]
concurrency = 4

[hosts."a.example"]
concurrency = 2
"""


def put(path: Path, name: str, *words: str) -> None:
    set_value(str(path), parse_name(name), value_of(parse_name(name), words))


@pytest.mark.parametrize(
    ("name", "words", "line"),
    [
        ("network.allow", ["127.0.0.0/8", "::1/128"], 'allow = ["127.0.0.0/8", "::1/128"]'),
        ("network.allow", ['["127.0.0.0/8"]'], 'allow = ["127.0.0.0/8"]'),
        ("network.user_agent", ["a b"], 'user_agent = "a b"'),
        ("offline", ["yes"], "offline = true"),
        ("tenant", ["x"], 'tenant = "x"'),
        ("hosts.rate_per_s", ["0.5"], "rate_per_s = 0.5"),
        ("hosts.a.example.concurrency", ["3"], "concurrency = 3"),
        ("hosts.b.example.rate_per_s", ["1"], "rate_per_s = 1.0"),
        ("credentials.b.example.password", ["secret"], 'password = "secret"'),
        ("retry.base_s", ["2"], "base_s = 2.0"),
    ],
)
def test_one_setting_changes_and_the_rest_stays(tmp_path: Path, name: str, words: list[str], line: str) -> None:
    path = tmp_path / "longshore.toml"
    path.write_text(FILE)

    put(path, name, *words)

    after = path.read_text()
    assert line in after.splitlines()
    kept = [one for one in FILE.splitlines() if one.strip().startswith("#")]
    assert set(kept) <= set(after.splitlines())
    before, now = tomllib.loads(FILE), tomllib.loads(after)
    assert flat(before).items() - flat(now).items() <= {(name_of(name), value) for value in flat(before).values()}
    load_settings(tmp_path, environ={})

    unset_value(str(path), parse_name(name))
    assert name_of(name) not in flat(tomllib.loads(path.read_text()))


def name_of(name: str) -> str:
    return "/".join(parse_name(name))


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in table.items():
        found |= flat(value, f"{prefix}{name}/") if isinstance(value, dict) else {f"{prefix}{name}": repr(value)}
    return found


def test_a_new_file_is_private_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "longshore.toml"
    put(path, "tenant", "x")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    put(path, "tenant", "y")
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["longshore.toml"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("network.alow", ["127.0.0.0/8"]),
        ("netwrk.allow", ["127.0.0.0/8"]),
        ("network.allow", ["nonsense"]),
        ("transfer.concurrency", ["0"]),
        ("transfer.concurrency", ["many"]),
        ("depot", ["/elsewhere"]),
        ("hosts.named", ["{}"]),
        ("hosts.a.example.speed", ["1"]),
    ],
)
def test_what_could_not_be_loaded_is_not_written(tmp_path: Path, name: str, words: list[str]) -> None:
    path = tmp_path / "longshore.toml"
    path.write_text(FILE)
    with pytest.raises(BadInput):
        put(path, name, *words)
    assert path.read_text() == FILE


@pytest.mark.parametrize("text", ['network = { allow = ["10.0.0.0/8"] }\n', 'network.allow = ["10.0.0.0/8"]\n'])
def test_a_form_that_is_not_understood_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "longshore.toml"
    path.write_text(text)
    with pytest.raises(LongshoreError, match="form"):
        put(path, "network.allow", "127.0.0.0/8")
    with pytest.raises(LongshoreError, match="form"):
        unset_value(str(path), ("network", "allow"))
    assert path.read_text() == text
