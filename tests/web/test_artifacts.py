"""Bytes over HTTP: whole, in ranges, with the hash as ETag; uploads; nothing about where they lie."""

from __future__ import annotations

import base64
import hashlib
import http.client
import socket
from pathlib import Path
from urllib.parse import quote

import pytest

from longshore.domain.model import Scope
from longshore.ledger.operations.audit_log import audit_entries
from longshore.web.api.artifacts import wanted_range
from longshore.web.problems import Problem
from tests.support.program import eventually
from tests.support.site import Site

BODY = bytes(range(256)) * 40
SHA = hashlib.sha256(BODY).hexdigest()


@pytest.fixture(scope="module")
def artifact(site: Site) -> str:
    return site.complete("https://a.example/blob", BODY, name="blob.bin", scope=Scope("bytes", "default"))[1]


def test_the_whole_comes_with_its_hash_and_never_runs_in_a_browser(site: Site, artifact: str) -> None:
    answer = site.client("read", tenant="bytes").get(f"/api/v1/artifacts/{artifact}/content")
    assert answer.status == 200
    assert answer.body == BODY
    assert answer.headers["etag"] == f'"{SHA}"'
    assert answer.headers["repr-digest"] == f"sha-256=:{base64.b64encode(bytes.fromhex(SHA)).decode()}:"
    assert answer.headers["content-disposition"].startswith('attachment; filename="blob.bin"')
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=10-19", (10, 20)),
        ("bytes=10200-", (10200, 10240)),
        ("bytes=-5", (10235, 10240)),
        ("bytes=0-999999", (0, 10240)),
        ("bytes=-999999", (0, 10240)),
    ],
)
def test_a_range_is_exactly_that_range(site: Site, artifact: str, asked: str, expected: tuple[int, int]) -> None:
    answer = site.client("read", tenant="bytes").get(f"/api/v1/artifacts/{artifact}/content", headers={"Range": asked})
    first, end = expected
    assert answer.status == 206
    assert answer.body == BODY[first:end]
    assert answer.headers["content-range"] == f"bytes {first}-{end - 1}/10240"


@pytest.mark.parametrize("asked", ["bytes=10240-", "bytes=99999-100000", "bytes=-0"])
def test_a_range_that_is_not_there_is_416(site: Site, artifact: str, asked: str) -> None:
    answer = site.client("read", tenant="bytes").get(f"/api/v1/artifacts/{artifact}/content", headers={"Range": asked})
    assert answer.status == 416
    assert answer.headers["content-range"] == "bytes */10240"


@pytest.mark.parametrize("asked", ["bytes=5-2", "chunks=0-1", "bytes=0-1,4-5", "bytes=a-b", "bytes=-", ""])
def test_what_is_no_single_range_gets_the_whole(site: Site, artifact: str, asked: str) -> None:
    answer = site.client("read", tenant="bytes").get(f"/api/v1/artifacts/{artifact}/content", headers={"Range": asked})
    assert (answer.status, answer.body) == (200, BODY)


def test_no_range_of_nothing() -> None:
    assert wanted_range(None, 0) is None
    with pytest.raises(Problem):
        wanted_range("bytes=0-", 0)


def test_validators_save_the_transfer(site: Site, artifact: str) -> None:
    client, path = site.client("read", tenant="bytes"), f"/api/v1/artifacts/{artifact}/content"
    assert client.get(path, headers={"If-None-Match": f'"{SHA}"'}).status == 304
    assert client.get(path, headers={"If-None-Match": '"other"'}).status == 200
    assert client.get(path, headers={"Range": "bytes=0-4", "If-Range": f'"{SHA}"'}).status == 206
    assert client.get(path, headers={"Range": "bytes=0-4", "If-Range": '"other"'}).status == 200
    head = client.ask("HEAD", path)
    assert (head.status, head.headers["content-length"], head.body) == (200, "10240", b"")


def test_pointers_and_paths_never_appear(site: Site, artifact: str) -> None:
    client = site.client("admin", tenant="bytes")
    folder = str(site.ledger.backend.path.parent)  # type: ignore[attr-defined]
    job = client.get("/api/v1/jobs").json()["jobs"][0]["job_id"]
    for path in (
        f"/api/v1/artifacts/{artifact}",
        "/api/v1/artifacts",
        f"/api/v1/artifacts/{artifact}/provenance",
        f"/api/v1/jobs/{job}/timeline",
        f"/artifacts/{artifact}",
        f"/artifacts/{artifact}.json",
        f"/jobs/{job}.json",
        f"/jobs/{job}",
        "/system.json",
    ):
        answer = client.get(path)
        assert answer.status == 200, path
        assert "pointer" not in answer.text, path
        assert folder not in answer.text, path


