"""Which request headers a job may set, and which of them may be sent to another origin."""

from __future__ import annotations

from typing import Final

from longshore.domain.transfer.redirects import read_target

# Framing and routing of the message (a wrong length would make the server read the next request on the connection as this
# one's body), and what we ask with ourselves.
FORBIDDEN_JOB_HEADERS: Final = frozenset(
    {
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect",
        "http2-settings", "proxy-connection", "proxy-authorization", "proxy-authenticate", "range", "if-range", "if-match",
        "if-none-match", "if-modified-since", "if-unmodified-since", "accept-encoding", "content-encoding",
    }
)  # fmt: skip
# The only headers of a job that follow it to another origin.
CROSS_ORIGIN_HEADERS: Final = frozenset({"accept", "accept-language"})


def headers_for(headers: tuple[tuple[str, str], ...], asked: str, url: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of a job that a candidate may see: all at the origin they were given for, harmless ones elsewhere."""
    if not headers or url == asked or read_target(url).origin == read_target(asked).origin:
        return headers
    return tuple((name, value) for name, value in headers if name.lower() in CROSS_ORIGIN_HEADERS)
