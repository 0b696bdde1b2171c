"""The display on a terminal: one bar for everything, a few rows for what is going on, a line for failures."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from longshore.cli.output import clean, duration, size
from longshore.cli.watching import Score

ROWS: Final = 5
FRAMES_PER_S: Final = 8


class Display:
    """Redraws the score some times a second, in a thread of rich's own."""

    def __init__(self, score: Score, console: Console | None = None) -> None:
        self._score = score
        self._console = console or Console(stderr=True)
        self._live = Live(
            get_renderable=self.render,
            console=self._console,
            refresh_per_second=FRAMES_PER_S,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # results on the same terminal go above the display
            redirect_stderr=True,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    def render(self) -> RenderableType:
        """Draw how it stands now."""
        score, now = self._score, time.monotonic()
        lines: list[RenderableType] = [_overall(score, now, self._console.width)]
        lines += [_row(one.url, one.bytes, one.size_bytes) for one in list(score.active.values())[:ROWS]]
        if len(score.active) > ROWS:
            lines.append(Text(f"  … and {len(score.active) - ROWS} more", style="dim"))
        if score.failed or score.retries:
            text = f"failed {score.failed}, to be tried again {score.retries}"
            last = f"; last: {clean(score.last_failure)}" if score.last_failure else ""
            lines.append(
                Text(text + last, style="red" if score.failed else "yellow", no_wrap=True, overflow="ellipsis")
            )
        return Group(*lines)


def _overall(score: Score, now: float, width: int) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=max(1, min(30, width - 50)))
    for _ in range(4):
        grid.add_column(no_wrap=True)
    total = float(score.total) if score.total else None
    left = score.eta_s(now)
    grid.add_row(
        ProgressBar(total=total, completed=score.ended, pulse=total is None, animation_time=now),
        f"{score.ended}/{score.total or '?'} items",
        size(score.bytes_now),
        f"{size(score.speed(now))}/s",
        f"ETA {duration(left)}" if left is not None else f"{duration(now - score.started_at)}",
    )
    return grid


def _row(url: str, nbytes: int, total: int | None) -> RenderableType:
    share = f"{100 * nbytes // total:3d}%" if total else "   …"
    row = Text(no_wrap=True, overflow="ellipsis")
    row.append(f"  {share} {size(nbytes) if nbytes else '':>9}  ", style="cyan")
    row.append(clean(url))
    return row
