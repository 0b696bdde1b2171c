"""The display on a terminal: an overall bar, a few rows for running transfers, a line for failures."""

from __future__ import annotations

import io
import sys
import time
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from types import TracebackType
from typing import Final, Self, TextIO, cast

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from longshore.cli.output.progress import ProgressCounts, rate_text
from longshore.cli.output.writer import clean, duration, size

ROWS: Final = 5
FRAMES_PER_S: Final = 8


class Display:
    """Redraws the score a few times a second, in rich's own thread."""

    def __init__(self, score: ProgressCounts, console: Console | None = None) -> None:
        self._score = score
        self._console = console or Console(file=sys.stderr)  # the original stderr, even while it is redirected
        self._live = Live(
            get_renderable=self.render,
            console=self._console,
            refresh_per_second=FRAMES_PER_S,
            transient=True,
            redirect_stdout=False,  # rich would break lines between words: a path must stay whole to be copied
            redirect_stderr=False,
        )
        self._redirected = ExitStack()

    def __enter__(self) -> Self:
        self._live.start()
        above = cast("TextIO", Above(self._console))
        self._redirected.enter_context(redirect_stderr(above))
        if sys.stdout.isatty():  # results on the same terminal go above the display
            self._redirected.enter_context(redirect_stdout(above))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._redirected.close()
        self._live.stop()

    def render(self) -> RenderableType:
        """Draw the current state."""
        score, now = self._score, time.monotonic()
        width = self._console.width
        lines: list[RenderableType] = [_overall(score, now, width)]
        lines += [_row(one.url, one.bytes, one.size_bytes, width) for one in list(score.active.values())[:ROWS]]
        if len(score.active) > ROWS:
            lines.append(Text(f"  … and {len(score.active) - ROWS} more", style="dim"))
        lines += [
            Text(clean(line), style="yellow", no_wrap=True, overflow="ellipsis")
            for line in score.waiting(now, brief=True)[:ROWS]
        ]
        if score.elsewhere:
            lines.append(Text(f"{score.elsewhere} of them by other workers", style="dim", no_wrap=True))
        if score.failed or score.retries:
            text = f"failed {score.failed}, tried again {score.retries}"
            last = f"; last: {clean(score.last_failure)}" if score.last_failure else ""
            lines.append(
                Text(text + last, style="red" if score.failed else "yellow", no_wrap=True, overflow="ellipsis")
            )
        return Group(*lines)


class Above(io.TextIOBase):
    """A stream whose lines appear above the display unchanged; the terminal wraps long lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rest = ""

    def write(self, text: str) -> int:
        """Accept text; show complete lines at once."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._console.out(line, highlight=False)
        return len(text)

    def isatty(self) -> bool:
        """Return True: it stands for a terminal."""
        return True


def _overall(score: ProgressCounts, now: float, width: int) -> RenderableType:
    total, done = float(score.total) if score.total else None, float(score.ended)
    if score.total == 1 and score.bytes_left() is not None:  # one file: the bar is its bytes
        total, done = float(score.bytes_left() or 0) + score.bytes_now, float(score.bytes_now)
    left = score.eta_s(now)
    words = [
        f"{score.ended}/{score.total or '?'} items",
        size(score.bytes_now),
        rate_text(score, now),
        f"ETA {duration(left)}" if left is not None else duration(now - score.started_at),
    ]
    text = "  ".join(words)
    grid = Table.grid(padding=(0, 1))
    if (room := min(40, width - len(text) - 2)) >= 5:
        grid.add_column(width=room)
        grid.add_column(no_wrap=True)
        grid.add_row(ProgressBar(total=total, completed=done, pulse=total is None, animation_time=now), text)
        return grid
    return Text(text, no_wrap=True, overflow="ellipsis")


def _row(url: str, nbytes: int, total: int | None, width: int) -> RenderableType:
    share = f"{100 * nbytes // total:3d}%" if total else "   …"
    row = Text(no_wrap=True, overflow="ellipsis")
    row.append(f"  {share} {size(nbytes) if nbytes else '':>9}  ", style="cyan")
    row.append(shortened(clean(url), width - row.cell_len))
    return row


def shortened(url: str, room: int) -> str:
    """Shorten a URL to fit a row; keep its end, where URLs usually differ."""
    url = url.partition("://")[2] or url
    if cell_len(url) <= room or room < 12:
        return url
    return f"{url[: room // 3]}…{url[len(url) - (room - room // 3 - 1) :]}"
