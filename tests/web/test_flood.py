"""All at once: half-open requests, abandoned waits and slow bodies. A signed-in operator's page still comes."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.program import started
from tests.support.site import Client
from tests.web.test_serve import client_of, token

SOON_S = 1.0


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def request(port: int, line: str, *headers: str) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", f"Host: 127.0.0.1:{port}", *headers, "", ""]).encode()


class Flood:
    """Connections that are left open, or hung up on at once."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self.port, self.stack = port, stack

    def send(self, count: int, data: bytes, *, hang_up: bool = False) -> None:
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
            with contextlib.suppress(OSError):
                connection.sendall(data)
            if hang_up:
                connection.close()
            else:
                self.stack.enter_context(contextlib.closing(connection))


def took(call: Callable[[], int]) -> float:
    begun = time.perf_counter()
    assert call() == 200
    return time.perf_counter() - begun


def open_connections(port: int) -> int:
    """Count the connections that the server's side holds."""
    table = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "01" for line in table)


def signed_in_page(port: int, cookie: dict[str, str]) -> int:
    answer = Client(port).get("/", headers=cookie)
    assert "Sign out" in answer.text
    return answer.status


def flooded(tmp_path: Path, share: float) -> None:
    depot = tmp_path / "depot"
    reader, operator = token(depot, "--scope", "read"), token(depot, "--scope", "admin")
    writer = token(depot)
    with started(tmp_path / "serve", "serve", "--depot", depot, "--port", 0, "--json", "--no-workers") as server:
        client = client_of(server, writer)
        port, job = client.port, client.post("/api/v1/jobs", doc={"url": "https://a.example/"}).json()["job"]["job_id"]
        opened = Client(port).post("/sign-in", form={"token": operator})
        cookie = {"Cookie": opened.headers["set-cookie"].partition(";")[0]}
        with ExitStack() as stack:
            flood = Flood(port, stack)
            flood.send(int(2000 * share), b"GET / HTTP/1.1\r\nHost: x\r\n")
            wait = request(port, f"GET /api/v1/jobs/{job}?wait=60", f"Authorization: Bearer {reader}")
            flood.send(int(2200 * share), wait, hang_up=True)
            slow = ("Content-Type: application/json", "Content-Length: 100000")
            flood.send(int(200 * share), request(port, "POST /api/v1/jobs", *slow, f"Authorization: Bearer {writer}"))
            flood.send(int(200 * share), request(port, "POST /sign-in", *slow))
            assert open_connections(port) > 200 * share  # the flood is there, not only sent
            page = took(lambda: signed_in_page(port, cookie))
            alive = took(lambda: Client(port).get("/livez").status)
            print(f"page {page:.3f} s, /livez {alive:.3f} s")
            assert max(page, alive) < SOON_S


def test_an_operator_is_served_while_the_service_is_flooded(tmp_path: Path, many_files: None) -> None:
    flooded(tmp_path, 0.2)


@pytest.mark.torture
def test_an_operator_is_served_while_the_service_is_flooded_with_thousands(tmp_path: Path, many_files: None) -> None:
    flooded(tmp_path, 1)
