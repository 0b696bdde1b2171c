"""An HTML page is not a file, wherever a redirect or a mirror leads."""

from __future__ import annotations

import pytest

from longshore.depot import Depot
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from tests.support.origin import Behaviour, Origin, Thing, redirect, status

LOGIN = Thing(
    b"<!DOCTYPE html><html><title>Sign in</title><form><input type=password></form></html>", content_type="text/html"
)


@pytest.mark.parametrize("way", ["itself", "redirect", "mirror"])
def test_a_login_page_is_not_the_paper(depot: Depot, origin: Origin, way: str) -> None:
    page = origin.add("/login", LOGIN)
    ways: dict[str, Behaviour] = {"itself": LOGIN, "redirect": redirect(page), "mirror": status(404)}
    request = download_request(origin.add("/paper.pdf", ways[way]), mirrors=[page] if way == "mirror" else ())
    (got,) = depot.get(request)
    assert (got.status, got.artifact) == (Status.FAILED, None)
    assert way == "mirror" or got.reason in {"blocked_challenge", "html_page"}


def test_a_page_that_was_asked_for_is_taken(depot: Depot, origin: Origin) -> None:
    assert depot.get(origin.add("/paper", redirect(origin.add("/login", LOGIN))))[0].ok
