"""Cookies of one walk: what a redirect sets, the next hop may need. They live no longer than one fetch."""

from __future__ import annotations

import contextlib
from email.message import Message
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, cast
from urllib.request import Request


class _Answer:
    """As much of a response as the standard library's jar looks at."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        self._message = Message()
        for line in lines:
            self._message["Set-Cookie"] = line

    def info(self) -> Message:
        return self._message


class Cookies:
    """A jar for one walk; empty until a redirect sets something."""

    def __init__(self) -> None:
        self._jar: CookieJar | None = None

    def take(self, url: str, lines: tuple[str, ...]) -> None:
        """Keep what an answer set, as far as its host may set it."""
        if not lines:
            return
        if self._jar is None:
            self._jar = CookieJar(DefaultCookiePolicy(strict_domain=True))
        for line in lines[:50]:
            with contextlib.suppress(
                Exception
            ):  # the standard library's parser trips over some; such a cookie is not kept
                self._jar.extract_cookies(cast("Any", _Answer((line,))), Request(url))

    def line(self, url: str) -> str | None:
        """Give the Cookie header line for a URL, if there is anything to send."""
        if self._jar is None:
            return None
        request = Request(url)
        self._jar.add_cookie_header(request)
        value = request.get_header("Cookie")
        return f"Cookie: {value}" if value else None
