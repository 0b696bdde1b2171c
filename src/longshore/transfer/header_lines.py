"""Request header lines as bytes.

Header lines come from two kinds of text. Text from a server (validators, cookies) has one character per byte and is
sent back as exactly those bytes. Text from the user (a job's headers, credentials, the user agent) is sent as UTF-8.
ASCII lines remain str, which libcurl accepts.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Final

from longshore.domain.transfer.credentials import Credential
from longshore.errors import BadInput

HeaderLine = str | bytes
# Fields that hold no secret; any other field of a request may.
_HARMLESS: Final = frozenset(
    (
        "accept",
        "accept-encoding",
        "accept-language",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "range",
        "user-agent",
    )
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def as_received(line: str) -> HeaderLine:
    """Encode text that a server sent: one byte per character."""
    if line.isascii():
        return line
    try:
        return line.encode("latin-1")
    except UnicodeEncodeError:  # not from a server
        return as_written(line)


def as_written(text: str) -> HeaderLine:
    """Encode text from the user as UTF-8; bytes of the command line or a URL that are not UTF-8 remain unchanged."""
    return text if text.isascii() else as_bytes(text)


def as_bytes(text: str) -> bytes:
    """Encode as UTF-8, including surrogates."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that does not represent a byte
        return text.encode("utf-8", "replace")


def credential_lines(credential: Credential) -> Iterable[HeaderLine]:
    """Yield the header lines that a credential is sent as."""
    for name, value in credential.headers:
        yield as_written(f"{name}: {value}")
    if credential.token is not None:
        yield as_written(f"Authorization: Bearer {credential.token}")
    elif credential.username is not None:
        pair = as_bytes(f"{credential.username}:{credential.password or ''}")
        yield "Authorization: Basic " + b64encode(pair).decode()


def check_header_values(user_agent: str, credentials: Mapping[str, Credential]) -> None:
    """Refuse settings that would break a request's head."""
    if _CONTROL.search(user_agent):
        raise BadInput("network.user_agent has control characters")
    for host, credential in credentials.items():
        texts = [text for pair in credential.headers for text in pair]
        if any(_CONTROL.search(text) for text in (*texts, credential.token or "")):
            raise BadInput(f"the credentials of {host} have control characters")


def has_secrets(lines: Iterable[HeaderLine] | None) -> bool:
    """Return whether a request's header lines may hold a secret."""
    names = ((as_bytes(line) if isinstance(line, str) else line).partition(b":")[0] for line in lines or ())
    return any(name.rstrip(b";").strip().lower().decode("latin-1") not in _HARMLESS for name in names)
