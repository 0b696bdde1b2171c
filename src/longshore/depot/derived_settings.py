"""Values derived from the configuration: paths, the network policy, the limits of hosts."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from longshore.domain.policy.network import NetworkPolicy
from longshore.domain.settings import HostSettings, HostsSettings

if TYPE_CHECKING:
    from longshore.config import Settings


def ledger_place(settings: Settings) -> str | Path:
    """Return the location of the ledger."""
    return settings.ledger or Path(settings.depot, "ledger.db")


def store_place(settings: Settings) -> str:
    """Return the location of the store."""
    return settings.store or str(Path(settings.depot, "store"))


def network_policy(settings: Settings) -> NetworkPolicy:
    """Return the address policy."""
    return NetworkPolicy.allowing(*settings.network.allow)


def hosts_with_profiles(settings: Settings) -> HostsSettings:
    """Return the host settings with the shipped profiles of well-known hosts; configured tables take precedence."""
    hosts = settings.hosts
    return hosts.replaced(named={**shipped_profiles(), **hosts.named}) if hosts.profiles else hosts


def shipped_profiles() -> dict[str, HostSettings]:
    """Return the shipped limits of well-known hosts."""
    table = tomllib.loads(resources.files("longshore.config").joinpath("profiles.toml").read_text("utf-8"))
    return {name: HostSettings(**given) for name, given in table.items()}
