"""URLs as they may be shown: without credentials, tokens or signatures."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

_USERINFO = re.compile(r"(?<=://)[^/?#]*@")
_LOGIN = re.compile(r"\A([a-zA-Z][a-zA-Z0-9+.-]*:[/\\]+)[^/\\?#]*@")
_URL = re.compile(r"(?:[a-zA-Z0-9+.-]{1,32}://|magnet:\?)[^\s'\"<>]+")  # the end of a longer scheme is enough
_SECRET_NAME: Final = re.compile(
    r"sig|token|secret|passw|pwd|credential|key|auth|session|sid$|jwt|policy|code|hmac|hash|access|expires|cookie|user|login|email",
    re.IGNORECASE,
)
_SECRET_SEGMENT = re.compile(r"(?i)(;[^/?#;=]*(?:jsessionid|token|sid)=)[^/?#;]*")
HIDDEN: Final = "***"
LONGEST: Final = 300  # of a URL in a sentence or a table for people
# Fields of a magnet link that identify the content. The others list trackers and sources, often with a personal key.
_OPEN_FIELD = re.compile(r"(xt|dn|xl|so)(\.\d+)?", re.IGNORECASE)
_HOST = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^/?#]*@)?([\w.:\[\]-]+)(?![^/?#])")
_KEY_STEP = re.compile(r"(?=[^/]*\d)(?=[^/]*[a-zA-Z])[0-9a-zA-Z_-]{20,}")


def safe_url(url: str, limit: int | None = None) -> str:
    """Return a URL without secrets: userinfo, fragment, and query values that look like credentials.

    Whole, so that a program can use it; a limit is for sentences and tables, and leaves a mark.
    """
    if "@" not in url and "?" not in url and "#" not in url and ";" not in url:
        return shortened(url, limit)
    if url[:7].lower() == "magnet:":
        return shortened(_safe_magnet(url), limit)
    text = _USERINFO.sub(f"{HIDDEN}@", url.partition("#")[0], count=1)
    path, mark, query = text.partition("?")
    path = _SECRET_SEGMENT.sub(rf"\1{HIDDEN}", path)
    if mark:
        query = "&".join(_safe_pair(pair) for pair in query.split("&"))
    return shortened(path + mark + query, limit)


def shortened(text: str, limit: int | None) -> str:
    """Cut a text, visibly."""
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def without_login(url: str) -> str:
    """Remove user and password from a URL. (Browsers treat a backslash as a slash, so this does, too.)"""
    return _LOGIN.sub(r"\1", url, count=1)


def says_all(url: str) -> bool:
    """Return whether a URL as it is shown still asks for the same; a fragment is never sent."""
    return safe_url(url) == url.partition("#")[0]


def _safe_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    if not equals:
        return pair if len(pair) < 16 else HIDDEN
    secret = _SECRET_NAME.search(name) or len(value) > 40
    return f"{name}={HIDDEN}" if secret else pair


def _safe_magnet(uri: str) -> str:
    """Return a magnet link with its content fields and tracker hosts only; other tracker parameters may be secret."""
    scheme, mark, query = uri.partition("?")
    return scheme + mark + "&".join(_safe_field(pair) for pair in query.split("&"))


def _safe_field(pair: str) -> str:
    name, _, value = pair.partition("=")
    if _OPEN_FIELD.fullmatch(name):
        return pair
    host = _HOST.match(unquote(value))
    return f"{name}={host[1]}{host[2]}/{HIDDEN}" if host else f"{name}={HIDDEN}"


def safe_source(source: str, limit: int | None = None) -> str:
    """Show where a torrent comes from; sites that know their members by their links write the key into the path."""
    shown = safe_url(source, limit)
    path, mark, query = shown.partition("?")
    if not path.lower().startswith(("http://", "https://")):
        return shown
    steps = path.split("/")
    return "/".join([*steps[:3], *(HIDDEN if _KEY_STEP.fullmatch(step) else step for step in steps[3:])]) + mark + query


def safe_text(text: str, limit: int | None = 500) -> str:
    """Redact every URL inside a text; used on messages of foreign libraries. Without a limit its URLs stay whole, too."""
    if "://" not in text and "magnet:?" not in text:
        return text[:limit]
    each = None if limit is None else LONGEST
    return _URL.sub(lambda match: safe_url(match[0], each), text)[:limit]
