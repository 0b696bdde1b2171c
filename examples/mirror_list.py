"""Fetch a list and print the result of each line: `python examples/mirror_list.py DEPOT LIST.txt`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import longshore


def main(where: str, urls: Iterable[str], **settings: Any) -> dict[str, str]:
    """Return the local path, or the reason of the failure, of every URL."""
    with longshore.open(where, **settings) as depot:
        return {got.url or "": str(got.path) if got.ok else f"{got.reason}: {got.message}" for got in depot.get(urls)}


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as lines:
        for url, outcome in main(sys.argv[1], (line.strip() for line in lines if line.strip())).items():
            print(f"{outcome}\t{url}")
