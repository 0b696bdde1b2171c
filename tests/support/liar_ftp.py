"""An FTP server that says of its one file what the test wants, and sends what the test wants."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from typing import Self


@dataclass
class LiarFtp:
    """Answers SIZE, MDTM and RETR with exactly these lines; `end=None` closes the control connection after the data."""

    data: bytes
    size: str = "502 no SIZE here"
    begin: str = "150 here it comes"
    end: str | None = "226 done"
    mdtm: str = "502 no MDTM here"
    rest: str | None = None
    greeting: str = "220 ready"
    refuse: dict[str, str] = field(default_factory=dict)  # replies to commands; such a RETR sends nothing
    commands: list[str] = field(default_factory=list)
    once: tuple[bytes, str | None] | None = (
        None  # data and end of the first RETR, if they differ; an empty end never comes
    )

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def url(self, name: str = "f") -> str:
        return f"ftp://127.0.0.1:{self._listener.getsockname()[1]}/{name}"

    def count(self, verb: str) -> int:
        return sum(command.split(" ")[0] == verb for command in self.commands)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            sock.sendall(f"{self.greeting}\r\n".encode())
            start, data = 0, socket.create_server(("127.0.0.1", 0))
            with data:
                for raw in sock.makefile("rb"):
                    line = raw.decode("latin-1").strip()
                    self.commands.append(line)
                    verb, _, argument = line.partition(" ")
                    if verb == "REST" and self.rest is None:
                        start = int(argument)
                    if verb == "RETR" and verb not in self.refuse:
                        sock.sendall(f"{self.begin}\r\n".encode())
                        content, end = self._now()
                        self._send(data, content[start:])
                        if end is None:
                            return
                        if end == "":
                            sock.recv(1)  # until the client leaves
                            return
                        sock.sendall(f"{end}\r\n".encode())
                        continue
                    sock.sendall(f"{self._reply(verb, data)}\r\n".encode())
                    if verb == "QUIT":
                        return

    def _now(self) -> tuple[bytes, str | None]:
        return self.once if self.once is not None and self.count("RETR") == 1 else (self.data, self.end)

    def _send(self, data: socket.socket, content: bytes) -> None:
        peer, _ = data.accept()
        with peer, contextlib.suppress(OSError):
            peer.sendall(content)

    def _reply(self, verb: str, data: socket.socket) -> str:
        replies = {
            "USER": "331 and the password",
            "PASS": "230 come in",
            "PWD": '257 "/"',
            "CWD": "250 there",
            "TYPE": "200 binary",
            "EPSV": f"229 (|||{data.getsockname()[1]}|)",
            "SIZE": self.size,
            "MDTM": self.mdtm,
            "REST": self.rest or "350 from there",
            "QUIT": "221 bye",
        }
        return {**replies, **self.refuse}.get(verb, "500 what?")
