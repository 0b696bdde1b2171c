"""Trust anchors: certificate authorities and known SSH hosts."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from longshore.errors import BadInput

_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def ca_file(configured: str | None) -> str | None:
    """Return the file of trusted authorities: the configured one, else the system's. None: libcurl's default."""
    if configured is not None:
        if not Path(configured).is_file():
            raise BadInput(f"network.ca_file does not exist: {configured}")
        return configured
    default = ssl.get_default_verify_paths().openssl_cafile
    return next((path for path in (*_BUNDLES, default) if Path(path).is_file()), None)


def known_hosts_file(configured: str | None) -> str:
    """Return the file of known SSH hosts; if it is absent, no host is trusted."""
    return configured if configured is not None else str(Path.home() / ".ssh" / "known_hosts")
