"""What comes from outside stays data: in pages, headers, logs, queries, and in other people's browsers."""

from __future__ import annotations

import html
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from longshore.domain.model import Scope
from longshore.domain.policy.tokens import csrf_token, secret_hash
from longshore.ledger.operations import tokens
from longshore.web.api.artifacts import content_headers, content_type
from longshore.web.security.auth import inside, printable
from tests.support.site import Client, Site

EVIL = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' OR 1=1 --",
    "'; DROP TABLE jobs; --",
    "{{ 123456789 * 987654321 }}",
    "{% raw %}",
    "${123456789*987654321}",
    "../../etc/passwd",
    "a\x1b[31mred",
    "line\u2028separator",
    "%0d%0aSet-Cookie: a=b",
    "\u202egnp.exe",
]


@pytest.mark.parametrize("evil", EVIL, ids=range(len(EVIL)))
def test_hostile_text_in_every_field_is_shown_as_text(site: Site, evil: str) -> None:
    tenant = f"evil-{EVIL.index(evil)}"
    writer = site.client("write", tenant=tenant)
    body = {
        "url": "https://h.example/" + re.sub(r"[\x00-\x1f]", "", evil),
        "work_id": evil,
        "artifact_id": evil,
        "name": evil,
        "params": {evil: evil},
        "run_id": evil,
        "media_type": f"text/plain; charset={evil}",
    }
    made = writer.post("/api/v1/jobs", doc=body)
    assert made.status == 202, made.text
    job = made.json()["job"]
    assert (job["name"], job["work_id"], job["run_id"]) == (evil, evil, evil)
    site.fail("https://h.example/failed", message=f"said {evil}", name=evil, scope=Scope(tenant, "default"))
    for path in ("/", "/jobs", "/failures", f"/jobs/{job['job_id']}"):
        page = writer.get(path).text
        assert "<script>alert" not in page
        assert "<img" not in page
        assert "121932631112635269" not in page
    for path in ("/api/v1/jobs?work_id=", "/jobs?host=", "/jobs?url=", "/artifacts?q=", "/jobs?reason="):
        from urllib.parse import quote

        answer = writer.get(path + quote(evil))
        assert answer.status == 200, (path, answer.text[:200])
        assert path.startswith("/api/") or "<script>alert" not in answer.text


def test_a_name_never_makes_a_header(site: Site) -> None:
    scope = Scope("named", "default")
    for number, name in enumerate(['a"; filename="b', "naïve ☃.pdf", "x\u2028y", "semi;colon", "percent%0d%0aX: y"]):
        _, artifact = site.complete(f"https://n.example/{number}", f"{number}".encode(), name=name, scope=scope)
        answer = site.client("read", tenant="named").get(f"/api/v1/artifacts/{artifact}/content")
        assert answer.status == 200
        assert "x" not in answer.headers
        said = answer.headers["content-disposition"]
        assert re.fullmatch(r"attachment; filename=\"[A-Za-z0-9._ -]+\"; filename\*=UTF-8''[A-Za-z0-9._~%-]+", said), (
            said
        )


def test_types_that_a_browser_would_run_are_just_bytes() -> None:
    class Some:
        def __init__(self, kind: str) -> None:
            self.content_type, self.name, self.sha256 = kind, None, "0" * 64

    for kind in (
        "text/html",
        "image/svg+xml",
        "application/xhtml+xml",
        "text/javascript",
        "a/b\r\nX: y",
        "nonsense",
        "",
    ):
        assert content_type(Some(kind)) == "application/octet-stream"  # type: ignore[arg-type]
    assert content_type(Some("application/pdf")) == "application/pdf"  # type: ignore[arg-type]
    assert "\n" not in str(content_headers(Some("application/pdf")))  # type: ignore[arg-type]


