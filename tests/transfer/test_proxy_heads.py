"""Behind a proxy: its answer to CONNECT is not the server's, and the target stays as it was written."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from longshore.errors import Reasoned
from longshore.transfer import FetchRequest, Memory, Transfer
from tests.support.origin import Origin, Thing, status
from tests.support.settings import tuned
from tests.transfer.test_real_servers import _context
from tests.transfer.wire import fails, fetch, within


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def _tunnel(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4096)
        host, _, port = head.split(b" ")[1].decode().rpartition(":")
        server = socket.create_connection((host, int(port)))
        odd = b'Content-Encoding: gzip\r\nETag: "proxy"\r\n'
        client.sendall(b"HTTP/1.1 200 Connection established\r\n" + odd + b"\r\n")
        threading.Thread(target=_pump, args=(client, server), daemon=True).start()
        _pump(server, client)


@pytest.fixture
def proxy() -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=_tunnel, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()


def test_the_answer_to_connect_is_not_the_answer(proxy: str, tmp_path: Path) -> None:
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    used = tuned(ca_file=str(tmp_path / "ca.pem"), proxy=proxy)
    with Origin(tls=_context(made, "127.0.0.1")) as secure:
        url = secure.add("/%7ea", Thing(b"here"))
        empty = secure.add("/empty", Thing(b""))
        gone = secure.add("/gone", status(404))

        async def several(transfer: Transfer) -> None:
            for one, body in ((url, b"here"), (empty, b""), (url, b"here"), (empty, b"")):
                sink = Memory()
                got = await transfer.fetch(FetchRequest(one), sink)
                assert sink.body == body and got.head.validators.etag == '"v1"' and got.head.delimited
                with pytest.raises(Reasoned) as caught:
                    await transfer.fetch(FetchRequest(gone), Memory())
                assert caught.value.reason == "http_404"

        within(several, settings=used)
        assert secure.requests[0].target == "/%7ea"


def test_a_proxy_is_told_the_whole_url_as_written(origin: Origin) -> None:
    """The origin plays the proxy: what it is asked for is an absolute URL."""
    used = tuned(proxy=origin.url("/").rstrip("/"))
    asked = "http://files.example/%7ea?x=%2b"
    origin.add("http://files.example/%7ea", Thing(b"here"))
    assert fetch(asked, settings=used)[1] == b"here"
    assert origin.requests[0].target == asked


@pytest.mark.parametrize(("code", "word"), [(403, "proxy_refused"), (407, "proxy_refused"), (502, "connect")])
def test_a_proxy_that_refuses_the_tunnel_is_named(origin: Origin, code: int, word: str) -> None:
    used = tuned(proxy=origin.url("/").rstrip("/"))
    origin.add("files.example:443", status(code))
    error = fails("https://files.example/a", settings=used)
    assert (error.reason, str(code) in str(error)) == (word, True)
