"""The program on a real terminal: what a person sees, frame by frame."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping

from tests.support.program import PATIENCE_S, command, environment

_REDRAW = re.compile(r"(?:\r?\x1b\[2K|\x1b\[1A)+")  # how the display goes back to its first line
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A process whose three streams are one pseudo-terminal; everything it writes is kept."""

    def __init__(self, *arguments: object, env: Mapping[str, str] | None = None, columns: int = 120) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        more = {"TERM": "xterm-256color"} | dict(env or {})
        self.process = subprocess.Popen(
            command(*arguments), env=environment(more), stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self._ours, self._pieces = ours, list[bytes]()
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(self._ours, 65_536):
                self._pieces.append(piece)

    @property
    def raw(self) -> str:
        return b"".join(list(self._pieces)).decode(errors="replace")

    @property
    def frames(self) -> list[str]:
        """What was on the screen between two redraws, without control sequences."""
        return [_CONTROL.sub("", frame).replace("\r", "") for frame in _REDRAW.split(self.raw)]

    @property
    def text(self) -> str:
        return "".join(self.frames)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        code = self.process.wait(timeout_s)
        self._reader.join(PATIENCE_S)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(PATIENCE_S)
        os.close(self._ours)


@contextlib.contextmanager
def on_terminal(*arguments: object, env: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    """Start the program on a terminal; it is gone when the block is left."""
    terminal = Terminal(*arguments, env=env)
    try:
        yield terminal
    finally:
        terminal.close()


def unexplained(frames: list[str]) -> list[str]:
    """Return the frames that show no bytes without a reason: beside the rate, or in a line of what is waited for."""
    return [frame for frame in frames if re.search(r"\b0 B/s(?! \()", frame) and "waiting  " not in frame]
