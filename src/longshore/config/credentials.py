"""Credentials for the lower layers, from the configuration and a netrc file."""

from __future__ import annotations

import netrc
from collections.abc import Mapping
from typing import TYPE_CHECKING

from longshore.domain.identity.logins import NO_LOGINS, Logins
from longshore.domain.settings import revealed
from longshore.domain.transfer.credentials import Credential
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.domain.settings import Settings


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
    if not settings.credentials.named and settings.network.netrc is None:
        return NO_LOGINS
    return Logins(lambda: with_netrc(credentials(settings), settings.network.netrc))


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
