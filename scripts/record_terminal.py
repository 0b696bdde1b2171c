"""`make recording`: record a real session with a kill -9 in the middle, as an asciinema cast and as a picture.

The site is the one of `make demo`, on loopback. A bash under a pseudo terminal gets the commands key by key; it reports each
prompt through a pipe, so that the next command is typed when the last one has ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shlex
import struct
import sys
import tempfile
import termios
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from scripts.demo import SOURCES, Quiet, Site, write_list
from scripts.terminal_picture import screen_of, svg

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDTH, HEIGHT = 96, 34
TITLE = "A list of 371 URLs, a kill -9 in the middle, and the same command again"
COMMANDS = (
    "wc -l list.txt",
    "longshore add list.txt",
    "timeout --signal=KILL 4 longshore run    # kill -9 in the middle",
    "longshore run",
    "longshore status",
    "longshore verify",
)
KEY_S, READ_S, LONGEST_WAIT_S = 0.035, 1.2, 60.0
PROMPT_FD = 9


@dataclass
class Recording:
    """What came out of the terminal, and when."""

    home: str
    began: float = field(default_factory=time.monotonic)
    events: list[tuple[float, str]] = field(default_factory=list)

    def hear(self, data: str) -> None:
        """Keep some output under its time; pieces of one moment are one event."""
        now = time.monotonic() - self.began
        if self.events and now - self.events[-1][0] < KEY_S / 2:
            now, before = self.events.pop()
            data = before + data
        self.events.append((now, data.replace(self.home, "~")))

    def cast(self) -> str:
        """Return the recording in the format asciicast v2."""
        header = {"version": 2, "width": WIDTH, "height": HEIGHT, "title": TITLE, "env": {"TERM": "xterm-256color"}}
        lines = [json.dumps(header), *(json.dumps([round(at, 3), "o", data]) for at, data in self.events)]
        return "\n".join(lines) + "\n"


class Terminal:
    """A shell under a pseudo terminal."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self._prompts, theirs = os.pipe()
        self.recording = Recording(str(home))
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(home)
            os.dup2(theirs, PROMPT_FD)
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], environment)
        os.close(theirs)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))

    def wait_for_prompt(self) -> None:
        """Record until the shell shows its prompt."""
        end = time.monotonic() + LONGEST_WAIT_S
        while time.monotonic() < end:
            ready, _, _ = select.select([self._fd, self._prompts], [], [], 0.1)
            if self._fd in ready:
                self._hear()
            elif self._prompts in ready:
                os.read(self._prompts, 1)
                self.listen(0.1)  # the prompt itself comes after its report
                return
        sys.exit(f"recording: no prompt within {LONGEST_WAIT_S:g} s")

    def listen(self, seconds: float) -> None:
        """Record for some time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._fd], [], [], left)[0]:
                self._hear()

    def type(self, line: str) -> None:
        """Type a line as a person does."""
        for key in line:
            os.write(self._fd, key.encode())
            self.listen(KEY_S)
        self.listen(READ_S / 3)
        os.write(self._fd, b"\n")

    def close(self) -> None:
        """Leave the shell."""
        os.write(self._fd, b"exit\n")
        os.waitpid(self.pid, 0)

    def _hear(self) -> None:
        self.recording.hear(os.read(self._fd, 65536).decode("utf-8", "replace"))


def environment(home: Path) -> dict[str, str]:
    """Return the shell's whole environment; `longshore` is this tree's."""
    program = home / ".bin" / "longshore"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m longshore "$@"\n')
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}:/usr/bin:/bin",
        "HOME": str(home),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "PS1": "$ ",
        "PROMPT_COMMAND": f"echo >&{PROMPT_FD}",
        "PYTHONPATH": str(SOURCES),
        "LONGSHORE_DEPOT": str(home / "depot"),
        "LONGSHORE_NETWORK__ALLOW": '["127.0.0.0/8"]',
        "LONGSHORE_RETRY__BASE_S": "0.2",
    }


def record(home: Path) -> Recording:
    """Type the session and return what the terminal showed."""
    terminal = Terminal(home, environment(home))
    terminal.wait_for_prompt()
    for command in COMMANDS:
        terminal.type(command)
        terminal.wait_for_prompt()
        terminal.listen(READ_S)
    terminal.close()
    return terminal.recording


def serve() -> Quiet:
    """Start the site: on the same port each time if it is free, so that two recordings differ little."""
    try:
        return Quiet(("127.0.0.1", 8080), Site)
    except OSError:
        return Quiet(("127.0.0.1", 0), Site)


def main() -> None:
    """Write docs/images/session.cast and session.svg."""
    Site.delay_s = 0.15
    server = serve()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="recording-") as folder:
        write_list(Path(folder, "list.txt"), f"http://127.0.0.1:{server.server_address[1]}")
        recording = record(Path(folder))
    server.shutdown()
    (IMAGES / "session.cast").write_text(recording.cast())
    screen = screen_of((data for _, data in recording.events), WIDTH, HEIGHT)
    (IMAGES / "session.svg").write_text(svg(screen, TITLE))
    print(f"{recording.events[-1][0]:.1f} s, {len(recording.events)} events")


if __name__ == "__main__":
    main()
