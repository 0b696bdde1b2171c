"""LangChain: the artifacts of a depot as blobs and documents with stable ids."""

from __future__ import annotations

from collections.abc import Iterator

from longshore.integrations.extras import missing

try:
    from langchain_core.document_loaders import BaseBlobParser, BaseLoader, BlobLoader
    from langchain_core.documents import Document
    from langchain_core.documents.base import Blob
except ImportError as error:
    raise missing("langchain", error) from None

from longshore.depot import Depot
from longshore.integrations.documents import Artifacts, Loaded
from longshore.ledger.queries.listing import ArtifactFilter


class LongshoreBlobLoader(BlobLoader):
    """Yields every artifact, whatever its type, for a parser of yours."""

    def __init__(self, depot: Depot, wanted: ArtifactFilter | None = None, *, all_versions: bool = False) -> None:
        self._artifacts = Artifacts(depot, wanted, all_versions=all_versions)

    def yield_blobs(self) -> Iterator[Blob]:
        """Yield the artifacts, newest first."""
        return map(blob_of, self._artifacts.loaded())


class LongshoreLoader(BaseLoader):
    """Loads documents. Without a parser: the artifacts that are text, one document each, with the artifact's id."""

    def __init__(
        self,
        depot: Depot,
        wanted: ArtifactFilter | None = None,
        *,
        parser: BaseBlobParser | None = None,
        all_versions: bool = False,
    ) -> None:
        self._artifacts, self._parser = Artifacts(depot, wanted, all_versions=all_versions), parser

    def lazy_load(self) -> Iterator[Document]:
        """Yield documents; one artifact is in memory at a time."""
        for one in self._artifacts.loaded():
            yield from documents_of(one, self._parser)


def blob_of(one: Loaded) -> Blob:
    """Return an artifact as a blob."""
    return Blob(
        id=one.artifact.artifact_id, data=one.body, mimetype=one.artifact.content_type, metadata=dict(one.metadata)
    )


def documents_of(one: Loaded, parser: BaseBlobParser | None = None) -> Iterator[Document]:
    """Yield the documents of an artifact. Ids: the artifact's own; from the second document on with a number."""
    if parser is None:
        if (text := one.text) is not None:
            yield Document(id=one.artifact.artifact_id, page_content=text, metadata=dict(one.metadata))
        return
    for number, found in enumerate(parser.lazy_parse(blob_of(one))):
        name = one.artifact.artifact_id + (f":{number}" if number else "")
        yield Document(id=name, page_content=found.page_content, metadata={**found.metadata, **one.metadata})
