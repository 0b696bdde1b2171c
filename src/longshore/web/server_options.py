"""What one server listens on and which limits it enforces. The command line fills it from the settings."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from longshore.domain.settings import ServeSettings

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Limits and paths of one server."""

    host: str = "127.0.0.1"
    port: int = 8642
    names: tuple[str, ...] = ()  # accepted in `Host` besides loopback names; empty: any, unless listening on loopback
    workers: bool = True
    secure_cookies: bool = False  # set if a proxy terminates TLS
    session_s: float = 12 * 3600.0
    max_body_bytes: int = MIB  # JSON and forms
    max_anonymous_bytes: int = 16 * 1024  # any body without a token
    max_batch_bytes: int = 256 * MIB  # NDJSON
    max_batch_lines: int = 2_000_000  # each valid one gets a line of the answer
    max_upload_bytes: int = 1 << 40
    max_depth: int = 32  # of JSON
    max_page: int = 500
    max_wait_s: float = 60.0
    rate_per_s: float = 200.0  # requests per token
    rate_burst: float = 1000.0
    wrong_per_minute: int = 20  # wrong tokens per address before it has to wait
    sign_ins_per_minute: int = 30  # per token
    streams_per_token: int = 16  # open event streams
    waits_per_token: int = ServeSettings.waits_per_token
    requests_per_token: int = ServeSettings.requests_per_token
    anonymous_bodies: int = 256  # at the same time; the other places are for requests with a token
    anonymous_bodies_per_address: int = 32
    connections: int = ServeSettings.connections
    connections_per_address: int = ServeSettings.connections_per_address
    head_timeout_s: float = ServeSettings.head_timeout_s
    min_upload_bytes_s: float = ServeSettings.min_upload_bytes_s
    body_window_s: float = 10.0  # over which that speed is measured
    unread_s: float = 60.0  # longest time that a client may leave an answer unread
    tls_certificate: str | None = None
    tls_key: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    session_idle_s: float = ServeSettings.session_idle_s
    first_link_s: float = 900.0  # how long the first-run link opens
    audit_reads: bool = ServeSettings.audit_reads
    used_every_s: float = 60.0  # how often a token's last use is written

    def is_bare(self) -> bool:
        """Return whether others than this machine can connect without TLS, and no proxy is known to add it."""
        return not (is_loopback(self.host) or self.tls_certificate or self.trusted_proxies)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
