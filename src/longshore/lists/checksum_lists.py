"""Manifests: BagIt's `fetch.txt`, and `SHA256SUMS` with the base URL of its names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from longshore.domain.identity.requests import DIGEST_LENGTHS, download_request
from longshore.domain.model import JobRequest
from longshore.errors import BadInput
from longshore.lists.lines import BadLine, text_lines, with_text

FETCH_LINE: Final = re.compile(r"(\S+)[ \t]+([0-9]{1,19}|-)[ \t]+(\S.*)\Z")
SUM_LINE: Final = re.compile(r"(\\?)([0-9a-fA-F]{32,128}) [ *](.+)\Z")
BSD_LINE: Final = re.compile(r"(MD5|SHA1|SHA256|SHA512) \((.+)\) = ([0-9a-fA-F]+)\Z")
_BY_LENGTH: Final = {length: name for name, length in DIGEST_LENGTHS.items()}
_ESCAPES: Final = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}


def name_inside(name: str) -> str:
    """Return the name; raise `BadInput` if it points outside its directory."""
    if name.startswith(("/", "~")) or "\\" in name or ".." in name.split("/") or "\0" in name:
        raise BadInput(f"the name leads outside: {name[:120]!r}")
    return name


def read_fetch(blocks: Iterator[bytes], sums: Mapping[str, str] | None = None) -> Iterator[JobRequest | BadLine]:
    """Read `URL LENGTH NAME` lines; `sums` are the SHA-256 of the bag's manifest by name."""
    for number, line in text_lines(blocks):
        if isinstance(line, BadLine):
            yield line
        elif line.strip() and not line.startswith("#"):
            yield with_text(_fetch_line(number, line.strip(), sums or {}), line)


def _fetch_line(number: int, line: str, sums: Mapping[str, str]) -> JobRequest | BadLine:
    match = FETCH_LINE.match(line)
    if match is None:
        return BadLine(number, "fetch.txt lines are URL LENGTH NAME")
    url, length, name = match.groups()
    try:
        name = name_inside(re.sub(r"%0[AaDd]|%25", _unescape, name))
        size = None if length == "-" else int(length)
        return download_request(url, size_bytes=size, sha256=sums.get(name), name=name)
    except BadInput as error:
        return BadLine(number, str(error))


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[0][1:], 16))


def read_sums(blocks: Iterator[bytes], base_url: str | None) -> Iterator[JobRequest | BadLine]:
    """Read lines of `sha256sum` and its siblings; each name is fetched from under the base URL."""
    if not base_url:
        raise BadInput("a list of checksums needs the base URL of its names", hint="add --base-url URL")
    base = base_url if base_url.endswith("/") else base_url + "/"
    for number, line in text_lines(blocks):
        if isinstance(line, BadLine):
            yield line
        elif line.strip() and not line.startswith("#"):
            yield with_text(_sum_line(number, line, base), line)


def parse_sum(line: str) -> tuple[str, str, str]:
    """Parse one line into algorithm, digest and name."""
    if match := BSD_LINE.match(line):
        return match[1].lower(), match[3].lower(), match[2]
    match = SUM_LINE.match(line)
    if match is None or len(match[2]) not in _BY_LENGTH:
        raise BadInput("not a checksum line: DIGEST, two spaces, NAME")
    name = re.sub(r"\\[\\nr]", lambda one: _ESCAPES[one[0]], match[3]) if match[1] else match[3]
    return _BY_LENGTH[len(match[2])], match[2].lower(), name


def _sum_line(number: int, line: str, base: str) -> JobRequest | BadLine:
    try:
        algorithm, digest, name = parse_sum(line)
        name = name_inside(name.removeprefix("./"))
        known: dict[str, Any] = {"digests": [(algorithm, digest)]}
        return download_request(base + quote(name), name=name, **known)
    except BadInput as error:
        return BadLine(number, str(error))
