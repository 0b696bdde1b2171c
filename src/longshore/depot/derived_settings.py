"""Values derived from the configuration: paths, the network policy, the limits of hosts."""

from __future__ import annotations

import os
import tomllib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from longshore.domain.policy.network import NetworkPolicy
from longshore.domain.settings import HostSettings, HostsSettings
from longshore.errors import NoDepot

if TYPE_CHECKING:
    from longshore.config import Settings


def ledger_place(settings: Settings) -> str | Path:
    """Return the location of the ledger."""
    return settings.ledger or Path(settings.depot, "ledger.db")


def store_place(settings: Settings) -> str:
    """Return the location of the store."""
    return settings.store or str(Path(settings.depot, "store"))


def lost_ledger(settings: Settings) -> NoDepot | None:
    """Return the error if no ledger file is there although its local store is: a new ledger could not use that store."""
    ledger, store = str(ledger_place(settings)), store_place(settings).removeprefix("file://")
    if "://" in ledger or "://" in store or os.path.exists(ledger):
        return None
    from longshore.store.ownership import OWNER  # not needed where the ledger is there

    if not os.path.isfile(os.path.join(store, OWNER)) or not os.path.isdir(settings.depot):
        return None  # a new depot with the store of another one is refused by that store
    return NoDepot(
        f"the ledger {ledger} is gone, but its store {store} is there",
        hint="restore the ledger from a backup (`longshore restore BACKUP`), or name its place with --ledger",
    )


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
