"""The network policy at the socket (torture D 51, 52, 60): the very address is judged, whatever the name says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pycurl
import pytest

from longshore.errors import Reasoned
from longshore.transfer import FetchRequest, Memory, NetworkPolicy, Transfer
from longshore.transfer.easy_handle import EasyHandle
from tests.support.origin import Behaviour, Origin, Request, Thing, Wire, answer
from tests.support.settings import tuned
from tests.transfer.wire import LOOPBACK, fetch, reason, within

CLOSED = NetworkPolicy()


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "localhost.", "LOCALHOST"),
        *(
            "0.0.0.0",
            "0",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[64:ff9b::7f00:1]",
            "１２７.０.０.１",
        ),
        *(
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "224.0.0.1",
            "[fe80::1]",
            "[fd00::1]",
        ),
        *("[2002:7f00:1::]", "[2001:0:7f00:1::]", "127.0.0.1.", "0x7f.1"),
    ],
)
def test_refused_before_connecting(origin: Origin, host: str) -> None:
    word = reason(f"http://{host}:{origin.port}/", policy=CLOSED)
    assert word == "forbidden_address"
    assert origin.connections == 0


@pytest.mark.parametrize("scheme", ["https", "ftp", "ftps", "sftp"])
def test_every_scheme_is_judged(origin: Origin, scheme: str) -> None:
    assert reason(f"{scheme}://127.0.0.1:{origin.port}/x", policy=CLOSED) == "forbidden_address"
    assert origin.connections == 0


def test_the_message_names_the_host_and_not_the_address(origin: Origin) -> None:
    with pytest.raises(Exception, match=r"localhost.*not public") as caught:
        fetch(f"http://localhost:{origin.port}/", policy=CLOSED)
    assert "127.0.0.1" not in str(caught.value) and "::1" not in str(caught.value)


def test_a_range_opens_what_it_says(origin: Origin) -> None:
    url = origin.add("/a", Thing(b"x"))
    assert fetch(url, policy=NetworkPolicy.allowing("127.0.0.1/32"))[1] == b"x"
    assert reason(url, policy=NetworkPolicy.allowing("127.0.0.2/32")) == "forbidden_address"


def test_ipv6(origin: Origin) -> None:
    try:
        server = Origin("::1")
    except OSError:
        pytest.skip("no IPv6 on this machine")
    with server:
        url = server.add("/a", Thing(b"six"))
        assert fetch(url)[1] == b"six"
        assert reason(url, policy=NetworkPolicy.allowing("127.0.0.0/8")) == "forbidden_address"


def test_one_address_of_a_name_may_be_allowed_and_another_not(origin: Origin) -> None:
    """`localhost` has two addresses here or one: only the allowed one is ever connected to."""
    url = origin.add("/a", Thing(b"x")).replace("127.0.0.1", "localhost")
    assert fetch(url, policy=NetworkPolicy.allowing("127.0.0.1"))[1] == b"x"


class Proxy:
    """A listener that counts connections and answers everything with 200."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            with peer:
                self.seen.append(peer.recv(65_536))
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nproxy")


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    server = Proxy()
    yield server
    server.socket.close()


