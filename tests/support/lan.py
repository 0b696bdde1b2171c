"""A small network of namespaces: one bridge here, one namespace with its own link per host. Needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import Self


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def possible() -> bool:
    """Tell whether this machine lets us make namespaces."""
    name = f"ls{os.getpid()}t"
    try:
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


class Lan:
    """The bridge; `address` is where servers of this side listen."""

    def __init__(self) -> None:
        number = os.getpid()
        self._net = f"10.{64 + (number >> 8) % 128}.{number % 256}"
        self._bridge = f"lsb{number}"
        self._hosts: list[str] = []
        self.address, self.cidr = f"{self._net}.1", f"{self._net}.0/24"
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    def join(self) -> str:
        """Make a host and give its namespace."""
        number = len(self._hosts)
        name = f"ls{os.getpid()}h{number}"
        self._hosts.append(name)
        _ip("netns", "add", name)
        _ip("link", "add", f"{name}o", "type", "veth", "peer", "name", f"{name}i")
        _ip("link", "set", f"{name}o", "master", self._bridge, "up")
        _ip("link", "set", f"{name}i", "netns", name)
        _ip("-n", name, "addr", "add", f"{self._net}.{number + 10}/24", "dev", f"{name}i")
        _ip("-n", name, "link", "set", f"{name}i", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        return name

    def pull(self, name: str) -> None:
        """Take a host's link down."""
        _ip("link", "set", f"{name}o", "down")

    def plug(self, name: str) -> None:
        """Bring it back."""
        _ip("link", "set", f"{name}o", "up")

    def close(self) -> None:
        """Remove what was made."""
        for name in self._hosts:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", name)
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._bridge)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