def test_request_ids_and_logs_cannot_be_forged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    client = site.client("write")
    forged = client.get("/livez", headers={"X-Request-ID": "a b<c>"})
    assert re.fullmatch(r"[0-9a-f]{24}", forged.headers["x-request-id"])
    assert client.get("/livez", headers={"X-Request-ID": "mine-1"}).headers["x-request-id"] == "mine-1"
    with caplog.at_level(logging.DEBUG):
        client.post("/api/v1/jobs/%0d%0aFORGED%1b[31m/cancel")
    assert "\r" not in caplog.text.replace("\r\n", "\n")
    assert "\x1b" not in caplog.text
    assert printable("a\r\nb\x1b[31m\u2028") == "a��b�[31m�"
    entries = site.client("admin").get("/api/v1/audit").json()["entries"]
    assert not any(char in entry["target"] for entry in entries for char in "\r\n\x1b")


def test_secrets_in_urls_never_come_back(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    writer = site.client("write", tenant="canary")
    url = "https://user:CANARY1@s.example/f?token=CANARY2&X-Amz-Signature=CANARY3#CANARY4"
    with caplog.at_level(logging.DEBUG):
        made = writer.post("/api/v1/jobs", doc={"url": url, "headers": {"Authorization": "Bearer CANARY5"}})
        assert made.status == 202
        job = made.json()["job"]["job_id"]
        for path in (
            "/", "/overview.json", "/jobs", "/jobs.json", f"/jobs/{job}", f"/jobs/{job}.json", "/api/v1/jobs",
            f"/api/v1/jobs/{job}", f"/api/v1/jobs/{job}/timeline", "/api/v1/failures",
        ):  # fmt: skip
            assert "CANARY" not in writer.get(path).text, path
    assert "CANARY" not in made.text
    assert "CANARY" not in caplog.text
    assert "CANARY" not in site.client("metrics").get("/metrics").text


@pytest.fixture
def session(site: Site) -> dict[str, str]:
    parent = site.ledger.read(tokens.token_by_hash, secret_hash(site.token("admin")))
    assert parent is not None
    secret = site.ledger.write(tokens.open_session, parent, parent.scope, ["admin"], 1000)
    return {"cookie": f"longshore_session={secret}", "csrf": csrf_token(secret)}


def posts(site: Site) -> list[str]:
    from tests.web.test_auth import filled, table

    return [filled(path) for method, path, right in table(site) if method in ("POST", "PATCH") and right is not None]


def test_a_change_by_cookie_needs_the_csrf_token_on_every_route(site: Site, session: dict[str, str]) -> None:
    client = Client(site.port)
    for path in posts(site):
        for headers in (
            {"Cookie": session["cookie"]},
            {"Cookie": session["cookie"], "X-CSRF-Token": "0" * 64},
            {"Cookie": session["cookie"], "X-CSRF-Token": session["csrf"], "Origin": "https://evil.example"},
            {"Cookie": session["cookie"], "X-CSRF-Token": session["csrf"], "Origin": "null"},
        ):
            given: list[dict[str, Any]] = [{"doc": {}}, {"form": {"csrf": "x"}}]
            for body in given:
                answer = client.post(path, headers=headers, **body)
                assert (answer.status, answer.json()["reason"]) == (403, "csrf"), path
        if path != "/sign-out":
            good = {"Cookie": session["cookie"], "X-CSRF-Token": session["csrf"]}
            assert client.post(path, headers=good, doc={}).status != 403, path


def test_a_form_with_the_token_in_a_field_is_taken(site: Site, session: dict[str, str]) -> None:
    form = {"csrf": session["csrf"], "lines": "https://form.example/1"}
    answer = Client(site.port).post("/add", form=form, headers={"Cookie": session["cookie"]})
    assert (answer.status, answer.headers["location"]) == (303, "/")


def test_nobody_is_signed_in_by_another_site(site: Site) -> None:
    client = Client(site.port)
    answer = client.post("/sign-in", form={"token": site.token("read")}, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status == 403
    assert "set-cookie" not in answer.headers
    taken = client.post("/sign-in", form={"token": site.token("read")}, headers={"Sec-Fetch-Site": "same-origin"})
    assert taken.status == 303
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(taken.headers["set-cookie"].split("; "))


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
        {"Referer": "http://evil.example/page"},
    ],
    ids=str,
)
def test_a_form_of_another_site_signs_nobody_in(site: Site, headers: dict[str, str]) -> None:
    site.service.first_code = "right"
    for path, form in (("/sign-in", {"token": site.token("read")}), ("/first", {"code": "right"})):
        answer = Client(site.port).post(path, form=form, headers=headers)
        assert (answer.status, answer.json()["reason"]) == (403, "csrf"), path
        assert "set-cookie" not in answer.headers
    own = {"Origin": site.url, "Referer": site.url + "/sign-in"}
    assert Client(site.port).post("/sign-in", form={"token": site.token("read")}, headers=own).status == 303
    assert site.service.first_code == "right"


