"""Settings for tests, by the plain names of their keys."""

from __future__ import annotations

from typing import Any

from longshore.domain.settings import (
    CredentialSettings,
    CredentialsSettings,
    NetworkSettings,
    Secret,
    Settings,
    TransferSettings,
)


def tuned(**given: Any) -> Settings:
    """Return settings with some keys of `transfer` and `network` changed; `credentials` is a table by host."""
    transfer = {name: value for name, value in given.items() if name in TransferSettings.KEYS}
    network = {name: value for name, value in given.items() if name in NetworkSettings.KEYS}
    if set(given) - set(transfer) - set(network) - {"credentials"}:
        raise TypeError(f"no such setting: {sorted(given)}")
    if "proxy" in network:
        network["proxy"] = Secret(network["proxy"])
    return Settings(
        transfer=TransferSettings(**transfer),
        network=NetworkSettings(**network),
        credentials=CredentialsSettings(named=given.get("credentials", {})),
    )


def login(
    username: str | None = None,
    password: str | None = None,
    token: str | None = None,
    headers: tuple[tuple[str, str], ...] = (),
    key_file: str | None = None,
) -> CredentialSettings:
    """Return a configured credential."""
    return CredentialSettings(
        username=username,
        password=Secret(password) if password is not None else None,
        token=Secret(token) if token is not None else None,
        headers=dict(headers),
        key_file=key_file,
    )


def changed(settings: Settings, **given: Any) -> Settings:
    """Return a copy with other values, by the plain names of `tuned`."""
    named = {**settings.transfer.__dict__, **settings.network.__dict__, "credentials": settings.credentials.named}
    if isinstance(named.get("proxy"), Secret):
        named["proxy"] = named["proxy"].reveal()
    return tuned(**{**named, **given})
