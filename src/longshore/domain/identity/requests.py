"""Turn user input into a `JobRequest`: validate it, canonicalize it and compute its key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import ada_url

from longshore.domain.identity.expectations import request_key
from longshore.domain.identity.keys import canonical_url, check_text, shown
from longshore.domain.identity.plain_urls import CANONICAL, MAX_PLAIN, plain_key
from longshore.domain.model import DOWNLOAD, Expect, JobRequest
from longshore.domain.transfer.credentials import SCHEMES
from longshore.domain.transfer.job_headers import FORBIDDEN_JOB_HEADERS
from longshore.errors import BadInput, NotAUrl

Digests = Iterable[tuple[str, str]] | Mapping[str, str]
RUN_ID: Final = 1024  # characters of a run's name at most
DIGEST_LENGTHS: Final = {"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}
_NO_EXPECTATION: Final = Expect()
_HEX = re.compile(r"[0-9a-f]+\Z")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_MEDIA_TYPE = re.compile(r"\s*[\w!#$&^.+-]+/[\w!#$&^.+*-]+\s*(?:;.*)?\Z", re.ASCII)
MAGNET: Final = "a magnet belongs to a book and a user: `longshore torrent add`, or POST /api/v1/torrents"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def plain_request(url: str) -> JobRequest | None:
    """Make the request of a URL that needs no checking: exactly what `download_request(url)` gives, at a third of the price.

    None where it is not certain that nothing needs to be checked; a list has a million of these.
    """
    match = CANONICAL.fullmatch(url)
    if match is None or "xn--" in url or len(url) > MAX_PLAIN:
        return None
    return JobRequest(DOWNLOAD, plain_key(url), url, url, url, url, match[1], (), _NO_EXPECTATION, None, (), 0, {})


def download_request(
    url: str,
    *,
    work_id: str | None = None,
    artifact_id: str | None = None,
    mirrors: Iterable[str] = (),
    sha256: str | None = None,
    size_bytes: int | None = None,
    media_type: str | None = None,
    digests: Digests = (),
    name: str | None = None,
    headers: Iterable[tuple[str, str]] = (),
    priority: int = 0,
    params: dict[str, Any] | None = None,
    run_id: str | None = None,
    request_id: str | None = None,
    retry_of: str | None = None,
) -> JobRequest:
    """Check one download as it is handed in and give it its key. A URL alone stands for its work and artifact too."""
    check_text("url", url)
    if _CONTROL.search(url):
        raise NotAUrl("a URL has no control characters")
    try:
        canonical = ada_url.normalize_url(url).partition("#")[0]
    except ValueError:
        raise NotAUrl(f"not a URL: {shown(url)!r}", hint=_port_hint(url)) from None
    plain = sha256 is None and size_bytes is None and media_type is None and not digests
    own = tuple(_header(*header) for header in headers)
    return JobRequest(
        job_type=DOWNLOAD,
        key=request_key(work_id or canonical, artifact_id or canonical, canonical, own),
        work_id=work_id or canonical,
        source_ref=artifact_id or canonical,
        url=url,
        canonical_url=canonical,
        host=authority(canonical),
        mirrors=_mirrors(canonical, mirrors),
        expect=_NO_EXPECTATION if plain else _expectation(sha256, size_bytes, media_type, digests),
        name=name if name is None else check_text("name", name),
        headers=own,
        priority=_integer("priority", priority, -1_000_000, 1_000_000),
        params=params or {},
        run_id=run_id if run_id is None else check_text("run_id", run_id, limit=RUN_ID),
        request_id=request_id,
        retry_of=retry_of,
    )


class Defaults:
    """The run and the media type of requests that name none themselves."""

    def __init__(self, run_id: str | None = None, media_type: str | None = None) -> None:
        self._run_id = run_id if run_id is None else check_text("run_id", run_id, limit=RUN_ID)
        self._media_type = media_type
        self._plain = _expectation(None, None, media_type, ()) if media_type is not None else _NO_EXPECTATION
        self.empty = run_id is None and media_type is None

    def applied(self, request: JobRequest) -> JobRequest:
        """Return the request with the defaults."""
        if self.empty:
            return request
        expect = request.expect
        if self._media_type is not None and expect.media_type is None:
            plain = expect is _NO_EXPECTATION or expect == _NO_EXPECTATION
            expect = self._plain if plain else replace(expect, media_type=self._media_type)
        return replace(request, run_id=request.run_id or self._run_id, expect=expect)


def _port_hint(url: str) -> str | None:
    """Return a hint if the port is what is wrong with a URL."""
    port = re.match(r"[a-z]+://[^/?#]*:([^/?#@:\]]+)(?:[/?#]|\Z)", url, re.IGNORECASE)
    wrong = port is not None and not (port[1].isascii() and port[1].isdigit() and int(port[1][:6]) < 65_536)
    return f"{port[1][:20]} is not a port: a port is a number from 1 to 65535" if port and wrong else None


def authority(canonical: str) -> str:
    """Read host and port out of a canonical URL: the same as `keys.host_of`, without parsing it again."""
    rest = canonical.partition(":")[2]
    if not rest.startswith("//"):
        return ""
    return rest[2:].partition("/")[0].partition("?")[0].rpartition("@")[2]


def _expectation(sha256: str | None, size_bytes: int | None, media_type: str | None, digests: Digests) -> Expect:
    if media_type is not None and not _MEDIA_TYPE.match(check_text("media_type", media_type)):
        raise BadInput(f"media_type is a type and a subtype, like application/pdf, not {media_type[:80]!r}")
    if size_bytes is not None:
        _integer("size_bytes", size_bytes, 0, 1 << 62)
    known: dict[str, str] = {}
    for algorithm, value in (*_pairs(digests), *((("sha256", sha256),) if sha256 is not None else ())):
        name, digest = _digest(algorithm, value)
        if known.setdefault(name, digest) != digest:
            raise BadInput(f"two different {name} digests are expected of one file")
    return Expect(
        sha256=known.pop("sha256", None),
        size_bytes=size_bytes,
        media_type=media_type,
        digests=tuple(sorted(known.items())),
    )


def _pairs(digests: Digests) -> list[tuple[str, str]]:
    """Return algorithms and digests, however they were given."""
    try:
        return [(name, value) for name, value in (digests.items() if isinstance(digests, Mapping) else digests)]
    except (TypeError, ValueError):
        raise BadInput('digests are pairs of algorithm and digest, or a mapping: {"md5": "…"}') from None


def _digest(algorithm: str, value: str) -> tuple[str, str]:
    algorithm = check_text("a digest's algorithm", algorithm)
    algorithm = algorithm.lower().replace("-", "")
    if algorithm not in DIGEST_LENGTHS:
        raise BadInput(f"digests are {', '.join(sorted(DIGEST_LENGTHS))}, not {algorithm!r}")
    value = check_text(algorithm, value).strip().lower()
    if len(value) != DIGEST_LENGTHS[algorithm] or not _HEX.match(value):
        raise BadInput(f"{algorithm} has {DIGEST_LENGTHS[algorithm]} hexadecimal digits, not {value[:140]!r}")
    return algorithm, value


def _mirrors(canonical: str, mirrors: Iterable[str]) -> tuple[str, ...]:
    """Check the mirrors; drop duplicates and the URL itself."""
    found: dict[str, str] = {canonical: ""}
    for url in mirrors:
        if _CONTROL.search(check_text("mirror", url)):
            raise NotAUrl("a URL has no control characters")
        if not _is_fetched(mirror := canonical_url(url)):
            raise NotAUrl(f"a mirror is a URL of http, https, ftp or sftp with a host, not {shown(url)!r}")
        found.setdefault(mirror, url)
    return tuple(found.values())[1:]


def without_other_schemes(urls: Sequence[str]) -> list[str]:
    """Return the URLs without those of schemes that are not fetched; all of them if no other is left.

    For lists that are written for many programs: a Metalink that names a torrent and a web server is a good one.
    """
    return [url for url in urls if not _is_for_others(url)] or list(urls)


def check_fetched(request: JobRequest) -> JobRequest:
    """Return a request of a list; raise `NotAUrl` if its scheme is never fetched, so that it never becomes a job."""
    if not _is_fetched(request.canonical_url or ""):
        scheme = (request.canonical_url or "").partition(":")[0]
        if scheme == "magnet":
            raise NotAUrl(MAGNET)
        raise NotAUrl(f"{scheme}: is not fetched; use http, https, ftp or sftp with a host: {shown(request.url or '')}")
    return request


def _is_for_others(url: str) -> bool:
    try:
        return not _is_fetched(canonical_url(url))
    except BadInput:  # not a URL at all: the list is told so
        return False


def _is_fetched(canonical: str) -> bool:
    return canonical.partition(":")[0] in SCHEMES and bool(authority(canonical))


def _header(name: str, value: str) -> tuple[str, str]:
    if not _TOKEN.match(check_text("header name", name)) or _CONTROL.search(
        check_text("header value", value, empty=True)
    ):
        raise BadInput(f"not a header: {name[:80]!r}")
    if name.lower() in FORBIDDEN_JOB_HEADERS:
        raise BadInput(f"the header {name} is set by the program itself", hint="leave it out")
    return name, value


def _integer(name: str, value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadInput(f"{name} must be a whole number from {least} to {most}")
    return value
