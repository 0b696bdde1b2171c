"""Credentials for the lower layers, from the configuration and a netrc file."""

from __future__ import annotations

import netrc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from longshore.domain.identity.logins import NO_LOGINS, Logins
from longshore.domain.settings import revealed
from longshore.domain.transfer.credentials import Credential
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.domain.settings import Settings
    from longshore.domain.transfer.cookie_file import CookieTable

LARGEST_FILE: Final = 4 << 20  # of cookies


def credentials(settings: Settings) -> dict[str, Credential]:
    """Return the configured credentials by host."""
    return {
        host: Credential(
            username=given.username,
            password=revealed(given.password),
            token=revealed(given.token),
            headers=tuple(given.headers.items()),
            key_file=given.key_file,
        )
        for host, given in settings.credentials.named.items()
    }


def logins(settings: Settings) -> Logins:
    """Return a lookup of the login for a URL."""
    network = settings.network
    if not settings.credentials.named and network.netrc is None and network.cookies is None:
        return NO_LOGINS
    return Logins(lambda: with_netrc(credentials(settings), network.netrc), lambda: cookies(network.cookies))


def cookies(path: str | None) -> CookieTable:
    """Read a cookie file in Netscape's format; without a path there are none."""
    from longshore.domain.transfer.cookie_file import CookieTable, parse_cookies

    if path is None:
        return CookieTable()
    try:
        with open(path, encoding="latin-1", newline="") as file:
            text = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise BadInput(f"the cookie file cannot be read: {path}: {error.strerror}") from None
    if len(text) > LARGEST_FILE:
        raise BadInput(f"the cookie file is larger than {LARGEST_FILE >> 20} MiB: {path}")
    return parse_cookies(text, path)


def with_netrc(table: Mapping[str, Credential], path: str | None) -> dict[str, Credential]:
    """Add the entries of a netrc file to the configured credentials, which take precedence."""
    merged = dict(table)
    if path is None:
        return merged
    try:
        found = netrc.netrc(path)
    except (OSError, ValueError, netrc.NetrcParseError):  # a value error: not UTF-8
        raise BadInput(f"the netrc file cannot be read: {path}") from None
    for host, (login, _account, password) in found.hosts.items():
        if host != "default":
            merged.setdefault(host, Credential(username=login, password=password))
    return merged
