"""The torrent client as we use it: few verbs, our errors, never an empty list of hashes.

An empty `hashes=` means *all torrents* to qBittorrent, so every verb checks its ids. A refused password is remembered:
asking again and again gets the address banned.
"""

from __future__ import annotations

import re
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from longshore.domain.settings import QbittorrentSettings, revealed
from longshore.domain.torrents.model import OURS_TAG, Identity, Seen
from longshore.errors import BadInput, LongshoreError

T = TypeVar("T")
BAN_S: Final = 3600.0  # qBittorrent's default
_ID = re.compile(r"[0-9a-f]{40}\Z")
_NO_ETA: Final = 8_640_000


class ClientAway(LongshoreError):
    """The torrent client does not answer; nothing is concluded from that."""

    hint = "start qBittorrent with its Web UI, or correct qbittorrent.url"


class ClientRefused(ClientAway):
    """The torrent client does not let us in."""

    hint = "check qbittorrent.username, qbittorrent.password or qbittorrent.api_key, then start again"


class NotAdded(LongshoreError):
    """The torrent client did not take the torrent (or has it already: it says the same in both cases)."""


@dataclass(frozen=True, slots=True)
class ClientFile:
    """One file of a torrent: its name below the save path."""

    name: str
    size_bytes: int
    progress: float
    wanted: bool


