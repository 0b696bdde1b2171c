"""The service on both engines: every page and the main ways through the API."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longshore.domain.model import Scope
from longshore.ledger import Ledger
from longshore.store import open_store
from longshore.web.dashboard.pages import MENU
from tests.support.site import Site

MAGNET = "magnet:?xt=urn:btih:" + "ab" * 20 + "&dn=Moby"


@pytest.fixture
def served(where: str, tmp_path: Path) -> Iterator[Site]:
    with Site(Ledger.open(where), open_store(str(tmp_path / "store"))) as running:
        yield running


def test_every_page_and_its_twin(served: Site) -> None:
    served.complete("https://a.example/1", b"one")
    served.fail("https://a.example/2")
    served.plan("https://a.example/3")
    [waiting] = served.plan("https://a.example/4")
    served.lease([waiting])
    client = served.client("admin")
    for entry in MENU:
        assert client.get(entry.href).status == 200, entry.href
        twin = "/overview.json" if entry.href == "/" else f"{entry.href}.json"
        assert client.get(twin).status == 200, twin
    overview = client.get("/overview.json").json()
    assert overview["jobs"] == {
        "pending": 1, "processing": 1, "completed": 1, "failed": 1, "skipped": 0, "canceled": 0,
    }  # fmt: skip
    assert sum(slot["files"] for slot in overview["throughput"]["buckets"]) == 1
    assert [job["job_id"] for job in overview["active"]] == [waiting]
    assert client.get("/system.json").json()["workers"][0]["leases"] == 1
    assert client.get("/metrics").status == 200
    assert served.stranger().get("/readyz").status == 200


def test_jobs_from_the_first_post_to_the_retry(served: Site) -> None:
    client = served.client("write")
    key = {"Idempotency-Key": "k"}
    with ThreadPoolExecutor(16) as threads:
        made = list(threads.map(lambda _: client.post("/api/v1/jobs", doc={"url": "https://a.example/"}), range(48)))
        keyed = list(
            threads.map(
                lambda _: client.post("/api/v1/jobs", doc={"url": "https://k.example/"}, headers=key), range(16)
            )
        )
    assert {answer.status for answer in made} <= {200, 202}
    assert len({answer.json()["job"]["job_id"] for answer in made}) == 1
    # Two servers may meet at one key; whoever comes second is told to ask again.
    assert {answer.status for answer in keyed} <= {202, 409}
    assert len({answer.json()["job"]["job_id"] for answer in keyed if answer.status == 202}) == 1
    failed = served.fail("https://f.example/")
    body = {"filter": {"status": "failed", "current": True}, "expected_count": 1}
    assert client.post("/api/v1/jobs:retry", doc=body).json()["count"] == 1
    assert client.post("/api/v1/jobs:retry", doc=body).status == 409
    jobs = client.get("/api/v1/jobs?host=f.example").json()["jobs"]
    assert [job["retry_of"] for job in jobs] == [failed, None]
    story = client.get(f"/api/v1/jobs/{failed}/timeline").json()
    assert [claim["ended_how"] for claim in story["claims"]] == ["failed: http_404"]


def test_uploads_artifacts_hosts_and_torrents(served: Site) -> None:
    client = served.client("admin")
    job = client.post("/api/v1/artifacts?name=n.txt", body=b"bytes").json()["job"]
    [artifact] = client.get(f"/api/v1/jobs/{job['job_id']}/timeline").json()["artifacts"]
    path = f"/api/v1/artifacts/{artifact['artifact_id']}"
    assert client.get(path + "/content", headers={"Range": "bytes=1-2"}).body == b"yt"
    assert client.get(path + "/provenance").json()["provenance"][0]["job_id"] == job["job_id"]
    served.plan("https://h.example/")
    changed = client.ask("PATCH", "/api/v1/hosts/h.example", doc={"concurrency": 2, "paused": True})
    assert (changed.json()["concurrency"], changed.json()["state"]) == (2, "paused")
    assert (
        client.ask("PATCH", "/api/v1/hosts/h.example", doc={"concurrency": None, "paused": False}).json()["state"]
        == "ok"
    )
    assert client.ask("PATCH", "/api/v1/hosts/h.example", doc={"concurrency": 0}).status == 422
    body = {"source": MAGNET, "user_id": "u", "book_id": "b", "media_type": "audiobook"}
    first, again = (client.post("/api/v1/torrents", doc=body) for _ in range(2))
    assert (first.status, again.status) == (202, 200)
    torrent = first.json()["job"]["job_id"]
    assert [one["job_id"] for one in client.get("/api/v1/torrents").json()["jobs"]] == [torrent]
    assert client.get(f"/api/v1/torrents/{job['job_id']}").status == 404
    assert client.post("/api/v1/torrents", doc=body | {"source": "nonsense"}).status == 422
    assert client.post(f"/api/v1/torrents/{torrent}/cancel").json()["count"] == 1


def test_tenants_do_not_meet(served: Site) -> None:
    job, artifact = served.complete("https://one.example/", b"1", scope=Scope("one", "p"))
    other = served.client("write", tenant="two", project="p")
    for path in (
        f"/api/v1/jobs/{job}",
        f"/api/v1/artifacts/{artifact}",
        f"/api/v1/artifacts/{artifact}/content",
        f"/jobs/{job}",
    ):
        assert other.get(path).status == 404
    assert other.get("/api/v1/jobs").json()["jobs"] == []
    assert other.get("/api/v1/stats").json()["held"]["artifacts"] == 0
    assert other.post("/api/v1/jobs:cancel", doc={"job_ids": [job]}).json()["count"] == 0
    assert served.client("read", tenant="one", project="p").get(f"/api/v1/jobs/{job}").status == 200
