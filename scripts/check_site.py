"""Check a built site: `python -m scripts.check_site build/site`.

Every local link, picture and anchor exists, raw HTML included; no page loads anything from another host; no list, table,
link or code block was left as plain text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    "script": "src",
    "img": "src",
    "source": "srcset",
    "iframe": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
}
LITERAL = {"code", "pre", "script", "style"}
LOADED_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "preconnect", "dns-prefetch", "manifest"}
UNRENDERED = re.compile(r"\n(?:[-*]|\d+\.) |\n\||\]\(|```")
CSS_URL = re.compile(r"""(?:url\(\s*|@import\s+)['"]?([^'")\s]+)""")


@dataclass
class Document(HTMLParser):
    """What one page loads, where it links to, and its anchors."""

    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    unrendered: list[str] = field(default_factory=list)
    literal: int = 0  # how many elements around this place show their text as it is

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what the tag loads, links to and names."""
        self.literal += tag in LITERAL
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if values.get(name))
        if address := values.get(LOADED.get(tag, "")):
            self.loads.append(address.split()[0])
        if tag == "link":
            loads = LOADED_LINKS & set(values.get("rel", "").split())
            (self.loads if loads else self.links).append(values.get("href", ""))
        elif tag == "a" and "href" in values:
            self.links.append(values["href"])
        if style := values.get("style"):
            self.loads.extend(CSS_URL.findall(style))

    def handle_endtag(self, tag: str) -> None:
        """Leave an element."""
        self.literal -= tag in LITERAL

    def handle_data(self, data: str) -> None:
        """Collect Markdown that was not rendered."""
        if not self.literal and (found := UNRENDERED.search(data)):
            self.unrendered.append(data[found.start() :][:60].strip())


def read(path: Path) -> Document:
    """Parse one page."""
    document = Document()
    document.feed(path.read_text("utf-8"))
    return document


def problems(site: Path) -> Iterator[str]:
    """Yield everything that is wrong with a site."""
    pages = {path.resolve(): read(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site}: no page"
    for path, document in pages.items():
        where = path.relative_to(site.resolve()).as_posix()
        yield from (f"{where}: loads {one}" for one in document.loads if _foreign(one))
        yield from (f"{where}: not rendered: {one}" for one in document.unrendered)
        # The page for unknown addresses is served anywhere: its links begin at the root.
        root = site.resolve() if where == "404.html" else path.parent
        for one in document.loads + document.links:
            if not _foreign(one) and not _exists(one, path, root, pages):
                yield f"{where}: dead link {one}"
    for path in sorted(site.rglob("*.css")):
        found = CSS_URL.findall(path.read_text("utf-8"))
        yield from (f"{path.relative_to(site)}: loads {one}" for one in found if _foreign(one))


def _foreign(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme in {"http", "https", "ftp", "mailto"}


def _exists(address: str, page: Path, root: Path, pages: dict[Path, Document]) -> bool:
    parts = urlsplit(address)
    if parts.scheme == "data":
        return True
    target = (root / unquote(parts.path).lstrip("/")).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return False
    anchor = unquote(parts.fragment)
    return not anchor or anchor in {"__top", "__skip"} or target not in pages or anchor in pages[target].anchors


def main() -> int:
    """Print the problems of a site."""
    found = list(problems(Path(sys.argv[1])))
    for one in found:
        print(one, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
