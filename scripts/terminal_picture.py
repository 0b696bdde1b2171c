"""Render the cells of a terminal as an SVG without scripts, fonts or links."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from typing import Any

import pyte

CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 18, 14
NO_BREAK = "\u00a0"  # renderers of SVG join plain spaces
BACKGROUND, FOREGROUND = "#14191f", "#d5dbe1"
COLORS = {
    "black": "#3b4048",
    "red": "#f07178",
    "green": "#8fd19e",
    "brown": "#e6c07b",
    "blue": "#73b7ff",
    "magenta": "#d6a0ff",
    "cyan": "#6fd3d0",
    "white": "#ffffff",
    "default": FOREGROUND,
}


def screen_of(pieces: Iterable[str], width: int, height: int) -> pyte.Screen:
    """Return the screen after the output of a session."""
    screen = pyte.Screen(width, height)
    stream = pyte.Stream(screen)
    for piece in pieces:
        stream.feed(piece)
    return screen


def svg(screen: pyte.Screen, title: str) -> str:
    """Return the picture of a screen, without the empty lines at its end."""
    rows = len("\n".join(screen.display).rstrip().splitlines())
    width, height = screen.columns * CELL_WIDTH + 2 * MARGIN, rows * CELL_HEIGHT + 2 * MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
            '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14">',
            *(line for row in range(rows) for line in _runs(screen, row)),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _runs(screen: pyte.Screen, row: int) -> Iterator[str]:
    """Yield one text element per run of cells that look the same."""
    cells = [(column, screen.buffer[row][column]) for column in range(screen.columns)]
    y = MARGIN + row * CELL_HEIGHT + 13
    for (color, bold), run in groupby(cells, key=lambda cell: (cell[1].fg, cell[1].bold)):
        found = list(run)
        text = "".join(cell.data for _, cell in found)
        first = len(text) - len(text.lstrip())
        if text := text.strip():
            x = MARGIN + (found[0][0] + first) * CELL_WIDTH
            weight = ' font-weight="bold"' if bold else ""
            length = f' textLength="{len(text) * CELL_WIDTH:g}"'  # the same columns in every font
            yield f'<text x="{x:g}" y="{y}" fill="{_color(color)}"{weight}{length}>{escape(text).replace(" ", NO_BREAK)}</text>'


def _color(name: Any) -> str:
    plain = str(name).removeprefix("bright")
    return COLORS.get(plain) or f"#{plain}"
