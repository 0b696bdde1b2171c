"""Trust anchors: certificate authorities and known SSH hosts."""

from __future__ import annotations

import base64
import ssl
import threading
from pathlib import Path
from typing import Final

from longshore.errors import BadInput

_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

_LEARNING: Final = threading.Lock()


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


def learn_host_key(path: str, name: str, key: bytes) -> bool:
    """Append a new host's key to the file of known hosts; return False if the file has another key for it by now.

    Transfers of other threads and processes read the file at any time, so a line is appended with one write and the
    file is never rewritten. If it cannot be written, the key is accepted for this connection only.
    """
    algorithm = key[4 : 4 + int.from_bytes(key[:4], "big")].decode("ascii")
    line = f"{name} {algorithm} {base64.b64encode(key).decode()}"
    try:
        with _LEARNING, Path(path).open("a+b", buffering=0) as file:
            file.seek(0)
            content = file.read().decode("utf-8", "replace")
            known = [one for one in content.splitlines() if one.startswith(f"{name} {algorithm} ")]
            if known:
                return line in known
            lead = "\n" if content and not content.endswith("\n") else ""
            file.write(f"{lead}{line}\n".encode())
    except OSError:
        pass
    return True


def known_host_name(hostname: str, host: str) -> str:
    """Return a host as known_hosts files name it: with a port only if it is not the usual one."""
    _, colon, port = host.rpartition("]")[2].partition(":")
    return f"[{hostname}]:{port}" if colon else hostname
