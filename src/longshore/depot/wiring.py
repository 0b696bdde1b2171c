"""From the configuration as people write it to the plain records that the layers take, and to the open parts of a depot."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from longshore.domain import settings as engine
from longshore.domain.addresses import NetworkPolicy
from longshore.domain.limits import Credential, TransferSettings
from longshore.domain.politeness import HostDefaults, HostLimits
from longshore.store import QuotaSettings, StoreSettings

if TYPE_CHECKING:
    from longshore.config import Secret, Settings


def ledger_place(settings: Settings) -> str | Path:
    """Say where the ledger is."""
    return settings.ledger or Path(settings.depot, "ledger.db")


def store_place(settings: Settings) -> str:
    """Say where the store is."""
    return settings.store or str(Path(settings.depot, "store"))


def engine_settings(settings: Settings) -> engine.EngineSettings:
    """Make the engine's settings."""
    transfer, retry, lease = settings.transfer, settings.retry, settings.lease
    return engine.EngineSettings(
        concurrency=transfer.concurrency,
        ahead=_ahead(settings),
        small_bytes=transfer.small_bytes,
        max_bytes=transfer.max_bytes,
        segments=transfer.segments,
        drain_s=transfer.drain_s,
        sniff=settings.verify.sniff,
        offline=settings.offline,
        retry=engine.RetrySettings(retry.max_attempts, retry.base_s, retry.cap_s, retry.max_claims),
        lease=engine.LeaseSettings(lease.ttl_s, min(lease.renew_s, lease.ttl_s / 3)),
        resume=engine.ResumeSettings(settings.resume.prefix_check_bytes, settings.resume.allow_without_validators),
        dedupe=engine.DedupeSettings(settings.dedupe.hardlink, engine.freshness_s(settings.dedupe.revalidate)),
        reconcile=engine.ReconcileSettings(settings.reconcile.interval_s, settings.reconcile.stale_part_s),
    )


def _ahead(settings: Settings) -> int:
    """Say how many leases a worker claims ahead of those that run: many are cheap, but what one holds, others cannot do.

    On one machine the others share its disk and its CPU anyway: as many as fill one batch of the publisher. More only
    keep the process's own threads in each other's way (ADR 6). On many machines, leases that wait in one worker are work
    that three others are idle for: less ahead, and more claims.
    """
    place, at_once = ledger_place(settings), settings.transfer.concurrency
    if isinstance(place, str) and place.startswith(("postgresql://", "postgres://")):
        return 3 * at_once
    return max(3 * at_once, min(31 * at_once, engine.BATCH_ITEMS - at_once))


def transfer_settings(settings: Settings) -> TransferSettings:
    """Make the transfer's limits and identity."""
    from longshore import __version__

    transfer, network = settings.transfer, settings.network
    return TransferSettings(
        concurrency=transfer.concurrency,
        max_bytes=transfer.max_bytes,
        deadline_s=transfer.deadline_s,
        connect_s=transfer.connect_s,
        stall_s=transfer.stall_s,
        min_speed_bytes_s=transfer.min_speed_bytes_s,
        speed_window_s=transfer.speed_window_s,
        max_header_bytes=transfer.max_header_bytes,
        max_redirects=transfer.max_redirects,
        chunk_bytes=transfer.chunk_bytes,
        user_agent=network.user_agent or f"longshore/{__version__}",
        proxy=_revealed(network.proxy),
        ca_file=network.ca_file,
        http2=transfer.http2,
        credentials=credentials(settings),
        netrc=network.netrc,
        known_hosts=network.known_hosts,
        host_keys=network.host_keys,
    )


def credentials(settings: Settings) -> dict[str, Credential]:
    """Make the table of credentials by host."""
    return {
        host: Credential(
            username=given.username,
            password=_revealed(given.password),
            token=_revealed(given.token),
            headers=tuple(given.headers.items()),
            key_file=given.key_file,
        )
        for host, given in settings.credentials.named.items()
    }


def network_policy(settings: Settings) -> NetworkPolicy:
    """Make the policy of addresses."""
    return NetworkPolicy.allowing(*settings.network.allow)


def store_settings(settings: Settings) -> StoreSettings:
    """Make the store's settings."""
    quota, s3 = settings.quota, settings.s3
    return StoreSettings(
        shard_width=settings.shard.width,
        preallocate=settings.io.preallocate,
        preallocate_min_size_bytes=settings.io.preallocate_min_size_bytes,
        quota=QuotaSettings(quota.free_bytes_min, quota.margin_factor, quota.tenant_bytes),
        parts=Path(settings.depot, "parts"),
        s3_endpoint=s3.endpoint,
        s3_region=s3.region,
        s3_access_key_id=s3.access_key_id,
        s3_secret_access_key=_revealed(s3.secret_access_key),
    )


def host_defaults(settings: Settings) -> HostDefaults:
    """Make the politeness defaults: the shipped profiles, then the tables of single hosts, which win."""
    hosts = settings.hosts
    profiles = dict(shipped_profiles()) if hosts.profiles else {}
    for name, given in hosts.named.items():
        profiles[name] = HostLimits(given.concurrency, given.rate_per_s)
    return HostDefaults(
        concurrency=hosts.concurrency,
        rate_per_s=hosts.rate_per_s,
        breaker_failures=hosts.breaker_failures,
        breaker_cooldown_s=hosts.breaker_cooldown_s,
        give_up_s=hosts.give_up_s,
        profiles=profiles,
    )


def shipped_profiles() -> dict[str, HostLimits]:
    """Read how well-known hosts ask to be treated."""
    table = tomllib.loads(resources.files("longshore.config").joinpath("profiles.toml").read_text("utf-8"))
    return {name: HostLimits(given.get("concurrency"), given.get("rate_per_s")) for name, given in table.items()}


def _revealed(secret: Secret | None) -> str | None:
    return secret.reveal() if secret is not None else None