def test_an_artifact_is_found_by_hash_and_tells_its_provenance(site: Site, artifact: str) -> None:
    client = site.client("read", tenant="bytes")
    assert [a["artifact_id"] for a in client.get(f"/api/v1/artifacts?sha256={SHA.upper()}").json()["artifacts"]] == [
        artifact
    ]
    assert client.get("/api/v1/artifacts?sha256=" + "0" * 64).json()["artifacts"] == []
    story = client.get(f"/api/v1/artifacts/{artifact}/provenance").json()
    assert [(p["role"], p["url"]) for p in story["provenance"]] == [("result", "https://a.example/blob")]


def test_an_upload_is_a_job_and_the_same_bytes_again_are_the_same_job(site: Site) -> None:
    client = site.client("write", tenant="uploads")
    path = f"/api/v1/artifacts?name=notes.txt&sha256={hashlib.sha256(b'notes').hexdigest()}"
    first = client.post(path, body=b"notes", headers={"Content-Type": "text/plain"})
    again = client.post(path, body=b"notes", headers={"Content-Type": "text/plain"})
    assert (first.status, again.status) == (201, 200)
    job = first.json()["job"]
    assert (job["job_type"], job["status"], job["job_id"]) == ("upload", "completed", again.json()["job"]["job_id"])
    [artifact] = client.get(f"/api/v1/jobs/{job['job_id']}/timeline").json()["artifacts"]
    assert (artifact["name"], artifact["content_type"], artifact["size_bytes"]) == ("notes.txt", "text/plain", 5)
    assert client.get(f"/api/v1/artifacts/{artifact['artifact_id']}/content").body == b"notes"


def test_an_upload_of_other_bytes_than_promised_leaves_nothing(site: Site) -> None:
    client = site.client("write", tenant="promised")
    answer = client.post("/api/v1/artifacts?sha256=" + "0" * 64, body=b"else")
    assert (answer.status, answer.json()["reason"]) == (422, "digest_mismatch")
    assert client.get("/api/v1/jobs").json()["jobs"] == []
    assert not any(part.job_id for part in site.store.parts())


def test_an_upload_again_brings_lost_bytes_back(site: Site) -> None:
    client = site.client("write", tenant="again")
    first = client.post("/api/v1/artifacts?name=a.txt", body=b"soon gone").json()["job"]["job_id"]
    folder = site.ledger.backend.path.parent / "store" / "again"  # type: ignore[attr-defined]
    [blob] = [path for path in Path(folder).rglob("*") if path.is_file()]
    blob.unlink()
    again = client.post("/api/v1/artifacts?name=a.txt", body=b"soon gone")
    assert again.status == 201
    assert again.json()["job"]["retry_of"] == first
    [artifact] = client.get(f"/api/v1/jobs/{again.json()['job']['job_id']}/timeline").json()["artifacts"]
    assert client.get(f"/api/v1/artifacts/{artifact['artifact_id']}/content").body == b"soon gone"


def test_an_upload_of_nothing_and_of_megabytes(site: Site) -> None:
    client = site.client("write", tenant="sizes")
    for body in (b"", b"0123456789abcdef" * 300_000):
        job = client.post("/api/v1/artifacts", body=body, headers={"Content-Type": "application/octet-stream"}).json()[
            "job"
        ]
        [artifact] = client.get(f"/api/v1/jobs/{job['job_id']}/timeline").json()["artifacts"]
        assert artifact["sha256"] == hashlib.sha256(body).hexdigest()
        assert client.get(f"/api/v1/artifacts/{artifact['artifact_id']}/content").body == body


def test_an_upload_keeps_the_tenants_budget(site: Site) -> None:
    site.store.count_by(lambda _: 0, lambda tenant: 4_000 if tenant == "tight" else 0)
    client = site.client("write", tenant="tight")
    answer = client.post("/api/v1/artifacts", body=bytes(5_000))
    assert (answer.status, answer.json()["reason"]) == (403, "quota_exceeded")
    assert client.get("/api/v1/jobs").json()["jobs"] == []
    assert not any(part.scope.tenant_id == "tight" for part in site.store.parts())
    assert client.post("/api/v1/artifacts", body=bytes(3_000)).status == 201


def test_lost_bytes_are_gone_not_an_error_of_ours(site: Site) -> None:
    scope = Scope("lost", "default")
    _, artifact = site.complete("https://lost.example/", b"soon gone", scope=scope)
    folder = site.ledger.backend.path.parent / "store" / "lost"  # type: ignore[attr-defined]
    [blob] = [path for path in Path(folder).rglob("*") if path.is_file()]
    blob.unlink()
    answer = site.client("read", tenant="lost").get(f"/api/v1/artifacts/{artifact}/content")
    assert (answer.status, answer.json()["reason"]) == (410, "missing")


