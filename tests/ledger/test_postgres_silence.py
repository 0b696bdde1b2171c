"""PostgreSQL that stands still: every wait for it ends on the client's side, and `give_up` ends it at once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest

from longshore.domain.model import JobRequest, Scope
from longshore.errors import Unavailable
from longshore.ledger import Ledger
from longshore.ledger.backends.postgres import silence
from longshore.ledger.backends.postgres.backend import Postgres
from longshore.ledger.operations.planning import plan
from longshore.ledger.transaction import Tx
from tests.support.ledgers import build_template
from tests.support.pgproxy import Proxy
from tests.support.postgres import Cluster
from tests.support.program import eventually

A = Scope("a", "p")
SOON_S = 6.0  # an end that is asked for; far below the 60 s that a silent server is waited for otherwise


@pytest.fixture
def dsn(own_postgres_cluster: Cluster) -> Iterator[str]:
    with own_postgres_cluster.database(own_postgres_cluster.template("ledger", build_template)) as url:
        yield url


def one(tx: Tx) -> object:
    return plan(tx, A, [JobRequest("own", "k1")])[0].created


def test_a_server_that_stands_still_is_lost_after_a_while(own_postgres_cluster: Cluster, dsn: str) -> None:
    with Ledger(Postgres(dsn, patience_s=1.0, silence_s=1.0)) as ledger:
        ledger.counts(A)
        with (
            own_postgres_cluster.frozen(),
            pytest.raises(Unavailable, match="does not answer: it sent nothing for 1 s"),
        ):
            ledger.backend.submit(one).result(20)
        assert ledger.write(one) is True


@pytest.mark.parametrize("connected", [True, False], ids=["a statement", "a connection"])
def test_giving_up_ends_the_wait(own_postgres_cluster: Cluster, dsn: str, *, connected: bool) -> None:
    with Ledger(Postgres(dsn)) as ledger:
        if connected:
            ledger.write(one)
        with own_postgres_cluster.frozen():
            waiting = ledger.backend.submit(one)
            eventually(lambda: ledger.silent_s() > 0.5, "the ledger is silent")
            began = time.monotonic()
            ledger.give_up()
            with pytest.raises(Unavailable):
                waiting.result(60)
            for _ in range(10):  # for a while nothing else waits, and these do not add up
                with pytest.raises(Unavailable):
                    ledger.counts(A)
            assert time.monotonic() - began < SOON_S
        eventually(lambda: answers(ledger), "it answers again")  # each try has 0.1 s, and the machine may be busy
        assert ledger.silent_s() == 0


def answers(ledger: Ledger) -> bool:
    try:
        return bool(ledger.counts(A))
    except Unavailable:
        return False


def test_giving_up_ends_the_wait_for_a_server_that_is_down(own_postgres_cluster: Cluster, dsn: str) -> None:
    with Ledger(Postgres(dsn)) as ledger:
        ledger.write(one)
        own_postgres_cluster.stop(immediate=True)
        try:
            waiting = ledger.backend.submit(one)
            eventually(lambda: ledger.silent_s() > 0.5, "the ledger is silent")
            began = time.monotonic()
            ledger.give_up()
            with pytest.raises(Unavailable, match="does not answer"):
                waiting.result(60)
            assert time.monotonic() - began < SOON_S
        finally:
            own_postgres_cluster.start()


def committing(cluster: Cluster, ledger: Ledger) -> Future[Any]:
    """Begin a write whose COMMIT reaches a server that stands still."""
    frozen = threading.Event()

    def verb(tx: Tx) -> object:
        made = one(tx)
        if not frozen.is_set():
            cluster.freeze()
            frozen.set()
        return made

    future = ledger.backend.submit(verb)
    assert frozen.wait(60)
    return future


def test_a_commit_that_is_given_up_is_never_called_done(own_postgres_cluster: Cluster, dsn: str) -> None:
    with Ledger(Postgres(dsn)) as ledger:
        try:
            future = committing(own_postgres_cluster, ledger)
            eventually(lambda: ledger.silent_s() > 0.5, "the ledger is silent")
            ledger.give_up()
            with pytest.raises(Unavailable, match="went away while a transaction was committed"):
                future.result(60)
        finally:
            own_postgres_cluster.thaw()
        ledger.write(one)
        assert sum(ledger.counts(A).values()) == 1


def test_a_commit_whose_connection_was_cut_is_decided_by_its_row(own_postgres_cluster: Cluster, dsn: str) -> None:
    with Ledger(Postgres(dsn, silence_s=1.0)) as ledger:
        try:
            future = committing(own_postgres_cluster, ledger)
            eventually(lambda: ledger.silent_s() > 2.0, "the connection is cut, and its COMMIT in doubt")
        finally:
            own_postgres_cluster.thaw()
        future.result(60)
        with psycopg.connect(dsn) as look:
            assert look.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
            assert look.execute("SELECT count(*) FROM commits WHERE closed = 1").fetchone() == (1,), "it was asked"


def test_the_time_is_known_without_asking(own_postgres_cluster: Cluster, dsn: str) -> None:
    """The event loop asks for it."""
    with Ledger(Postgres(dsn)) as ledger:
        ledger.counts(A)
        (server,) = own_postgres_cluster.execute("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1e6 AS bigint)")[
            0
        ]
        with own_postgres_cluster.frozen():
            began = time.monotonic()
            assert 0 <= ledger.now() - server < 10_000_000
            assert time.monotonic() - began < 1


def test_a_silent_server_is_reported_once(
    own_postgres_cluster: Cluster, dsn: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "SAY_S", 0.3)
    with caplog.at_level(logging.WARNING), Ledger(Postgres(dsn)) as ledger:
        ledger.write(one)
        with own_postgres_cluster.frozen():
            waiting = [ledger.backend.submit(one) for _ in range(4)]
            eventually(lambda: "the ledger does not answer, and is waited for" in caplog.text, "a sentence")
            eventually(lambda: ledger.silent_s() > 1, "more of the same wait")
        assert [future.result(60) for future in waiting] == [False] * 4
    assert caplog.text.count("is waited for") == 1


def test_a_connection_that_is_cut_while_a_ledger_is_opened_is_unavailable(postgres_cluster: Cluster) -> None:
    """After each of the client's messages, of a new ledger and of an existing one."""
    template = postgres_cluster.template("ledger", build_template)
    with postgres_cluster.database(template) as dsn, Proxy(postgres_cluster.base) as proxy:
        through = dsn.partition("?")[0] + f"?host={proxy.directory}"
        for frames in range(100):
            proxy.cut_after(frames)
            try:
                Ledger.open(through, create=True).close()
            except Unavailable as error:
                assert "PostgreSQL" in str(error)
            else:
                break
        assert 5 < frames < 99


def test_too_many_connections_are_unavailable(postgres_cluster: Cluster) -> None:
    template = postgres_cluster.template("ledger", build_template)
    with postgres_cluster.database(template) as url:
        postgres_cluster.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 1")
        try:
            postgres_cluster.execute("GRANT longshore_app TO crowded")
            crowded = url.replace("postgres@", "crowded@")
            with psycopg.connect(crowded):
                with pytest.raises(Unavailable, match="too many connections"):
                    Ledger.open(crowded)
                backend = Postgres(crowded, patience_s=0.1)
                with Ledger(backend) as ledger:
                    with pytest.raises(Unavailable, match="too many connections"):
                        ledger.counts(A)
                    with pytest.raises(Unavailable, match="too many connections"), backend.leading():
                        pass
        finally:
            postgres_cluster.execute("DROP OWNED BY crowded")
            postgres_cluster.execute("DROP ROLE crowded")
