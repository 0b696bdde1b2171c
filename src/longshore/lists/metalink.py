"""A streaming reader for Metalink 4 (RFC 5854).

The parser never fetches anything and rejects every document type declaration, and with it all entity expansion attacks.
A file is rejected if one of its values cannot be parsed, if two of its values contradict each other, or if none of its
hashes covers the whole file with a supported algorithm, because it would seem verifiable without being so. Next to a
supported hash, hashes of unknown types are ignored. Next to a supported URL, URLs of other schemes (rsync, magnet) are
ignored.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from longshore.domain.identity.requests import DIGEST_LENGTHS, download_request, without_other_schemes
from longshore.domain.model import JobRequest
from longshore.errors import BadInput
from longshore.lists.lines import BadLine, agreed

NAMESPACE: Final = "urn:ietf:params:xml:ns:metalink"
_LAST: Final = 999_999  # RFC 5854: the priority of a URL without one
_PRIORITY: Final = re.compile(r"0{0,8}[1-9][0-9]{0,5}\Z")
_SIZE: Final = re.compile(r"[0-9]{1,19}\Z")
_MAX_TEXT: Final = 64 << 10
_MAX_URLS: Final = 1000
_MAX_DEPTH: Final = 64


class _Refused(Exception):
    """The document uses XML features that Metalink does not need."""


@dataclass(slots=True)
class _File:
    line: int
    name: str | None
    sizes: set[str] = field(default_factory=set)
    urls: list[tuple[str, str]] = field(default_factory=list)  # priority, URL
    hashes: set[tuple[str, str]] = field(default_factory=set)  # type, value
    has_pieces: bool = False

    def request(self) -> JobRequest | BadLine:
        """Return the job, with the URLs sorted by priority, the best first."""
        try:
            ordered = [
                url for _, url in sorted(((_priority(text), url) for text, url in self.urls), key=lambda p: p[0])
            ]
            ordered = without_other_schemes(ordered)
            if not ordered:
                raise BadInput(f"file {self.name or ''!r:.100} has no url")
            return download_request(
                ordered[0], mirrors=ordered[1:], size_bytes=self._size(), digests=self._digests(), name=self.name
            )
        except BadInput as error:
            return BadLine(self.line, str(error))

    def _size(self) -> int | None:
        if not self.sizes:
            return None
        (first, *others) = sorted(self.sizes)
        if others or not _SIZE.match(first):
            raise BadInput(f"size must be one whole number, not {', '.join(sorted(self.sizes))[:80]!r}")
        return int(first)

    def _digests(self) -> list[tuple[str, str]]:
        if self.has_pieces and not self.hashes:
            raise BadInput(
                "the file has hashes of its pieces only, which are not checked here; it needs a hash of the whole"
            )
        known = {(name, value) for name, value in self.hashes if name.replace("-", "") in DIGEST_LENGTHS}
        if self.hashes and not known:
            types = ", ".join(sorted({name or "none" for name, _ in self.hashes}))
            raise BadInput(
                f"no hash of the file can be computed here (types: {types[:80]}); {', '.join(DIGEST_LENGTHS)} can"
            )
        return agreed(sorted(known))


def _priority(text: str) -> int:
    if not text:
        return _LAST
    if not _PRIORITY.match(text):
        raise BadInput(f"a url's priority is a whole number from 1 to {_LAST}, not {text[:80]!r}")
    return int(text)


class _Reader:
    """The handlers for expat, and the files parsed so far."""

    def __init__(self) -> None:
        self.ready: deque[JobRequest | BadLine] = deque()
        self.path: list[str] = []
        self.file: _File | None = None
        self.text: list[str] = []
        self.length = 0
        self.attributes: dict[str, str] = {}
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.StartDoctypeDeclHandler = self.refuse
        self.parser.EntityDeclHandler = self.refuse
        self.parser.buffer_text = True

    def refuse(self, *_: object) -> None:
        """Reject a document type or an entity."""
        raise _Refused("document types and entities are refused")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Enter an element."""
        namespace, _, name = tag.rpartition(" ")
        if not self.path and (name, namespace) != ("metalink", NAMESPACE):
            raise _Refused(f"not Metalink 4: the root is {name} of {namespace or 'no namespace'}")
        if len(self.path) >= _MAX_DEPTH:
            raise _Refused("nested too deeply")
        self.path.append(name)
        self.text.clear()
        self.length, self.attributes = 0, attributes
        if self.path == ["metalink", "file"]:
            self.file = _File(self.parser.CurrentLineNumber, attributes.get("name"))

    def characters(self, data: str) -> None:
        """Collect text, up to a limit."""
        self.length += len(data)
        if self.length > _MAX_TEXT:
            raise _Refused("an element has too much text")
        self.text.append(data)

    def end(self, _tag: str) -> None:
        """Leave an element and store its value in the current file."""
        text = "".join(self.text).strip()
        self.text.clear()
        if self.file is not None and len(self.path) == 3:
            self._keep(self.file, self.path[2], text)
        if self.path == ["metalink", "file"] and self.file is not None:
            self.ready.append(self.file.request())
            self.file = None
        self.path.pop()

    def _keep(self, file: _File, name: str, text: str) -> None:
        if name == "pieces":
            file.has_pieces = True
        elif name == "size":
            file.sizes.add(text)
        elif name == "hash":
            file.hashes.add((self.attributes.get("type", "").strip().lower(), text.lower()))
        elif name == "url" and len(file.urls) < _MAX_URLS:
            file.urls.append((self.attributes.get("priority", "").strip(), text))


def read_metalink(blocks: Iterator[bytes]) -> Iterator[JobRequest | BadLine]:
    """Yield the files of a Metalink; after an XML error, yield a `BadLine` and stop."""
    reader = _Reader()
    try:
        for block in blocks:
            reader.parser.Parse(block, False)
            while reader.ready:
                yield reader.ready.popleft()
        reader.parser.Parse(b"", True)
    except (expat.ExpatError, _Refused, ValueError, LookupError) as error:  # the last two: a bad declared encoding
        yield from reader.ready
        reason = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else str(error)
        yield BadLine(reader.parser.CurrentLineNumber, f"the document cannot be read beyond this line: {reason}")
        return
    yield from reader.ready
