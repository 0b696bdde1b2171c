"""Judge what arrived: its type by its first bytes, its length, and whether it is a page instead of a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from longshore.domain.model import Expect
from longshore.domain.transfer.response_head import Head
from longshore.errors import Reasoned

SNIFF_BYTES: Final = 1024
JUDGE_BYTES: Final = 8192  # what `page_instead` looks at


@dataclass(frozen=True, slots=True)
class Sniffed:
    """A media type and the extension that goes with it. Both depend on nothing but the bytes."""

    media_type: str
    ext: str


_HTML: Final = Sniffed("text/html", ".html")
_PDF: Final = Sniffed("application/pdf", ".pdf")
_ZIP: Final = Sniffed("application/zip", ".zip")
_TEXT: Final = Sniffed("text/plain", ".txt")
_JSON: Final = Sniffed("application/json", ".json")
_XML: Final = Sniffed("application/xml", ".xml")
_SVG: Final = Sniffed("image/svg+xml", ".svg")
_EMPTY: Final = Sniffed("application/x-empty", "")
_UNKNOWN: Final = Sniffed("application/octet-stream", "")
_MP4: Final = Sniffed("video/mp4", ".mp4")

_MAGIC: Final = tuple(
    (offset, magic, Sniffed(media_type, ext))
    for offset, magic, media_type, ext in (
        (0, b"%PDF-", "application/pdf", ".pdf"),
        (0, b"\x1f\x8b", "application/gzip", ".gz"),
        (0, b"BZh", "application/x-bzip2", ".bz2"),
        (0, b"\xfd7zXZ\0", "application/x-xz", ".xz"),
        (0, b"\x28\xb5\x2f\xfd", "application/zstd", ".zst"),
        (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed", ".7z"),
        (0, b"Rar!\x1a\x07", "application/vnd.rar", ".rar"),
        (257, b"ustar", "application/x-tar", ".tar"),
        (0, b"\x89PNG\r\n\x1a\n", "image/png", ".png"),
        (0, b"\xff\xd8\xff", "image/jpeg", ".jpg"),
        (0, b"GIF87a", "image/gif", ".gif"),
        (0, b"GIF89a", "image/gif", ".gif"),
        (0, b"II*\0", "image/tiff", ".tif"),
        (0, b"MM\0*", "image/tiff", ".tif"),
        (8, b"WEBP", "image/webp", ".webp"),
        (8, b"WAVE", "audio/wav", ".wav"),
        (0, b"OggS", "audio/ogg", ".ogg"),
        (0, b"fLaC", "audio/flac", ".flac"),
        (0, b"ID3", "audio/mpeg", ".mp3"),
        (0, b"\x1aE\xdf\xa3", "video/x-matroska", ".mkv"),
        (0, b"%!PS", "application/postscript", ".ps"),
        (0, b"{\\rtf", "application/rtf", ".rtf"),
        (0, b"AT&TFORM", "image/vnd.djvu", ".djvu"),
        (0, b"SQLite format 3\0", "application/vnd.sqlite3", ".sqlite"),
        (0, b"PAR1", "application/vnd.apache.parquet", ".parquet"),
        (0, b"\x89HDF\r\n\x1a\n", "application/x-hdf5", ".h5"),
        (60, b"BOOKMOBI", "application/x-mobipocket-ebook", ".mobi"),
        (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage", ".ole"),
    )
)
_IN_ZIP: Final = tuple(
    (needle, Sniffed(media_type, ext))
    for needle, media_type, ext in (
        (b"mimetypeapplication/epub+zip", "application/epub+zip", ".epub"),
        (b"mimetypeapplication/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.text", ".odt"),
        (
            b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet",
            "application/vnd.oasis.opendocument.spreadsheet",
            ".ods",
        ),
        (
            b"mimetypeapplication/vnd.oasis.opendocument.presentation",
            "application/vnd.oasis.opendocument.presentation",
            ".odp",
        ),
        (b"META-INF/container.xml", "application/epub+zip", ".epub"),
        (b"word/", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", ".docx"),
        (b"xl/", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", ".xlsx"),
        (b"ppt/", "application/vnd.openxmlformats-officedocument.presentationml.presentation", ".pptx"),
        (b"META-INF/MANIFEST.MF", "application/java-archive", ".jar"),
    )
)
# The extension of each media type that the bytes or a server name, without its dot.
EXTENSIONS: Final = {
    **{one.media_type: one.ext[1:] for one in (_HTML, _PDF, _ZIP, _TEXT, _JSON, _XML, _SVG, _MP4)},
    **{one.media_type: one.ext[1:] for _, _, one in _MAGIC},
    **{one.media_type: one.ext[1:] for _, one in _IN_ZIP},
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "text/markdown": "md",
    "text/xml": "xml",
    "application/xhtml+xml": "html",
    "application/x-ndjson": "jsonl",
}
_HTML_START = re.compile(
    rb"(?:\s|<!--.*?-->)*<(?:!doctype\s+html|html|head|body|title|meta|script|style|iframe|h1|div|table|center)[\s>/]",
    re.IGNORECASE | re.DOTALL,
)
_XHTML = re.compile(rb"<(?:!doctype\s+)?html[\s>]", re.IGNORECASE)
_JSON_START = re.compile(rb'\s*(?:\{\s*(?:"|\}|\Z)|\[\s*(?:[\[{"\]\d-]|true|false|null|\Z))')
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def sniff(first: bytes) -> Sniffed:
    """Return the type of a body from its first KiB."""
    data = first[:SNIFF_BYTES]
    if not data:
        return _EMPTY
    if data[:4] == b"PK\x03\x04":
        return next((sniffed for needle, sniffed in _IN_ZIP if needle in data), _ZIP)
    if data[:4] == b"PK\x05\x06":
        return _ZIP
    for offset, magic, sniffed in _MAGIC:
        if data.startswith(magic, offset):
            return sniffed
    if data[4:8] == b"ftyp":
        return _MP4
    return _sniff_text(data)


def _sniff_text(data: bytes) -> Sniffed:
    bare = data.removeprefix(b"\xef\xbb\xbf")
    if _HTML_START.match(bare):
        return _HTML
    if b"%PDF-" in data:  # readers accept junk in front of it
        return _PDF
    start = bare.lstrip()[:5].lower()
    if start in (b"<?xml", b"<svg ") or bare.lstrip()[:4] == b"<rss":
        if _XHTML.search(bare):
            return _HTML
        return _SVG if b"<svg" in bare else _XML
    if not _is_text(data):
        return _UNKNOWN
    return _JSON if _JSON_START.match(bare) else _TEXT


def _is_text(data: bytes) -> bool:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return True
    if _CONTROL.search(data):
        return False
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and len(data) == SNIFF_BYTES
    return True


# --- pages instead of files

_GENERIC: Final = frozenset(
    {"", "application/octet-stream", "binary/octet-stream", "application/x-empty", "text/plain", "application/download"}
)
_PAGE_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
_PAGE_EXTENSIONS: Final = frozenset({"html", "htm", "xhtml", "php", "asp", "aspx", "jsp", "cgi", "shtml", "do"})
_FILE_EXTENSIONS: Final = frozenset(
    [
        "pdf",
        "zip",
        "gz",
        "tgz",
        "bz2",
        "xz",
        "zst",
        "tar",
        "7z",
        "rar",
        "epub",
        "mobi",
        "azw3",
        "djvu",
        "ps",
        "doc",
        "docx",
        "xls",
        "xlsx",
        "ppt",
        "pptx",
        "odt",
        "csv",
        "tsv",
        "json",
        "jsonl",
        "parquet",
        "png",
        "jpg",
        "jpeg",
        "gif",
        "webp",
        "tif",
        "tiff",
        "svg",
        "mp3",
        "m4a",
        "m4b",
        "ogg",
        "flac",
        "wav",
        "mp4",
        "mkv",
        "webm",
        "avi",
        "iso",
        "bin",
        "exe",
        "dmg",
        "whl",
        "jar",
        "deb",
        "rpm",
        "img",
        "xml",
        "nc",
        "h5",
        "hdf5",
        "npy",
        "npz",
        "sqlite",
        "db",
        "torrent",
    ]
)
_CHALLENGE_HEADERS: Final = (("cf-mitigated", "challenge"), ("x-amzn-waf-action", ""), ("x-datadome", "protected"))
_CHALLENGE = re.compile(
    rb"just a moment\.\.\.|challenge-platform|cf[-_]chl|cf-browser-verification|attention required! \| cloudflare"
    rb"|checking your browser|g-recaptcha|h-captcha|hcaptcha\.com|px-captcha|captcha-delivery|_incapsula_|ddos-guard"
    rb"|are you a (?:human|robot)|verify (?:that )?you are (?:a )?human|enable javascript and cookies to continue",
    re.IGNORECASE,
)
_LOGIN = re.compile(
    rb"type\s*=\s*[\"']?password|<title[^>]*>[^<]*(?:log ?in|sign ?in|anmelden|access denied|authenticat)"
    rb"|samlrequest|shibboleth|openathens",
    re.IGNORECASE,
)


def is_challenge(status: int, headers: Mapping[str, str], first: bytes) -> bool:
    """Return whether a refusal is a challenge to prove that one is a person."""
    if any(headers.get(name, "-").lower().startswith(value) for name, value in _CHALLENGE_HEADERS if name in headers):
        return True
    return (
        status in (401, 403, 405, 429, 503) and bool(first) and sniff(first) is _HTML and bool(_CHALLENGE.search(first))
    )


def page_instead(first: bytes, *, urls: Iterable[str], declared: str | None, expected: str | None) -> Reasoned | None:
    """Return an error if the body is an HTML page instead of a file, or None. A requested HTML page is fine.

    `urls`: the one that was asked for and the one that answered. Each may name a file: a redirect from `paper.pdf` to
    `/login` does not make the page a paper.
    """
    if sniff(first) is not _HTML:
        return None
    if expected is not None:
        promised = None if _base(expected) in _PAGE_TYPES else _base(expected)
    else:
        promised = next((found for url in urls if (found := _promise(url, declared))), None)
    if promised is None:
        return None
    if _CHALLENGE.search(first) or _LOGIN.search(first):
        return Reasoned("blocked_challenge", f"a challenge or login page came instead of {promised}")
    return Reasoned("html_page", f"an HTML page came instead of {promised}")


def _promise(url: str, declared: str | None) -> str | None:
    """Return what URL and Content-Type promise, if it is something other than a page."""
    kind = _base(declared or "")
    if kind not in _GENERIC and kind not in _PAGE_TYPES:
        return None if kind.startswith("text/") or kind.endswith("xml") else kind
    name = url.partition("?")[0].partition("#")[0].rpartition("/")[2]
    ext = name.rpartition(".")[2].lower() if "." in name else ""
    return f".{ext}" if ext in _FILE_EXTENSIONS and ext not in _PAGE_EXTENSIONS else None


def type_mismatch(first: bytes, expected: str | None) -> Reasoned | None:
    """Return an error if the bytes do not have the type that the job expects, or None."""
    if expected is None:
        return None
    wanted, sniffed = _base(expected), sniff(first)
    if _fits(wanted, sniffed.media_type):
        return None
    return Reasoned("type_mismatch", f"{wanted} was expected, {sniffed.media_type} came")


_SAME: Final = {
    "application/x-pdf": "application/pdf",
    "application/x-gzip": "application/gzip",
    "application/x-zip-compressed": "application/zip",
    "image/jpg": "image/jpeg",
    "text/xml": "application/xml",
    "text/json": "application/json",
    "application/xhtml+xml": "text/html",
    "audio/mp3": "audio/mpeg",
    "application/x-rar-compressed": "application/vnd.rar",
}
_RECOGNISED: Final = frozenset(
    {sniffed.media_type for _, _, sniffed in _MAGIC}
    | {sniffed.media_type for _, sniffed in _IN_ZIP}
    | {"application/zip", "text/html", "image/svg+xml"}
)


def _base(media_type: str) -> str:
    kind = media_type.partition(";")[0].strip().lower()
    return _SAME.get(kind, kind)


def _fits(wanted: str, came: str) -> bool:
    """Return whether bytes that look like `came` can be `wanted`. What sniffing cannot recognise is not held against it."""
    if wanted == came or wanted in _GENERIC or wanted in ("*/*", ""):
        return True
    if wanted.endswith("/*"):
        return came.startswith(wanted[:-1])
    if came == "application/zip" and any(wanted == sniffed.media_type for _, sniffed in _IN_ZIP):
        return True  # the telling member may come later than the first KiB
    if wanted == "application/zip" and any(came == sniffed.media_type for _, sniffed in _IN_ZIP):
        return True
    if wanted in _RECOGNISED:
        return False
    textual = ("text/", "application/json", "application/xml", "image/svg+xml")
    if wanted.startswith("text/") or wanted.endswith(("+xml", "+json", "/xml", "/json")):
        return came.startswith(textual) and came != "text/html"
    return came in (
        "application/octet-stream",
        "text/plain",
        "application/x-empty",
        "application/x-ole-storage",
        "video/mp4",
    )


def content_type(first: bytes, declared: str | None, *, sniffed: str | None = None) -> str:
    """Choose the type that is recorded: what the bytes say, or the server's word where the bytes say nothing special."""
    sniffed = sniffed or sniff(first).media_type
    if sniffed in ("application/octet-stream", "text/plain") and declared:
        kind = declared.partition(";")[0].strip().lower()
        if "/" in kind and len(kind) < 128 and kind not in _PAGE_TYPES and kind not in _RECOGNISED:
            return kind
    return sniffed


# --- lengths


def length_fault(head: Head, *, size: int, expect: Expect, received: int | None = None) -> Reasoned | None:
    """Compare declared and expected lengths with `size` (of the whole object) and `received` (of this body)."""
    declared = head.length
    if received is not None and declared is not None and received != declared:
        reason = "truncated" if received < declared else "length_mismatch"
        return Reasoned(reason, f"{received} bytes came, {declared} were declared")
    total = head.total
    if total is not None and size != total:
        reason = "truncated" if size < total else "length_mismatch"
        return Reasoned(reason, f"{size} bytes are here, the object has {total}")
    if expect.size_bytes is not None and size != expect.size_bytes:
        return Reasoned("size_mismatch", f"{size} bytes came, {expect.size_bytes} were expected")
    return None


def unverified_length(head: Head) -> bool:
    """Return whether nothing but a closed connection said that the body was complete."""
    return not head.delimited
