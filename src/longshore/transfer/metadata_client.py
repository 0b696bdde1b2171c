"""The client for metadata: lists and pages of an API, with a cache on disk. Artifacts never go through it.

It uses the same transfers as downloads do (network policy, credentials, limits, redaction), and the rules of
`domain.transfer.http_cache`. An entry is one private file, named by a hash over the tenant, the URL and everything else that is
sent, so neither a secret nor another tenant's answer can be found by its name. It appears whole (rename), carries the hash of
its body, and counts as absent if it cannot be read. Nothing here needs to be durable: what a crash takes is fetched again.

Not stored: answers behind redirects, because a redirect has a lifetime of its own; bodies whose end cannot be told from a
cut; anything while a cookie file is in use, because the answer may depend on it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from longshore.config.credentials import credentials, with_netrc
from longshore.domain.policy.redaction import safe_url
from longshore.domain.reasons import Kind, reason_named
from longshore.domain.transfer.credentials import credential_for
from longshore.domain.transfer.http_cache import (
    KEPT_HEADERS,
    CacheEntry,
    Use,
    answers_failure,
    confirmed,
    decide,
    is_storable,
)
from longshore.domain.transfer.redirects import read_target
from longshore.errors import Reasoned
from longshore.transfer.api import FetchRequest, Memory

if TYPE_CHECKING:
    from longshore.domain.settings import Settings
    from longshore.domain.transfer.response_head import Head
    from longshore.transfer.client import Transfer

FOLDER: Final = "metadata"  # in the depot
DEADLINE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Metadata:
    """An answer."""

    body: bytes
    headers: dict[str, str]
    source: str  # `fetched`, `stored`, `validated`, or `stale` if it is older than the server allowed


class Checked(Memory):
    """A sink that may refuse a head before the body comes."""

    def __init__(self, check: Callable[[Head], None] | None) -> None:
        super().__init__()
        self._check = check

    def begin(self, head: Head) -> None:
        """Refuse or accept the head of a body."""
        if self._check is not None and head.status == 200:
            self._check(head)
        super().begin(head)


class MetadataCache:
    """Entries on disk, bounded in size: the ones that were not used for longest go first."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder, self._most = folder, most_bytes

    def read(self, key: str) -> tuple[CacheEntry, bytes] | None:
        """Return an entry; None if there is none, or if it is damaged."""
        path = self._folder / key
        try:
            head, _, body = path.read_bytes().partition(b"\n")
            said = json.loads(head)
            if hashlib.sha256(body).hexdigest() != said["sha256"]:
                return None
            entry = CacheEntry(float(said["requested_at"]), float(said["received_at"]), dict(said["headers"]))
            os.utime(path)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return entry, body

    def write(self, key: str, entry: CacheEntry, body: bytes) -> None:
        """Keep an entry, if it fits; failures of the disk are ignored."""
        said = {
            "sha256": hashlib.sha256(body).hexdigest(),
            "requested_at": entry.requested_at,
            "received_at": entry.received_at,
            "headers": dict(entry.headers),
        }
        content = json.dumps(said).encode() + b"\n" + body
        if len(content) > self._most:
            self.forget(key)
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._make_room(len(content), key)
            descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=".")
            try:
                with open(descriptor, "wb") as out:
                    out.write(content)
                os.replace(name, self._folder / key)
            except OSError:
                Path(name).unlink(missing_ok=True)
                raise

    def forget(self, key: str) -> None:
        """Remove an entry."""
        with contextlib.suppress(OSError):
            (self._folder / key).unlink(missing_ok=True)

    def _make_room(self, size: int, key: str) -> None:
        """Remove what was not used for longest, also files that a killed process left."""
        found = []
        for item in os.scandir(self._folder):
            if item.name != key and item.is_file(follow_symlinks=False):
                known = item.stat(follow_symlinks=False)
                found.append((known.st_mtime, known.st_size, item.path))
        total = size + sum(used for _, used, _ in found)
        for _, used, path in sorted(found):
            if total <= self._most:
                break
            Path(path).unlink(missing_ok=True)
            total -= used


