"""Metalink 4 (RFC 5854), read as it streams in.

The parser never fetches anything and refuses every document type declaration: there are no entities, so none explode.
A file is refused when a value of it cannot be read, when two of its values contradict each other, and when it has hashes but
none of a type that we can compute: it must not be taken as if it could be verified. Beside one that can be computed, a hash
of an unknown type is passed over.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from longshore.domain.model import JobRequest
from longshore.domain.requests import DIGEST_LENGTHS, download_request
from longshore.errors import BadInput
from longshore.lists.lines import BadLine, agreed

NAMESPACE: Final = "urn:ietf:params:xml:ns:metalink"
_LAST: Final = 999_999  # what RFC 5854 says of a URL without priority
_PRIORITY: Final = re.compile(r"0{0,8}[1-9][0-9]{0,5}\Z")
_SIZE: Final = re.compile(r"[0-9]{1,19}\Z")
_MAX_TEXT: Final = 64 << 10
_MAX_URLS: Final = 1000
_MAX_DEPTH: Final = 64


class _Refused(Exception):
    """The document uses what no Metalink needs."""


@dataclass(slots=True)
class _File:
    line: int
    name: str | None
    sizes: set[str] = field(default_factory=set)
    urls: list[tuple[str, str]] = field(default_factory=list)  # priority, URL
    hashes: set[tuple[str, str]] = field(default_factory=set)  # type, value

    def request(self) -> JobRequest | BadLine:
        """Make the job: URLs by priority, the best first."""
        try:
            ordered = [
                url for _, url in sorted(((_priority(text), url) for text, url in self.urls), key=lambda p: p[0])
            ]
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
    """The handlers that expat calls, and the files that are ready."""

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
        """Stop at a document type or an entity."""
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
        """Collect text, as much as a Metalink can mean."""
        self.length += len(data)
        if self.length > _MAX_TEXT:
            raise _Refused("an element has too much text")
        self.text.append(data)

    def end(self, _tag: str) -> None:
        """Leave an element: keep what it says of its file."""
        text = "".join(self.text).strip()
        self.text.clear()
        if self.file is not None and len(self.path) == 3:
            self._keep(self.file, self.path[2], text)
        if self.path == ["metalink", "file"] and self.file is not None:
            self.ready.append(self.file.request())
            self.file = None
        self.path.pop()

    def _keep(self, file: _File, name: str, text: str) -> None:
        if name == "size":
            file.sizes.add(text)
        elif name == "hash":
            file.hashes.add((self.attributes.get("type", "").strip().lower(), text.lower()))
        elif name == "url" and len(file.urls) < _MAX_URLS:
            file.urls.append((self.attributes.get("priority", "").strip(), text))


def read_metalink(blocks: Iterator[bytes]) -> Iterator[JobRequest | BadLine]:
    """Read the files of a Metalink; when the document breaks, what came before stands and the break is reported."""
    reader = _Reader()
    try:
        for block in blocks:
            reader.parser.Parse(block, False)
            while reader.ready:
                yield reader.ready.popleft()
        reader.parser.Parse(b"", True)
    except (expat.ExpatError, _Refused, ValueError, LookupError) as error:  # the last two: of a declared encoding
        yield from reader.ready
        reason = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else str(error)
        yield BadLine(reader.parser.CurrentLineNumber, f"the document ends here for us: {reason}")
        return
    yield from reader.ready
