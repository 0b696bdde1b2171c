"""URLs as they may be shown: without credentials, tokens or signatures."""

from __future__ import annotations

import re
from typing import Final

_USERINFO = re.compile(r"(?<=://)[^/?#]*@")
_URL = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"<>]+")
_SECRET_NAME: Final = re.compile(
    r"sig|token|secret|passw|pwd|credential|key|auth|session|sid$|jwt|policy|code|hmac|hash|access|expires|cookie|user|login|email",
    re.IGNORECASE,
)
_SECRET_SEGMENT = re.compile(r"(?i)(;[^/?#]*(?:jsessionid|token|sid)=)[^/?#;]*")
HIDDEN: Final = "***"


def safe_url(url: str, limit: int = 300) -> str:
    """Show a URL without what gives access: userinfo, fragment, and query values that look like secrets."""
    if "@" not in url and "?" not in url and "#" not in url and ";" not in url:
        return url[:limit]
    text = _USERINFO.sub(f"{HIDDEN}@", url.partition("#")[0], count=1)
    path, mark, query = text.partition("?")
    path = _SECRET_SEGMENT.sub(rf"\1{HIDDEN}", path)
    if mark:
        query = "&".join(_safe_pair(pair) for pair in query.split("&"))
    return (path + mark + query)[:limit]


def _safe_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    if not equals:
        return pair if len(pair) < 16 else HIDDEN
    secret = _SECRET_NAME.search(name) or len(value) > 40
    return f"{name}={HIDDEN}" if secret else pair


def safe_text(text: str, limit: int = 500) -> str:
    """Redact every URL inside a text; used on messages of foreign libraries."""
    return _URL.sub(lambda match: safe_url(match[0]), text)[:limit] if "://" in text else text[:limit]
