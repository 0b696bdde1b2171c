"""`longshore version`: versions for a bug report."""

from __future__ import annotations

import platform
import sys

import click

from longshore import __version__
from longshore.cli.options import Call, common


@click.command("version")
@common
def command(call: Call) -> int:
    """Show the version of the program and of its dependencies."""
    from importlib import metadata

    import apsw
    import pycurl

    curl = pycurl.version_info()
    facts = {
        "version": __version__,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "libcurl": str(curl[1]),
        "tls": str(curl[5]),
        "ada_url": metadata.version("ada-url"),
        "platform": platform.platform(),
        "executable": sys.executable,
    }
    if call.json:
        call.output.record("version", facts)
        return 0
    call.output.text(f"longshore {__version__}")
    if call.verbosity >= 0:
        for name, value in facts.items():
            if name != "version":
                call.output.text(f"  {name:<11} {value}")
    return 0
