"""Request header lines as bytes.

Two kinds of text become header lines. What a server sent (validators, cookies) has one character per byte and goes back as
exactly those bytes. What a person wrote (a job's headers, credentials, the user agent) is sent as UTF-8. Lines of plain ASCII
stay text, which libcurl takes as it is.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from typing import Final

from longshore.domain.limits import Credential, TransferSettings
from longshore.errors import BadInput

HeaderLine = str | bytes
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def as_received(line: str) -> HeaderLine:
    """Encode a line made of what a server sent: one byte per character."""
    if line.isascii():
        return line
    try:
        return line.encode("latin-1")
    except UnicodeEncodeError:  # not from a server
        return as_written(line)


def as_written(text: str) -> HeaderLine:
    """Encode what a person wrote: UTF-8; bytes of the command line or of a URL that are not UTF-8 stay as they are."""
    return text if text.isascii() else as_bytes(text)


def as_bytes(text: str) -> bytes:
    """Encode as UTF-8, whatever the text holds."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
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


def check_settings(settings: TransferSettings) -> None:
    """Refuse settings that would break a request's head."""
    if _CONTROL.search(settings.user_agent):
        raise BadInput("network.user_agent has control characters")
    for host, credential in settings.credentials.items():
        texts = [text for pair in credential.headers for text in pair]
        if any(_CONTROL.search(text) for text in (*texts, credential.token or "")):
            raise BadInput(f"the credentials of {host} have control characters")
