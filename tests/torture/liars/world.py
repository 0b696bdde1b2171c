"""A world of liars: objects on several servers that change, redirect, cut, stall and answer each caller differently.

A scenario is plain data (JSON), so that a failure that hypothesis has shrunk can be kept as a script and played again.
The bytes of every (object, version, caller) are unique in every block: a mix of any two shows.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import socket
import ssl
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import trustme

from tests.support import origin as lies
from tests.support.h2_origin import H2Origin
from tests.support.liar_ftp import LiarFtp
from tests.support.origin import Behaviour, Origin, Request, Thing, Wire

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
CALLERS = ("", "alice", "bob")
SMALL, LARGE = 5_000, 400_000  # in memory until it is published; streamed into a part
_BLOCK = 64


@dataclass(frozen=True)
class Act:
    """How one request for an object is answered. The last act of an object repeats."""

    kind: str  # see World._behaviour
    at: float = 0.5  # where in the body, for what ends early
    how: str = ""  # a variant
    target: int = 0  # of a redirect


@dataclass(frozen=True)
class Made:
    """One object of the world."""

    host: int = 0
    over: str = "h1"  # h1, h2 or ftp: each at an origin of its own
    large: bool = True
    validator: str = "strong"  # strong, shared (equal among objects of one size), weak, date, none
    per_caller: bool = False
    vary: bool = False
    page: bool = False  # an HTML page, declared as a PDF: never a result
    acts: tuple[Act, ...] = (Act("ok"),)


@dataclass(frozen=True)
class Step:
    """One thing that happens: a request, a change of an object, or damage on disk."""

    kind: str = "get"  # get, add, change, flip_blob, flip_part
    thing: int = 0
    mirrors: tuple[int, ...] = ()
    caller: int = 0
    expect: str = ""  # "", sha256, md5, size, wrong_sha256, wrong_md5, wrong_size
    mode: str = ""  # "", refresh, force
    segments: int = 1
    kill: str = ""  # a failpoint at which the process is killed; the step is then done again
    beside: bool = False  # at the same time as the step after it
    at: float = 0.5  # where a bit flips


@dataclass(frozen=True)
class Scenario:
    """A world and what happens in it."""

    made: tuple[Made, ...]
    steps: tuple[Step, ...]

    def script(self) -> str:
        """Write it down, to be kept."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def read(cls, text: str) -> Scenario:
        """Read what `script` wrote."""
        known = json.loads(text)
        made = tuple(Made(**{**one, "acts": tuple(Act(**act) for act in one["acts"])}) for one in known["made"])
        return cls(made, tuple(Step(**{**one, "mirrors": tuple(one["mirrors"])}) for one in known["steps"]))


def origin_of(made: Made) -> str:
    """Name the origin of an object: whom a request's own headers may go to."""
    return f"@{made.host}{made.over}"


class Trusted(NamedTuple):
    """An authority of our own, and what a server shows of it."""

    context: ssl.SSLContext
    ca_file: str


