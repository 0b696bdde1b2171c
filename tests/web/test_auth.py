"""Every route, asked with every token that must not open it. The table is the app's own, so a new route cannot escape."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from longshore.domain.model import Scope
from longshore.domain.policy.tokens import API_PREFIX, SCOPES, SESSION_PREFIX, allows, csrf_token, secret_hash
from longshore.ledger import Ledger
from longshore.ledger.operations import tokens
from longshore.web.security.auth import Needs, is_public
from tests.support.site import Client, Site

UNKNOWN = "00000000-0000-7000-8000-000000000000"
VALUES = {
    "job_id": UNKNOWN,
    "artifact_id": UNKNOWN,
    "token_id": UNKNOWN,
    "host": "nowhere.example",
    "name": "x.css",
    "book_id": UNKNOWN,
    "run_id": "no-run",
    "consumer": "nobody",
}
PUBLIC = {"/livez", "/readyz", "/sign-in", "/first", "/favicon.ico", "/static/{name}"}


def needed(route: APIRoute) -> str | None:
    """Read from a route's dependencies which right it asks for."""
    for part in route.dependant.dependencies:
        if isinstance(part.call, Needs):
            return part.call.right
    return None


def flat(routes: Any) -> Iterator[APIRoute]:
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif inner := getattr(getattr(route, "original_router", None), "routes", None) or getattr(
            route, "routes", None
        ):
            yield from flat(inner)


def table(site: Site) -> list[tuple[str, str, str | None]]:
    return [
        (method, route.path, needed(route)) for route in flat(site.app.routes) for method in sorted(route.methods or ())
    ]


def filled(path: str) -> str:
    return re.sub(r"{(\w+)}", lambda match: VALUES[match[1]], path)


def ask(client: Client, method: str, path: str) -> Any:
    if method in ("POST", "PATCH", "PUT"):
        return client.ask(method, filled(path), doc={})
    return client.ask(method, filled(path))


def test_the_table_is_not_empty_and_every_route_is_public_or_names_its_right(site: Site) -> None:
    rows = table(site)
    assert len(rows) > 40
    for method, path, right in rows:
        if path in PUBLIC:
            assert is_public(filled(path))
        else:
            assert right in SCOPES, f"{method} {path} names no right"
            assert not is_public(filled(path))


@pytest.fixture(scope="module")
def bad(site: Site) -> dict[str, str | None]:
    expired = site.token("admin", expires_s=0.000001)
    secret = site.token("admin", name="to be revoked")
    token = site.ledger.read(tokens.token_by_hash, secret_hash(secret))
    assert token is not None
    site.ledger.write(tokens.revoke_token, token.token_id)
    parent = site.ledger.read(tokens.token_by_hash, secret_hash(site.token("admin")))
    assert parent is not None
    session = site.ledger.write(tokens.open_session, parent, Scope(), ["admin"], 1000)
    return {
        "no": None,
        "wrong": API_PREFIX + "A" * 43,
        "not even a token": "x",
        "expired": expired,
        "revoked": secret,
        "a session as bearer": session,
    }


def test_no_wrong_expired_and_revoked_tokens_open_nothing_and_are_told_nothing_apart(
    site: Site, bad: dict[str, str | None]
) -> None:
    for method, path, right in table(site):
        if right is None:
            continue
        seen = set()
        for secret in bad.values():
            answer = ask(Client(site.port, secret), method, path)
            assert answer.status == 401, f"{method} {path}"
            assert answer.headers["www-authenticate"].startswith("Bearer")
            seen.add(answer.body)
        assert len(seen) == 1, f"{method} {path} tells kinds of wrong tokens apart"


def test_a_token_without_the_right_is_refused_and_nothing_else_is_said(site: Site) -> None:
    clients = {name: site.client(name) for name in SCOPES}
    for method, path, right in table(site):
        if right is None:
            continue
        for name, client in clients.items():
            if not allows([name], right):
                answer = ask(client, method, path)
                assert answer.status == 403, f"{method} {path} with {name}"
                assert method == "HEAD" or answer.json()["reason"] == "forbidden"


def test_a_token_with_the_right_gets_past_the_door(site: Site) -> None:
    clients = {name: site.client(name) for name in ("read", "write", "admin", "metrics")}
    for method, path, right in table(site):
        if right is None or path == "/api/v1/events":
            continue
        answer = ask(clients[right], method, path)
        assert answer.status not in (401, 403, 500), f"{method} {path}: {answer.status} {answer.text[:300]}"


def test_unknown_paths_need_a_token_too(site: Site) -> None:
    assert site.stranger().get("/api/v1/nothing").status == 401
    assert site.stranger().get("/nothing").status == 401
    assert site.client("read").get("/api/v1/nothing").status == 404


