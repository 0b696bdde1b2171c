"""Base class of the groups of depot methods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from longshore.config import Settings
    from longshore.domain.model import Scope
    from longshore.ledger import Ledger
    from longshore.store import Store
    from longshore.worker.runtime import Runtime

T = TypeVar("T")


class Base:
    """An open depot, as its methods see it."""

    settings: Settings
    runtime: Runtime
    ledger: Ledger
    store: Store
    scope: Scope

    @staticmethod
    async def _thread(call: Callable[..., T], *arguments: object) -> T:
        """Run a function that blocks on the disk."""
        return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)
