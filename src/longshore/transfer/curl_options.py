"""The options that are the same for every request of an easy handle."""

from __future__ import annotations

from typing import Any, Final

import pycurl

from longshore.domain.settings import NetworkSettings, TransferSettings
from longshore.domain.transfer.redirects import Target
from longshore.transfer.header_lines import as_bytes
from longshore.version import __version__

_PROTOCOLS: Final = pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS | pycurl.PROTO_FTP | pycurl.PROTO_FTPS | pycurl.PROTO_SFTP


def set_constant_options(
    easy: Any, limits: TransferSettings, network: NetworkSettings, proxy: str | None, ca_file: str | None
) -> None:
    """Set everything but the callbacks."""
    easy.setopt(pycurl.NOSIGNAL, 1)
    easy.setopt(pycurl.PROTOCOLS, _PROTOCOLS)
    easy.setopt(pycurl.FOLLOWLOCATION, 0)
    easy.setopt(pycurl.PATH_AS_IS, 1)
    easy.setopt(pycurl.HTTP09_ALLOWED, 0)
    easy.setopt(pycurl.PROXY, as_bytes(proxy or ""))  # an empty value disables proxies from the environment
    easy.setopt(pycurl.NETRC, pycurl.NETRC_IGNORED)
    easy.setopt(pycurl.USERAGENT, as_bytes(network.user_agent or f"longshore/{__version__}"))
    easy.setopt(pycurl.BUFFERSIZE, max(16_384, min(limits.chunk_bytes, 524_288)))
    easy.setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(limits.connect_s * 1000)))
    easy.setopt(pycurl.TCP_KEEPALIVE, 1)
    easy.setopt(pycurl.HTTP_VERSION, http_version(http2=limits.http2))
    easy.setopt(pycurl.SSL_VERIFYPEER, 1)
    easy.setopt(pycurl.SSL_VERIFYHOST, 2)
    easy.setopt(pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2)
    if ca_file is not None:
        easy.setopt(pycurl.CAINFO, as_bytes(ca_file))


def http_version(*, http2: bool) -> int:
    """Return libcurl's number for the versions of HTTP that are offered."""
    return int(pycurl.CURL_HTTP_VERSION_2TLS if http2 else pycurl.CURL_HTTP_VERSION_1_1)


def request_target(target: Target, proxy: str | None) -> str:
    """Return the target of the request line: a path, or the absolute URL for an HTTP proxy."""
    whole = target.scheme == "http" and proxy is not None and not proxy.lower().startswith("socks")
    return target.url if whole else "/" + target.url.split("/", 3)[3]
