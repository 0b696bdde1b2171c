"""The log of `serve`: one line per request and per ended job, as text or as JSON lines.

A line has the path, never the query: a query may hold a one-time code. URLs of jobs are shown without secrets.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from longshore.web.security.auth import printable

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from longshore.domain.run_events import RunEvent

requests = logging.getLogger("longshore.requests")
jobs = logging.getLogger("longshore.jobs")
TEXT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
MACHINES: Final = frozenset({"/livez", "/readyz", "/metrics"})  # asked every few seconds: logged only at `debug`
ENDED: Final = {"completed": logging.INFO, "held": logging.INFO, "failed": logging.WARNING, "canceled": logging.INFO}


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object; its facts are fields of their own."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        facts: dict[str, Any] = getattr(record, "facts", {})
        line = {"ts": record.created, "level": record.levelname.lower(), "logger": record.name}
        line |= facts or {"message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_to(stream: Any, level: str, form: str) -> None:
    """Write the log to a stream: our own from this level on, of libraries only warnings."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(TEXT))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("longshore").setLevel(level.upper())


def log_job(event: RunEvent) -> None:
    """Log how a job ended."""
    level = ENDED.get(event.kind)
    if level is None or not jobs.isEnabledFor(level):
        return
    facts: dict[str, Any] = {"event": event.kind, "job_id": event.job_id, "tenant_id": event.scope.tenant_id}
    facts |= {
        name: event.facts[name] for name in ("reason", "message", "size_bytes") if event.facts.get(name) is not None
    }
    if event.url:
        facts["url"] = event.url
    text = " ".join(f"{name}={printable(str(value))}" for name, value in facts.items() if name != "event")
    jobs.log(level, "%s %s", event.kind, text, extra={"facts": facts})


class RequestLog:
    """Middleware that logs every request with its answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and log it when its answer has ended."""
        level = logging.DEBUG if scope.get("path") in MACHINES else logging.INFO
        if scope["type"] != "http" or not requests.isEnabledFor(level):
            await self.app(scope, receive, send)
            return
        begun, sent = time.perf_counter(), {"status": 0, "bytes": 0}

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent["status"] = message["status"]
            elif message["type"] == "http.response.body":
                sent["bytes"] += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, counted)
        finally:
            _log_request(level, scope, sent, time.perf_counter() - begun)


def _log_request(level: int, scope: Scope, sent: dict[str, int], took_s: float) -> None:
    state = scope.get("state", {})
    client = scope.get("client")
    facts = {
        "method": scope["method"],
        "path": printable(scope["path"])[:500],
        "status": sent["status"],
        "bytes": sent["bytes"],
        "ms": round(took_s * 1_000, 1),
        "client": client[0] if client else None,
        "request_id": state.get("request_id"),
    }
    text = "{method} {path} {status} {bytes} B {ms} ms {client}".format(**facts)
    requests.log(level, "%s", text, extra={"facts": facts})
