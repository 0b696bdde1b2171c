"""A real server for tests: uvicorn in a thread on a free port, over a real ledger and store, and a plain HTTP client."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import uvicorn

from longshore.domain.identity.keys import op_key
from longshore.domain.identity.requests import download_request
from longshore.domain.model import Blob, Lease, NewArtifact, Scope
from longshore.domain.outcomes import Completed, Failed
from longshore.ledger import Intent, Ledger, Move
from longshore.ledger.operations import tokens
from longshore.store import Staged, Store, open_store
from longshore.web.app import make_app
from longshore.web.connections import Connections
from longshore.web.metrics import Metrics
from longshore.web.server import config_of, listening
from longshore.web.server_options import ServerOptions
from longshore.web.service import Service

PATIENCE_S = 60.0
OPEN = {
    "rate_per_s": 1e6,
    "rate_burst": 1e6,
    "wrong_per_minute": 1_000_000,
    "sign_ins_per_minute": 1_000_000,
}  # limits have tests of their own


@dataclass
class Answer:
    """One HTTP answer, read whole."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """Speaks HTTP/1.1 to one server, with one token."""

    port: int
    token: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | str | None = None,
        doc: Any = None,
        form: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        sent = {**self.headers, **(headers or {})}
        if self.token is not None:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        if doc is not None:
            body = json.dumps(doc)
            sent.setdefault("Content-Type", "application/json")
        if form is not None:
            body = urlencode(form, doseq=True)
            sent.setdefault("Content-Type", "application/x-www-form-urlencoded")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **kw: Any) -> Answer:
        return self.ask("GET", path, **kw)

    def post(self, path: str, **kw: Any) -> Answer:
        return self.ask("POST", path, **kw)


class Site:
    """A server that runs while the block lasts."""

    def __init__(self, ledger: Ledger, store: Store, **limits: Any) -> None:
        self.ledger, self.store = ledger, store
        self.settings = ServerOptions(port=0, workers=False, **{**OPEN, **limits})
        self.service: Service
        self.app: Any = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="site", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None
        self._secrets: dict[tuple[Scope, tuple[str, ...]], str] = {}

    @classmethod
    def local(cls, folder: Path, **limits: Any) -> Self:
        ledger = Ledger.open(folder / "ledger.db", create=True)
        return cls(ledger, open_store(str(folder / "store")), **limits)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.service.closing.set)
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        self.ledger.close()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.service = Service(self.ledger, self.store, self.settings)
        self.service.metrics = Metrics(self.service)
        self.app = make_app(self.service)
        listener = listening(self.settings)
        self.port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.connections = Connections(self.settings)
        self._server = server = uvicorn.Server(config_of(self.app, self.connections))
        listener.listen(1024)  # connections queue from here on; nobody has to wait for the loop
        self._ready.set()
        await server._serve([listener])

    def serving(self) -> int:
        """Count the requests that are served now."""
        assert self._server is not None
        return len(self._server.server_state.tasks)

    def token(self, *scopes: str, tenant: str = "default", project: str = "default", **kw: Any) -> str:
        secret: str = self.ledger.write(tokens.create_token, Scope(tenant, project), scopes or ("write",), **kw)[0]
        return secret

    def client(self, *scopes: str, tenant: str = "default", project: str = "default") -> Client:
        where = (Scope(tenant, project), scopes)
        if where not in self._secrets:
            self._secrets[where] = self.token(*scopes, tenant=tenant, project=project)
        return Client(self.port, self._secrets[where])

    def stranger(self) -> Client:
        return Client(self.port)

    # Work without a network: what a worker would have done, by the ledger's and the store's own verbs.

    def plan(self, *urls: str, scope: Scope | None = None, **kw: Any) -> list[str]:
        requests = [download_request(url, **kw) for url in urls]
        return [planned.job_id for planned in self.ledger.plan(scope or Scope(), requests)]

    def lease(self, job_ids: list[str], scope: Scope | None = None) -> list[Lease]:
        leases = self.ledger.claim("tester", limit=len(job_ids), ttl_s=3600, scope=scope or Scope(), job_ids=job_ids)
        assert len(leases) == len(job_ids)
        self.ledger.advance([Move(lease, "STREAMING") for lease in leases])
        return leases

    def fail(self, url: str, reason: str = "http_404", message: str = "the server answered 404", **kw: Any) -> str:
        [job_id] = self.plan(url, **kw)
        [lease] = self.lease([job_id], kw.get("scope"))
        self.ledger.settle([(lease, Failed(reason, message))])
        return job_id

    def complete(
        self, url: str, body: bytes = b"hello", *, tick: Callable[[], None] = lambda: None, **kw: Any
    ) -> tuple[str, str]:
        """Take a body aboard under a URL; give the job and the artifact. `tick` is called between the steps."""
        scope = kw.get("scope") or Scope()
        [job_id] = self.plan(url, **kw)
        tick()
        [lease] = self.lease([job_id], scope)
        tick()
        digest = sha256(body).hexdigest()
        item = Staged(scope, job_id, lease.epoch, digest, len(body), kw.get("media_type") or "text/plain", body)
        assert self.store.stage([item]) == [None]
        tick()
        facts = {"sha256": digest, "size_bytes": len(body)}
        key = op_key("FINALIZE", job_id, sha256=digest)
        [begun] = self.ledger.begin([Intent(lease, "FINALIZE", key, "verifiable", request=facts)])
        assert not isinstance(begun, Exception), begun
        [blob] = self.store.link([item])
        assert isinstance(blob, Blob)
        tick()
        new = NewArtifact(blob, name=kw.get("name"))
        [settled] = self.ledger.settle([(lease, Completed((new,), final_url=url))])
        self.store.clean([item])
        assert not isinstance(settled, Exception), settled
        return job_id, settled.artifact_ids[0]
