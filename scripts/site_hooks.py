"""Hooks of mkdocs: put what the pages link to outside docs/ on the site as well.

A page in the repository may link to `../../deploy/systemd`, and ARCHITECTURE.md to `docs/…`. On the site such a file is
below `repository/`: Markdown as a page, a folder as a page that lists its files, everything else as the file itself.
A target that does not exist is left as it is, so that the strict build reports it.

The pages are written for GitHub's Markdown. Python-Markdown needs an empty line before a list, and the theme would load
mermaid from another host, so the site leaves the diagrams out: the table above each of them has the same transitions.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
BELOW = "repository"
PROJECT_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
ITEM = re.compile(r"(?:[-*]|\d+\.) ")
MERMAID = re.compile(r"^```mermaid\n.*?^```\n?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")


def repository_path(uri: str) -> str:
    """Return the path in the repository of a page of the site."""
    return uri.removeprefix(f"{BELOW}/") if uri.startswith(f"{BELOW}/") else f"docs/{uri}"


def site_path(path: str) -> str | None:
    """Return the path on the site, before rendering, of a path in the repository; None if there is none."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("..") or not (ROOT / path).exists():
        return None
    if (ROOT / path).is_dir():
        return f"{BELOW}/{path}/index.md"
    return f"{BELOW}/{path}"


def targets(text: str, path: str) -> Iterator[str]:
    """Yield the paths in the repository that a page links to."""
    for _, link, _ in LINK.findall(text):
        if "://" not in link and not link.startswith("mailto:"):
            yield posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def with_site_links(text: str, uri: str) -> str:
    """Return the page with its links as they are on the site."""
    path = repository_path(uri)

    def mapped(found: re.Match[str]) -> str:
        target = next(targets(found[0], path), None)
        place = site_path(target) if target else None
        return found[1] + (posixpath.relpath(place, posixpath.dirname(uri)) if place else found[2]) + found[3]

    return LINK.sub(mapped, text)


def with_list_breaks(text: str) -> str:
    """Return the page with an empty line before every list."""
    lines: list[str] = []
    fenced = in_list = False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        begins = bool(ITEM.match(line)) and not fenced
        if begins and not in_list and lines and lines[-1].strip():
            lines.append("")
        in_list = begins or (in_list and bool(line.strip()))
        lines.append(line)
    return "\n".join(lines) + "\n"


def listing(folder: str) -> str:
    """Return a page that links to the files of a folder."""
    names = sorted(one.relative_to(ROOT / folder).as_posix() for one in (ROOT / folder).rglob("*") if one.is_file())
    return "\n".join([f"# {folder}", "", *(f"- [`{name}`]({name})" for name in names), ""])


def linked_outside() -> set[str]:
    """Return every path outside docs/ that a page links to, and the project's own pages."""
    found = set(PROJECT_PAGES)
    for path in [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in PROJECT_PAGES)]:
        found.update(targets(path.read_text(), path.relative_to(ROOT).as_posix()))
    return {path for path in found if not f"{path}/".startswith("docs/") and site_path(path)}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is linked outside docs/."""
    from mkdocs.structure.files import File, InclusionLevel

    level = InclusionLevel.NOT_IN_NAV  # the navigation names those that it wants
    for path in sorted(linked_outside()):
        if (ROOT / path).is_dir():
            page = listing(path)
            files.append(File.generated(config, f"{BELOW}/{path}/index.md", content=page, inclusion=level))
            for one in targets(page, f"{path}/index.md"):
                _add(files, config, one)
        else:
            _add(files, config, path)
    return files


def _add(files: Files, config: MkDocsConfig, path: str) -> None:
    from mkdocs.structure.files import File, InclusionLevel

    uri = f"{BELOW}/{path}"
    if files.get_file_from_path(uri) is None:
        place = str(ROOT / path)
        files.append(File.generated(config, uri, abs_src_path=place, inclusion=InclusionLevel.NOT_IN_NAV))


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Adapt one page to the site."""
    return with_list_breaks(with_site_links(MERMAID.sub("", markdown), page.file.src_uri))
