"""Loaders of LangChain, LlamaIndex and Haystack, against those packages themselves."""

from __future__ import annotations

import asyncio
import builtins
import importlib
import io
import sys
from typing import Any

import pytest

from longshore import ArtifactFilter
from longshore.depot import Depot
from longshore.errors import NotFound
from tests.support.origin import Origin, Thing, status
from tests.worker.conftest import MakeDepot


@pytest.fixture
def depot(make_depot: MakeDepot) -> Depot:
    return make_depot()


def page(origin: Origin, path: str, body: bytes, etag: str = '"1"') -> str:
    return origin.add(path, Thing(body, content_type="text/plain", etag=etag))


def artifact_of(depot: Depot, url: str, **given: Any) -> str:
    (got,) = depot.get([url], **given)
    assert got.artifact is not None, got
    return got.artifact.artifact_id


def test_langchain_blobs_and_documents(depot: Depot, origin: Origin) -> None:
    from langchain_core.document_loaders import BaseBlobParser, BaseLoader, BlobLoader
    from langchain_core.documents import Document
    from langchain_core.documents.base import Blob

    from longshore.integrations.langchain import LongshoreBlobLoader, LongshoreLoader

    class Halves(BaseBlobParser):
        def lazy_parse(self, blob: Blob) -> Any:
            data = blob.as_bytes()
            return iter([Document(page_content=data[:2].decode()), Document(page_content=data[2:].decode())])

    url = page(origin, "/a.txt", b"words") + "?token=secret"
    text = artifact_of(depot, url)
    pdf = depot.put(io.BytesIO(b"%PDF-1.7 x"), name="b.pdf", metadata={"id": 7}).artifact
    assert pdf is not None
    blobs, loader = LongshoreBlobLoader(depot), LongshoreLoader(depot)
    assert isinstance(blobs, BlobLoader) and isinstance(loader, BaseLoader)
    found = {blob.id: blob for blob in blobs.yield_blobs()}
    assert found.keys() == {text, pdf.artifact_id}
    assert (found[pdf.artifact_id].as_bytes(), found[pdf.artifact_id].metadata["id"]) == (b"%PDF-1.7 x", 7)
    (document,) = loader.load()
    assert (document.id, document.page_content) == (text, "words")
    assert document.metadata["sha256"] == found[text].metadata["sha256"]
    assert "secret" not in str(document.metadata)
    assert [one.id for one in asyncio.run(loader.aload())] == [text]
    wanted = ArtifactFilter(url=url)
    assert [one.id for one in LongshoreLoader(depot, wanted, parser=Halves()).load()] == [text, f"{text}:1"]


def test_langchain_indexes_incrementally(depot: Depot, origin: Origin) -> None:
    """A second pass adds nothing; a newer version replaces the old one; what is deleted goes with the feed."""
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from langchain_core.indexing import InMemoryRecordManager, index
    from langchain_core.vectorstores import InMemoryVectorStore

    from longshore.integrations.langchain import LongshoreLoader

    changing, staying = page(origin, "/a.txt", b"the first words"), page(origin, "/b.txt", b"other words")
    depot.get([changing, staying])
    records, store = InMemoryRecordManager("longshore"), InMemoryVectorStore(DeterministicFakeEmbedding(size=8))

    def indexed() -> Any:
        how = {"cleanup": "incremental", "source_id_key": "source", "key_encoder": "sha256"}
        return index(LongshoreLoader(depot), records, store, **how)

    assert indexed()["num_added"] == 2
    assert (indexed()["num_added"], indexed()["num_skipped"]) == (0, 2)
    page(origin, "/a.txt", b"the second words", etag='"2"')
    depot.get([changing], refresh=True)
    again = indexed()
    assert (again["num_added"], again["num_deleted"], again["num_skipped"]) == (1, 1, 1)
    assert {one["text"] for one in store.store.values()} == {"the second words", "other words"}


