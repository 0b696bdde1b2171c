"""Haystack: a component that gives the bytes of URLs or of artifacts."""

from __future__ import annotations

from typing import Any

from longshore.integrations.extras import missing

try:
    from haystack import component
    from haystack.dataclasses import ByteStream
except ImportError as error:
    raise missing("haystack", error) from None

from longshore.depot import Depot
from longshore.integrations.documents import Artifacts, Loaded


@component
class LongshoreFetcher:
    """Fetches URLs into the depot at `depot` and gives their bytes; what is stored already is not fetched again.

    It takes the place of Haystack's `LinkContentFetcher`.
    """

    def __init__(self, depot: str | None = None, settings: dict[str, Any] | None = None) -> None:
        self.depot, self.settings = depot, settings

    @component.output_types(streams=list[ByteStream], failures=list[dict[str, Any]])
    def run(self, urls: list[str] | None = None, artifact_ids: list[str] | None = None) -> dict[str, Any]:
        """Return a stream for each URL that could be fetched and for each artifact; what failed, with its reason."""
        streams, failures = [], []
        with Depot(self.depot, **(self.settings or {})) as depot:
            artifacts, wanted = Artifacts(depot), list(artifact_ids or [])
            for got in depot.get(urls) if urls else ():
                if got.artifact is not None:
                    wanted.append(got.artifact.artifact_id)
                else:
                    failures.append({"url": got.url, "reason": got.reason, "message": got.message})
            streams = [_stream(artifacts.named(one)) for one in wanted]
        return {"streams": streams, "failures": failures}


def _stream(one: Loaded) -> ByteStream:
    meta = {**one.metadata, "url": one.metadata["source"]}
    return ByteStream(data=one.body, meta=meta, mime_type=one.artifact.content_type)
