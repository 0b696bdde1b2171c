"""PostgreSQL that goes away: lost answers, cut and half-open connections, killed backends, a crashed server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from longshore import compat
from longshore.domain.identity.requests import download_request
from longshore.domain.model import Blob, JobRequest, NewArtifact, Scope
from longshore.domain.outcomes import Completed
from longshore.errors import LeaseLost, Unavailable
from longshore.ledger import Intent, Ledger
from longshore.ledger.backends.postgres.backend import Postgres
from longshore.ledger.transaction import Tx
from tests.support.ledgers import build_template
from tests.support.pgproxy import Loss, Proxy
from tests.support.postgres import Cluster

A = Scope("a", "p")


@pytest.fixture
def proxied(postgres_cluster: Cluster) -> Iterator[tuple[Ledger, Proxy, str]]:
    """A ledger behind a proxy that can lose things, and the direct way to the same database."""
    with (
        postgres_cluster.database(postgres_cluster.template("ledger", build_template)) as dsn,
        Proxy(postgres_cluster.base) as proxy,
    ):
        through = dsn.partition("?")[0] + f"?host={proxy.directory}"
        with Ledger(Postgres(through, silence_s=3.0)) as ledger:
            yield ledger, proxy, dsn


def completed(number: int) -> Completed:
    return Completed((NewArtifact(Blob(f"{number:064x}", 7, "ptr", "local", "text/plain")),))


def each_verb(ledger: Ledger) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield every writing verb of a job's life, in order; what came before is there."""
    requests = [download_request(f"https://a.example/{n}") for n in range(4)]
    yield "plan", lambda: ledger.plan(A, requests)
    taken = []
    yield "claim", lambda: taken.extend(ledger.claim("w", limit=2, ttl_s=600))
    one, two = taken
    yield "renew", lambda: ledger.renew([one, two], 900)
    yield "advance", lambda: compat.advance_state(ledger, one, "STREAMING")
    yield "begin", lambda: ledger.begin([Intent(one, "FINALIZE", "key-1", fingerprint="f")])
    yield "settle", lambda: ledger.settle([(one, completed(1))])
    yield "release", lambda: compat.release_lease(ledger, two)
    yield "cancel", lambda: ledger.cancel(A, [two.job_id])
    yield "retry", lambda: ledger.retry(A, [two.job_id])


