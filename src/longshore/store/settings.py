"""How a store is set up. Made by configuration; a store reads no environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from longshore.store.room import QuotaSettings


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What `open_store` takes beside the place."""

    shard_width: int = 2
    preallocate: bool = True
    preallocate_min_size_bytes: int = 8 << 20
    quota: QuotaSettings = field(default_factory=QuotaSettings)
    parts: Path | None = None  # where parts wait when the blobs lie elsewhere
    s3_endpoint: str | None = None
    s3_region: str | None = None
    s3_access_key_id: str | None = field(default=None, repr=False)
    s3_secret_access_key: str | None = field(default=None, repr=False)
