"""The change feed over HTTP."""

from __future__ import annotations

from longshore.domain.model import Scope
from longshore.ledger.operations.deleting import By, delete_artifacts
from tests.support.site import Site


def test_a_consumer_reads_acknowledges_and_is_forgotten(site: Site) -> None:
    scope = Scope("fed", "p")
    reader, writer = (site.client(kind, tenant="fed", project="p") for kind in ("read", "write"))
    _, first = site.complete("https://a.example/1?token=secret", scope=scope)
    _, second = site.complete("https://a.example/2", scope=scope)
    page = reader.get("/api/v1/feed/rag").json()
    assert [(one["change"], one["artifact_id"]) for one in page["changes"]] == [("new", first), ("new", second)]
    assert "secret" not in str(page) and "pointer" not in str(page)
    assert reader.post("/api/v1/feed/rag/ack", doc={"cursor": page["changes"][0]["cursor"]}).status == 403
    done = writer.post("/api/v1/feed/rag/ack", doc={"cursor": page["changes"][0]["cursor"]})
    assert (done.status, done.json()["consumer"]) == (200, "rag")
    page = reader.get("/api/v1/feed/rag").json()
    assert [one["artifact_id"] for one in page["changes"]] == [second]
    site.ledger.write(delete_artifacts, scope, [first], By("test"))
    after = reader.get(f"/api/v1/feed/rag?after={page['cursor']}&wait=30").json()
    assert [(one["change"], one["artifact_id"]) for one in after["changes"]] == [("gone", first)]
    assert writer.ask("DELETE", "/api/v1/feed/rag").status == 204
    assert writer.ask("DELETE", "/api/v1/feed/rag").status == 404
    assert [one["artifact_id"] for one in reader.get("/api/v1/feed/rag").json()["changes"]] == [second, first]


def test_a_stranger_sees_and_moves_nothing(site: Site) -> None:
    scope = Scope("fed2", "p")
    site.complete("https://a.example/1", scope=scope)
    owner = site.client("write", tenant="fed2", project="p")
    stranger = site.client("write", tenant="fed3", project="p")
    cursor = owner.get("/api/v1/feed/x").json()["cursor"]
    assert stranger.get("/api/v1/feed/x").json()["changes"] == []
    assert stranger.post("/api/v1/feed/x/ack", doc={"cursor": cursor}).status == 422
    assert len(owner.get("/api/v1/feed/x").json()["changes"]) == 1
    assert owner.get("/api/v1/feed/a%20b").status == 422
    assert site.stranger().get("/api/v1/feed/x").status == 401