class MetadataClient:
    """Fetches metadata for one tenant. A depot that does not exist yet gets no cache."""

    def __init__(
        self, transfer: Transfer, settings: Settings, tenant: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._transfer, self._settings, self._tenant, self._clock = transfer, settings, tenant, clock
        self._logins = with_netrc(credentials(settings), settings.network.netrc)
        folder = Path(settings.depot)
        cached = settings.metadata.cache_bytes and not settings.network.cookies and settings.depot and folder.is_dir()
        self._cache = MetadataCache(folder / FOLDER, settings.metadata.cache_bytes) if cached else None

    async def get(self, url: str, *, refresh: bool = False, check: Callable[[Head], None] | None = None) -> Metadata:
        """Return what a URL has, from the cache where the server allows it; raise `Reasoned` if that cannot be had.

        With `refresh`, the server is asked in any case. `check` may refuse an answer by its head.
        """
        key = self._key(url)
        known = self._cache.read(key) if self._cache and key else None
        entry, body = known or (None, b"")
        use = decide(entry, self._clock(), offline=self._settings.offline, refresh=refresh)
        if use is Use.NOTHING:
            raise Reasoned("offline", f"offline, and {safe_url(url)} is not in the cache of metadata")
        if use is Use.STORED and entry is not None:
            return Metadata(body, dict(entry.headers), "stored")
        try:
            return await self._ask(url, key, entry if use is Use.VALIDATE else None, body, check)
        except Reasoned as error:
            if (
                entry is None
                or reason_named(error.reason).kind is not Kind.TRANSIENT
                or not answers_failure(entry, self._clock())
            ):
                raise
            return Metadata(body, dict(entry.headers), "stale")

    async def _ask(
        self, url: str, key: str | None, entry: CacheEntry | None, body: bytes, check: Callable[[Head], None] | None
    ) -> Metadata:
        old = entry.headers if entry is not None else {}
        ask = FetchRequest(
            url,
            tenant=self._tenant,
            if_none_match=old.get("etag"),
            if_modified_since=old.get("last-modified") if "etag" not in old else None,
            max_bytes=self._settings.metadata.max_bytes,
            deadline_s=self._settings.transfer.deadline_s or DEADLINE_S,
        )
        sink, requested_at = Checked(check), self._clock()
        answer = await self._transfer.fetch(ask, sink)
        head = answer.head
        kept: dict[str, str] = {name: head.headers[name] for name in KEPT_HEADERS if name in head.headers}
        received = CacheEntry(requested_at, self._clock(), kept)
        if head.status == 304 and entry is not None:
            joined = confirmed(entry, received)
            if joined is None or head.hops:  # about another version, or of another resource
                return await self._ask(url, key, None, b"", check)
            self._keep(key, joined, body, storable=is_storable(200, joined.headers))
            return Metadata(body, dict(joined.headers), "validated")
        whole = sink.body
        storable = is_storable(head.status, kept) and head.delimited and not head.hops and head.decoding is None
        self._keep(key, received, whole, storable=storable)
        return Metadata(whole, kept, "fetched")

    def _keep(self, key: str | None, entry: CacheEntry, body: bytes, *, storable: bool) -> None:
        if self._cache is None or key is None:
            return
        if storable:
            self._cache.write(key, entry, body)
        else:
            self._cache.forget(key)

    def _key(self, url: str) -> str | None:
        """Hash everything that selects an answer; None for schemes without cache semantics."""
        target = read_target(url)
        if target.scheme not in ("http", "https"):
            return None
        login = credential_for(self._logins, target.scheme, target.host, target.hostname, self._tenant)
        secret = None
        if login is not None:
            secret = [login.username, login.password, login.token, login.headers]
        asked = [self._tenant, target.url, target.username, target.password, secret, self._settings.network.user_agent]
        return hashlib.sha256(json.dumps(["longshore-metadata", 1, *asked]).encode()).hexdigest()
