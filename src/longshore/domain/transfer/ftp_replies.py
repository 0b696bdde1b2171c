"""What an FTP server's refusal means, by the command that it refused (RFC 959: 4xx is for now, 5xx is for good)."""

from __future__ import annotations

from typing import Final

_LOGIN: Final = frozenset({"USER", "PASS", "ACCT"})
_PATH: Final = frozenset({"CWD", "RETR"})
_NO_CONNECTION: Final = frozenset({421, 425, 426})  # closing; no data connection; cut
_NOT_LOGGED_IN: Final = frozenset({430, 530, 532})
_NO_SUCH_FILE: Final = frozenset({550, 553})  # not found or no access; a name that is not allowed


def refusal(verb: str, code: int, *, begun: bool = False) -> str | None:
    """Return the reason for a reply to `verb` (empty: the greeting) that ended a transfer; None if it is not a refusal.

    `begun` is true if the server had announced data.
    """
    if begun and code >= 400:
        return "truncated"
    if code in _NO_CONNECTION:
        return "connect"
    if code in _NOT_LOGGED_IN or (verb in _LOGIN and (code >= 500 or code in (331, 332))):
        return "auth_required"
    if verb in _PATH and code in _NO_SUCH_FILE:
        return "remote_not_found"
    if verb == "REST" and code >= 500:
        return "bad_range"
    if code >= 400 or (verb == "RETR" and code >= 200):  # or what no server may say there
        return "protocol_error"
    return None


def disowns(code: int) -> bool:
    """Return whether a reply after data says that the data may be wrong, and not only that it was cut short."""
    return code >= 400 and code not in _NO_CONNECTION
