"""A long list as people have them, and the servers that it names: eight hosts that answer, two dead ones, one unknown name.

The same seed makes the same list. The servers know the hash of every right file, so that a wrong one is found whoever
kept it, and count the requests of every path.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.support.origin import Behaviour, Origin, Thing, cut, drip, redirect, stamped, status

HOSTS: Final = 8
BODIES: Final = 2_000  # different files; several URLs have the same one
RETRY_AFTER_S: Final = 2
NO_SUCH_HOST: Final = "no-such-name.invalid"
LEAST: Final = 6  # lines of each kind, in a short list too
KINDS: Final = {  # lines of 10,000; all others are answered at once
    "gone": 200, "removed": 50, "login": 150, "moved": 300, "busy": 60, "broken": 40, "slow": 20, "cut": 30,
    "never_whole": 5, "refused": 16, "silent": 10, "no_name": 10,
}  # fmt: skip
DEFINITE: Final = frozenset({"gone", "removed"})
STORED: Final = frozenset({"plain", "moved", "busy", "broken", "slow", "cut"})
LOGIN: Final = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body><form>Password</form></body></html>"


class BigList:
    """The lines, and what is right for each."""

    def __init__(self, count: int, hosts: list[Origin], refused: str, silent: str, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._hosts, self._dead = hosts, {"refused": refused, "silent": silent, "no_name": NO_SUCH_HOST}
        self.kinds: dict[str, str] = {}  # by URL
        self.sha256: dict[str, str] = {}  # of the URLs that have a right file
        self.retry_after_s = 0  # all waits that servers asked for, one after the other
        self._busy: Counter[str] = Counter()
        doubles = count // 54
        kinds = [kind for kind, share in KINDS.items() for _ in range(max(LEAST, share * count // 10_000))]
        kinds += ["plain"] * (count - doubles - len(kinds))
        self._random.shuffle(kinds)
        urls = [self._url(number, kind) for number, kind in enumerate(kinds)]
        self.retry_after_s = RETRY_AFTER_S * max(self._busy.values(), default=0)
        self.lines = [*urls, *self._random.sample(urls, doubles)]

    @property
    def known(self) -> set[str]:
        """The hashes of all right files."""
        return set(self.sha256.values())

    def of(self, *kinds: str) -> list[str]:
        """Return the URLs of these kinds."""
        return [url for url, kind in self.kinds.items() if kind in kinds]

    def requests(self) -> Counter[str]:
        """Count the GET requests by URL."""
        return Counter(host.url(one.path) for host in self._hosts for one in list(host.requests) if one.method == "GET")

    def _url(self, number: int, kind: str) -> str:
        if kind in self._dead:
            url = f"http://{self._dead[kind]}/{number}.pdf"
        else:
            host = self._random.choice(self._hosts[:2] if kind == "busy" else self._hosts)
            thing = Thing(body_of(number % BODIES), content_type="application/pdf", etag=f'"{number}"')
            url = host.add(f"/{kind}/{number}.pdf", *self._behaviours(kind, number, thing))
            self._busy[host.host] += kind == "busy"
            if kind in STORED:
                self.sha256[url] = hashlib.sha256(thing.body).hexdigest()
        self.kinds[url] = kind
        return url

    def _behaviours(self, kind: str, number: int, thing: Thing) -> list[Behaviour]:
        page = Thing(LOGIN, content_type="text/html; charset=utf-8", etag=None)
        if kind == "moved":
            return [redirect(self._random.choice(self._hosts).add(f"/target/{number}.pdf", thing))]
        scripts: dict[str, list[Behaviour]] = {
            "gone": [status(404)],
            "removed": [status(410)],
            "login": [page],
            "busy": [status(429, b"", Retry_After=str(RETRY_AFTER_S)), thing],
            "broken": [status(503), thing],
            "slow": [drip(thing, len(thing.body) // 4, 0.5)],
            "cut": [cut(thing, len(thing.body) // 2), thing],
            "never_whole": [cut(Thing(thing.body, etag=None, ranges=False), len(thing.body) // 2)],
        }
        return scripts.get(kind, [thing])


def body_of(number: int) -> bytes:
    """Return one of the files: 1 to 16 KiB."""
    return b"%PDF-1.4\n" + stamped(number, 1024 * (1 + number % 16)) + b"\ntrailer\n<<>>\n%%EOF\n"


@contextmanager
def silent_host(address: str = "127.0.0.10") -> Iterator[str]:
    """A port whose queue of connections is full: the system drops every further one."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind((address, 0))
        listener.listen(0)
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield f"{address}:{listener.getsockname()[1]}"


@contextmanager
def big_list(count: int, seed: int = 1) -> Iterator[BigList]:
    """Serve a list of so many lines during the block."""
    with contextlib.ExitStack() as stack:
        hosts = [stack.enter_context(Origin(f"127.0.0.{11 + n}")) for n in range(HOSTS)]
        taken = stack.enter_context(socket.socket())
        taken.bind(("127.0.0.9", 0))  # bound, and nothing listens
        refused = f"127.0.0.9:{taken.getsockname()[1]}"
        yield BigList(count, hosts, refused, stack.enter_context(silent_host()), seed)


def wrong_files(directory: Path, known: set[str]) -> list[str]:
    """Return the files in a directory that no server has: pages, pieces, mixtures. Marked incomplete ones do not count."""
    found = [path for path in directory.rglob("*") if path.is_file() and path.suffix != ".aria2"]
    whole = (path for path in found if not path.with_name(f"{path.name}.aria2").exists())
    return [path.name for path in whole if hashlib.sha256(path.read_bytes()).hexdigest() not in known]


def host_of(url: str) -> str:
    """Return host and port as events name them."""
    return urlsplit(url).netloc
