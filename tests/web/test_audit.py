"""The audit log: a line is written with the act or the act does not take place, whatever the client does."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from longshore.domain.model import Scope
from longshore.errors import Unavailable
from longshore.ledger import Ledger
from longshore.ledger.operations import audit_log
from tests.support.program import invoke
from tests.support.qbt import until
from tests.support.site import Site

TEXT = {"Content-Type": "text/plain"}


def lines(site: Site, tenant: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = site.client("admin", tenant=tenant).get("/api/v1/audit").json()["entries"]
    return entries


def jobs(site: Site, tenant: str) -> int:
    return sum(site.ledger.counts(Scope(tenant, "default")).values())


def test_a_batch_that_is_cut_off_is_in_the_audit_log(site: Site) -> None:
    secret = site.token("write", tenant="cut")
    with socket.create_connection(("127.0.0.1", site.port)) as client:
        head = "POST /api/v1/jobs:batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: 10000000\r\n"
        client.sendall(f"{head}Authorization: Bearer {secret}\r\n\r\n".encode())
        client.sendall(b"".join(b"https://cut.example/%d\n" % n for n in range(1_000)))
        until("the jobs", lambda: jobs(site, "cut") == 1_000)
    written = lines(site, "cut")
    assert sum(line["detail"]["count"] for line in written) == 1_000
    assert {line["target"] for line in written} == {"/api/v1/jobs:batch"}


def test_without_a_line_there_is_no_act(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = site.client("write", tenant="closed")
    made = writer.post("/api/v1/jobs", doc={"url": "https://closed.example/0"}).json()["job"]["job_id"]

    def broken(*_: object) -> None:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(audit_log, "audit", broken)
    assert writer.post("/api/v1/jobs", doc={"url": "https://closed.example/1"}).status == 503
    assert writer.post(f"/api/v1/jobs/{made}/cancel").status == 503
    assert writer.post("/api/v1/jobs:batch", body=b"https://closed.example/2", headers=TEXT).status == 503
    assert jobs(site, "closed") == 1
    assert site.ledger.job(Scope("closed", "default"), made).status == "pending"


def test_who_reads_which_bytes_is_written_once_in_a_while(site: Site) -> None:
    writer = site.client("write", tenant="reads")
    job = writer.post("/api/v1/artifacts?name=x", body=b"bytes of x", headers=TEXT).json()["job"]["job_id"]
    assert job
    results = writer.get("/api/v1/artifacts").json()["artifacts"]
    where = f"/api/v1/artifacts/{results[0]['artifact_id']}/content"
    for _ in range(3):
        assert writer.get(where).status == 200
    assert site.client("read", tenant="reads").get(where).status == 200
    read = [line for line in lines(site, "reads") if line["detail"].get("act") == "read"]
    assert [line["target"] for line in read] == [where, where]
    assert len({line["token_id"] for line in read}) == 2


def test_acts_of_the_command_line_are_written(tmp_path: Path) -> None:
    depot = ("--depot", tmp_path / "depot")
    invoke("add", "-", *depot, stdin=b"https://a.example/1\nhttps://a.example/2").ok()
    invoke("cancel", "--all", *depot).ok()
    invoke("retry", "--status", "canceled", *depot).ok()
    invoke("budget", "--items", "10", *depot).ok()
    invoke("purge", *depot).ok()
    invoke("gc", *depot).ok()
    with Ledger.open(tmp_path / "depot" / "ledger.db") as ledger:
        written = ledger.read(audit_log.audit_entries, Scope())[::-1]
        assert not ledger.read(audit_log.check_chain, Scope()).broken
    assert [line.action for line in written] == ["cancel", "retry", "set budget", "purge", "gc"]
    assert [line.detail.get("count") for line in written[:2]] == [2, 2]
    assert all(line.token_id == "command line" and line.detail["user"] for line in written)
    assert json.dumps(written[2].detail)
