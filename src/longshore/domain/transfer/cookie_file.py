"""Cookies of a file in Netscape's format (`cookies.txt`), and which of them a URL is sent with.

Seven fields with tabs between them: domain, whether it includes subdomains, path, secure, expiry in seconds (0: with the
session), name, value. `#HttpOnly_` before a domain is part of the format; other lines with # are comments. A line that does
not fit is refused with its number, never with its content, which may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from longshore.domain.transfer.redirects import read_target
from longshore.errors import BadInput, Reasoned

MOST: Final = 3_000  # cookies of one file
LONGEST: Final = 8_192  # bytes of one line, and of the header that is sent: servers refuse larger ones
_HTTP_ONLY: Final = "#HttpOnly_"
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z:/@\[\]{}()?<>]*\Z")
_VALUE: Final = re.compile(r"[^\x00-\x1f\x7f;]*\Z")
_HOST: Final = re.compile(r"[a-z0-9_.:\[\]-]+\Z")
_ADDRESS: Final = re.compile(r"[\d.]+\Z|\[.*\]\Z|.*:")


@dataclass(frozen=True, slots=True, repr=False)
class Cookie:
    """One cookie. Has no repr: it must never reach a log."""

    domain: str
    subdomains: bool
    path: str
    secure: bool
    expires: int  # seconds since 1970; 0: not by itself
    name: str
    value: str

    def __repr__(self) -> str:
        return "Cookie(…)"

    def belongs_to(self, scheme: str, hostname: str, path: str) -> bool:
        """Return whether it is sent to a URL with these parts."""
        if self.secure and scheme != "https":
            return False
        own = hostname == self.domain
        if not own and not (self.subdomains and hostname.endswith("." + self.domain)):
            return False
        if path == self.path or not path.startswith(self.path):
            return path == self.path
        return self.path.endswith("/") or path[len(self.path)] == "/"


class CookieTable:
    """The cookies of a file."""

    def __init__(self, cookies: Iterable[Cookie] = ()) -> None:
        self._cookies = sorted(cookies, key=lambda cookie: -len(cookie.path))  # the longest path first (RFC 6265)

    def __bool__(self) -> bool:
        return bool(self._cookies)

    def pairs(self, url: str, now: float) -> dict[str, str]:
        """Return the names and values that a request for a URL is sent with at this time."""
        try:
            target = read_target(url)
        except Reasoned:  # never sent
            return {}
        if target.scheme not in ("http", "https"):
            return {}
        path = "/" + target.url.split("/", 3)[3].partition("?")[0]
        found: dict[str, str] = {}
        room = LONGEST
        for cookie in self._cookies:
            if cookie.belongs_to(target.scheme, target.hostname, path) and not 0 < cookie.expires <= now:
                room -= len(cookie.name) + len(cookie.value) + 3
                if cookie.name not in found and room >= 0:
                    found[cookie.name] = cookie.value
        return found


def parse_cookies(text: str, place: str) -> CookieTable:
    """Parse the text of a cookie file; raise `BadInput` with the number of a line that is not understood."""
    cookies: list[Cookie] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip() or (line.startswith("#") and not line.startswith(_HTTP_ONLY)):
            continue
        try:
            cookies.append(_cookie(line))
        except ValueError as error:
            raise BadInput(
                f"{place}:{number}: {error}", hint="a cookie has seven fields with tabs between them"
            ) from None
    if len(cookies) > MOST:
        raise BadInput(
            f"{place} has {len(cookies)} cookies; {MOST} are allowed", hint="keep those of the hosts you need"
        )
    return CookieTable(cookies)


def _cookie(line: str) -> Cookie:
    if len(line) > LONGEST:
        raise ValueError("the line is too long")
    fields = line.removeprefix(_HTTP_ONLY).split("\t")
    if len(fields) == 6:  # written without the last tab: an empty value
        fields.append("")
    if len(fields) != 7:
        raise ValueError(f"{len(fields)} fields instead of 7")
    domain, subdomains, path, secure, expires, name, value = fields
    domain = domain.lower()
    if not _HOST.match(domain) or not domain.strip("."):
        raise ValueError("the domain is not a host")
    if not path.startswith("/") or not _VALUE.match(path):
        raise ValueError("the path does not begin with /")
    if not re.match(r"\d{1,15}(\.\d+)?\Z", expires, re.ASCII):
        raise ValueError("the expiry is not a number")
    if not _NAME.match(name) or not _VALUE.match(value) or not (name or value):
        raise ValueError("the name or the value has characters that a cookie cannot have")
    wide = _flag(subdomains, "subdomains")
    host = domain.removeprefix(".")
    if wide and "." not in host and host != "localhost":
        raise ValueError("the cookie is for a whole top-level domain")
    wide = wide and not _ADDRESS.match(host)  # an address has no subdomains
    return Cookie(host, wide, path, _flag(secure, "secure"), int(float(expires)), name, value)


def _flag(text: str, what: str) -> bool:
    if text.upper() not in ("TRUE", "FALSE"):
        raise ValueError(f"{what} is TRUE or FALSE")
    return text.upper() == "TRUE"
