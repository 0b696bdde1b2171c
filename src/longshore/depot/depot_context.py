"""What the parts of an open depot share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from longshore.config import Settings
    from longshore.domain.model import Scope
    from longshore.ledger import Ledger
    from longshore.store import Store
    from longshore.worker.runtime import Runtime

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DepotContext:
    """An open ledger and store, their configuration, and the scope of calls that name none."""

    settings: Settings
    runtime: Runtime
    ledger: Ledger
    store: Store
    scope: Scope


async def in_thread(call: Callable[..., T], *arguments: object) -> T:
    """Run a function that blocks on the disk or the ledger."""
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)
