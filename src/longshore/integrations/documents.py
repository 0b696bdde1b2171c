"""What the loaders for LangChain, LlamaIndex and Haystack share: the artifacts of a depot with their bytes and facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from longshore.depot import Depot
from longshore.domain.model import Artifact
from longshore.domain.policy.redaction import safe_url
from longshore.errors import LongshoreError, NotFound
from longshore.ledger.queries.feed import origins
from longshore.ledger.queries.listing import ArtifactFilter
from longshore.store.verify_blob import proven_pieces

PAGE: Final = 500
TEXTS: Final = ("application/json", "application/xml", "application/x-ndjson", "application/yaml")


@dataclass(frozen=True, slots=True)
class Loaded:
    """One artifact; its id is stable: the same bytes of the same job have it for ever."""

    artifact: Artifact
    metadata: dict[str, Any]
    body: bytes

    @property
    def text(self) -> str | None:
        """Return the body as text, if its type says that it is one."""
        kind = self.artifact.content_type
        return self.body.decode(errors="replace") if kind.startswith("text/") or kind in TEXTS else None


class Artifacts:
    """Reads artifacts: by default the current version of each URL and every other artifact that has its bytes."""

    def __init__(self, depot: Depot, wanted: ArtifactFilter | None = None, *, all_versions: bool = False) -> None:
        self.depot, self._wanted, self._all = depot, wanted, all_versions

    def listed(self) -> Iterator[tuple[Artifact, dict[str, Any]]]:
        """Yield artifacts with their facts, newest first; bytes are not read."""
        after: str | None = None
        old: set[str] = set()  # a newer version of the same URL was there
        while True:
            page = self.depot.ledger.artifacts(self.depot.scope, self._wanted, after=after, limit=PAGE)
            chosen = []
            for one in page.items:
                if one.availability == "available" and (self._all or one.artifact_id not in old):
                    chosen.append(one)
                if one.previous_id:
                    old.add(one.previous_id)
                old.discard(one.artifact_id)
            yield from self._described(chosen)
            if (after := page.next) is None:
                return

    def loaded(self) -> Iterator[Loaded]:
        """Yield artifacts with their bytes. What is lost or deleted meanwhile is left out."""
        for artifact, metadata in self.listed():
            try:
                yield Loaded(artifact, metadata, self._bytes(artifact))
            except (LongshoreError, OSError):
                if self.depot.prove(artifact):  # marks lost bytes as missing
                    raise

    def named(self, artifact_id: str) -> Loaded:
        """Return one artifact by its id, or raise NotFound."""
        artifact = self.depot.ledger.artifact(self.depot.scope, artifact_id)
        ((_, metadata),) = self._described([artifact])
        if artifact.availability != "available" or not self.depot.prove(artifact):
            raise NotFound(f"the bytes of artifact {artifact_id} are lost")
        return Loaded(artifact, metadata, self._bytes(artifact))

    def info(self, artifact_id: str) -> dict[str, Any]:
        """Return the facts of one artifact."""
        ((_, metadata),) = self._described([self.depot.ledger.artifact(self.depot.scope, artifact_id)])
        return metadata

    def _bytes(self, artifact: Artifact) -> bytes:
        with self.depot.store.open(artifact.scope, artifact.pointer) as file:
            return b"".join(proven_pieces(file, artifact.sha256))

    def _described(self, artifacts: list[Artifact]) -> Iterator[tuple[Artifact, dict[str, Any]]]:
        ids = [one.artifact_id for one in artifacts]
        known = self.depot.ledger.read(origins, self.depot.scope, ids) if ids else {}
        for one in artifacts:
            yield one, _facts(one, *known.get(one.artifact_id, (None, None)))


def _facts(one: Artifact, url: str | None, work_id: str | None) -> dict[str, Any]:
    """Return the metadata of a document. `source` stays the same when a URL has a newer version."""
    shown = safe_url(url) if url else None
    return {
        "source": shown or f"longshore://artifacts/{one.artifact_id}",
        "artifact_id": one.artifact_id,
        "artifact_type": one.artifact_type,
        "sha256": one.sha256,
        "content_type": one.content_type,
        "size_bytes": one.size_bytes,
        "name": one.name,
        "work_id": safe_url(work_id) if work_id and "://" in work_id else work_id,
        **{name: value for name, value in one.metadata.items() if isinstance(value, str | int | float | bool)},
    }
