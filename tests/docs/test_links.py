"""What the documentation points to is there: pages, tests, modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from longshore.web.dashboard.pages import MENU

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "node_modules" not in path.parts
)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text())
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_is_named_exists(page: str) -> None:
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?)(?:::\w+)?`", (ROOT / page).read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_page_of_the_dashboard_is_pictured_in_both_themes_and_every_picture_is_used() -> None:
    used = set(re.findall(r'(?:src|srcset)="images/([\w-]+\.png)"', (ROOT / "docs" / "dashboard.md").read_text()))
    there = {path.name for path in (ROOT / "docs" / "images").glob("*.png")}
    names = {"sign-in", "job", "job-failed", "artifact", *(entry.page for entry in MENU)}
    assert {f"{name}-{theme}.png" for name in names for theme in ("light", "dark")} <= used
    assert used == there