def test_a_vector_store_follows_the_feed(depot: Depot, origin: Origin) -> None:
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from langchain_core.vectorstores import InMemoryVectorStore

    from longshore.integrations.documents import Artifacts
    from longshore.integrations.langchain import documents_of

    store, feed = InMemoryVectorStore(DeterministicFakeEmbedding(size=8)), depot.feed("vectors")

    def follow() -> None:
        for change in feed:
            if change.artifact is None:
                store.delete([change.artifact_id])
            else:
                store.add_documents(list(documents_of(Artifacts(depot).named(change.artifact_id))))
            feed.ack(change)

    first, second = (artifact_of(depot, page(origin, f"/{name}.txt", name.encode() * 9)) for name in "ab")
    follow()
    assert set(store.store) == {first, second}
    depot.delete(first)
    follow()
    assert set(store.store) == {second}


def test_llama_index_reader(depot: Depot, origin: Origin) -> None:
    from llama_index.core.readers.base import BaseReader, ResourcesReaderMixin

    from longshore.integrations.llama_index import LongshoreReader

    text = artifact_of(depot, page(origin, "/a.txt", b"words"))
    pdf = depot.put(io.BytesIO(b"%PDF-1.7 x"), name="b.pdf").artifact
    assert pdf is not None
    reader = LongshoreReader(depot)
    assert isinstance(reader, BaseReader) and isinstance(reader, ResourcesReaderMixin)
    (document,) = reader.load_data()
    assert (document.id_, document.text, document.metadata["content_type"]) == (text, "words", "text/plain")
    assert set(reader.list_resources()) == {text, pdf.artifact_id}
    assert reader.get_resource_info(text)["sha256"] == document.metadata["sha256"]
    assert [one.id_ for one in reader.load_resource(text)] == [text]
    assert reader.load_resource(pdf.artifact_id) == []
    extracting = LongshoreReader(depot, extract=lambda body, facts: f"{facts['name']} {len(body)}")
    assert {one.text for one in extracting.lazy_load_data()} >= {"b.pdf 10"}
    depot.delete(text)
    with pytest.raises(NotFound):
        reader.load_resource(text)


def test_haystack_component(depot: Depot, origin: Origin) -> None:
    from haystack import Pipeline

    from longshore.integrations.haystack import LongshoreFetcher

    good, gone = page(origin, "/a.txt", b"words"), origin.add("/gone", status(404))
    upload = depot.put(io.BytesIO(b"bytes"), name="b").artifact
    assert upload is not None
    where, settings = depot.settings.depot, {"network": {"allow": ["127.0.0.0/8"]}}
    depot.close()
    pipeline = Pipeline()
    pipeline.add_component("fetch", LongshoreFetcher(where, settings))
    ours = ["longshore.integrations.haystack"]  # Haystack makes only components of modules that the caller trusts
    again = Pipeline.from_dict(pipeline.to_dict(), allowed_modules=ours)
    for one in (pipeline, again):
        out = one.run({"fetch": {"urls": [good, gone], "artifact_ids": [upload.artifact_id]}})["fetch"]
        assert [stream.data for stream in out["streams"]] == [b"bytes", b"words"]
        assert (out["streams"][1].mime_type, out["streams"][1].meta["url"]) == ("text/plain", good)
        assert [(failure["url"], failure["reason"]) for failure in out["failures"]] == [(gone, "http_404")]
    assert origin.count("/a.txt") == 1, "what is stored is not fetched again"


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("filesystem", "fsspec", "fsspec"),
        ("langchain", "langchain_core", "langchain"),
        ("llama_index", "llama_index", "llama-index"),
        ("haystack", "haystack", "haystack"),
        ("mcp_server", "mcp", "mcp"),
    ],
)
def test_a_missing_package_is_named(module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **given: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **given)

    monkeypatch.delitem(sys.modules, f"longshore.integrations.{module}", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=rf"pip install 'longshore\[{extra}\]'"):
        importlib.import_module(f"longshore.integrations.{module}")
