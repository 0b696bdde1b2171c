"""One Chromium for all browser tests, in one worker: the group keeps them together, so that it is started once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.browser import Chromium, chromium
from tests.support.site import Site


@pytest.fixture(scope="package")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


@pytest.fixture
def site(tmp_path: Any) -> Iterator[Site]:
    with Site.local(tmp_path) as running:
        yield running


@dataclass
class Person:
    """Somebody with a browser window of their own."""

    page: Any
    site: Site

    def opens(self, path: str) -> None:
        self.page.goto(self.site.url + path)

    def signs_in(self, secret: str) -> None:
        self.opens("/sign-in")
        self.page.get_by_label("Token").fill(secret)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(self.site.url + "/")
