"""What the transfer layer is told: limits, identity, trust and credentials. `config` makes these records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

SCHEMES: Final = frozenset({"http", "https", "ftp", "ftps", "sftp"})
ENCRYPTED: Final = frozenset({"https", "ftps", "sftp"})


@dataclass(frozen=True, slots=True, repr=False)
class Credential:
    """How to be known at one host. Has no repr: it must never reach a log."""

    username: str | None = None
    password: str | None = None
    token: str | None = None  # Authorization: Bearer
    headers: tuple[tuple[str, str], ...] = ()  # X-Api-Key and the like
    key_file: str | None = None  # SFTP private key

    def __repr__(self) -> str:
        return "Credential(…)"


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """Limits of every transfer. A limit of 0 is off; seconds may be fractions."""

    concurrency: int = 32
    connections: int = 64  # open at once, idle ones included
    max_bytes: int = 1 << 40
    deadline_s: float = 0.0  # whole transfer, redirects included
    connect_s: float = 30.0  # resolve, connect, handshake
    stall_s: float = 60.0  # without a single byte
    min_speed_bytes_s: float = 0.0  # average over speed_window_s
    speed_window_s: float = 30.0
    max_header_bytes: int = 131_072
    max_redirects: int = 10
    chunk_bytes: int = 262_144
    user_agent: str = "longshore/0.1"
    proxy: str | None = None  # the environment's proxies are never used
    ca_file: str | None = None  # None: the system's
    http2: bool = True
    credentials: Mapping[str, Credential] = field(default_factory=dict)
    netrc: str | None = None
    known_hosts: str | None = None  # None: ~/.ssh/known_hosts
    host_keys: str = "strict"  # or accept_new: an unknown key is learned, a changed one refused


def credential_for(table: Mapping[str, Credential], scheme: str, host: str, hostname: str) -> Credential | None:
    """Find the credential of one origin. `host` has the port if it is not the scheme's own.

    A bare name serves encrypted schemes only; whoever wants a secret sent in clear writes `http://name` as the key.
    """
    for key in (f"{scheme}://{host}", f"{scheme}://{hostname}"):
        if key in table:
            return table[key]
    if scheme in ENCRYPTED:
        return table.get(host) or table.get(hostname)
    return None
