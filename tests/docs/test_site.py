"""The site of the documentation: its navigation, the links that leave docs/, and what its checker reports."""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.check_site import problems
from scripts.site_hooks import BELOW, PROJECT_PAGES, linked_outside, site_path, with_list_breaks, with_site_links
from tests.support.browser import chromium

ROOT = Path(__file__).parents[2]
CONFIGURATION = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def entries(nav: Any) -> Iterator[str]:
    """Yield the pages of a navigation."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for below in nav.values():
            yield from entries(below)
    else:
        for one in nav:
            yield from entries(one)


def test_every_page_is_in_the_navigation_once_and_every_entry_exists() -> None:
    named = sorted(entries(CONFIGURATION["nav"]))
    docs = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert named == sorted([*docs, *(f"{BELOW}/{name}" for name in PROJECT_PAGES)])


def test_the_navigation_has_the_four_groups_and_the_decisions() -> None:
    groups = [next(iter(group)) for group in CONFIGURATION["nav"]]
    assert groups == ["Longshore", "Tutorial", "How-to", "Reference", "Explanation", "Decisions"]


def test_a_link_that_leaves_the_folder_leads_to_a_copy_on_the_site() -> None:
    text = "[a](../../deploy/systemd) [b](../../ARCHITECTURE.md#terms) [c](../tutorial.md) [d](https://files.example/x)"
    assert with_site_links(text, "how-to/monitor.md") == (
        "[a](../repository/deploy/systemd/index.md) [b](../repository/ARCHITECTURE.md#terms)"
        " [c](../tutorial.md) [d](https://files.example/x)"
    )
    assert with_site_links("[t](docs/tutorial.md)", "repository/CHANGELOG.md") == "[t](../tutorial.md)"


def test_a_link_to_nothing_or_out_of_the_repository_stays_for_the_strict_build_to_report() -> None:
    assert with_site_links("[a](../../nothing.md)", "how-to/x.md") == "[a](../../nothing.md)"
    assert site_path("../elsewhere") is None


def test_what_pages_link_to_outside_is_found() -> None:
    assert {"ARCHITECTURE.md", "deploy/systemd", "deploy/prometheus/alerts.yaml"} <= linked_outside()


def test_a_list_behind_a_paragraph_gets_its_empty_line() -> None:
    assert with_list_breaks("**Do**\n- a\n- b\n  more\n- c\n") == "**Do**\n\n- a\n- b\n  more\n- c\n"
    assert with_list_breaks("```\nx\n- a\n```\n") == "```\nx\n- a\n```\n"


def test_the_checker_reports_foreign_hosts_dead_links_missing_anchors_and_raw_markdown(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<h1 id="top">x</h1><a href="#top">good</a><a href="other.html#there">good</a><a href="https://a.example">good</a>'
        '<script src="https://cdn.example/x.js"></script><img src="gone.png"><a href="#nowhere">bad</a>'
        "<p>Text\n- not a list</p><pre>\n- a list as it was typed</pre>"
    )
    (tmp_path / "other.html").write_text('<link rel="preconnect" href="//fonts.example"><h2 id="there">y</h2>')
    (tmp_path / "style.css").write_text("@import 'https://fonts.example/a.css'; a { background: url(data:x) }")
    assert sorted(problems(tmp_path)) == [
        "index.html: dead link #nowhere",
        "index.html: dead link gone.png",
        "index.html: loads https://cdn.example/x.js",
        "index.html: not rendered: - not a list",
        "other.html: loads //fonts.example",
        "style.css: loads https://fonts.example/a.css",
    ]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def copied(folder: Path) -> Path:
    """Copy what the site is made of: each test installs its own docs environment and builds its own site."""
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "build", "dist", "tests", "src"))
    (tree / ".venv").symlink_to(ROOT / ".venv")
    return tree


def build(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tree / "scripts" / "make-docs.sh"], capture_output=True, text=True)


@pytest.mark.torture
def test_the_built_site_asks_no_other_host(tmp_path: Path) -> None:
    tree = copied(tmp_path)
    built = build(tree)
    assert built.returncode == 0, built.stderr
    handler = functools.partial(Quiet, directory=str(tree / "build" / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, chromium() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{server.server_address[1]}/"
        asked: list[str] = []

        def visit(opened: Any) -> None:
            page = opened.new_page()
            page.on("request", lambda request: asked.append(request.url))
            for path in ("index.html", "reference/states.html", "how-to/monitor.html", "dashboard.html"):
                page.goto(here + path, wait_until="networkidle")

        browser.run(visit)
        server.shutdown()
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith((here, "data:"))] == []


@pytest.mark.torture
@pytest.mark.parametrize(
    ("page", "text", "said"),
    [
        ("new.md", "# A page without an entry\n", "not included in the"),
        ("tutorial.md", "[x](gone.md)\n", "contains a link 'gone.md'"),
        ("tutorial.md", "[x](dashboard.md#gone)\n", "does not contain an anchor"),
        ("tutorial.md", "[x](../deploy/gone)\n", "unrecognized relative link"),
        ("tutorial.md", '<img src="images/gone.png">\n', "dead link images/gone.png"),
    ],
)
def test_a_mistake_fails_the_build(page: str, text: str, said: str, tmp_path: Path) -> None:
    tree = copied(tmp_path)
    with (tree / "docs" / page).open("a") as file:
        file.write(text)
    built = build(tree)
    assert (built.returncode, said in built.stderr) == (1, True), built.stderr
