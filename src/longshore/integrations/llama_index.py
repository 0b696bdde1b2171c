"""LlamaIndex: a reader of the artifacts of a depot, with stable document ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from longshore.integrations.extras import missing

try:
    from llama_index.core.readers.base import BaseReader, ResourcesReaderMixin
    from llama_index.core.schema import Document
except ImportError as error:
    raise missing("llama-index", error) from None

from longshore.depot import Depot
from longshore.integrations.documents import Artifacts, Loaded
from longshore.ledger.queries.listing import ArtifactFilter

Extract = Callable[[bytes, dict[str, Any]], str | None]


class LongshoreReader(BaseReader, ResourcesReaderMixin):
    """Reads artifacts. `extract` returns the text of bytes, or None to leave them out; without it only text is read."""

    def __init__(
        self,
        depot: Depot,
        wanted: ArtifactFilter | None = None,
        *,
        extract: Extract | None = None,
        all_versions: bool = False,
    ) -> None:
        self._artifacts, self._extract = Artifacts(depot, wanted, all_versions=all_versions), extract

    def lazy_load_data(self, *args: Any, **load_kwargs: Any) -> Iterator[Document]:
        """Yield documents; one artifact is in memory at a time."""
        for one in self._artifacts.loaded():
            yield from self._documents(one)

    def list_resources(self, *args: Any, **kwargs: Any) -> list[str]:
        """Return the ids of the artifacts."""
        return [one.artifact_id for one, _ in self._artifacts.listed()]

    def get_resource_info(self, resource_id: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the facts of an artifact."""
        return self._artifacts.info(resource_id)

    def load_resource(self, resource_id: str, *args: Any, **kwargs: Any) -> list[Document]:
        """Return the document of an artifact."""
        return list(self._documents(self._artifacts.named(resource_id)))

    def _documents(self, one: Loaded) -> Iterator[Document]:
        text = one.text if self._extract is None else self._extract(one.body, one.metadata)
        if text is not None:
            yield Document(id_=one.artifact.artifact_id, text=text, metadata=dict(one.metadata))