def test_signing_in_leads_back_to_the_same_view(site: Site) -> None:
    client, page = Client(site.port), {"Accept": "text/html"}
    sent = client.get("/jobs?status=failed&url=https%3A%2F%2Fa.example%2F%3Fx%3D1", headers=page)
    assert sent.status == 303
    form_page = client.get(sent.headers["location"]).text
    kept = html.unescape(re.search(r'name="next" value="([^"]*)"', form_page)[1])  # type: ignore[index]
    assert kept == "/jobs?status=failed&url=https%3A%2F%2Fa.example%2F%3Fx%3D1"
    again = client.post("/sign-in", form={"token": "lsh_wrong", "next": kept})  # a slip of the finger loses nothing
    assert html.escape(kept) in again.text
    assert client.post("/sign-in", form={"token": site.token("read"), "next": kept}).headers["location"] == kept
    away = client.get("//evil.example/jobs?status=failed", headers=page).headers["location"]
    assert 'name="next" value="/"' in client.get(away).text


def test_a_token_that_only_reads_metrics_opens_no_dashboard(site: Site) -> None:
    answer = Client(site.port).post("/sign-in", form={"token": site.token("metrics")})
    assert answer.status == 403
    assert "set-cookie" not in answer.headers
    assert "reads /metrics and nothing else" in answer.text


@pytest.mark.parametrize(
    "target",
    ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "", "/a\r\nX: y", "/a\\b"],
)
def test_sign_in_leads_nowhere_else(target: str) -> None:
    assert inside(target) == "/"


def test_sign_in_leads_back_to_the_page() -> None:
    assert inside("/jobs?status=failed") == "/jobs?status=failed"


def test_the_first_run_code_works_once_and_only_if_right(tmp_path: Path) -> None:
    with Site.local(tmp_path) as site:
        client: Any = Client(site.port)
        assert client.post("/first", form={"code": ""}).status == 401
        site.service.first_code = "right"
        assert client.post("/first", form={"code": "wrong"}).status == 401
        assert client.get("/first?code=right").status == 200  # a preview does not use it up
        opened = client.post("/first", form={"code": "right"})
        assert opened.status == 303
        cookie = opened.headers["set-cookie"].partition(";")[0]
        assert client.get("/system.json", headers={"Cookie": cookie}).status == 200
        assert client.post("/first", form={"code": "right"}).status == 401


@pytest.mark.parametrize(
    "secret", ["http:u:CANARY@h.example/x", "https://h.example/x?%74oken=CANARY", "http:\\\\u:CANARY@h.example\\x"]
)
def test_no_field_of_a_job_shows_a_secret_of_a_url(site: Site, secret: str) -> None:
    tenant = f"hidden-{sum(secret.encode())}"
    writer = site.client("write", tenant=tenant)
    body = {"url": secret, "work_id": secret, "artifact_id": secret, "name": secret, "run_id": f"at {secret}"}
    made = writer.post("/api/v1/jobs", doc=body)
    assert made.status == 202, made.text
    job_id = made.json()["job"]["job_id"]
    reader = site.client("read", tenant=tenant)
    for path in (
        f"/api/v1/jobs/{job_id}",
        "/api/v1/jobs",
        "/",
        "/jobs",
        f"/jobs/{job_id}",
    ):
        assert "CANARY" not in reader.get(path).text, path
    assert "CANARY" not in made.text
