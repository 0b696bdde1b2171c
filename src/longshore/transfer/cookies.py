"""Cookies of one redirect chain: the next hop may need them. They are discarded after the fetch."""

from __future__ import annotations

import contextlib
import warnings
from email.message import Message
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, cast
from urllib.request import Request


class _Answer:
    """The part of a response that the standard library's cookie jar reads."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        self._message = Message()
        for line in lines:
            self._message["Set-Cookie"] = line

    def info(self) -> Message:
        return self._message


class Cookies:
    """A cookie jar for one redirect chain; empty until a redirect sets a cookie."""

    def __init__(self) -> None:
        self._jar: CookieJar | None = None

    def take(self, url: str, lines: tuple[str, ...]) -> None:
        """Store the cookies of a response that its host is allowed to set."""
        if not lines:
            return
        if self._jar is None:
            # The standard library catches its parser's failures and prints them, with a traceback, as a warning.
            warnings.filterwarnings("ignore", message="http.cookiejar bug!", category=UserWarning)
            self._jar = CookieJar(DefaultCookiePolicy(strict_domain=True))
        for line in lines[:50]:
            with contextlib.suppress(Exception):  # the standard library's parser fails on some cookies; ignore them
                self._jar.extract_cookies(cast("Any", _Answer((line,))), Request(url))

    def pairs(self, url: str) -> dict[str, str]:
        """Return the names and values for a URL."""
        _, _, value = (self.line(url) or "").partition(": ")
        found = (pair.partition("=") for pair in value.split("; ") if pair)
        return {name: text for name, _, text in found}

    def line(self, url: str) -> str | None:
        """Return the Cookie header line for a URL; None without cookies."""
        if self._jar is None:
            return None
        request = Request(url)
        self._jar.add_cookie_header(request)
        value = request.get_header("Cookie")
        return f"Cookie: {value}" if value else None
