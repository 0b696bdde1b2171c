"""Commands that only plan or read load neither libcurl nor the worker."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import Box
from tests.support.program import environment

PROGRAM = "import sys; from longshore.cli.run_command import run\nassert run(sys.argv[1:]) == 0\nprint(*sys.modules, file=sys.stderr)"
HEAVY = {
    "pycurl",
    "longshore.transfer",
    "longshore.worker.loop",
    "longshore.worker.runtime",
    "longshore.depot.async_depot",
}


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "list"),
        ("status",),
        ("jobs",),
        ("failures",),
        ("stats",),
        ("export", "manifest"),
        ("purge", "--dry-run"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_that_fetches_nothing_loads_no_engine(box: Box, arguments: tuple[str, ...]) -> None:
    listing = str(box.write("list", "https://a.example/1\n"))
    box("add", listing).ok()
    given = [listing if word == "list" else word for word in arguments]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *given], capture_output=True, text=True, env=environment(box.env), check=False
    )
    assert done.returncode == 0, done.stderr
    assert HEAVY.isdisjoint(done.stderr.split())
