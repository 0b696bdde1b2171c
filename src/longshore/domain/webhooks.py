"""Webhooks as values: the message of a change (CloudEvents 1.0), its signature (Standard Webhooks), when to try again."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from longshore.errors import BadInput

KINDS: Final = ("new", "changed", "gone")
TYPE: Final = "io.longshore.artifact."
MEDIA_TYPE: Final = "application/cloudevents+json"
SECRET_PREFIX: Final = "whsec_"
RETRIES_S: Final = (5, 300, 1_800, 7_200, 18_000, 36_000, 36_000)  # after each failed attempt; then a dead letter


def new_secret() -> str:
    """Make the secret of an endpoint."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def check_url(url: object) -> str:
    """Return the URL of an endpoint; raise BadInput for anything else. Its address is checked at every connection."""
    text = str(url)
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or len(text) > 2_048 or not text.isascii() or not text.isprintable() or " " in text:
        raise BadInput(f"an endpoint is an http or https URL, not {text[:200]!r}")
    if "@" in parts.netloc:
        raise BadInput("an endpoint has no login in its URL; its requests are signed")
    return text


def check_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    """Return which changes are sent; all if none is named."""
    if wrong := [kind for kind in kinds if kind not in KINDS]:
        raise BadInput(f"changes are {', '.join(KINDS)}, not {wrong[0][:40]!r}")
    return tuple(kind for kind in KINDS if kind in kinds) or KINDS


def consumer_of(webhook_id: str) -> str:
    """Return the name under which an endpoint consumes the feed."""
    return f"webhook-{webhook_id}"


def message_id(webhook_id: str, cursor: int, kind: str, artifact_id: str) -> str:
    """Return the id of a message: the same at every attempt, and it shows no number of the ledger."""
    text = "\0".join((webhook_id, str(cursor), kind, artifact_id))
    return "msg_" + hashlib.sha256(text.encode()).hexdigest()[:32]


def event(message: str, source: str, kind: str, time: str, data: dict[str, Any]) -> str:
    """Return a change as a structured CloudEvent."""
    envelope = {
        "specversion": "1.0",
        "id": message,
        "source": source,
        "type": TYPE + kind,
        "subject": data["artifact_id"],
        "time": time,
        "datacontenttype": "application/json",
        "data": data,
    }
    return json.dumps(envelope, separators=(",", ":"))


def signed(secret: str, message: str, timestamp: int, body: str) -> dict[str, str]:
    """Return the headers of a message."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    mac = hmac.new(key, f"{message}.{timestamp}.{body}".encode(), hashlib.sha256).digest()
    return {
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": "v1," + base64.b64encode(mac).decode(),
        "content-type": MEDIA_TYPE,
    }


def wait_s(attempts: int, retries_s: Sequence[float] = RETRIES_S) -> float | None:
    """Return how long to wait after so many failed attempts; None: give up."""
    return retries_s[attempts - 1] if attempts <= len(retries_s) else None
