"""Where a URL leads and whether we follow: each hop is judged before anything is sent.

What is requested is the canonical URL (the WHATWG href without fragment, credentials taken out), the same text that a job's
identity is made of: two URLs that are one job are one request. Percent-escapes stay as they were written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

import ada_url

from longshore.domain.identity.plain_urls import CANONICAL
from longshore.domain.policy.redaction import safe_url
from longshore.domain.transfer.credentials import SCHEMES, Credential
from longshore.errors import Reasoned

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_WEB: Final = frozenset({"http", "https"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BEYOND_ASCII = re.compile(r"[\x80-\xff]")
_DEFAULT_PORT: Final = {"http": "80", "https": "443", "ftp": "21", "ftps": "990", "sftp": "22"}


@dataclass(slots=True)  # not frozen: one is made for every request, and freezing costs three times as much
class Target:
    """One parsed URL: the request target, the host and the credentials."""

    url: str  # what goes to libcurl: without credentials and fragment
    scheme: str
    host: str  # with the port, if it is not the scheme's own: politeness counts it
    hostname: str
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def origin(self) -> tuple[str, str]:
        """Scheme and host: what credentials belong to."""
        return self.scheme, self.host

    @property
    def credential(self) -> Credential | None:
        """What the URL itself says about who asks."""
        if self.username is None and self.password is None:
            return None
        return Credential(username=self.username or "", password=self.password)


def read_target(raw: str) -> Target:
    """Read a URL that was asked for; raise `bad_url` or `forbidden_scheme`."""
    return _usual_target(raw) or _any_target(raw)


def _usual_target(raw: str) -> Target | None:
    """Read a URL that is its own canonical form, just as the WHATWG parser reads it, in a tenth of the time."""
    match = CANONICAL.fullmatch(raw)
    if match is None or "xn--" in raw:
        return None
    host = match[1]
    return Target(raw, raw[: raw.index(":")], host, host.partition(":")[0])


def _any_target(raw: str) -> Target:
    if _CONTROL.search(raw):
        raise Reasoned("bad_url", "the URL has control characters")
    try:
        parsed = ada_url.URL(raw)
    except ValueError:
        raise Reasoned("bad_url", f"not a URL: {safe_url(raw, 200)}") from None
    scheme = parsed.protocol[:-1]
    if scheme not in SCHEMES:
        raise Reasoned("forbidden_scheme", f"{scheme}: is not fetched; use http, https, ftp or sftp")
    if not parsed.hostname:
        raise Reasoned("bad_url", f"the URL has no host: {safe_url(raw, 200)}")
    host = _host(parsed, scheme)
    target = Target(
        url=_sent(parsed, scheme, host),
        scheme=scheme,
        host=host,
        hostname=parsed.hostname.strip("[]"),
        username=unquote(parsed.username, errors="surrogateescape") or None,  # bytes that are not UTF-8 stay bytes
        password=unquote(parsed.password, errors="surrogateescape") or None,
    )
    if scheme not in _WEB:
        _check_file_target(target)
    return target


def _host(parsed: ada_url.URL, scheme: str) -> str:
    """Return host and port; WHATWG knows no default port of sftp and ftps, so drop theirs here."""
    return parsed.hostname if parsed.port in ("", _DEFAULT_PORT[scheme]) else parsed.host


def _sent(parsed: ada_url.URL, scheme: str, host: str) -> str:
    """Return the text to request: the canonical URL without credentials and fragment."""
    if scheme not in _WEB:
        query = parsed.search.replace("?", "%3F")  # not a query: a question mark belongs to the file name
        return f"{scheme}://{host}{parsed.pathname or '/'}{query}"
    rest = str(parsed.href).partition("#")[0].split("/", 3)[3]  # an empty query is part of it: `/a?` is not `/a`
    return f"{scheme}://{host}/{rest}"


def _check_file_target(target: Target) -> None:
    path = target.url.split("://", 1)[1].partition("/")[2]
    if not path or unquote(path).endswith("/"):  # libcurl splits the decoded path, and lists what ends in a slash
        raise Reasoned("bad_url", f"{target.scheme}: names a directory, not a file")
    if _CONTROL.search(unquote(path)) or ";type=" in path.lower():
        raise Reasoned("bad_url", f"{target.scheme}: the path has control characters or a transfer type")


def next_target(current: Target, location: str | None) -> Target:
    """Judge one redirect: the target it leads to, or `forbidden_redirect`."""
    if not location:
        raise Reasoned("protocol_error", "a redirect without Location")
    if _CONTROL.search(location):
        raise Reasoned("forbidden_redirect", "the redirect's Location has control characters")
    try:
        resolved = ada_url.URL(_escaped(location), base=current.url)
    except ValueError:
        raise Reasoned("forbidden_redirect", "the redirect's Location is not a URL") from None
    scheme = resolved.protocol[:-1]
    if scheme not in _WEB:
        raise Reasoned("forbidden_redirect", f"a redirect leads to {scheme}:")
    if current.scheme == "https" and scheme == "http":
        raise Reasoned("forbidden_redirect", f"a redirect leads from https to http ({resolved.host})")
    if resolved.username or resolved.password:
        raise Reasoned("forbidden_redirect", f"a redirect carries credentials ({resolved.host})")
    return read_target(str(resolved.href))


def _escaped(location: str) -> str:
    """Percent-encode the bytes beyond ASCII one by one, as browsers do: the server meant its own bytes.

    A header's text has one character per byte, so that a Location in UTF-8 becomes its UTF-8 escapes and one in Latin-1 its
    own. In a host name the URL parser decodes them again.
    """
    return location if location.isascii() else _BEYOND_ASCII.sub(lambda one: f"%{ord(one[0]):02X}", location)
