"""Send one small body and read the status: for webhooks. The address is checked when the socket is opened; no redirects."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

import pycurl

from longshore.domain.policy.network import NetworkPolicy
from longshore.domain.settings import NetworkSettings
from longshore.transfer.header_lines import as_bytes
from longshore.transfer.tls import ca_file
from longshore.version import __version__

TIMEOUT_S: Final = 15.0
_CONNECT_S: Final = 5.0


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    policy: NetworkPolicy,
    network: NetworkSettings,
    timeout_s: float = TIMEOUT_S,
    stopped: Callable[[], bool] = lambda: False,
) -> int | str:
    """Return the status of the answer, or why there was none; end early when `stopped`."""
    refused: list[str] = []

    def open_socket(_purpose: int, address: Any) -> Any:
        if word := policy.refusal(address.addr[0]):
            refused.append(word)
            return pycurl.SOCKET_BAD
        return socket.socket(address.family, address.socktype, address.protocol)

    easy = pycurl.Curl()
    try:
        _prepare(easy, url, body, headers, network, timeout_s)
        easy.setopt(pycurl.OPENSOCKETFUNCTION, open_socket)
        easy.setopt(pycurl.NOPROGRESS, 0)
        easy.setopt(pycurl.XFERINFOFUNCTION, lambda *_: int(stopped()))
        easy.perform()
        return int(easy.getinfo(pycurl.RESPONSE_CODE))
    except pycurl.error as error:
        return f"forbidden_address: {refused[0]}" if refused else easy.errstr() or f"libcurl error {error.args[0]}"
    finally:
        easy.close()


def _prepare(
    easy: Any, url: str, body: bytes, headers: Mapping[str, str], network: NetworkSettings, timeout_s: float
) -> None:
    easy.setopt(pycurl.URL, as_bytes(url))
    easy.setopt(pycurl.POST, 1)
    easy.setopt(pycurl.POSTFIELDS, body)
    easy.setopt(pycurl.HTTPHEADER, [as_bytes(f"{name}: {value}") for name, value in headers.items()] + [b"Expect:"])
    easy.setopt(pycurl.NOSIGNAL, 1)
    easy.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
    easy.setopt(pycurl.FOLLOWLOCATION, 0)
    easy.setopt(pycurl.PROXY, b"")  # through a proxy, the address could not be checked
    easy.setopt(pycurl.NETRC, pycurl.NETRC_IGNORED)
    easy.setopt(pycurl.USERAGENT, as_bytes(network.user_agent or f"longshore/{__version__}"))
    easy.setopt(pycurl.CONNECTTIMEOUT_MS, int(min(_CONNECT_S, timeout_s) * 1000))
    easy.setopt(pycurl.TIMEOUT_MS, int(timeout_s * 1000))
    easy.setopt(pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2)
    easy.setopt(pycurl.WRITEFUNCTION, lambda _: None)
    if (trusted := ca_file(network.ca_file)) is not None:
        easy.setopt(pycurl.CAINFO, as_bytes(trusted))