@pytest.mark.parametrize("size", [9_000, (2 << 20) + 77])
def test_a_damaged_blob_is_never_sent_whole(site: Site, size: int) -> None:
    scope = Scope(f"flipped{size}", "default")
    _, artifact = site.complete("https://flipped.example/", bytes(size), scope=scope)
    folder = site.ledger.backend.path.parent / "store" / scope.tenant_id  # type: ignore[attr-defined]
    [blob] = [path for path in Path(folder).rglob("*") if path.is_file() and not path.name.startswith(".")]
    blob.chmod(0o600)
    blob.write_bytes(bytes(size - 1) + b"\1")
    client, path = site.client("read", tenant=scope.tenant_id), f"/api/v1/artifacts/{artifact}/content"
    with pytest.raises(http.client.IncompleteRead):
        client.get(path)
    assert not blob.exists()
    assert client.get(path).status == 410


@pytest.mark.parametrize("path", ["/api/v1/artifacts?name=x", "/api/v1/jobs:batch"])
def test_a_client_that_leaves_in_the_middle_is_not_an_error(
    site: Site, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    secret = site.token("write", tenant="leaving")
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\nContent-Length: 1000\r\n"
    kind = "Content-Type: application/x-ndjson\r\n" if "batch" in path else ""
    with caplog.at_level("INFO"):
        with socket.create_connection(("127.0.0.1", site.port)) as client:
            client.sendall(f"{head}{kind}\r\n".encode() + b"a" * 500)
            eventually(site.serving, "the request to begin")
        eventually(lambda: not site.serving(), "the request to end")
    assert "unexpected" not in caplog.text
    assert "Traceback" not in caplog.text


def test_an_upload_answers_its_artifact_and_takes_metadata(site: Site) -> None:
    client = site.client("write", tenant="described")
    query = "artifact_type=transcript&schema_version=2.1&run_id=r9&work_id=w1&metadata=" + quote(
        '{"pages": 3, "who": "ü"}'
    )
    first = client.post(f"/api/v1/artifacts?{query}", body=b"words", headers={"X-Request-Id": "req-1"}).json()
    artifact = client.get(f"/api/v1/artifacts/{first['artifact_id']}").json()
    assert artifact["metadata"] == {"pages": 3, "who": "ü"}
    assert (artifact["artifact_type"], artifact["schema_version"]) == ("transcript", "2.1")
    job = first["job"]
    assert (job["run_id"], job["request_id"], job["work_id"]) == ("r9", "req-1", "w1")
    assert job["result_artifacts"] == [first["artifact_id"]]
    again = client.post("/api/v1/artifacts?metadata=%7B%22pages%22%3A4%7D", body=b"words")
    assert (again.status, again.json()["artifact_id"]) == (200, first["artifact_id"])
    assert client.get(f"/api/v1/artifacts/{first['artifact_id']}").json()["metadata"]["pages"] == 3  # as it was stored


@pytest.mark.parametrize("metadata", ["[1]", "{", "3", '{"a": ' + "[" * 100 + "]" * 100 + "}", '{"a": "\\ud800"}'])
def test_metadata_that_is_no_plain_object_is_refused(site: Site, metadata: str) -> None:
    client = site.client("write", tenant="plain")
    answer = client.post(f"/api/v1/artifacts?metadata={quote(metadata)}", body=b"x")
    assert (answer.status, answer.json()["reason"]) == (422, "bad_input")
    assert client.get("/api/v1/jobs").json()["jobs"] == []


def test_artifacts_are_deleted_with_their_bytes(site: Site) -> None:
    scope = Scope("gone", "p")
    client = site.client("write", tenant=scope.tenant_id, project=scope.project_id)
    ids = [site.complete(f"https://gone.example/{n}", b"%d" % n, scope=scope)[1] for n in range(3)]
    paths = [site.store.path(scope, site.ledger.artifact(scope, one).pointer) for one in ids]
    done = client.ask("DELETE", f"/api/v1/artifacts/{ids[0]}").json()
    assert (done["count"], done["freed_bytes"]) == (1, 1)
    assert client.ask("DELETE", f"/api/v1/artifacts/{ids[0]}").status == 404
    assert client.get(f"/api/v1/artifacts/{ids[0]}").status == 404
    wanted = {"filter": {"artifact_type": "download"}, "why": "asked to"}
    assert client.post("/api/v1/artifacts:delete", doc=wanted).status == 422
    assert client.post("/api/v1/artifacts:delete", doc={**wanted, "expected_count": 7}).status == 409
    assert client.post("/api/v1/artifacts:delete", doc={"filter": {}, "expected_count": 2}).status == 422
    stranger = site.client("write", tenant="gone", project="other")
    assert stranger.post("/api/v1/artifacts:delete", doc={"artifact_ids": ids[1:]}).json()["unknown"] == ids[1:]
    assert site.client("read", tenant="gone", project="p").ask("DELETE", f"/api/v1/artifacts/{ids[1]}").status == 403
    done = client.post("/api/v1/artifacts:delete", doc={**wanted, "expected_count": 2}).json()
    assert (done["count"], sorted(done["artifact_ids"])) == (2, sorted(ids[1:]))
    assert not any(path and path.exists() for path in paths)
    lines = site.ledger.read(audit_entries, scope)
    assert {line.detail["why"] for line in lines if line.action == "delete artifacts"} == {None, "asked to"}
