"""File names from what servers, URLs and lists suggest: one safe path component, never a path. Pure functions."""

from __future__ import annotations

import re
import unicodedata
from typing import Final
from urllib.parse import unquote

from longshore.domain.transfer.content_checks import EXTENSIONS

_UNSAFE: Final = re.compile(r'[\x00-\x1f\x7f-\x9f<>:"/\\|?*\u202a-\u202e\u2066-\u2069]')
_RESERVED: Final = re.compile(r"(?i)^(con|prn|aux|nul|com\d|lpt\d)(\..*)?$")
_LONGEST_BYTES: Final = 200
_PATH_PARAMETERS: Final = re.compile(r"(?:;[A-Za-z][\w.-]*=[^;/]*)+\Z")
_URL_PATH: Final = re.compile(r"[^:/?#]+://[^/?#]*([^?#]*)")
_PARAMETER: Final = re.compile(r';\s*([\w!#$&+.^`|~-]+\*?)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;"]*))', re.ASCII)
_EXTENSION: Final = re.compile(r"(?!v\d+\Z)[a-z][a-z0-9]{0,7}\Z|(?:7z|3gp|3g2)\Z", re.IGNORECASE | re.ASCII)
_SCRIPTS: Final = frozenset({"php", "asp", "aspx", "ashx", "cgi", "jsp", "jspx", "do", "action", "cfm", "pl"})
_SPELLINGS: Final = {
    "jpeg": "jpg",
    "jpe": "jpg",
    "tiff": "tif",
    "htm": "html",
    "xhtml": "html",
    "eps": "ps",
    "djv": "djvu",
}
# Types of which many kinds of files are made: the extension of the name says more than the type.
_CONTAINERS: Final = frozenset(
    {
        "application/octet-stream", "text/plain", "application/zip", "application/gzip", "application/x-bzip2",
        "application/x-xz", "application/zstd", "application/x-tar", "application/xml", "application/json",
        "application/java-archive", "application/x-ole-storage", "application/vnd.sqlite3", "application/x-hdf5",
        "video/mp4", "video/x-matroska", "audio/ogg",
    }
)  # fmt: skip


def safe_name(text: str, *, fallback: str = "file") -> str:
    """Return one path component that cannot leave its directory, is not hidden and has no control characters."""
    text = _UNSAFE.sub("_", unicodedata.normalize("NFC", text)).strip(" .")
    if not text or text[0] == "-" or _RESERVED.match(text):  # a program would take a leading dash for an option
        text = f"_{text}" if text else fallback
    while len(text.encode()) > _LONGEST_BYTES:
        stem, dot, ext = text.rpartition(".")
        text = f"{stem[:-8]}{dot}{ext}" if dot and len(ext) < 12 and len(stem) > 8 else text[:-8]
    return text


def last_component(name: str) -> str:
    """Return the part of a suggested name after its last slash or backslash; empty if only dots are left."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return last if last.strip(" .") else ""


def url_path(url: str | None) -> str:
    """Return the path of a URL as it is written. Unlike `urlsplit`, it accepts every host."""
    match = _URL_PATH.match(url or "")
    return match[1] if match else ""


def url_name(url: str | None) -> str:
    """Return the last segment of a URL's path without path parameters such as `;jsessionid=…`; empty if there is none."""
    segment = url_path(url).rstrip("/").rpartition("/")[2]
    return last_component(unquote(_PATH_PARAMETERS.sub("", segment)))


def disposition_name(header: str | None) -> str | None:
    """Return the safe file name of a Content-Disposition header (RFC 6266), or None; `filename*` before `filename`."""
    if not header:
        return None
    found = _parameters(header)
    for name in (_decoded(found.get("filename*", "")), _utf8(found.get("filename", ""))):
        if last := last_component(name or ""):
            return safe_name(last)
    return None


def _parameters(header: str) -> dict[str, str]:
    """Return the parameters of a header, the first of each name; stop at what cannot be read."""
    kind, _, rest = header.partition(";")
    text = f";{header}" if "=" in kind else f";{rest}"
    found: dict[str, str] = {}
    at = 0
    while match := _PARAMETER.match(text, at):
        name, quoted, plain = match.groups()
        value = plain.strip() if quoted is None else re.sub(r'\\(["\\])', r"\1", quoted)
        found.setdefault(name.lower(), value)
        at = match.end() + len(text[match.end() :]) - len(text[match.end() :].lstrip())
    return found


def _decoded(value: str) -> str | None:
    """Decode an extended value (RFC 8187): charset'language'percent-encoded."""
    charset, _, rest = value.partition("'")
    _, quote, encoded = rest.partition("'")
    if not quote or charset.lower() not in ("utf-8", "iso-8859-1"):
        return None
    try:
        return unquote(encoded, encoding=charset, errors="strict")
    except UnicodeDecodeError:
        return None


def _utf8(value: str) -> str:
    """Read bytes that came as Latin-1 as the UTF-8 that most servers mean."""
    try:
        return value.encode("latin-1").decode()
    except (UnicodeEncodeError, UnicodeDecodeError):
        return value


def split_extension(name: str) -> tuple[str, str]:
    """Split a name into stem and extension; a number behind a dot is not an extension."""
    stem, dot, ext = name.rpartition(".")
    return (stem, ext) if dot and stem and _EXTENSION.match(ext) else (name, "")


def extension_of(name: str, media_type: str | None) -> str:
    """Return the extension for a file: by its media type, or the name's own where the type says less."""
    given = split_extension(name)[1]
    kind = (media_type or "").partition(";")[0].strip().lower()
    if given.lower() in _SCRIPTS and not kind.startswith("text/"):
        given = ""
    known = EXTENSIONS.get(kind, "")
    if not known or (given and kind in _CONTAINERS):
        return given
    return given if _SPELLINGS.get(given.lower(), given.lower()) == known else known


def with_hash(name: str, sha256: str) -> str:
    """Return the name of a file whose plain name another file has."""
    stem, dot, ext = name.rpartition(".")
    return f"{stem}-{sha256[:12]}.{ext}" if dot and stem and "/" not in ext else f"{name}-{sha256[:12]}"