class Client:
    """qBittorrent's Web API. Blocking; calls from several threads queue."""

    def __init__(self, settings: QbittorrentSettings, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._shut_until = 0.0
        self._shut_why = ""
        self._api: Any = None
        self.url, self._headers = _without_credentials(settings.url)

    def _connect(self) -> Any:
        try:
            import qbittorrentapi
        except ImportError:
            raise LongshoreError(
                "torrents need the package qbittorrent-api", hint="install longshore[torrents]"
            ) from None
        return qbittorrentapi.Client(
            host=self.url,
            username=self.settings.username or None,
            password=revealed(self.settings.password) or None,
            api_key=revealed(self.settings.api_key) or None,
            EXTRA_HEADERS=self._headers,
            # No proxy and no netrc of the environment: neither was configured for this client.
            REQUESTS_ARGS={
                "timeout": (min(5.0, self.settings.timeout_s), self.settings.timeout_s),
                "proxies": {"http": "", "https": ""},
                "auth": _as_it_is,
            },
            HTTPADAPTER_ARGS={"max_retries": 0},  # the library tries twice by itself
            FORCE_SCHEME_FROM_HOST=True,
            SIMPLE_RESPONSES=True,
            DISABLE_LOGGING_DEBUG_OUTPUT=True,
        )

    def _call(self, ask: Callable[[Any], T], *, meant: tuple[type[Exception], ...] = ()) -> T:
        """Ask once; the library logs in again once when the session has ended. `meant`: answers that mean something."""
        from qbittorrentapi import exceptions as raised

        with self._lock:
            if self._monotonic() < self._shut_until:
                raise ClientRefused(self._shut_why)
            if self._api is None:
                self._api = self._connect()
            try:
                return ask(self._api)
            except raised.LoginFailed:
                raise self._shut("the torrent client refused user and password", float("inf")) from None
            except (raised.Forbidden403Error, raised.Unauthorized401Error):
                banned = not revealed(self.settings.api_key)
                why = "has banned this address after wrong passwords" if banned else "refused the API key"
                raise self._shut(f"the torrent client {why}", BAN_S if banned else float("inf")) from None
            except meant:
                raise
            except raised.HTTPError as error:
                code = getattr(error, "http_status_code", None)
                raise ClientAway(f"what answers at {self.url} does not answer like qBittorrent ({code})") from None
            except (raised.APIError, OSError) as error:
                raise ClientAway(f"the torrent client at {self.url} does not answer ({_why(error)})") from None

    def _shut(self, why: str, for_s: float) -> ClientRefused:
        self._shut_until, self._shut_why = self._monotonic() + for_s, why
        return ClientRefused(why)

    def version(self) -> tuple[str, str]:
        """Return the versions of the program and of its API."""
        return self._call(lambda api: (str(api.app_version()), str(api.app_web_api_version())))

    def preferences(self) -> dict[str, Any]:
        """Read the client's own settings."""
        return dict(self._call(lambda api: api.app_preferences()))

    def by_ids(self, ids: Sequence[str]) -> list[Seen]:
        """Show the torrents with these ids; the ones that are not there are not in the answer."""
        if not ids:
            return []
        return self._list(torrent_hashes=[_checked(id_) for id_ in ids])

    def ours(self) -> list[Seen]:
        """Show every torrent that we added."""
        return self._list(tag=OURS_TAG)

    def everything(self) -> list[Seen]:
        """Show every torrent."""
        return self._list()

    def _list(self, **query: Any) -> list[Seen]:
        rows = self._call(lambda api: api.torrents_info(**query))
        try:
            return [_seen(row) for row in rows]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ClientAway(f"what answers at {self.url} does not answer like qBittorrent") from None

    def add(self, source: str | bytes, *, category: str, tags: Sequence[str]) -> None:
        """Hand a magnet link or a .torrent over; whether it was taken shows in the list, not in the answer."""
        from qbittorrentapi import exceptions as raised

        what: dict[str, Any] = {"urls": source} if isinstance(source, str) else {"torrent_files": source}
        if self.settings.save_path:
            what["save_path"] = self.settings.save_path
        try:
            # Limits off: a client that removes at a ratio is faster than any poll.
            answer = self._call(
                lambda api: api.torrents_add(
                    category=category,
                    tags=list(tags),
                    is_stopped=False,
                    ratio_limit=-1,
                    seeding_time_limit=-1,
                    inactive_seeding_time_limit=-1,
                    **what,
                ),
                meant=(raised.UnsupportedMediaType415Error, raised.Conflict409Error, raised.NotFound404Error),
            )
        except raised.UnsupportedMediaType415Error:
            raise NotAdded("the torrent client rejected the source: not a valid torrent") from None
        except (raised.Conflict409Error, raised.NotFound404Error):
            raise NotAdded("the torrent client did not take the torrent") from None
        if not _taken(answer):
            raise NotAdded("the torrent client did not take the torrent")

    def files(self, id_: str) -> list[ClientFile] | None:
        """List a torrent's files; None when it is gone."""
        from qbittorrentapi import exceptions as raised

        try:
            rows = self._call(
                lambda api: api.torrents_files(torrent_hash=_checked(id_)), meant=(raised.NotFound404Error,)
            )
        except raised.NotFound404Error:
            return None
        try:
            return [
                ClientFile(str(row["name"]), int(row["size"]), float(row["progress"]), int(row["priority"]) > 0)
                for row in rows
            ]
        except (KeyError, TypeError, ValueError):
            raise ClientAway(f"what answers at {self.url} does not answer like qBittorrent") from None

    def tag(self, id_: str, tags: Sequence[str]) -> None:
        """Put tags on a torrent."""
        self._call(lambda api: api.torrents_add_tags(tags=list(tags), torrent_hashes=_checked(id_)))

    def untag(self, id_: str, tags: Sequence[str]) -> None:
        """Take tags from a torrent."""
        if tags:
            self._call(lambda api: api.torrents_remove_tags(tags=list(tags), torrent_hashes=_checked(id_)))

    def start(self, id_: str) -> None:
        """Start a torrent that the client stopped."""
        self._call(lambda api: api.torrents_start(torrent_hashes=_checked(id_)))

    def remove(self, id_: str, *, with_files: bool) -> None:
        """Remove a torrent from the client."""
        self._call(lambda api: api.torrents_delete(delete_files=with_files, torrent_hashes=_checked(id_)))

    def last_error(self, name: str) -> str | None:
        """Find the client's own words for a torrent's error: they stand only in its log."""
        lines = self._call(lambda api: api.log_main(normal=False, info=False))
        for line in reversed(lines):
            message = str(line.get("message", ""))
            if f'"{name}"' in message:
                reason = re.search(r'Reason: "(.*)"', message, re.DOTALL)
                return (reason[1] if reason else message)[:500]
        return None


def _why(error: BaseException) -> str:
    """Find the system's own word at the bottom of a library's exceptions (connection refused, no such host)."""
    seen: list[BaseException] = []
    below: list[object] = [error]
    while below and len(seen) < 20:
        one = below.pop()
        if isinstance(one, BaseException) and one not in seen:
            seen.append(one)
            below += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
    words = [one.strerror.lower() for one in seen if isinstance(one, OSError) and one.strerror]
    return words[-1] if words else type(error).__name__


def _as_it_is(request: Any) -> Any:
    return request


def _without_credentials(url: str) -> tuple[str, dict[str, str]]:
    """Move user and password from the URL into a header, so that no message ever shows them."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput("qbittorrent.url is not an http(s) URL", hint="for example http://127.0.0.1:8080")
    where = parts.netloc.rpartition("@")[2]
    plain = urlunsplit((parts.scheme, where, parts.path, "", ""))
    if parts.username is None:
        return plain, {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return plain, {"Authorization": "Basic " + b64encode(pair.encode()).decode()}


def _checked(id_: str) -> str:
    if not _ID.match(id_):
        raise BadInput(f"not a torrent's id: {id_[:80]!r}")
    return id_


def _taken(answer: Any) -> bool:
    """Read the answer to an add: `Ok.` up to 5.1, counts from 5.2 on."""
    if isinstance(answer, str):
        return answer.strip() == "Ok."
    return int(answer.get("success_count", 0)) + int(answer.get("pending_count", 0)) > 0


def _seen(row: dict[str, Any]) -> Seen:
    id_ = str(row["hash"]).lower()
    v1, v2 = str(row.get("infohash_v1") or "").lower(), str(row.get("infohash_v2") or "").lower()
    eta = int(row.get("eta") or _NO_ETA)
    return Seen(
        id=id_,
        identity=Identity(v1 or (None if v2 else id_), v2 or None),
        name=str(row.get("name") or ""),
        state=str(row["state"]),
        progress=float(row["progress"]),
        size_bytes=int(row["size"]),
        done_bytes=int(row.get("completed") or 0),
        speed_bytes_s=int(row.get("dlspeed") or 0),
        save_path=str(row.get("save_path") or ""),
        content_path=str(row.get("content_path") or ""),
        category=str(row.get("category") or ""),
        tags=frozenset(filter(None, (tag.strip() for tag in str(row.get("tags") or "").split(",")))),
        eta_s=None if not 0 <= eta < _NO_ETA else eta,
    )
