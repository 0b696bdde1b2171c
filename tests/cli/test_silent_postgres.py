"""PostgreSQL that stands still or is down: `--max-wait` and signals hold all the same, and a sentence says why."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.origin import Origin, Thing, drip, stamped
from tests.support.postgres import Cluster, own_postgres_cluster
from tests.support.program import Started, command, environment, eventually, execute, started

__all__ = ["own_postgres_cluster"]

pytestmark = pytest.mark.slow

NET = ("--allow-net", "127.0.0.0/8")
SILENT = "the ledger does not answer"
MANY = 12


@contextlib.contextmanager
def down(cluster: Cluster) -> Iterator[None]:
    cluster.stop(immediate=True)
    try:
        yield
    finally:
        cluster.start()


AWAY: dict[str, Callable[[Cluster], AbstractContextManager[None]]] = {"frozen": Cluster.frozen, "down": down}


@pytest.fixture
def env(tmp_path: Path, own_postgres_cluster: Cluster) -> Iterator[dict[str, str]]:
    """A depot whose ledger is a database of its own."""
    with own_postgres_cluster.database() as dsn:
        found = {"LONGSHORE_DEPOT": str(tmp_path / "depot"), "LONGSHORE_LEDGER": dsn}
        execute("migrate", env=found).ok()
        yield found


@contextlib.contextmanager
def working(tmp_path: Path, env: dict[str, str], verb: str, *words: object) -> Iterator[tuple[Started, Origin]]:
    """Start a command whose transfers are under way: each takes about two seconds."""
    with Origin() as origin:
        things = [Thing(stamped(number + 1, 20_000)) for number in range(MANY)]
        urls = [origin.add(f"/{number}", drip(thing, 1_000, 0.1)) for number, thing in enumerate(things)]
        (tmp_path / "list").write_text("\n".join(urls))
        if verb != "get":
            execute("add", tmp_path / "list", env=env).ok()
        listed = ("-i", tmp_path / "list") if verb == "get" else ()
        with started(tmp_path / "out", verb, *NET, *words, *listed, env=env) as running:
            eventually(lambda: len(origin.requests) >= 4, "transfers")
            yield running, origin


def ended(running: Started, within_s: float) -> tuple[int, float, str]:
    began = time.monotonic()
    ran = running.wait(within_s)
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran.code, time.monotonic() - began, ran.stderr


@pytest.mark.parametrize("how", AWAY)
@pytest.mark.parametrize("verb", ["get", "run"])
def test_a_silent_server_is_not_waited_for_longer_than_allowed(
    tmp_path: Path, own_postgres_cluster: Cluster, env: dict[str, str], verb: str, how: str
) -> None:
    with working(tmp_path, env, verb, "--max-wait", 5) as (running, _):
        with AWAY[how](own_postgres_cluster):
            code, _, told = ended(running, 25)
        assert code == 4, told
        assert SILENT in told
        execute("run", "--max-wait", 50, *NET, env=env | {"LONGSHORE_LEASE__TTL_S": "3"}).ok()


@pytest.mark.parametrize("how", AWAY)
@pytest.mark.parametrize(("verb", "signals"), [("run", 1), ("run", 2), ("get", 1)])
def test_signals_end_a_run_while_the_server_is_silent(
    tmp_path: Path, own_postgres_cluster: Cluster, env: dict[str, str], verb: str, signals: int, how: str
) -> None:
    drain = ("--set", f"transfer.drain_s={3 if signals == 1 else 600}")
    with working(tmp_path, env, verb, *drain) as (running, _), AWAY[how](own_postgres_cluster):
        eventually(lambda: SILENT in running.stderr, "a sentence", 15)
        for _ in range(signals):
            assert running.process.poll() is None
            running.signal(signal.SIGTERM)
            eventually(lambda: "SIGTERM: finishing" in running.stderr, "the signal is seen", 10)
        code, took, told = ended(running, 20)
    assert code == 143, told
    assert took < 12, told


@pytest.mark.parametrize("how", AWAY)
def test_a_service_ends_by_a_signal_while_the_server_is_silent(
    tmp_path: Path, own_postgres_cluster: Cluster, env: dict[str, str], how: str
) -> None:
    flags = ("--port", 0, "--json", "--set", "transfer.drain_s=3")
    with working(tmp_path, env, "serve", *flags) as (running, _), AWAY[how](own_postgres_cluster):
        eventually(lambda: SILENT in running.stderr, "a sentence", 15)
        running.signal(signal.SIGTERM)
        code, took, told = ended(running, 40)
    assert code == 143, told
    assert took < 20, told


def test_commands_that_find_a_silent_server_say_so(
    own_postgres_cluster: Cluster, tmp_path: Path, env: dict[str, str]
) -> None:
    (tmp_path / "list").write_text("https://a.example/1\n")
    commands = {"status": (), "add": (tmp_path / "list",), "run": ("--max-wait", 5)}
    with own_postgres_cluster.frozen(), contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(started(tmp_path / verb, verb, *words, env=env)) for verb, words in commands.items()
        ]
        for one in running:
            code, _, told = ended(one, 30)
            assert code == 1
            assert "PostgreSQL cannot be reached: connection timeout expired" in told


def test_a_list_is_added_as_soon_as_a_silent_server_goes_on(
    own_postgres_cluster: Cluster, tmp_path: Path, env: dict[str, str]
) -> None:
    """Once it has waited for a server that answers again, and once it is stopped while it waits."""
    for stopped in (False, True):
        with (tmp_path / "stderr").open("wb") as err:
            words = command("add", "-", "--format", "urls")
            adding = subprocess.Popen(words, env=environment(env), stdin=subprocess.PIPE, stderr=err)
        assert adding.stdin is not None
        try:
            for number in range(8_000):  # some batches
                adding.stdin.write(b"https://a.example/%d/%d\n" % (stopped, number))
            adding.stdin.flush()
            eventually(lambda: is_connected(own_postgres_cluster, env), "a connection")
            with own_postgres_cluster.frozen():
                adding.stdin.close()
                eventually(lambda: SILENT in (tmp_path / "stderr").read_text(), "a sentence", 20)
                if stopped:
                    adding.send_signal(signal.SIGTERM)
                    assert adding.wait(5) == 143
            assert adding.wait(30) == (143 if stopped else 0), (tmp_path / "stderr").read_text()
        finally:
            adding.kill()


def is_connected(cluster: Cluster, env: dict[str, str]) -> bool:
    """Return whether a command has written to its ledger, and keeps the connection."""
    name = env["LONGSHORE_LEDGER"].split("/")[3].partition("?")[0]
    return bool(
        cluster.execute(
            f"SELECT 1 FROM pg_stat_activity WHERE datname = '{name}' AND state = 'idle' AND query LIKE '%COMMIT%'"
        )
    )
