"""Real servers: nginx over HTTP/1.1, TLS and HTTP/2, vsftpd, sshd."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from longshore.domain.settings import Settings
from longshore.transfer import Discard, FetchRequest, NetworkPolicy, Transfer
from tests.support.fileservers import Ftp, Sftp
from tests.support.nginx import Nginx
from tests.support.origin import Origin, Thing, cut, redirect, stamped
from tests.support.settings import changed, login, tuned
from tests.transfer.wire import LOOPBACK, fails, fetch, reason, within

SIZE = 3_000_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    for above in (folder, *folder.parents):
        if os.stat(above).st_uid == os.geteuid() and above != Path("/") and str(above).startswith("/tmp/"):
            above.chmod(0o755)  # vsftpd's anonymous user must be able to walk here
    (folder / "a.bin").write_bytes(stamped(1, SIZE))
    (folder / "small.pdf").write_bytes(b"%PDF-1.4 tiny")
    (folder / "empty").write_bytes(b"")
    for file in folder.iterdir():
        file.chmod(0o644)
    return folder


@pytest.fixture(scope="module")
def nginx(root: Path) -> Iterator[Nginx]:
    with Nginx(root) as server:
        yield server


@pytest.fixture(scope="module")
def trusting(nginx: Nginx) -> Settings:
    return tuned(ca_file=str(nginx.ca))


# --- nginx


@pytest.mark.parametrize("secure", [False, True])
def test_bodies_ranges_and_conditions(nginx: Nginx, trusting: Settings, secure: bool) -> None:
    base = nginx.https if secure else nginx.http
    answer, body = fetch(f"{base}/a.bin", settings=trusting)
    assert body == stamped(1, SIZE)
    etag = answer.head.validators.strong_etag
    assert etag is not None and answer.head.headers["accept-ranges"] == "bytes"
    answer, body = fetch(FetchRequest(f"{base}/a.bin", start=1_000_000, if_range=etag), settings=trusting)
    assert answer.head.status == 206 and body == stamped(1, SIZE)[1_000_000:]
    assert answer.head.validators.etag == etag
    answer, body = fetch(FetchRequest(f"{base}/a.bin", start=1_000_000, if_range='"stale"'), settings=trusting)
    assert answer.head.status == 200 and len(body) == SIZE
    answer, _ = fetch(FetchRequest(f"{base}/a.bin", start=SIZE), settings=trusting)
    assert answer.head.status == 416 and answer.head.total == SIZE
    answer, _ = fetch(FetchRequest(f"{base}/a.bin", if_none_match=etag), settings=trusting)
    assert answer.head.status == 304
    answer, body = fetch(f"{base}/empty", settings=trusting)
    assert body == b"" and answer.head.length == 0
    assert reason(f"{base}/nothing", settings=trusting) == "http_404"


def test_http2_is_negotiated(nginx: Nginx, trusting: Settings) -> None:
    fetch(f"{nginx.https}/small.pdf?two", settings=trusting)
    fetch(f"{nginx.https}/small.pdf?one", settings=changed(trusting, http2=False))
    for line in ('"GET /small.pdf?two HTTP/2.0"', '"GET /small.pdf?one HTTP/1.1"'):
        limit = time.monotonic() + 60  # nginx writes its log after the client has everything
        while line not in "\n".join(nginx.requests()) and time.monotonic() < limit:
            time.sleep(0.01)
        assert line in "\n".join(nginx.requests())


def test_many_streams_over_http2(nginx: Nginx, trusting: Settings) -> None:
    async def many(transfer: Transfer) -> int:
        asks = (transfer.fetch(FetchRequest(f"{nginx.https}/a.bin?{n}"), Discard()) for n in range(24))
        return sum(answer.received_bytes for answer in await asyncio.gather(*asks))

    assert within(many, settings=trusting) == 24 * SIZE


def test_a_server_without_ranges(nginx: Nginx, trusting: Settings) -> None:
    answer, body = fetch(FetchRequest(f"{nginx.http}/norange/a.bin", start=1000), settings=trusting)
    assert answer.head.status == 200 and len(body) == SIZE


def test_compression_is_not_asked_for(nginx: Nginx) -> None:
    answer, body = fetch(f"{nginx.http}/gz/a.bin")
    assert answer.head.encoding is None and body == stamped(1, SIZE)


def test_an_empty_reply(nginx: Nginx) -> None:
    assert reason(f"{nginx.http}/reset") == "protocol_error"


# --- TLS


def test_a_certificate_nobody_vouches_for(nginx: Nginx) -> None:
    assert reason(f"{nginx.https}/a.bin") == "tls"


def _context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


@pytest.fixture
def authority(tmp_path: Path) -> tuple[trustme.CA, Settings]:
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    return made, tuned(ca_file=str(tmp_path / "ca.pem"))


def test_names_are_verified(authority: tuple[trustme.CA, Settings]) -> None:
    made, settings = authority
    with Origin(tls=_context(made, "127.0.0.1")) as right, Origin(tls=_context(made, "other.example")) as wrong:
        assert fetch(right.add("/a", Thing(b"x")), settings=settings)[1] == b"x"
        assert reason(wrong.add("/a", Thing(b"x")), settings=settings) == "tls"
        assert wrong.requests == []


@pytest.mark.parametrize(("begins", "ends"), [(-20, -10), (10, 20)], ids=["expired", "not yet valid"])
def test_certificates_have_their_time(authority: tuple[trustme.CA, Settings], begins: int, ends: int) -> None:
    made, settings = authority
    today = datetime.now(UTC)
    times = {"not_before": today + timedelta(days=begins), "not_after": today + timedelta(days=ends)}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.issue_cert("127.0.0.1", **times).configure_cert(context)
    with Origin(tls=context) as origin:
        url = origin.add("/a", Thing(b"x"))
        failed = fails(url, settings=settings)
        assert failed.reason == "tls"
        assert ("expired" if ends < 0 else "not yet valid") in str(failed)
        assert origin.requests == []


def test_old_protocols_are_refused(authority: tuple[trustme.CA, Settings]) -> None:
    made, settings = authority
    context = _context(made, "127.0.0.1")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with Origin(tls=context) as origin:
        assert reason(origin.add("/a", Thing(b"x")), settings=settings) == "tls"


def test_https_never_goes_down_to_http(authority: tuple[trustme.CA, Settings], origin: Origin) -> None:
    made, settings = authority
    with Origin(tls=_context(made, "127.0.0.1")) as secure:
        url = secure.add("/a", redirect(origin.add("/b", Thing())))
        assert reason(url, settings=settings) == "forbidden_redirect"
        assert origin.requests == []
        origin.add("/up", redirect(secure.add("/c", Thing(b"up"))))
        assert fetch(origin.url("/up"), settings=settings)[1] == b"up"


def test_a_tls_stream_cut_without_goodbye(authority: tuple[trustme.CA, Settings]) -> None:
    made, settings = authority
    with Origin(tls=_context(made, "127.0.0.1")) as secure:
        assert reason(secure.add("/a", cut(Thing(stamped(1, 50_000)), 30_000)), settings=settings) == "truncated"


def test_netrc_goes_over_tls(authority: tuple[trustme.CA, Settings], tmp_path: Path) -> None:
    made, settings = authority
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password pw\n")
    with Origin(tls=_context(made, "127.0.0.1")) as secure:
        fetch(secure.add("/a", Thing()), settings=changed(settings, netrc=str(tmp_path / "netrc")))
        assert secure.requests[0].headers["authorization"] == "Basic bWU6cHc="


# --- FTP and SFTP


@pytest.fixture(scope="module")
def ftp(root: Path) -> Iterator[Ftp]:
    with Ftp(root) as server:
        yield server


@pytest.fixture(scope="module")
def sftp(root: Path) -> Iterator[Sftp]:
    with Sftp(root) as server:
        yield server


@pytest.fixture(scope="module")
def known(sftp: Sftp) -> Settings:
    who = login(username=sftp.user, key_file=str(sftp.key))
    return tuned(known_hosts=str(sftp.known), credentials={"sftp://127.0.0.1": who})


def _sftp_url(sftp: Sftp, name: str) -> str:
    return sftp.url(name).replace(f"{sftp.user}@", "")


def test_ftp(ftp: Ftp) -> None:
    answer, body = fetch(ftp.url("a.bin"))
    assert body == stamped(1, SIZE) and answer.head.length == SIZE and answer.head.validators.last_modified
    answer, body = fetch(FetchRequest(ftp.url("a.bin"), start=1_000_000))
    assert body == stamped(1, SIZE)[1_000_000:] and answer.head.status == 206
    span = answer.head.content_range
    assert span is not None and (span.first, span.last, span.total) == (1_000_000, SIZE - 1, SIZE)
    assert within(lambda transfer: transfer.probe(FetchRequest(ftp.url("a.bin")))).head.length == SIZE
    assert fetch(ftp.url("empty"))[1] == b""
    assert reason(ftp.url("nothing")) == "remote_not_found"
    assert reason(FetchRequest(ftp.url("a.bin"), start=SIZE + 1)) == "bad_range"
    assert reason(FetchRequest(ftp.url("a.bin"), max_bytes=1000)) == "too_large"
    assert reason(ftp.url("a.bin"), policy=NetworkPolicy()) == "forbidden_address"


def test_clear_text_where_tls_is_expected(ftp: Ftp) -> None:
    assert reason(ftp.url("a").replace("ftp://", "https://")) == "tls"


def test_ftp_credentials_never_show(ftp: Ftp) -> None:
    error = fails(ftp.url("a.bin").replace("ftp://", "ftp://bob:CANARY@"))
    assert error.reason == "auth_required" and "CANARY" not in str(error)


def test_sftp(sftp: Sftp, known: Settings) -> None:
    answer, body = fetch(_sftp_url(sftp, "a.bin"), settings=known)
    assert body == stamped(1, SIZE) and answer.head.length == SIZE
    answer, body = fetch(FetchRequest(_sftp_url(sftp, "a.bin"), start=1_000_000), settings=known)
    assert body == stamped(1, SIZE)[1_000_000:] and answer.head.total == SIZE
    assert fetch(_sftp_url(sftp, "empty"), settings=known)[1] == b""
    assert reason(_sftp_url(sftp, "nothing"), settings=known) == "remote_not_found"


def test_sftp_host_keys(sftp: Sftp, known: Settings, tmp_path: Path) -> None:
    url = _sftp_url(sftp, "small.pdf")
    nobody = changed(known, known_hosts=str(tmp_path / "known_hosts"))
    assert reason(url, settings=nobody) == "host_key", "an unknown key is refused"
    learning = changed(nobody, host_keys="accept_new")
    assert fetch(url, settings=learning)[1].startswith(b"%PDF-")
    assert fetch(url, settings=nobody)[1].startswith(b"%PDF-"), "the key was learned"
    kind, key = (sftp.home / "user_key.pub").read_text().split()[:2]
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{sftp.port} {kind} {key}\n")
    assert reason(url, settings=learning) == "host_key", "a changed key is refused in every mode"


def test_sftp_without_credentials_uses_no_key_of_the_user(sftp: Sftp) -> None:
    settings = tuned(known_hosts=str(sftp.known))
    assert reason(_sftp_url(sftp, "a.bin"), settings=settings, policy=LOOPBACK) == "auth_required"
