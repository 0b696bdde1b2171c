"""Whom we believe: certificate authorities, netrc, known SSH hosts."""

from __future__ import annotations

import netrc
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from longshore.domain.limits import Credential
from longshore.errors import BadInput

_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def ca_file(configured: str | None) -> str | None:
    """Give the file of trusted authorities: the configured one, else the system's. None leaves it to libcurl."""
    if configured is not None:
        if not Path(configured).is_file():
            raise BadInput(f"network.ca_file is not there: {configured}")
        return configured
    default = ssl.get_default_verify_paths().openssl_cafile
    return next((path for path in (*_BUNDLES, default) if Path(path).is_file()), None)


def known_hosts_file(configured: str | None) -> str:
    """Give the file of known SSH hosts; an absent one knows nobody."""
    return configured if configured is not None else str(Path.home() / ".ssh" / "known_hosts")


def with_netrc(table: Mapping[str, Credential], path: str | None) -> dict[str, Credential]:
    """Add what a netrc file knows to the configured credentials; configuration wins."""
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
