"""TLS, proxies, cookies and sessions: who can listen, who is believed, and how long a session opens something."""

from __future__ import annotations

import re
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from longshore.domain.model import SECOND, Scope
from longshore.domain.policy.forwarded import client_of, networks
from longshore.errors import BadInput
from longshore.ledger.operations import tokens
from longshore.web.server_options import ServerOptions
from longshore.web.tls import Tls
from tests.support.program import invoke, started
from tests.support.qbt import until
from tests.support.site import Client, Site
from tests.web.test_serve import serving

BEHIND = {"X-Forwarded-For": "198.51.100.7", "X-Forwarded-Proto": "https"}


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site.local(tmp_path_factory.mktemp("depot"), trusted_proxies=("127.0.0.0/8",), wrong_per_minute=5) as running:
        yield running


def written(authority: trustme.CA, where: Path) -> None:
    """Write a certificate and its key as a renewal does."""
    leaf = authority.issue_cert("localhost", "127.0.0.1")
    leaf.private_key_pem.write_to_path(where / "key.pem")
    (where / "chain.pem").write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))


def serial(port: int, authority: trustme.CA) -> str:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with (
        socket.create_connection(("127.0.0.1", port), 60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as line,
    ):
        line.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: line.recv(65_536), b"")).lower()
        assert answer.startswith(b"http/1.1 200")
        assert b"strict-transport-security: max-age=" in answer
        return str((line.getpeercert() or {})["serialNumber"])


def test_serve_speaks_tls_and_takes_a_renewed_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    written(authority, tmp_path)
    flags = ["--port", 0, "--json", "--no-workers", "--set", f"serve.tls_certificate={tmp_path / 'chain.pem'}"]
    flags += ["--set", f"serve.tls_key={tmp_path / 'key.pem'}"]
    with started(tmp_path / "serve", "serve", "--depot", tmp_path / "d", *flags) as server:
        url = urlsplit(serving(server)["url"])
        assert url.scheme == "https"
        first = serial(url.port or 0, authority)
        written(authority, tmp_path)
        server.signal(signal.SIGHUP)
        until("the new certificate", lambda: serial(url.port or 0, authority) != first)
        second = serial(url.port or 0, authority)
        (tmp_path / "chain.pem").write_text("damaged")
        server.signal(signal.SIGHUP)
        until("the refusal", lambda: "the old one stays" in server.stderr)
        assert serial(url.port or 0, authority) == second


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be used"):
        Tls(str(tmp_path / "none.pem"), "")
    ran = invoke("serve", "--depot", tmp_path / "d", "--set", "serve.tls_key=x")
    assert ran.code == 2
    assert "tls_certificate" in ran.stderr


@pytest.mark.parametrize(
    ("given", "bare"),
    [
        ({}, False),
        ({"host": "0.0.0.0"}, True),
        ({"host": "192.0.2.1"}, True),
        ({"host": "0.0.0.0", "tls_certificate": "x"}, False),
        ({"host": "0.0.0.0", "trusted_proxies": ("10.0.0.0/8",)}, False),
    ],
)
def test_a_server_without_tls_that_others_reach_is_warned_of(given: dict[str, object], bare: bool) -> None:
    assert ServerOptions(**given).is_bare() is bare  # type: ignore[arg-type]


def test_the_warning_is_printed(tmp_path: Path) -> None:
    flags = ("--host", "0.0.0.0", "--port", 0, "--no-workers")
    with started(tmp_path / "serve", "serve", "--depot", tmp_path / "d", *flags) as server:
        until("the warning", lambda: "WARNING: without TLS" in server.stderr)


@pytest.mark.parametrize(
    ("peer", "given", "client"),
    [
        ("10.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "203.0.113.9, 198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "203.0.113.9, 198.51.100.7, 10.0.0.2", "198.51.100.7"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.1", "[2001:db8::1]", "2001:db8::1"),
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),
        ("::ffff:10.0.0.1", "198.51.100.7", "198.51.100.7"),
    ],
)
def test_a_client_is_known_by_what_trusted_proxies_say(peer: str, given: str, client: str) -> None:
    assert client_of(peer, given, networks(["10.0.0.0/8"])) == client


def test_audit_and_throttle_see_the_client_behind_a_proxy(proxied: Site) -> None:
    admin = proxied.client("admin", tenant="proxied")
    admin.post("/api/v1/jobs", doc={"url": "https://p.example/"}, headers=BEHIND)
    assert [line["remote"] for line in admin.get("/api/v1/audit").json()["entries"]] == ["198.51.100.7"]
    for _ in range(proxied.settings.wrong_per_minute + 1):
        last = Client(proxied.port, "lsh_wrong").get("/api/v1/jobs", headers={"X-Forwarded-For": "198.51.100.66"})
    assert last.status == 429
    assert Client(proxied.port, "lsh_wrong").get("/api/v1/jobs", headers=BEHIND).status == 401


