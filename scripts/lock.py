"""Write requirements/runtime.txt and requirements/sbom.json: what an installation of `longshore[all]` consists of.

Both are made from requirements/dev.txt (pinned, with hashes) and the metadata of the installed packages, so they need no
network: `make setup`, then `python -m scripts.lock`. A test compares them.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[1]
PINNED: Final = ROOT / "requirements/dev.txt"
LOCK: Final = ROOT / "requirements/runtime.txt"
SBOM: Final = ROOT / "requirements/sbom.json"
HEADER: Final = """\
# What `longshore[all]` runs with, pinned and hashed. Made by `python -m scripts.lock` from dev.txt; do not edit.
# pip install --require-hashes -r requirements/runtime.txt && pip install --no-deps longshore
"""
ENTRY: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)[^\n]*(?:\n[ \t]+[^\n]*)*", re.MULTILINE)


def pinned() -> dict[str, tuple[str, str]]:
    """Return the entries of the development lock: version and text, by name."""
    found = ENTRY.finditer(PINNED.read_text("utf-8"))
    return {canonicalize_name(entry[1]): (entry[2], _without_comments(entry[0])) for entry in found}


def _without_comments(entry: str) -> str:
    return "\n".join(line for line in entry.splitlines() if not line.lstrip().startswith("#")).rstrip(" \\\n")


def wanted() -> Iterator[Requirement]:
    """Yield what the project itself asks for, all extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for text in (
        *project["dependencies"],
        *(one for many in project["optional-dependencies"].values() for one in many),
    ):
        if not text.startswith("longshore["):
            yield Requirement(text)


def closure(pins: dict[str, tuple[str, str]]) -> list[str]:
    """Return the names of all packages that are needed, in order; those of other platforms only if they are pinned."""
    seen: set[str] = set()
    waiting = list(wanted())
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name not in pins:
            continue
        extras = {"", *one.extras}
        seen.add(name)
        for text in metadata.requires(name) or ():
            below = Requirement(text)
            applies = below.marker is None or any(below.marker.evaluate({"extra": extra}) for extra in extras)
            if applies and (canonicalize_name(below.name) not in seen or below.extras):
                waiting.append(below)
    return sorted(seen)


def lock() -> str:
    """Return the text of the runtime lock."""
    pins = pinned()
    return HEADER + "".join(f"{pins[name][1]}\n" for name in closure(pins))


def sbom() -> str:
    """Return the list of components as CycloneDX 1.5, without anything that changes from run to run."""
    pins = pinned()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    body: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": project["name"], "bom-ref": project["name"]}},
        "components": [_component(name, *pins[name]) for name in closure(pins)],
    }
    lines = ",\n".join(json.dumps(part, separators=(",", ":")) for part in body.pop("components"))
    return json.dumps(body, separators=(",", ":"))[:-1] + ',"components":[\n' + lines + "\n]}\n"


def _component(name: str, version: str, text: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    found: Any = metadata.metadata(name)
    licence = found.get("License-Expression") or _classified(found) or (found.get("License") or "").partition("\n")[0]
    hashes = [{"alg": "SHA-256", "content": one} for one in sorted(re.findall(r"sha256:([0-9a-f]{64})", text))]
    body: dict[str, Any] = {"type": "library", "name": name, "version": version, "bom-ref": purl, "purl": purl}
    if licence:
        body["licenses"] = [{"license": {"name": licence[:200]}}]
    return body | {"hashes": hashes}


def _classified(found: Any) -> str:
    names = [line.rpartition(" :: ")[2] for line in found.get_all("Classifier") or () if line.startswith("License ::")]
    return ", ".join(sorted(names))


def main() -> None:
    """Write both files."""
    LOCK.write_text(lock(), "utf-8")
    SBOM.write_text(sbom(), "utf-8")


if __name__ == "__main__":
    main()
