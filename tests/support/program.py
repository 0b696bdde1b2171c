"""Running the program: in this process for its words, as a process of its own for signals, crashes and start-up."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from jsonschema import Draft202012Validator, FormatChecker

SOURCES = Path(__file__).resolve().parents[2] / "src"
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Ran:
    """How a call of the program ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines of stdout, each checked against the schema that the package ships for its type."""
        lines = [json.loads(line) for line in self.stdout.splitlines()]
        for line in lines:
            schema_of(line["type"]).validate(line)
        return lines

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The JSON lines of one type."""
        return [line for line in self.lines if line["type"] == kind]

    def ok(self) -> Ran:
        """Go on only if it went well."""
        assert self.code == 0, f"exit {self.code}\n{self.stdout}\n{self.stderr}"
        return self


@functools.cache
def schema_of(kind: str) -> Draft202012Validator:
    """Read the shipped schema of a type of line."""
    path = SOURCES / "longshore" / "cli" / "schemas" / f"{kind}.json"
    return Draft202012Validator(json.loads(path.read_text()), format_checker=FormatChecker())


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give an environment without settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LONGSHORE_", "AWS_"))}
    packages = os.environ.get("PYTHONPATH")  # where `make test-pythons` puts what another Python needs
    path = os.pathsep.join(filter(None, (str(SOURCES), packages)))
    return kept | {"PYTHONPATH": path, "NO_COLOR": "1"} | dict(extra or {})


def invoke(*arguments: object, env: Mapping[str, str] | None = None, stdin: bytes = b"") -> Ran:
    """Run a command inside this process: fast, for what it says and how it ends."""
    from longshore.cli.run_command import run

    out, err = _Stream(), _Stream()
    given = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    with (
        mock.patch.dict(os.environ, environment(env), clear=True),
        mock.patch.object(sys, "stdin", given),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = run([str(argument) for argument in arguments])
    return Ran(code, out.text(), err.text())


class _Stream(io.TextIOWrapper):
    """A text stream that keeps what was written, bytes and all."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="\n")

    def text(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


def execute(
    *arguments: object, env: Mapping[str, str] | None = None, stdin: bytes | None = None, timeout_s: float = 120
) -> Ran:
    """Run a command as a process of its own."""
    done = subprocess.run(
        command(*arguments), env=environment(env), input=stdin or b"", capture_output=True, timeout=timeout_s
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def command(*arguments: object) -> list[str]:
    """Give the command line of a process."""
    return [sys.executable, "-m", "longshore", *(str(argument) for argument in arguments)]


class Started:
    """A process that is still running; its output goes to files so that no pipe can fill."""

    def __init__(self, directory: Path, *arguments: object, env: Mapping[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._out, self._err = directory / "stdout", directory / "stderr"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command(*arguments), env=environment(env), stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait until the system knows it."""
        self.process.kill()
        self.process.wait()

    def wait(self, timeout_s: float = PATIENCE_S) -> Ran:
        code = self.process.wait(timeout_s)
        return Ran(code, self.stdout, self.stderr)


@contextlib.contextmanager
def started(directory: Path, *arguments: object, env: Mapping[str, str] | None = None) -> Iterator[Started]:
    """Start the program in the background; it is gone when the block is left."""
    running = Started(directory, *arguments, env=env)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.kill()


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """Wait until a condition holds; the time limit is for a machine under load, not for a property."""
    end = time.monotonic() + timeout_s
    while True:
        if answer := condition():
            return answer
        assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """Find the processes that one started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def alive(pid: int) -> bool:
    """Tell whether a process runs (one that waits for its parent does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
