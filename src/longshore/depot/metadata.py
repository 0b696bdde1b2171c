"""Metadata in Python: what a resolver asks an API for, through the same cache as lists that are given by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.depot.depot_context import DepotContext
    from longshore.domain.model import Scope
    from longshore.transfer.metadata_client import Metadata


class MetadataReader:
    """Answers of APIs, and lists."""

    def __init__(self, depot: DepotContext) -> None:
        self._depot = depot

    async def metadata(self, url: str, *, refresh: bool = False, scope: Scope | None = None) -> Metadata:
        """Return the `body`, `headers` and `source` of a URL, from the depot's cache where the server allows it.

        For lists and answers of an API; files are fetched with `get`. With `refresh`, the server is asked in any case. Raise
        `Reasoned` if it cannot be had.
        """
        from longshore.transfer import Transfer
        from longshore.transfer.metadata_client import MetadataClient

        if not isinstance(url, str):
            raise BadInput(f"a URL is a text, not {type(url).__name__}")
        tenant = (scope or self._depot.scope).tenant_id
        async with Transfer(self._depot.settings, self._depot.runtime.policy) as transfer:
            return await MetadataClient(transfer, self._depot.settings, tenant).get(url, refresh=refresh)
