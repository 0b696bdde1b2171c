"""Logins of the configuration and of netrc, as part of who asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longshore.config import load_settings
from longshore.config.credentials import logins
from longshore.domain.identity.logins import NO_LOGINS, Logins

URL = "https://h.example/a"


def of(tmp_path: Path, netrc: str | None = None, tables: dict[str, Any] | None = None) -> Logins:
    """Return the logins of a configuration."""
    network: dict[str, Any] = {}
    if netrc is not None:
        (tmp_path / "netrc").write_text(netrc)
        (tmp_path / "netrc").chmod(0o600)
        network["netrc"] = str(tmp_path / "netrc")
    return logins(load_settings(tmp_path / "depot", environ={}, network=network, credentials=tables or {}))


def test_without_credentials_there_are_none(tmp_path: Path) -> None:
    assert of(tmp_path) is NO_LOGINS
    assert not NO_LOGINS and NO_LOGINS.of(URL) == "" and NO_LOGINS.along(URL, "https://other/") == ()


def test_netrc_counts_like_the_configuration(tmp_path: Path) -> None:
    alice = of(tmp_path, "machine h.example login alice password p\n").of(URL)
    assert alice and alice == of(tmp_path, tables={"h.example": {"username": "alice", "password": "other"}}).of(URL)
    assert alice != of(tmp_path, "machine h.example login bob password p\n").of(URL)


@pytest.mark.parametrize(
    "url", ["http://h.example/a", "https://other.example/a", "https://u:p@h.example/a", "urn:x", None]
)
def test_what_is_not_sent_does_not_count(tmp_path: Path, url: str | None) -> None:
    """A bare name serves encrypted schemes only, and a URL's own credentials are part of the URL."""
    assert of(tmp_path, "machine h.example login alice password p\n").of(url) == ""


def test_a_header_of_the_request_comes_before_the_login(tmp_path: Path) -> None:
    found = of(tmp_path, tables={"h.example": {"token": "t"}})
    assert found.of(URL) and found.of(URL, [("authorization", "Basic x")]) == ""


def test_the_final_url_has_a_login_too(tmp_path: Path) -> None:
    found = of(tmp_path, tables={"h.example": {"token": "t"}})
    assert found.along("https://front.example/", URL) == (found.of(URL),)
    assert found.along(URL, URL) == found.along(URL, "https://elsewhere.example/") == (found.of(URL),)
