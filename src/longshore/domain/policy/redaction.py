"""URLs as they may be shown: without credentials, tokens or signatures.

A URL is read as the WHATWG parser reads it, which is what is requested: after `http:` any number of slashes or backslashes may
come, none included, tabs and line feeds do not count, and what stands before the last `@` of the authority is a login.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

_USERINFO = re.compile(r"(?<=://)[^/?#]*@")
_SPECIAL: Final = r"(?:https?|ftp|wss?)"
_LOGIN = re.compile(
    r"\A([\x00-\x20]*(?:" + _SPECIAL + r":[/\\]*|[a-z][a-z0-9+.-]{0,31}:[/\\]+))[^/\\?#]*@", re.IGNORECASE
)
_IGNORED: Final = str.maketrans("", "", "\t\r\n")  # by the parser, anywhere in a URL
_URL = re.compile(  # the end of a longer scheme is enough
    r"(?:[a-z0-9+.-]{1,32}://|magnet:\?|\b" + _SPECIAL + r":[/\\]*(?=[^\s/\\'\"<>]))[^\s'\"<>]+", re.IGNORECASE
)
_SECRET_NAME: Final = re.compile(
    r"sig|token|secret|passw|pwd|credential|key|auth|session|sid$|jwt|policy|code|hmac|hash|access|expires|cookie|user|login|email",
    re.IGNORECASE,
)
_SHORT_NAME: Final = frozenset({"st", "k", "t", "h", "s", "u", "ak", "sk", "tk", "pw", "pin", "otp"})
_SHORT_SECRET: Final = 6  # characters of a value that make a short name's value look like a secret
_NESTED: Final = 3  # how often a value is decoded to look for a URL inside it
_SECRET_STEP = re.compile(
    r"(?i)(/(?:access_?token|auth_?token|token|api_?key|auth|secret|signature|sig|passkey|jwt|session(?:_?id)?)[/=])"
    r"(?=[^/?#;]*\d)[^/?#;]{8,}"
)
_SECRET_SEGMENT = re.compile(r"(?i)(;[^/?#;=]*(?:jsessionid|token|sid)=)[^/?#;]*")
HIDDEN: Final = "***"
LONGEST: Final = 300  # of a URL in a sentence or a table for people
# Fields of a magnet link that identify the content. The others list trackers and sources, often with a personal key.
_PAIRS = re.compile(r"([&;])")
_NESTED_PAIRS = re.compile(r"[?&;#]")
_OPEN_FIELD = re.compile(r"(xt|dn|xl|so)(\.\d+)?", re.IGNORECASE)
_HOST = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^/?#]*@)?([\w.:\[\]-]+)(?![^/?#])")
_KEY_STEP = re.compile(r"(?=[^/]*\d)(?=[^/]*[a-zA-Z])[0-9a-zA-Z_-]{20,}")


def safe_url(url: str, limit: int | None = None) -> str:
    """Return a URL without secrets: userinfo, fragment, and query values that look like credentials.

    Whole, so that a program can use it; a limit is for sentences and tables, and leaves a mark.
    """
    if url[:7].lower() == "magnet:":
        return shortened(_safe_magnet(url), limit)
    text = url.partition("#")[0]
    if "@" in text:
        text = _LOGIN.sub(rf"\1{HIDDEN}@", text.translate(_IGNORED), count=1)
        text = _USERINFO.sub(f"{HIDDEN}@", text, count=1)
    path, mark, query = text.partition("?")
    path = _SECRET_STEP.sub(rf"\1{HIDDEN}", path)
    if ";" in path:
        path = _SECRET_SEGMENT.sub(rf"\1{HIDDEN}", path)
    return shortened(path + mark + _safe_query(query) if mark else path, limit)


def shortened(text: str, limit: int | None) -> str:
    """Cut a text, visibly."""
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def without_login(url: str) -> str:
    """Remove user and password from a URL. (Browsers treat a backslash as a slash, so this does, too.)"""
    if "@" not in url:
        return url
    if not url.isprintable():
        url = url.translate(_IGNORED)
    return _LOGIN.sub(r"\1", url, count=1)


def says_all(url: str) -> bool:
    """Return whether a URL as it is shown still asks for the same; a fragment is never sent."""
    return safe_url(url) == url.partition("#")[0]


def _safe_query(query: str) -> str:
    pieces = _PAIRS.split(query)  # with the separators between them
    return "".join(piece if at % 2 else _safe_pair(piece) for at, piece in enumerate(pieces))


def _safe_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    if not equals:
        return pair if len(pair) < 16 else HIDDEN
    return f"{name}={HIDDEN}" if len(value) > 40 or _is_secret(_decoded(name), value) or _has_secret(value) else pair


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.search(name)) or (name.lower() in _SHORT_NAME and len(value) >= _SHORT_SECRET)


def _has_secret(value: str) -> bool:
    """Return whether a value is a URL with a secret in it."""
    text = _decoded(value)
    if "=" not in text and "@" not in text:
        return False
    pairs = (piece.partition("=") for piece in _NESTED_PAIRS.split(text))
    return (":" in text and without_login(text) != text) or any(
        equals and _is_secret(name, v) for name, equals, v in pairs
    )


def _decoded(text: str) -> str:
    for _ in range(_NESTED):
        if "%" not in text or (plain := unquote(text)) == text:
            break
        text = plain
    return text


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


def may_hold_url(text: str) -> bool:
    """Return whether a text can contain a URL at all; cheap, because most do not."""
    if ":" not in text:
        return False
    lowered = text.lower()
    return (
        "://" in lowered
        or "tp:" in lowered
        or "tps:" in lowered
        or "magnet:?" in lowered
        or "ws:" in lowered
        or "wss:" in lowered
    )


def safe_field(text: str | None) -> str | None:
    """Show a field that may hold a URL: a name, an id, a run."""
    if not text or ":" not in text:
        return text
    if not text.isprintable() and _LOGIN.match(plain := text.translate(_IGNORED)):
        return safe_url(plain)  # for the parser it is one URL
    return safe_text(text, limit=None)


def safe_text(text: str, limit: int | None = 500) -> str:
    """Redact every URL inside a text; used on messages of foreign libraries. Without a limit its URLs stay whole, too."""
    if not may_hold_url(text):
        return text[:limit]
    each = None if limit is None else LONGEST
    return _URL.sub(lambda match: safe_url(match[0], each), text)[:limit]
