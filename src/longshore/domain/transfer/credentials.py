"""Credentials by host: the configured ones, and which of them is sent to which origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


def credential_for(
    table: Mapping[str, Credential], scheme: str, host: str, hostname: str, tenant: str = ""
) -> Credential | None:
    """Find the credential of one origin. `host` has the port if it is not the scheme's own.

    A bare name applies to encrypted schemes only. To send a secret unencrypted, use `http://name` as the key. A key that
    begins with `TENANT@` applies to the jobs of that tenant only, and comes before the one that all tenants use.
    """
    keys = [f"{scheme}://{host}", f"{scheme}://{hostname}"]
    if scheme in ENCRYPTED:
        keys += [host, hostname]
    for key in [f"{tenant}@{key}" for key in keys] + keys if tenant else keys:
        if key in table:
            return table[key]
    return None