@functools.cache
def tls() -> Trusted:
    """Make one authority for this process."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*HOSTS).configure_cert(context)
    path = Path(tempfile.mkdtemp(prefix="longshore-liars-ca-"), "ca.pem")
    authority.cert_pem.write_to_path(str(path))
    return Trusted(context, str(path))


def body_of(index: int, made: Made, version: int, caller: str) -> bytes:
    """Return the one body that an object gives in one version to one caller."""
    size = (LARGE if made.large else SMALL) + _BLOCK * version
    start = b"<html><title>Sign in</title>" if made.page else b"%PDF-1.4\n"
    who = (caller if made.per_caller else "-").encode()
    blocks = (b"%03d v%06d %-8s o%012d %s\n" % (index, version, who, at, b"." * 26) for at in range(0, size, _BLOCK))
    return (start + b"".join(blocks))[:size]


class World:
    """The servers of a scenario, running."""

    def __init__(self, scenario: Scenario) -> None:
        self.made = scenario.made
        self.versions = [0] * len(self.made)
        self.requests: Counter[int] = Counter()
        self.leaks: list[str] = []  # credentials that went to another origin than the one they were given for
        self.says_unchanged: set[int] = set()  # objects that answered 304 whatever they hold
        self._played: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._origins: dict[str, Origin | H2Origin] = {}
        self._files: dict[int, FtpObject] = {}
        for index, made in enumerate(self.made):
            if made.over == "ftp":
                self._files[index] = FtpObject(self, index).__enter__()
            else:
                self._origin(made).add(f"/{index}.pdf", self._server(index))

    def _origin(self, made: Made) -> Origin | H2Origin:
        where = origin_of(made)
        if where not in self._origins:
            host = HOSTS[made.host]
            self._origins[where] = H2Origin(host, tls().context) if made.over == "h2" else Origin(host)
        return self._origins[where]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for origin in self._origins.values():
            origin.close()
        for file in self._files.values():
            file.__exit__()

    def url(self, index: int) -> str:
        if index in self._files:
            return self._files[index].url(f"{index}.pdf")
        return self._origin(self.made[index]).url(f"/{index}.pdf")

    def change(self, index: int) -> None:
        """Put another version in an object's place."""
        with self._lock:
            self.versions[index] += 1

    def reachable(self, starts: set[int]) -> set[int]:
        """Return every object that these lead to by any redirect they may ever answer."""
        found, left = set(starts), list(starts)
        while left:
            for act in self.made[left.pop()].acts:
                if act.kind == "redirect" and act.target not in found:
                    found.add(act.target)
                    left.append(act.target)
        return found

    def bodies(self, index: int, caller: str, since: int = 0) -> Iterator[bytes]:
        """Yield what an object may have given to a caller, from a version on."""
        for version in range(since, self.versions[index] + 1):
            yield body_of(index, self.made[index], version, caller)

    def next_act(self, index: int) -> tuple[Act, int]:
        """Return how an object answers this time, and in which version."""
        acts = self.made[index].acts
        with self._lock:
            self.requests[index] += 1
            act = acts[min(self._played[index], len(acts) - 1)]
            self._played[index] += 1
            if act.kind == "bump":
                self.versions[index] += 1
            return act, self.versions[index]

    def _server(self, index: int) -> Behaviour:
        def serve(request: Request, wire: Wire) -> None:
            made = self.made[index]
            act, version = self.next_act(index)
            caller = request.headers.get("authorization", "")
            if caller and not caller.endswith(origin_of(made)):
                self.leaks.append(f"{caller} came to {origin_of(made)}")
            self._behaviour(index, act, self._thing(index, version, caller.partition("@")[0]))(request, wire)

        return serve

    def _thing(self, index: int, version: int, caller: str) -> Thing:
        made = self.made[index]
        body = body_of(index, made, version, caller)
        etag, date = None, None
        if made.validator == "strong":
            etag = f'"{hashlib.sha256(body).hexdigest()[:12]}"'
        elif made.validator == "shared":
            etag = f'"{len(body):x}"'
        elif made.validator == "weak":
            etag = f'W/"{len(body):x}"'
        elif made.validator == "date":
            date = f"Mon, {6 + version % 20:02d} Jan 2020 10:00:00 GMT"
        extra = {"Vary": "Authorization"} if made.vary else {}
        return Thing(body, etag=etag, last_modified=date, content_type="application/pdf", extra=extra)

    def _behaviour(self, index: int, act: Act, thing: Thing) -> Behaviour:
        upto = int(len(thing.body) * act.at)
        match act.kind:
            case "ok" | "bump":
                return thing if act.how != "plain" else dataclasses.replace(thing, ranges=False)
            case "chunked" if self.made[index].over == "h2":  # there a body without a length just ends, or does not
                return lies.close_delimited(thing) if not act.how else lies.cut(thing, upto)
            case "chunked":
                return lies.chunked(thing, 20_000, end=b"" if act.how == "open" else b"0\r\n\r\n")
            case "closed":
                return lies.close_delimited(thing, upto if act.how == "short" else None)
            case "cut":
                return lies.cut(thing, upto, act.how or "hangup")
            case "overlong":
                return lies.overlong(thing, b"x" * 100)
            case "encoded":
                return lies.encoded(thing)
            case "bad_range":
                return lies.bad_range(thing, act.how)
            case "unsatisfiable":
                return lies.unsatisfiable(thing, upto if act.how else None)
            case "redirect":
                return lies.redirect(self.url(act.target), int(act.how or 302))
            case "status":
                return lies.status(int(act.how))
            case "digest":
                return dataclasses.replace(thing, extra={**thing.extra, "Repr-Digest": "sha-256=:" + "A" * 43 + "=:"})
            case "unchanged":
                self.says_unchanged.add(index)
                return lambda request, wire: (
                    wire.answer(304, {"ETag": request.headers.get("if-none-match")})
                    if "if-none-match" in request.headers
                    else thing(request, wire)
                )
            case _:
                raise AssertionError(act.kind)


class FtpObject(LiarFtp):
    """An object on an FTP server. A cut ends the data and is called complete; `closed` tells no size, `digest` a wrong one."""

    def __init__(self, world: World, index: int) -> None:
        super().__init__(b"")
        self._world, self._index = world, index

    def _reply(self, verb: str, data: socket.socket) -> str:
        if verb == "SIZE":
            self._begin()
        return super()._reply(verb, data)

    def _begin(self) -> None:
        act, version = self._world.next_act(self._index)
        body = body_of(self._index, self._world.made[self._index], version, "")
        upto = int(len(body) * act.at)
        self.data = body[:upto] if act.kind == "cut" or (act.kind, act.how) == ("closed", "short") else body
        sizes = {"closed": "502 no SIZE here", "digest": f"213 {upto}", "overlong": f"213 {len(body) - 5}"}
        self.size = sizes.get(act.kind, f"213 {len(body)}")
        self.end = None if act.how == "reset" else "226 done"


def expectation(kind: str, body: bytes) -> dict[str, Any]:
    """Return what a request expects: the truth about a body, or something else."""
    wrong = body + b"!" if kind.startswith("wrong_") else body
    match kind.removeprefix("wrong_"):
        case "sha256":
            return {"sha256": hashlib.sha256(wrong).hexdigest()}
        case "md5":
            return {"digests": [("md5", hashlib.md5(wrong, usedforsecurity=False).hexdigest())]}
        case "size":
            return {"size_bytes": len(wrong)}
        case _:
            return {}
