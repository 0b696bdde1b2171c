"""A worker as a process of its own: `python -m tests.worker.child DEPOT [run|get] URL…`; settings by environment."""

from __future__ import annotations

import sys

import longshore


def main() -> None:
    where, *urls = sys.argv[1:]
    with longshore.open(where) as depot:
        depot.add(urls)
        result = depot.run(handle_signals=True)
        print(result.completed, result.failed, result.left, result.stopped_by)


if __name__ == "__main__":
    main()