def test_nobody_else_is_believed(site: Site) -> None:
    admin = site.client("admin", tenant="unproxied")
    answer = admin.post("/api/v1/jobs", doc={"url": "https://p.example/"}, headers=BEHIND)
    assert "strict-transport-security" not in answer.headers
    assert [line["remote"] for line in admin.get("/api/v1/audit").json()["entries"]] == ["127.0.0.1"]


def session(site: Site, secret: str, headers: dict[str, str] | None = None) -> tuple[str, str]:
    """Sign in; give the cookie's name and value."""
    answer = site.stranger().post("/sign-in", form={"token": secret}, headers=headers)
    assert answer.status == 303, answer.text
    name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
    return name, value


def test_behind_tls_the_cookie_is_bound_to_the_host(proxied: Site) -> None:
    secret = proxied.token("read", tenant="cookie")
    answer = proxied.stranger().post("/sign-in", form={"token": secret}, headers=BEHIND)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-longshore_session=")
    assert {"Secure", "HttpOnly", "Path=/", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    value = cookie.partition("=")[2].partition(";")[0]
    stranger = proxied.stranger()
    assert stranger.get("/jobs", headers=BEHIND | {"Cookie": f"__Host-longshore_session={value}"}).status == 200
    assert stranger.get("/jobs", headers=BEHIND | {"Cookie": f"longshore_session={value}"}).status != 200
    assert answer.headers["strict-transport-security"].startswith("max-age=")


def opens(site: Site, name: str, value: str) -> bool:
    return site.stranger().get("/jobs", headers={"Cookie": f"{name}={value}"}).status == 200


def test_sessions_are_listed_and_can_be_closed(site: Site) -> None:
    secret = site.token("read", tenant="listed", name="phone")
    name, value = session(site, secret)
    admin = site.client("admin", tenant="listed")
    (found,) = [one for one in admin.get("/api/v1/sessions").json()["tokens"] if one["tenant_id"] == "listed"]
    assert found["name"] == "phone"
    assert opens(site, name, value)
    assert admin.ask("DELETE", f"/api/v1/tokens/{found['token_id']}").status == 204
    assert not opens(site, name, value)
    assert not [one for one in admin.get("/api/v1/sessions").json()["tokens"] if one["tenant_id"] == "listed"]


def test_signing_in_again_closes_the_session_before(site: Site) -> None:
    secret = site.token("read", tenant="again")
    name, value = session(site, secret)
    name, other = session(site, secret, {"Cookie": f"{name}={value}"})
    assert opens(site, name, other)
    assert not opens(site, name, value)


def test_a_session_that_is_not_used_ends(site: Site) -> None:
    name, value = session(site, site.token("read", tenant="idle"))
    assert opens(site, name, value)
    (found,) = [one for one in site.ledger.read(tokens.list_sessions) if one.scope == Scope("idle", "default")]
    old = site.ledger.now() - int((site.settings.session_idle_s + 60) * SECOND)
    site.ledger.write(lambda tx: backdated(tx, found.token_id, old))
    assert not opens(site, name, value)


def backdated(tx: object, token_id: str, at: int) -> None:
    connection = tx._cursor  # type: ignore[attr-defined]
    connection.execute("UPDATE tokens SET created_at = ?, last_used_at = ? WHERE token_id = ?", (at, at, token_id))


def test_sessions_on_the_command_line(tmp_path: Path) -> None:
    with Site.local(tmp_path) as own:
        name, value = session(own, own.token("read", name="laptop"))
        depot = ("--depot", tmp_path)
        (found,) = invoke("token", "list", "--sessions", "--json", *depot).ok().of("token")
        assert found["name"] == "laptop"
        invoke("token", "revoke", found["token_id"], *depot).ok()
        assert not opens(own, name, value)
        assert not invoke("token", "list", "--sessions", "--json", *depot).ok().of("token")


def test_the_first_run_link_ends_with_time_and_with_the_first_token(tmp_path: Path) -> None:
    with Site.local(tmp_path) as own:

        def tried() -> int:
            own.service.first_code = "code"
            return own.stranger().post("/first", form={"code": "code"}).status

        own.service.first_until = 0.0
        assert tried() == 401
        own.service.first_until = float("inf")
        assert tried() == 303
        own.token("read")
        assert tried() == 401
        own.service.first_always = True
        assert tried() == 303


def test_scripts_come_from_the_static_folder_only(site: Site) -> None:
    policy = site.stranger().get("/sign-in").headers["content-security-policy"]
    assert re.search(r"script-src 127\.0\.0\.1:\d+/static/;", policy)
    assert "'self'/static" not in policy
    hostile = site.stranger().get("/livez", headers={"Host": "x; script-src *"}).headers["content-security-policy"]
    assert "script-src 'self';" in hostile