def things(site: Site, tenant: str, project: str) -> dict[str, str]:
    scope = Scope(tenant, project)
    job_id, artifact_id = site.complete(f"https://{tenant}.example/{project}", b"secret", scope=scope)
    return {"job_id": job_id, "artifact_id": artifact_id}


@pytest.mark.parametrize(("tenant", "project"), [("harbor", "default"), ("default", "other")])
def test_ids_of_another_tenant_or_project_answer_exactly_like_unknown_ones(
    site: Site, tenant: str, project: str
) -> None:
    """Status, headers and body are the same but for the id itself, on every route that takes one."""
    theirs = things(site, tenant, project)
    client = site.client("write")
    checked = 0
    for method, path, right in table(site):
        name = next((name for name in theirs if f"{{{name}}}" in path), None)
        if name is None or right not in ("read", "write"):
            continue
        answers = []
        for value in (theirs[name], UNKNOWN):
            url = path.replace(f"{{{name}}}", value)
            answer = client.ask(method, url, doc={} if method == "POST" else None)
            headers = {k: v for k, v in answer.headers.items() if k not in ("date", "x-request-id")}
            answers.append((answer.status, headers, answer.text.replace(value, "ID").replace(value[-12:], "SHORT")))
        assert answers[0] == answers[1], f"{method} {path}"
        assert answers[0][0] in (404, 422), f"{method} {path}"
        checked += 1
    assert checked >= 8
    bulk = {"job_ids": [theirs["job_id"]]}
    assert client.post("/api/v1/jobs:cancel", doc=bulk).json() == {"count": 0, "job_ids": []}


def test_lists_counts_events_and_failures_show_nothing_of_another_tenant(site: Site) -> None:
    scope = Scope("quiet", "default")
    site.complete("https://loud.example/1", b"loud", scope=Scope("loud", "default"))
    site.fail("https://loud.example/2", scope=Scope("loud", "default"))
    client = site.client("read", tenant=scope.tenant_id)
    for path in (
        "/api/v1/jobs",
        "/api/v1/artifacts",
        "/api/v1/failures",
        "/jobs.json",
        "/artifacts.json",
        "/overview.json",
    ):
        assert "loud" not in client.get(path).text, path
    stats = client.get("/api/v1/stats").json()
    assert set(stats["jobs"].values()) == {0}
    assert stats["held"] == {"artifacts": 0, "bytes": 0, "saved_artifacts": 0, "saved_bytes": 0}
    assert client.get("/overview.json").json()["disk"] is None  # the machine is the operator's


def test_only_hashes_are_stored(site: Site) -> None:
    secret = site.token("read", name="canary")
    site.client("write").post("/api/v1/jobs", doc={"url": "https://canary.example/"})
    assert Client(site.port, secret).get("/api/v1/stats").status == 200
    folder = site.ledger.backend.path.parent  # type: ignore[attr-defined]
    for path in folder.glob("ledger.db*"):
        assert secret.encode() not in path.read_bytes()


def test_secrets_have_256_bits_and_never_repeat(site: Site) -> None:
    import base64

    made = {site.token("read") for _ in range(20)}
    assert len(made) == 20
    for secret in made:
        assert secret.startswith(API_PREFIX)
        assert len(base64.urlsafe_b64decode(secret[len(API_PREFIX) :] + "=")) == 32


def test_the_last_use_of_a_token_is_written(site: Site) -> None:
    import time

    secret = site.token("read")
    assert Client(site.port, secret).get("/api/v1/stats").status == 200
    until = time.monotonic() + 60
    while True:
        token = site.ledger.read(tokens.token_by_hash, secret_hash(secret))
        assert token is not None
        if token.last_used_at is not None or time.monotonic() > until:
            break
        time.sleep(0.01)
    assert token.last_used_at is not None
    assert token.last_used_at >= token.created_at


def test_a_session_ends_with_the_token_it_was_opened_with(site: Site) -> None:
    parent = site.ledger.read(tokens.token_by_hash, secret_hash(site.token("read")))
    assert parent is not None
    session = site.ledger.write(tokens.open_session, parent, parent.scope, ["read"], 1000)
    assert session.startswith(SESSION_PREFIX)
    jar = {"Cookie": f"longshore_session={session}"}
    assert site.stranger().get("/jobs.json", headers=jar).status == 200
    site.ledger.write(tokens.revoke_token, parent.token_id)
    assert site.stranger().get("/jobs.json", headers=jar).status == 401


def test_changes_are_in_the_audit_log_before_they_are_answered(site: Site) -> None:
    writer, admin = site.client("write", tenant="audited"), site.client("admin", tenant="audited")
    writer.post("/api/v1/jobs", doc={"url": "https://audit.example/1"})
    entries = admin.get("/api/v1/audit").json()["entries"]
    assert [(e["action"], e["target"], e["detail"]["status"]) for e in entries] == [("post", "/api/v1/jobs", 202)]
    assert entries[0]["remote"] == "127.0.0.1"


