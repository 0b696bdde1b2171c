"""qBittorrent's Web API as 5.3 speaks it, on a real socket: what differs from 4.5, as measured on the real one.

Login is 204 with a cookie named after the port, a wrong password is 401, API keys and Basic are taken, an add answers
with counts, a duplicate and a bad magnet are both 409, pause/resume are gone, states are spelled stopped*.
"""

from __future__ import annotations

import base64
import email.parser
import http.server
import json
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from longshore.errors import LongshoreError
from longshore.worker.kinds.torrent.identity import from_magnet, from_metainfo

API_KEY = "qbt_test-only-key"
USER, PASSWORD = "admin", "test-only-password"


@dataclass
class Torrent:
    id: str
    v1: str
    v2: str
    category: str
    tags: set[str]
    state: str = "stoppedDL"
    progress: float = 0.0
    fields: dict[str, str] = field(default_factory=dict)

    def shown(self) -> dict[str, Any]:
        return {
            "hash": self.id,
            "infohash_v1": self.v1,
            "infohash_v2": self.v2,
            "name": "book",
            "state": self.state,
            "progress": self.progress,
            "size": 100,
            "completed": int(100 * self.progress),
            "dlspeed": 0,
            "eta": 8640000,
            "save_path": "/save",
            "content_path": "/save/book",
            "category": self.category,
            "tags": ", ".join(sorted(self.tags)),
            "completion_on": -1,
            "root_path": "",
            "has_metadata": True,
        }


class V5:
    """The server: `torrents`, and a log of every call with its status."""

    def __init__(self) -> None:
        self.torrents: dict[str, Torrent] = {}
        self.calls: list[tuple[str, int]] = []
        self.session: str | None = None
        self.swallow_adds = 0  # acknowledge so many adds and forget them
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path, _, query = self.path.partition("?")
                status, answer, cookie = api.answer(path, query, self.headers, body)
                api.calls.append((path.removeprefix("/api/v2/"), status))
                self.send_response(status)
                if cookie:
                    self.send_header("Set-Cookie", cookie)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_HEAD = _serve  # noqa: N815

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def count(self, call: str) -> int:
        return sum(name == call for name, _ in self.calls)

    def answer(self, path: str, query: str, headers: Any, body: bytes) -> tuple[int, bytes, str | None]:
        name = path.removeprefix("/api/v2/")
        if name == "auth/login":
            return self._login(dict(urllib.parse.parse_qsl(body.decode())))
        if not self._known(headers):
            return 403, b"Forbidden", None
        if name == "torrents/add":
            return (*self._add(_multipart(headers, body)), None)
        fields = dict(urllib.parse.parse_qsl(query)) | dict(urllib.parse.parse_qsl(body.decode()))
        handlers: dict[str, Callable[[], tuple[int, bytes]]] = {
            "app/version": lambda: (200, b"v5.3.0"),
            "app/webapiVersion": lambda: (200, b"2.16.2"),
            "torrents/info": lambda: self._info(fields),
            "torrents/files": lambda: self._files(fields),
            "torrents/start": lambda: self._change(fields, "stalledDL"),
            "torrents/stop": lambda: self._change(fields, "stoppedDL"),
            "torrents/delete": lambda: self._delete(fields),
            "torrents/addTags": lambda: self._tag(fields, add=True),
            "torrents/removeTags": lambda: self._tag(fields, add=False),
            "log/main": lambda: (200, b"[]"),
        }
        handler = handlers.get(name)
        return (*(handler() if handler else (404, b"Endpoint does not exist")), None)

    def _login(self, fields: dict[str, str]) -> tuple[int, bytes, str | None]:
        if (fields.get("username"), fields.get("password")) != (USER, PASSWORD):
            return 401, b"Unauthorized", None
        self.session = f"s{len(self.calls)}"
        return 204, b"", f"QBT_SID_{self.port}={self.session}; HttpOnly; path=/; expires=Fri, 01 Jan 2100 00:00:00 GMT"

    def _known(self, headers: Any) -> bool:
        basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if headers.get("Authorization") in (f"Bearer {API_KEY}", f"Basic {basic}"):
            return True
        return self.session is not None and f"QBT_SID_{self.port}={self.session}" in (headers.get("Cookie") or "")

    def _add(self, fields: dict[str, list[bytes]]) -> tuple[int, bytes]:
        files = [content for name, contents in fields.items() if name.startswith("torrent") for content in contents]
        try:
            url = fields.get("urls", [b""])[0].decode().strip()
            identity = from_metainfo(files[0]) if files else from_magnet(url)
        except LongshoreError:
            return (415, b"not a torrent") if files else (409, b"")
        id_ = identity.ids[0]
        if id_ in self.torrents:
            return 409, b""
        counts = {"added_torrent_ids": [id_], "success_count": 1, "pending_count": 0, "failure_count": 0}
        if self.swallow_adds:
            self.swallow_adds -= 1
            return 200, json.dumps(counts).encode()
        given = {name: contents[0].decode() for name, contents in fields.items() if not name.startswith("torrent")}
        tags = set(filter(None, given.get("tags", "").split(",")))
        state = "stoppedDL" if given.get("stopped") == "True" else "stalledDL"
        self.torrents[id_] = Torrent(
            id_, identity.v1 or "", identity.v2 or "", given["category"], tags, state, 0.0, given
        )
        return 200, json.dumps(counts).encode()

    def _info(self, fields: dict[str, str]) -> tuple[int, bytes]:
        found = list(self.torrents.values())
        if fields.get("hashes"):
            found = [torrent for torrent in found if torrent.id in fields["hashes"].lower().split("|")]
        if fields.get("tag"):
            found = [torrent for torrent in found if fields["tag"] in torrent.tags]
        return 200, json.dumps([torrent.shown() for torrent in found]).encode()

    def _files(self, fields: dict[str, str]) -> tuple[int, bytes]:
        if fields["hash"] not in self.torrents:
            return 404, b""
        return 200, json.dumps([{"name": "book", "size": 100, "progress": 1, "priority": 1}]).encode()

    def _chosen(self, fields: dict[str, str]) -> list[Torrent]:
        return [torrent for id_, torrent in self.torrents.items() if id_ in fields["hashes"].split("|")]

    def _change(self, fields: dict[str, str], state: str) -> tuple[int, bytes]:
        for torrent in self._chosen(fields):
            torrent.state = state
        return 204, b""

    def _delete(self, fields: dict[str, str]) -> tuple[int, bytes]:
        for torrent in self._chosen(fields):
            del self.torrents[torrent.id]
        return 204, b""

    def _tag(self, fields: dict[str, str], *, add: bool) -> tuple[int, bytes]:
        for torrent in self._chosen(fields):
            (torrent.tags.update if add else torrent.tags.difference_update)(fields["tags"].split(","))
        return 204, b""


def _multipart(headers: Any, body: bytes) -> dict[str, list[bytes]]:
    if "urlencoded" in headers["Content-Type"]:
        return {name: [value.encode()] for name, value in urllib.parse.parse_qsl(body.decode())}
    text = b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n\r\n" + body
    fields: dict[str, list[bytes]] = {}
    for part in email.parser.BytesParser().parsebytes(text).walk():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes):
            fields.setdefault(name, []).append(content)
    return fields
