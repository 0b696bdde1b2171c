"""Books and torrents over HTTP: what a library asks, within its own tenant and project."""

from __future__ import annotations

from longshore.domain.model import Scope
from longshore.ledger.operations.failed_releases import release_failed, releases_of
from tests.support.site import Site

SCOPE = Scope("shelf", "p")
MAGNET = "magnet:?xt=urn:btih:" + "a1" * 20
BOOK = {"user_id": "u1", "book_id": "b-1", "media_type": "ebook"}


def test_a_library_asks_for_its_books_and_only_for_its_own(site: Site) -> None:
    client = site.client("write", tenant=SCOPE.tenant_id, project=SCOPE.project_id)
    started = client.post("/api/v1/torrents", doc={**BOOK, "source": MAGNET})
    assert started.status == 202
    job_id = started.json()["job"]["job_id"]
    client.post("/api/v1/torrents", doc={**BOOK, "book_id": "b-2", "source": MAGNET})
    page = client.get("/api/v1/books?limit=1").json()
    assert ([book["book_id"] for book in page["books"]], page["next"]) == (["b-1"], "b-1")
    page = client.get("/api/v1/books?limit=1&after=b-1").json()
    assert ([book["book_id"] for book in page["books"]], page["next"]) == (["b-2"], None)
    book = client.get("/api/v1/books/b-1").json()
    assert (book["state"], book["assets"]) == ("Archive", [])
    shown = client.get(f"/api/v1/torrents/{job_id}").json()
    assert (shown["stage"], shown["note"], shown["client_state"]) == ("queued", None, None)
    stranger = site.client("read", tenant="shelf", project="other")
    assert stranger.get("/api/v1/books").json()["books"] == []
    assert stranger.get("/api/v1/books/b-1").status == 404


def test_a_failed_release_is_refused_unless_the_caller_insists(site: Site) -> None:
    client = site.client("write", tenant=SCOPE.tenant_id, project=SCOPE.project_id)
    asked = {**BOOK, "book_id": "b-9", "source": MAGNET}

    def failed(tx: object) -> None:
        tx.enter(SCOPE.tenant_id)  # type: ignore[attr-defined]
        names = releases_of(MAGNET)
        release_failed(tx, SCOPE, ("b-9", "ebook"), names, "j", "external_stalled", "no seeds")  # type: ignore[arg-type]

    site.ledger.write(failed)
    refused = client.post("/api/v1/torrents", doc=asked)
    assert refused.status == 409
    assert "external_stalled" in refused.json()["detail"]
    assert client.post("/api/v1/torrents", doc={**asked, "again": True}).status == 202
