"""Webhooks, checked with the receivers' own libraries: signatures by `standardwebhooks`, bodies by `cloudevents`."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks import Webhook as Receiver

from longshore import Scope
from longshore.depot import Depot
from longshore.depot.webhooks import Deliverer
from longshore.domain.policy.network import NetworkPolicy
from longshore.domain.settings import NetworkSettings
from longshore.domain.webhooks import RETRIES_S, check_url, wait_s
from longshore.errors import BadInput, NotFound
from longshore.ledger import Ledger
from longshore.ledger.operations.webhooks import (
    Webhook,
    add_webhook,
    dead_letters,
    remove_webhook,
    webhooks,
)
from longshore.ledger.queries.feed import feed_consumers
from tests.support.program import environment
from tests.worker.conftest import MakeDepot, engine, make_depot, origin, postgres_cluster, where

__all__ = ["engine", "make_depot", "origin", "postgres_cluster", "where"]
HOME = Scope("default", "default")
LATER = 10**9  # microseconds: after every hold


@dataclass
class Endpoint:
    """A receiver that answers what it is told, and keeps what it got."""

    url: str = ""
    answers: list[int] = field(default_factory=list)  # then 204
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.got]

    def events(self, secret: str) -> list[Any]:
        """Verify and parse everything, as a receiver would."""
        found = []
        for headers, body in self.got:
            Receiver(secret).verify(body.decode(), headers)
            found.append(from_http_event(HTTPMessage(headers=headers, body=body)))
        return found


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            status = made.answers.pop(0) if made.answers else 204
            self.send_response(status)
            self.send_header("Location", made.url)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield made
        server.shutdown()
        thread.join()


@pytest.fixture
def depot(make_depot: MakeDepot, where: str) -> Depot:
    return make_depot(ledger=where)


def deliverer(ledger: Ledger, *retries_s: float, allow: str = "127.0.0.0/8") -> Deliverer:
    return Deliverer(ledger, NetworkPolicy.allowing(*([allow] if allow else [])), NetworkSettings(), retries_s)


def put(depot: Depot, body: bytes, scope: Scope = HOME) -> str:
    artifact = depot.put(io.BytesIO(body), name="a.txt", scope=scope).artifact
    assert artifact is not None
    return artifact.artifact_id


def hook(depot: Depot, endpoint: Endpoint, *kinds: str, scope: Scope = HOME, **given: Any) -> Webhook:
    return depot.ledger.write(add_webhook, scope, endpoint.url, kinds, **given)


def test_changes_are_sent_signed_as_cloud_events(depot: Depot, endpoint: Endpoint) -> None:
    put(depot, b"before")
    made = hook(depot, endpoint)
    assert str(made.secret) not in repr(made), "a secret in a log is none"
    first, second = put(depot, b"one"), put(depot, b"two")
    depot.delete(first)
    done = deliverer(depot.ledger).round()
    assert (done.sent, done.failed) == (2, 0), "what is gone again when it is sent is only told as gone"
    new, gone = endpoint.events(str(made.secret))
    assert (new.get_type(), new.get_subject()) == ("io.longshore.artifact.new", second)
    assert (gone.get_type(), gone.get_subject()) == ("io.longshore.artifact.gone", first)
    assert (new.get_specversion(), new.get_source()) == ("1.0", "/longshore/default/default")
    assert [new.get_id(), gone.get_id()] == endpoint.ids
    data = json.loads(endpoint.got[0][1])["data"]
    assert (data["sha256"], "pointer" in str(data)) == (new.get_data()["sha256"], False)
    assert deliverer(depot.ledger).round().sent == 0


def test_only_the_wanted_changes_or_also_the_earlier_ones(depot: Depot, endpoint: Endpoint) -> None:
    first = put(depot, b"before")
    hook(depot, endpoint, "gone")
    everything = hook(depot, endpoint, from_start=True)
    depot.delete(put(depot, b"short"))
    assert deliverer(depot.ledger).round().sent == 1 + 2
    by_id = {json.loads(body)["id"]: json.loads(body) for _, body in endpoint.got}
    kinds = [one["type"].rpartition(".")[2] for one in by_id.values()]
    assert sorted(kinds) == ["gone", "gone", "new"]
    assert first in {one["subject"] for one in by_id.values()}
    assert everything.kinds == ("new", "changed", "gone")


def test_an_endpoint_that_fails_is_tried_again_under_the_same_id_and_in_order(depot: Depot, endpoint: Endpoint) -> None:
    made = hook(depot, endpoint)
    put(depot, b"one")
    put(depot, b"two")
    endpoint.answers += [500, 302]
    sender = deliverer(depot.ledger, 0, 0, 0)
    assert sender.round().failed == 1
    assert [(one.attempts, one.reason) for one in depot.ledger.read(webhooks, HOME)] == [(1, "http_500")]
    assert sender.round().failed == 1, "a redirect is not followed"
    assert sender.round().sent == 2
    assert endpoint.ids[0] == endpoint.ids[1] == endpoint.ids[2] != endpoint.ids[3]
    assert len(endpoint.events(str(made.secret))) == 4, "each attempt is signed anew"
    assert [one.attempts for one in depot.ledger.read(webhooks, HOME)] == [0]


def test_nothing_is_sent_before_its_time(depot: Depot, endpoint: Endpoint) -> None:
    hook(depot, endpoint)
    put(depot, b"one")
    endpoint.answers.append(503)
    sender = deliverer(depot.ledger, 3_600)
    assert sender.round().failed == 1
    assert (sender.round().sent, len(endpoint.got)) == (0, 1)


def test_dead_letters_and_their_second_life(depot: Depot, endpoint: Endpoint) -> None:
    made = hook(depot, endpoint)
    put(depot, b"one")
    put(depot, b"two")
    endpoint.answers += [500, 500]
    sender = deliverer(depot.ledger, 0)
    assert sender.round().given_up == 0
    assert sender.round().given_up == 1
    assert sender.round().sent == 1, "the next change is not held up for ever"
    (letter,) = depot.ledger.read(dead_letters, HOME, made.webhook_id)
    assert (letter.message_id, letter.reason) == (endpoint.ids[0], "http_500")
    endpoint.answers.append(500)
    assert sender.again(HOME, made.webhook_id).failed == 1
    assert sender.again(HOME, made.webhook_id).sent == 1
    assert (endpoint.ids[-1], depot.ledger.read(dead_letters, HOME, made.webhook_id)) == (letter.message_id, [])


def test_an_endpoint_that_is_gone_is_disabled(depot: Depot, endpoint: Endpoint) -> None:
    made = hook(depot, endpoint)
    put(depot, b"one")
    endpoint.answers.append(410)
    sender = deliverer(depot.ledger, 0, 0)
    assert (sender.round().failed, sender.round().failed) == (1, 0)
    assert depot.ledger.read(webhooks, HOME)[0].disabled_at is not None
    depot.ledger.write(remove_webhook, HOME, made.webhook_id)
    assert depot.ledger.read(feed_consumers, HOME) == []
    with pytest.raises(NotFound):
        depot.ledger.write(remove_webhook, HOME, made.webhook_id)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0x7f000001"])
def test_no_address_inside_is_reached(depot: Depot, endpoint: Endpoint, host: str) -> None:
    endpoint.url = endpoint.url.replace("127.0.0.1", host)
    hook(depot, endpoint)
    put(depot, b"one")
    assert deliverer(depot.ledger, 0, allow="").round().failed == 1
    assert endpoint.got == []
    assert (depot.ledger.read(webhooks, HOME)[0].reason or "").startswith("forbidden_address")


def test_what_is_no_endpoint_is_refused(depot: Depot) -> None:
    for url in (
        "ftp://a.example/",
        "file:///etc/passwd",
        "https://u:p@a.example/",
        "http://",
        "http://a b/",
        "x" * 9,
        "http://a:x/",
    ):
        with pytest.raises(BadInput):
            check_url(url)
    with pytest.raises(BadInput):
        depot.ledger.write(add_webhook, HOME, "https://a.example/", ("deleted",))
    waits = [wait_s(attempts) for attempts in range(1, 9)]
    assert waits == [*RETRIES_S, None]


def test_tenants_are_sent_their_own(depot: Depot, endpoint: Endpoint) -> None:
    other = Scope("other", "p")
    hook(depot, endpoint)
    theirs = hook(depot, endpoint, scope=other)
    mine, strange = put(depot, b"mine"), put(depot, b"theirs", other)
    assert deliverer(depot.ledger).round().sent == 2
    told = {json.loads(body)["source"]: json.loads(body)["subject"] for _, body in endpoint.got}
    assert told == {"/longshore/default/default": mine, "/longshore/other/p": strange}
    assert [one.webhook_id for one in depot.ledger.read(webhooks, other)] == [theirs.webhook_id]


def test_a_sender_killed_after_each_request_sends_everything(depot: Depot, endpoint: Endpoint, where: str) -> None:
    """Between the endpoint's answer and the commit: the same id comes again, and nothing is missing."""
    hook(depot, endpoint)
    names = [put(depot, b"%d" % number) for number in range(3)]
    program = (
        "import sys, time\n"
        "from longshore.depot import webhooks\n"
        "from longshore.domain.policy.network import NetworkPolicy\n"
        "from longshore.domain.settings import NetworkSettings\n"
        "from longshore.ledger import Ledger\n"
        "later = int(sys.argv[2])\n"
        "ledger = Ledger.open(sys.argv[1], clock=lambda: time.time_ns() // 1000 + later)\n"
        "webhooks.Deliverer(ledger, NetworkPolicy.allowing('127.0.0.0/8'), NetworkSettings()).round()\n"
    )
    for run in range(3):
        command = [sys.executable, "-c", program, where, str(LATER * run)]
        ran = subprocess.run(command, env=environment({"LONGSHORE_FAILPOINTS": "webhook.sent=kill"}), check=False)
        assert ran.returncode == -signal.SIGKILL
    assert deliverer(depot.ledger).round().sent == 0, "the dead process holds the endpoint for two minutes"
    with Ledger.open(where, clock=lambda: depot.ledger.now() + LATER * 3) as later:
        assert deliverer(later).round().sent == 3
    assert len(set(endpoint.ids)) == 3
    assert len(endpoint.ids) == 6
    assert list(dict.fromkeys(json.loads(body)["subject"] for _, body in endpoint.got)) == names
