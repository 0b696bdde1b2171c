"""`ledger copy`: every row arrives, both ways, after any interruption, and is compared."""

from __future__ import annotations

from pathlib import Path

import apsw
import psycopg
import pytest

from longshore.domain.identity.requests import download_request
from longshore.domain.model import Blob, JobRequest, NewArtifact, Scope
from longshore.domain.outcomes import Completed, Deferred, Failed, Reused
from longshore.errors import Conflict, Damaged
from longshore.ledger import Intent, Ledger
from longshore.ledger.maintenance import copy
from longshore.ledger.maintenance.copy import copy_ledger
from longshore.ledger.operations import hosts
from longshore.ledger.operations.ledger_identity import ledger_id, make_ledger_id
from longshore.ledger.queries import history

A, B = Scope("a", "p"), Scope("b", "q")


def fill(where: str | Path) -> None:
    """Make a ledger in which every kind of row occurs, and some jobs point to later ones."""
    with Ledger.open(where, create=True) as ledger:
        for scope in (A, B):
            ledger.plan(scope, [download_request(f"https://{scope.tenant_id}.example/{n}") for n in range(7)])
            first, second, third, fourth, *rest = ledger.claim("w", limit=7, ttl_s=600, scope=scope)
            ledger.begin([Intent(second, "HEAD", f"k-{scope.tenant_id}")])
            new = NewArtifact(Blob("ab" * 32, 7, "ptr", "local", "text/plain"), metadata={"x": "é"})
            (done,) = ledger.settle([(second, Completed((new,)))])
            assert not isinstance(done, Exception)
            ledger.settle([(first, Reused(second.job_id, done.artifact_ids[0]))])
            ledger.settle([(third, Failed("http_404", "gone")), (fourth, Deferred("connect", "refused", 50.0))])
            ledger.settle([(lease, Failed("dns", "no name")) for lease in rest])
            ledger.retry(scope, [rest[0].job_id])
            ledger.plan(scope, [JobRequest("own", "k", params={"n": 1}, inputs=done.artifact_ids)])
        ledger.write(hosts.set_host, "a.example", {"concurrency": 3})


def facts(where: str | Path) -> dict[str, object]:
    with Ledger.open(where) as ledger:
        return {
            scope.tenant_id: (
                ledger.jobs(scope).items,
                ledger.artifacts(scope).items,
                ledger.failures(scope),
                ledger.counts(scope),
                ledger.read(history.events_after, scope, 0),
                [ledger.timeline(scope, job.job_id) for job in ledger.jobs(scope).items],
            )
            for scope in (A, B)
        }


def test_there_and_back_again_is_the_same(tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "BATCH", 2)
    fill(tmp_path / "one.db")
    there = copy_ledger(tmp_path / "one.db", postgres_dsn)
    assert there.rows["jobs"] == 18
    assert facts(postgres_dsn) == facts(tmp_path / "one.db")
    back = copy_ledger(postgres_dsn, tmp_path / "two.db")
    assert back == there
    assert facts(tmp_path / "two.db") == facts(tmp_path / "one.db")
    for where in (postgres_dsn, tmp_path / "two.db"):
        with Ledger.open(where) as ledger:
            assert ledger.reconcile_jobs().wrong_counters == 0
            planned = ledger.plan(
                A, [download_request("https://a.example/1"), download_request("https://a.example/new")]
            )
            assert [item.created for item in planned] == [False, True]
            last = ledger.read(history.last_event, A)
            ledger.cancel(A, [planned[1].job_id])
            assert [event.kind for event in ledger.read(history.events_after, A, last)] == ["canceled"]


def test_an_interrupted_copy_is_gone_on_with(
    tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy, "BATCH", 3)
    fill(tmp_path / "one.db")
    steps = 0

    class Interrupted(Exception):
        pass

    def stop(table: str, rows: int) -> None:
        nonlocal steps
        steps += 1
        if steps % 4 == 0:
            raise Interrupted

    for _ in range(4):
        steps = 0
        with pytest.raises(Interrupted):
            copy_ledger(tmp_path / "one.db", postgres_dsn, stop)
    copy_ledger(tmp_path / "one.db", postgres_dsn)
    assert facts(postgres_dsn) == facts(tmp_path / "one.db")


def test_a_ledger_that_is_worked_on_is_refused(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "one.db", create=True) as ledger:
        ledger.plan(A, [JobRequest("own", "k")])
        assert ledger.claim("w", limit=1, ttl_s=600)
    with pytest.raises(Conflict, match="worked on"):
        copy_ledger(tmp_path / "one.db", tmp_path / "two.db")
    with pytest.raises(Conflict, match="itself"):
        copy_ledger(tmp_path / "one.db", tmp_path / "one.db")


def test_a_copy_that_differs_is_named(tmp_path: Path, postgres_dsn: str) -> None:
    fill(tmp_path / "one.db")
    copy_ledger(tmp_path / "one.db", postgres_dsn)
    with psycopg.connect(postgres_dsn, autocommit=True) as owner:
        owner.execute("UPDATE counters SET n = n + 1 WHERE status = 'failed' AND tenant_id = 'b'")
    with pytest.raises(Damaged, match="counters"):
        copy_ledger(tmp_path / "one.db", postgres_dsn)


@pytest.mark.parametrize("with_ids", [True, False])
def test_another_ledger_is_refused_before_a_row_is_written(tmp_path: Path, with_ids: bool) -> None:
    source, target = tmp_path / "source.db", tmp_path / "target.db"
    for path in (source, target):
        fill(path)
        with Ledger.open(path) as ledger:
            if with_ids:
                ledger.write(make_ledger_id)
            ledger.plan(A, [download_request(f"https://{path.stem}.example/")])
    before = rows_of(target)
    with pytest.raises(Conflict, match="another ledger"):
        copy_ledger(source, target)
    assert rows_of(target) == before


def rows_of(path: Path) -> dict[str, list[copy.Row]]:
    end = copy.SqliteEnd(path, reading=True)
    try:
        return {table: end.page(table, sorted(end.columns(table)), None, None) for table in copy.TABLES}
    finally:
        end.close()


def test_another_database_is_refused_too(tmp_path: Path, postgres_dsn: str) -> None:
    fill(tmp_path / "source.db")
    with Ledger.open(postgres_dsn, create=True) as other:
        other.plan(B, [download_request("https://other.example/")])
        own = other.write(make_ledger_id)
    with pytest.raises(Conflict, match="another ledger"):
        copy_ledger(tmp_path / "source.db", postgres_dsn)
    with Ledger.open(postgres_dsn) as other:
        assert other.read(ledger_id) == own


def test_a_text_that_is_not_utf_8_is_damage(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "from.db", create=True) as ledger:
        ledger.plan(Scope("t", "p"), [download_request("https://h.example/1")])
    raw = apsw.Connection(str(tmp_path / "from.db"))
    raw.execute("UPDATE jobs SET url = CAST(X'e631' AS TEXT)")
    raw.close()
    with pytest.raises(Damaged, match="a text in the table jobs is not UTF-8"):
        copy_ledger(str(tmp_path / "from.db"), str(tmp_path / "to.db"))
