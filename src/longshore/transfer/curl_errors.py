"""Map libcurl's error codes to reasons. libcurl's types do not leave this package."""

from __future__ import annotations

import re
from typing import Final

import pycurl

from longshore.domain.policy.redaction import safe_text
from longshore.errors import Reasoned

_E_HTTP2_STREAM: Final = 92  # libcurl codes that pycurl has no name for
_E_TOO_LARGE: Final = 100
_TLS: Final = frozenset(
    {
        pycurl.E_SSL_CONNECT_ERROR,
        pycurl.E_SSL_CERTPROBLEM,
        pycurl.E_SSL_CIPHER,
        pycurl.E_PEER_FAILED_VERIFICATION,
        pycurl.E_USE_SSL_FAILED,
        pycurl.E_SSL_CACERT_BADFILE,
        pycurl.E_SSL_CRL_BADFILE,
        pycurl.E_SSL_ISSUER_ERROR,
        pycurl.E_SSL_PINNEDPUBKEYNOTMATCH,
        pycurl.E_SSL_INVALIDCERTSTATUS,
    }
)
_BROKEN_LINE: Final = frozenset(
    {
        pycurl.E_RECV_ERROR,
        pycurl.E_SEND_ERROR,
        pycurl.E_GOT_NOTHING,
        pycurl.E_HTTP2,
        _E_HTTP2_STREAM,
        pycurl.E_PARTIAL_FILE,
    }
)
_BY_CODE: Final = {
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_COULDNT_RESOLVE_PROXY: "dns",
    pycurl.E_COULDNT_CONNECT: "connect",
    pycurl.E_OPERATION_TIMEDOUT: "connect",  # libcurl times only the connection; the watchdog times the rest
    pycurl.E_FTP_ACCEPT_FAILED: "connect",
    pycurl.E_FTP_ACCEPT_TIMEOUT: "connect",
    pycurl.E_URL_MALFORMAT: "bad_url",
    pycurl.E_BAD_CONTENT_ENCODING: "protocol_error",  # of a Transfer-Encoding: libcurl does not decode any other
    pycurl.E_FILESIZE_EXCEEDED: "too_large",
    _E_TOO_LARGE: "header_too_large",
    pycurl.E_LOGIN_DENIED: "auth_required",
    pycurl.E_REMOTE_ACCESS_DENIED: "auth_required",
    pycurl.E_REMOTE_FILE_NOT_FOUND: "remote_not_found",
    pycurl.E_FTP_COULDNT_RETR_FILE: "remote_not_found",
    pycurl.E_BAD_DOWNLOAD_RESUME: "bad_range",
    pycurl.E_RANGE_ERROR: "bad_range",
    pycurl.E_FTP_COULDNT_USE_REST: "bad_range",
    pycurl.E_QUOTE_ERROR: "bad_range",  # REST is the only such command that must succeed
    pycurl.E_OUT_OF_MEMORY: "internal_error",
    pycurl.E_FAILED_INIT: "internal_error",
}
# A TLS handshake that the network interrupted is a connection error; one that OpenSSL rejected is a TLS error.
_CUT_SHORT: Final = (
    "SSL_ERROR_SYSCALL",
    "unexpected eof",
    "Connection reset",
    "Recv failure",
    "Broken pipe",
    "timed out",
)
# libcurl's messages for protocol violations, which it reports with the codes of connection errors.
_VIOLATIONS: Final = ("Invalid HTTP header field", "error -505: Protocol error", "chunk hex-length", "chunked-encoding")
_TUNNEL: Final = re.compile(r"CONNECT tunnel failed, response 4\d\d")


def failure(code: int, message: str, *, host: str, scheme: str, begun: bool) -> Reasoned:
    """Return the reason for a transfer that libcurl failed. `begun`: the body had started."""
    name = reason_of(code, message, scheme=scheme, begun=begun)
    detail = safe_text(message) or pycurl_word(code)
    return Reasoned(name, f"{host}: {detail}")


def reason_of(code: int, message: str, *, scheme: str, begun: bool) -> str:
    """Return the reason's name."""
    if "headers" in message and ("Too large" in message or "Too many" in message):
        return "header_too_large"
    if code == pycurl.E_PEER_FAILED_VERIFICATION and scheme == "sftp":
        return "host_key"
    if code in _TLS:
        return "connect" if code == pycurl.E_SSL_CONNECT_ERROR and any(w in message for w in _CUT_SHORT) else "tls"
    if code == pycurl.E_OPERATION_TIMEDOUT and "Resolv" in message:
        return "dns"
    if _TUNNEL.search(message):
        return "proxy_refused"
    if any(words in message for words in _VIOLATIONS):
        return "protocol_error"
    if code in _BROKEN_LINE:
        return "truncated" if begun or code == pycurl.E_PARTIAL_FILE else _unanswered(code)
    if code == pycurl.E_SSH:
        return "truncated" if begun else "connect"
    return _BY_CODE.get(code, "protocol_error")


def _unanswered(code: int) -> str:
    return "connect" if code in (pycurl.E_RECV_ERROR, pycurl.E_SEND_ERROR) else "protocol_error"


def pycurl_word(code: int) -> str:
    """Return a message for a code without libcurl's own message."""
    return f"transfer failed (libcurl {code})"