def opened(site: Site, parent: str) -> dict[str, str]:
    """Sign in; give the headers of a change by that session."""
    answer = site.stranger().post("/sign-in", form={"token": parent})
    cookie = answer.headers["set-cookie"].partition(";")[0]
    return {"Cookie": cookie, "X-CSRF-Token": csrf_token(cookie.partition("=")[2])}


def test_the_audit_log_says_who_by_the_token_behind_the_session_and_what_was_done_to_how_many(site: Site) -> None:
    scope = Scope("who", "default")
    secret = site.token("write", tenant="who", name="night shift")
    token = site.ledger.read(tokens.token_by_hash, secret_hash(secret))
    assert token is not None
    session = opened(site, secret) | {"Accept": "application/json"}
    stranger = site.stranger()
    failed = [site.fail(f"https://who.example/{n}", scope=scope) for n in range(3)]
    site.plan("https://who.example/waits", scope=scope)
    group = {"reason": "http_404", "host": "who.example", "expected_count": 3}
    assert stranger.post("/failures/retry", headers=session, form=group).status == 200
    assert stranger.post("/jobs/act", headers=session, form={"act": "cancel", "job_id": failed}).status == 200
    everything = {"act": "cancel", "expected_count": 4, "confirmed": 1}
    assert stranger.post("/jobs/act-all?host=who.example", headers=session, form=everything).status == 200
    lines = "https://who.example/new\nhttps://who.example/waits"
    assert stranger.post("/add", headers=session, form={"lines": lines}).status == 200
    entries = site.client("admin", tenant="who").get("/api/v1/audit").json()["entries"]
    assert {(line["token_id"], line["name"]) for line in entries} == {(token.token_id, "night shift")}
    said = [{k: v for k, v in line["detail"].items() if k not in ("status", "request_id")} for line in entries]
    assert said[0] == {"act": "add", "count": 1, "known": 1, "refused": False}
    assert said[1] == {"act": "cancel", "count": 4, "filter": {"host": "who.example"}}
    assert said[2] == {"act": "cancel", "count": 0, "chosen": 3, "job_ids": failed}
    retried = {"status": "failed", "reason": "http_404", "host": "who.example", "current": True}
    assert said[3] == {"act": "retry", "count": 3, "filter": retried}
    page = Client(site.port, site.token("admin", tenant="who")).get("/system").text
    assert "night shift" in page
    assert "host=who.example" in page


def test_refused_sign_ins_and_wrong_tokens_are_in_the_audit_log_without_what_was_tried(site: Site) -> None:
    stranger = site.stranger()
    assert stranger.post("/sign-in", form={"token": "ls_not-a-token-of-ours"}).status == 401
    assert stranger.post("/first", form={"code": "guessed-code"}).status == 401
    assert Client(site.port, "ls_another-wrong-one").get("/api/v1/jobs").status == 401
    assert stranger.get("/api/v1/jobs").status == 401  # nothing was tried: nothing is written
    page = site.client("admin").get("/api/v1/audit?limit=500")
    refused = [line for line in page.json()["entries"] if line["token_id"] == "nobody"]
    assert [(line["action"], line["target"]) for line in refused[:3]] == [
        ("wrong token", "/api/v1/jobs"),
        ("sign-in refused", "/first"),
        ("sign-in refused", "/sign-in"),
    ]
    assert all(line["remote"] == "127.0.0.1" for line in refused)
    assert not any(word in page.text for word in ("not-a-token", "guessed-code", "another-wrong"))


def test_a_token_is_made_listed_and_revoked_by_the_api(site: Site) -> None:
    admin = site.client("admin")
    made = admin.post("/api/v1/tokens", doc={"tenant_id": "new", "project_id": "p", "scopes": ["read"], "name": "n"})
    assert made.status == 201
    client, token_id = Client(site.port, made.json()["token"]), made.json()["info"]["token_id"]
    assert client.get("/api/v1/stats").status == 200
    assert made.json()["token"] not in admin.get("/api/v1/tokens").text
    assert admin.ask("DELETE", f"/api/v1/tokens/{token_id}").status == 204
    assert client.get("/api/v1/stats").status == 401
    assert admin.ask("DELETE", f"/api/v1/tokens/{UNKNOWN}").status == 404


def test_a_ledger_of_another_process_sees_the_tokens(site: Site) -> None:
    secret = site.token("read")
    path = site.ledger.backend.path  # type: ignore[attr-defined]
    with Ledger.open(path) as other:
        assert other.read(tokens.living_token, secret_hash(secret)) is not None