def test_proxies_of_the_environment_are_ignored(origin: Origin, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert fetch(origin.add("/a", Thing(b"direct")))[1] == b"direct"
    assert proxy.seen == []


def test_a_configured_proxy_is_used_and_literal_addresses_are_still_judged(proxy: Proxy) -> None:
    settings = tuned(proxy=f"http://127.0.0.1:{proxy.port}")
    assert fetch("http://some.example/x", settings=settings, policy=CLOSED)[1] == b"proxy"
    assert proxy.seen[0].startswith(b"GET http://some.example/x ")
    for host in ("127.0.0.1", "169.254.169.254", "[::1]", "localhost", "x.localhost", "2130706433"):
        assert reason(f"http://{host}/", settings=settings, policy=CLOSED) == "forbidden_address"
    assert len(proxy.seen) == 1


def test_names_that_do_not_exist(origin: Origin) -> None:
    assert reason("http://no-such-host.invalid/") == "dns"


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert reason(f"http://127.0.0.1:{port}/") == "connect"


def test_a_reused_connection_was_judged_when_it_was_made(origin: Origin) -> None:
    url = origin.add("/a", Thing(b"x"))

    async def both(transfer: Transfer) -> int:
        return sum([(await transfer.fetch(FetchRequest(url), Memory())).new_connections for _ in range(3)])

    assert within(both, policy=LOOPBACK) == 1


class Resolver:
    """What names lead to, as libcurl's own cache has it before every request; the test changes it in between."""

    def __init__(self, port: int, **answers: str) -> None:
        self.port, self.answers = port, {f"{name}.example": given for name, given in answers.items()}
        self.asked = 0

    def entries(self) -> list[str]:
        self.asked += 1
        return [f"+{name}:{self.port}:{given}" for name, given in self.answers.items()]


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Resolver]]:
    made: list[Resolver] = []
    real = EasyHandle.run

    def run(line: EasyHandle, *arguments: Any, **options: Any) -> Any:
        line.easy.setopt(pycurl.RESOLVE, made[-1].entries())
        return real(line, *arguments, **options)

    monkeypatch.setattr(EasyHandle, "run", run)

    def make(port: int, **answers: str) -> Resolver:
        made.append(Resolver(port, **answers))
        return made[-1]

    yield make
    assert all(resolver.asked for resolver in made)


OUTSIDE = NetworkPolicy.allowing("127.0.0.2/32")  # stands for the public network: 127.0.0.1 is not in it


@pytest.fixture
def pair() -> Iterator[tuple[Origin, Origin]]:
    """A server on the allowed address, and one with the same port on the address that must not be reached."""
    with ExitStack() as open_ones:
        outside = inside = None
        while outside is None or inside is None:  # the other address may have that port in use
            outside = open_ones.enter_context(Origin("127.0.0.2"))
            with suppress(OSError):
                inside = open_ones.enter_context(Origin("127.0.0.1", port=outside.port))
        yield outside, inside


def closing(body: bytes = b"x") -> Behaviour:
    return answer(200, {"Content-Length": str(len(body)), "Connection": "close"}, body, "hangup")


def test_a_name_that_is_bound_anew_after_the_first_request(
    pair: tuple[Origin, Origin], lying: Callable[..., Resolver]
) -> None:
    outside, origin = pair
    resolver = lying(origin.port, evil="127.0.0.2")
    outside.add("/a", closing())
    url = f"http://evil.example:{origin.port}/a"

    async def twice(transfer: Transfer) -> str:
        await transfer.fetch(FetchRequest(url), Memory())
        resolver.answers["evil.example"] = "127.0.0.1"
        with pytest.raises(Reasoned) as caught:
            await transfer.fetch(FetchRequest(url), Memory())
        return caught.value.reason

    assert within(twice, policy=OUTSIDE) == "forbidden_address"
    assert (len(outside.requests), origin.connections) == (1, 0)


def test_a_name_that_is_bound_anew_between_two_hops(
    pair: tuple[Origin, Origin], lying: Callable[..., Resolver]
) -> None:
    outside, origin = pair
    resolver = lying(origin.port, evil="127.0.0.2")

    def lure(request: Request, wire: Wire) -> None:
        resolver.answers["evil.example"] = "127.0.0.1"
        wire.answer(302, {"Location": "/inside", "Content-Length": "0", "Connection": "close"}, b"")
        wire.hangup()

    outside.add("/a", lure)
    assert reason(f"http://evil.example:{origin.port}/a", policy=OUTSIDE) == "forbidden_address"
    assert (len(outside.requests), origin.connections) == (1, 0)


@pytest.mark.parametrize("answers", ["127.0.0.2,127.0.0.1", "127.0.0.1,127.0.0.2"])
def test_of_several_addresses_only_the_allowed_are_tried(
    origin: Origin, lying: Callable[..., Resolver], answers: str
) -> None:
    """Nobody listens on the allowed address: the next one of the same answer is no way in."""
    lying(origin.port, evil=answers)
    assert reason(f"http://evil.example:{origin.port}/a", policy=OUTSIDE) in {"connect", "forbidden_address"}
    assert origin.connections == 0
