"""The crash matrix: the results of the last `make torture`, stored in docs/matrix.json and rendered in docs/proof.md.

python -m scripts.matrix build/matrix    # import the results of the last run, then render
python -m scripts.matrix                 # render again from docs/matrix.json
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "matrix.json"
PAGE = ROOT / "docs" / "proof.md"
BEGIN, END = "<!-- matrix: made by scripts/matrix.py -->", "<!-- matrix ends -->"


def collected(directory: Path) -> dict[str, Any]:
    """Read the results of every process of a run."""
    lines = [line for path in sorted(directory.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    cells: dict[str, str] = {}
    for entry in map(json.loads, lines):
        cells[" | ".join((entry["engine"], entry["fault"], entry["step"]))] = entry["outcome"]
    return {"on": datetime.now(UTC).date().isoformat(), "cells": dict(sorted(cells.items()))}


def drawn(results: dict[str, Any]) -> str:
    """Render the table: a row per step, a column per fault; the numbers refer to the outcomes."""
    cells = {tuple(name.split(" | ")): outcome for name, outcome in results["cells"].items()}
    outcomes = sorted(set(cells.values()))
    columns = sorted({name[:2] for name in cells}, key=lambda pair: (pair[0] != "SQLite", pair[1]))
    steps = sorted({name[2] for name in cells})
    lines = [f"{len(cells)} runs of {results['on']}, each of them ended with every file there once and right:", ""]
    lines += [f"{number}. {outcome}" for number, outcome in enumerate(outcomes, 1)]
    lines += ["", "| step | " + " | ".join(f"{fault} ({engine})" for engine, fault in columns) + " |"]
    lines += ["|---" * (len(columns) + 1) + "|"]
    for step in steps:
        found = [cells.get((*column, step)) for column in columns]
        numbers = [str(outcomes.index(outcome) + 1) if outcome else "not run" for outcome in found]
        lines.append(f"| `{step}` | " + " | ".join(numbers) + " |")
    return "\n".join(lines)


def with_matrix(page: str, results: dict[str, Any]) -> str:
    """Insert the table between its markers on the page."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{drawn(results)}\n\n{END}{after}"


def main() -> None:
    """Import a run's results, if given, and render the page."""
    if len(sys.argv) > 1:
        results = collected(Path(sys.argv[1]))
        if not results["cells"]:
            sys.exit(f"{sys.argv[1]} contains no results")
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    PAGE.write_text(with_matrix(PAGE.read_text("utf-8"), json.loads(RESULTS.read_text("utf-8"))), "utf-8")


if __name__ == "__main__":
    main()
