"""URL lines and aria2 input files: one reader, because each URL list is an aria2 file without options.

https://a.example/x<TAB>https://mirror.example/x
  out=x.pdf
  checksum=sha-256=…
  header=Referer: https://a.example/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from longshore.domain.identity.requests import check_fetched, download_request, plain_request
from longshore.domain.model import JobRequest
from longshore.errors import BadInput, NotAUrl
from longshore.lists.lines import BadLine, agreed, text_lines
from longshore.lists.scholarly_works import bare_doi

_OPTION: Final = re.compile(r"\s+([a-z][a-z0-9-]*)=(.*)\Z")
_HEADERS: Final = {"referer": "Referer", "user-agent": "User-Agent"}


def read_urls(blocks: Iterator[bytes]) -> Iterator[JobRequest | BadLine]:
    """Read one job per line; indented `name=value` lines belong to the job above."""
    item: _Item | None = None
    for number, line in text_lines(blocks):
        if isinstance(line, BadLine):
            if item is not None:
                yield item.request()
            item = None
            yield line
            continue
        if line[:1] in " \t" and (option := _OPTION.match(line)):
            if item is None:
                yield BadLine(number, f"option {option[1]!r} without a URL above it", line.encode())
            else:
                item.add(number, option[1], option[2])
                item.lines.append(line)
            continue
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if item is not None:
            yield item.request()
        item = _Item(number, line)
    if item is not None:
        yield item.request()


class _Item:
    """A URL line with the options that follow it."""

    __slots__ = ("bad", "line", "lines", "number", "options")

    def __init__(self, number: int, line: str) -> None:
        self.number, self.line = number, line
        self.lines = [line]
        self.options: dict[str, Any] | None = None
        self.bad: BadLine | None = None

    def add(self, number: int, name: str, value: str) -> None:
        """Add one option; ignore options that control aria2 itself."""
        if self.options is None:
            self.options = {"headers": [], "digests": []}
        if name == "out":
            self.options["name"] = value
        elif name == "checksum":
            algorithm, equals, digest = value.partition("=")
            if equals:
                self.options["digests"].append((algorithm, digest))
            else:
                self.bad = BadLine(number, f"checksum takes TYPE=DIGEST, not {value[:80]!r}")
        elif name == "header":
            field, colon, content = value.partition(":")
            if colon:
                self.options["headers"].append((field.strip(), content.strip()))
            else:
                self.bad = BadLine(number, f"header takes Name: value, not {value[:80]!r}")
        elif name in _HEADERS:
            self.options["headers"].append((_HEADERS[name], value))

    def request(self) -> JobRequest | BadLine:
        """Return the job, or a `BadLine` with the problem."""
        if self.bad is None and self.options is None and (plain := plain_request(self.line)) is not None:
            return plain
        made = self.bad or self._parsed()
        return replace(made, text="\n".join(self.lines).encode()) if isinstance(made, BadLine) else made

    def _parsed(self) -> JobRequest | BadLine:
        url, *mirrors = self.line.split("\t")
        options = dict(self.options or {})
        if (doi := bare_doi(url)) is not None:
            url, options["work_id"] = doi.url, doi.work_id
        try:
            mirrors = [mirror.strip() for mirror in mirrors if mirror.strip()]
            if "digests" in options:
                options["digests"] = agreed(options["digests"])
            return check_fetched(download_request(url.strip(), mirrors=mirrors, **options))
        except NotAUrl as error:
            if " " in self.line:
                return BadLine(self.number, f"{error} (mirrors are separated by TAB)")
            return BadLine(self.number, str(error))
        except BadInput as error:
            return BadLine(self.number, str(error))