def facts(dsn: str) -> dict[str, list[tuple[object, ...]]]:
    """Everything that must not depend on what was lost on the way."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return {
            "jobs": connection.execute(
                "SELECT status, stage, lease_epoch, attempts, claims, row_version, coalesce(canonical_url, '') FROM jobs ORDER BY 7, seq"
            ).fetchall(),
            "claims": connection.execute("SELECT epoch, outcome FROM job_claims ORDER BY job_id, epoch").fetchall(),
            "events": connection.execute("SELECT kind FROM events ORDER BY seq").fetchall(),
            "artifacts": connection.execute("SELECT sha256 FROM artifacts ORDER BY 1").fetchall(),
            "effects": connection.execute("SELECT op_key, state, epoch FROM effects ORDER BY 1").fetchall(),
            "counters": connection.execute(
                "SELECT status, sum(n) FROM counters GROUP BY status HAVING sum(n) <> 0 ORDER BY 1"
            ).fetchall(),
        }


def live(ledger: Ledger, before_each: Callable[[], None] = lambda: None) -> int:
    count = 0
    for _, verb in each_verb(ledger):
        before_each()
        verb()
        count += 1
    return count


@pytest.mark.parametrize("loss", list(Loss))
def test_a_lost_commit_changes_nothing_about_the_outcome(
    proxied: tuple[Ledger, Proxy, str], postgres_cluster: Cluster, loss: Loss
) -> None:
    ledger, proxy, dsn = proxied
    verbs = live(ledger, lambda: proxy.lose_next_commits(loss))
    assert proxy.commits_lost == verbs, "every verb lost its COMMIT once"
    with postgres_cluster.database(postgres_cluster.template("ledger", build_template)) as quiet:
        with Ledger.open(quiet) as undisturbed:
            live(undisturbed)
        assert facts(dsn) == facts(quiet)


def test_losses_in_a_row_are_survived(proxied: tuple[Ledger, Proxy, str]) -> None:
    ledger, proxy, _ = proxied
    proxy.lose_next_commits(Loss.REQUEST, Loss.REQUEST, Loss.ANSWER)
    (planned,) = ledger.plan(A, [download_request("https://a.example/1")])
    assert planned.created
    assert proxy.commits_lost == 3
    assert sum(ledger.counts(A).values()) == 1


def test_a_claim_whose_answer_was_lost_is_still_ours(proxied: tuple[Ledger, Proxy, str]) -> None:
    ledger, proxy, _ = proxied
    ledger.plan(A, [JobRequest("own", f"k{n}") for n in range(3)])
    proxy.lose_next_commits(Loss.ANSWER)
    leases = ledger.claim("w", limit=2, ttl_s=600)
    assert len(leases) == 2
    assert ledger.renew(leases, 600).lost == frozenset()
    assert len(ledger.claim("w", limit=5, ttl_s=600)) == 1


def test_a_half_open_connection_is_noticed_and_left(proxied: tuple[Ledger, Proxy, str]) -> None:
    ledger, proxy, _ = proxied
    ledger.plan(A, [JobRequest("own", "k1")])
    proxy.fall_silent()
    (planned,) = ledger.plan(A, [JobRequest("own", "k2")])
    assert planned.created
    proxy.fall_silent()
    assert sum(ledger.counts(A).values()) == 2


def test_killed_backends_are_replaced(postgres_cluster: Cluster, postgres_ledger: str) -> None:
    name = postgres_ledger.split("/")[3].partition("?")[0]
    with Ledger.open(postgres_ledger) as ledger:
        ledger.plan(A, [JobRequest("own", f"k{n}") for n in range(10)])
        for _ in range(5):
            postgres_cluster.kill_backends(name)
            (lease,) = ledger.claim("w", limit=1, ttl_s=600)
            postgres_cluster.kill_backends(name)
            (settled,) = ledger.settle([(lease, Completed(()))])
            assert not isinstance(settled, Exception)


def test_a_backend_killed_inside_a_verb_runs_it_again_whole(postgres_cluster: Cluster, postgres_ledger: str) -> None:
    name = postgres_ledger.split("/")[3].partition("?")[0]
    runs = []

    def verb(tx: Tx) -> int:
        runs.append(1)
        tx.enter("a")
        tx.many("count_add", [("a", "p", "pending", 5)])
        if len(runs) == 1:
            postgres_cluster.kill_backends(name)
        tx.many("count_add", [("a", "p", "pending", 1)])
        return len(runs)

    with Ledger.open(postgres_ledger) as ledger:
        assert ledger.write(verb) == 2
        assert sum(ledger.counts(A).values()) == 6


def test_a_server_that_crashes_comes_back_to_the_same_truth(own_postgres_cluster: Cluster) -> None:
    cluster = own_postgres_cluster
    with cluster.database(cluster.template("ledger", build_template)) as dsn, Ledger.open(dsn) as ledger:
        ledger.plan(A, [JobRequest("own", f"k{n}") for n in range(4)])
        leases = ledger.claim("w", limit=2, ttl_s=600)
        cluster.restart(immediate=True)
        for settled in ledger.settle([(lease, Completed(())) for lease in leases]):
            assert not isinstance(settled, Exception)
        cluster.restart(immediate=True)
        assert {status.value: n for status, n in ledger.counts(A).items() if n} == {"pending": 2, "completed": 2}
        (late,) = ledger.settle([(leases[0], Completed(()))])
        assert isinstance(late, LeaseLost), "what was settled before the crash is settled"
        with stopped(cluster):
            waiting = ledger.backend.submit(lambda tx: tx.now)
        assert waiting.result(60) > 0


@contextmanager
def stopped(cluster: Cluster) -> Iterator[None]:
    cluster.stop(immediate=True)
    yield
    cluster.start()


def test_patience_ends_with_a_clear_error(own_postgres_cluster: Cluster) -> None:
    cluster = own_postgres_cluster
    dsn = cluster.dsn(cluster.template("ledger", build_template))
    backend = Postgres(dsn, patience_s=0.5)
    try:
        assert backend.now() > 0
        cluster.stop(immediate=True)
        with pytest.raises(Unavailable, match="does not answer") as caught:
            backend.submit(lambda tx: tx.now).result(60)
        assert caught.value.hint
        with pytest.raises(Unavailable, match="cannot be reached"):
            Ledger.open(dsn)
    finally:
        backend.close()
        cluster.start()


def test_work_is_told_to_those_who_wait_also_after_a_loss(postgres_cluster: Cluster, postgres_ledger: str) -> None:
    name = postgres_ledger.split("/")[3].partition("?")[0]
    woken = threading.Semaphore(0)
    backend = Postgres(postgres_ledger)
    with Ledger(backend) as waiting, Ledger.open(postgres_ledger) as planning:
        stop = backend.watch(woken.release)
        assert woken.acquire(timeout=60), "whoever begins to listen looks once"
        planning.plan(A, [JobRequest("own", "k1")])
        assert woken.acquire(timeout=60)
        assert len(waiting.claim("w", limit=5, ttl_s=60)) == 1
        postgres_cluster.kill_backends(name)
        assert woken.acquire(timeout=60), "a gap in listening is a reason to look"
        planning.plan(A, [JobRequest("own", "k2")])
        assert woken.acquire(timeout=60)
        stop()


def test_two_programs_that_plan_the_same_at_once_get_the_same_jobs(postgres_ledger: str) -> None:
    requests = [download_request(f"https://a.example/{n}") for n in range(200)]
    answers: list[list[str]] = []
    with Ledger.open(postgres_ledger) as one, Ledger.open(postgres_ledger) as two:

        def plan(ledger: Ledger, order: int) -> None:
            planned = ledger.plan(A, requests[::order])
            answers.append([item.job_id for item in planned][::order])

        threads = [threading.Thread(target=plan, args=item) for item in ((one, 1), (two, -1), (one, 1), (two, -1))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 4
        assert all(answer == answers[0] for answer in answers)
        assert sum(one.counts(A).values()) == 200
