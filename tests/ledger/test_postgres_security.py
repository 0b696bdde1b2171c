"""Row-level security: as the application's role a tenant sees, counts and changes its own rows and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

from longshore.domain.identity.requests import download_request
from longshore.domain.model import Blob, NewArtifact, Scope
from longshore.domain.outcomes import Completed
from longshore.errors import NotPermitted
from longshore.ledger import Intent, Ledger
from longshore.ledger.backends.postgres.backend import Postgres
from longshore.ledger.operations import audit_log, tokens
from longshore.ledger.transaction import Tx
from tests.support.ledgers import build_template
from tests.support.postgres import Cluster

A, B = Scope("a", "p"), Scope("b", "p")
NO_TENANT = {"_meta", "hosts", "tokens", "_migrations", "stage_moves", "commits"}
Connection = psycopg.Connection[Any]


@pytest.fixture
def filled(postgres_ledger: str) -> str:
    """A ledger in which both tenants have a row in every table that verbs write."""
    with Ledger.open(postgres_ledger) as ledger:
        for number, scope in enumerate((A, B)):
            requests = [download_request(f"https://{scope.tenant_id}.example/{n}") for n in range(3)]
            ledger.plan(scope, requests)
            one, two, _ = ledger.claim("w", limit=3, ttl_s=600, scope=scope)
            ledger.begin([Intent(two, "HEAD", f"key-{scope.tenant_id}")])
            blob = Blob(f"{number:064x}", 7, "ptr", "local", "text/plain")
            ledger.settle([(one, Completed((NewArtifact(blob),)))])
    return postgres_ledger


@pytest.fixture
def app(filled: str) -> Iterator[Connection]:
    """A connection of the owner's login that works as the application's role."""
    with psycopg.connect(filled, autocommit=True) as connection:
        connection.execute("SET ROLE longshore_app")
        yield connection


def tables(connection: Connection) -> list[str]:
    rows = connection.execute(
        "SELECT table_name FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)"
        " WHERE table_schema = 'public' AND column_name = 'tenant_id' AND table_type = 'BASE TABLE' ORDER BY 1"
    ).fetchall()
    return [row[0] for row in rows if row[0] not in NO_TENANT]


def test_every_table_with_a_tenant_has_a_forced_policy(postgres_ledger: str) -> None:
    with psycopg.connect(postgres_ledger) as owner:
        rows = owner.execute(
            "SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity,"
            " (SELECT count(*) FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'tenant')"
            " FROM pg_class c WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace"
        ).fetchall()
    found = {row[0]: row[1:] for row in rows}
    assert found.keys() >= NO_TENANT | {"jobs", "events", "artifacts", "torrents", "lanes", "counters"}
    for name, facts in found.items():
        if name not in NO_TENANT:
            assert facts == (True, True, 1), f"{name} has no forced tenant policy"


def test_the_roles_cannot_log_in_or_pass_by_the_policies(postgres_cluster: Cluster, postgres_ledger: str) -> None:
    rows = postgres_cluster.execute(
        "SELECT rolname, rolcanlogin OR rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb FROM pg_roles"
        " WHERE rolname LIKE 'longshore%' ORDER BY 1"
    )
    assert rows == [("longshore_app", False), ("longshore_dispatcher", False), ("longshore_service", False)]


def test_definer_functions_are_the_dispatchers_with_a_fixed_path(postgres_ledger: str) -> None:
    with psycopg.connect(postgres_ledger) as owner:
        rows = owner.execute(
            "SELECT proname, pg_get_userbyid(proowner), proconfig::text, has_function_privilege('public', oid, 'execute')"
            " FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef"
        ).fetchall()
    assert rows
    for name, function_owner, config, public in rows:
        assert name.startswith("dispatch_")
        assert function_owner == "longshore_dispatcher"
        assert "search_path=public, pg_temp" in (config or "").replace('"', ""), name
        assert not public, f"anybody may call {name}"


def test_an_unset_tenant_is_an_error_in_every_table(app: Connection) -> None:
    for name in tables(app):
        if name in (
            "books",
            "media_assets",
            "torrents",
            "tombstones",
            "audit_log",
            "audit_heads",
            "request_keys",
            "failure_counts",
        ):
            continue  # empty here: nothing to ask about
        with pytest.raises(pg.InsufficientPrivilege, match="no tenant is set"):
            app.execute(f"SELECT * FROM {name}".encode())


def test_a_tenant_that_was_set_is_gone_after_its_transaction(app: Connection) -> None:
    with app.transaction():
        app.execute("SELECT set_config('longshore.tenant', 'a', true)")
        assert app.execute("SELECT count(*) FROM jobs").fetchone() == (3,)
    with pytest.raises(pg.InsufficientPrivilege):
        app.execute("SELECT count(*) FROM jobs")


def test_other_tenants_rows_are_invisible_and_unwritable(app: Connection, filled: str) -> None:
    with psycopg.connect(filled, autocommit=True) as superuser:
        before = {
            name: superuser.execute(f"SELECT * FROM {name} ORDER BY 1, 2, 3".encode()).fetchall()
            for name in tables(app)
        }
        for name in tables(app):
            with app.transaction():
                app.execute("SELECT set_config('longshore.tenant', 'a', true)")
                assert app.execute(f"SELECT count(*) FROM {name} WHERE tenant_id <> 'a'".encode()).fetchone() == (0,)
                if name.startswith("audit_"):
                    continue  # nobody may delete or update there at all, as another test shows
                assert app.execute(f"DELETE FROM {name} WHERE tenant_id = 'b'".encode()).rowcount == 0
                assert (
                    app.execute(f"UPDATE {name} SET tenant_id = tenant_id WHERE tenant_id = 'b'".encode()).rowcount == 0
                )
        after = {
            name: superuser.execute(f"SELECT * FROM {name} ORDER BY 1, 2, 3".encode()).fetchall()
            for name in tables(app)
        }
    assert after == before


def test_a_row_cannot_be_written_for_another_tenant(app: Connection) -> None:
    with pytest.raises(pg.InsufficientPrivilege, match="row-level security"), app.transaction():
        app.execute("SELECT set_config('longshore.tenant', 'a', true)")
        app.execute("INSERT INTO counters (tenant_id, project_id, status, slot, n) VALUES ('b', 'p', 'failed', 99, 5)")
    with pytest.raises(pg.InsufficientPrivilege, match="row-level security"), app.transaction():
        app.execute("SELECT set_config('longshore.tenant', 'a', true)")
        app.execute("UPDATE counters SET tenant_id = 'b'")


def test_views_show_a_tenant_its_own(app: Connection) -> None:
    for name, count in (("artifact_jobs", 3), ("artifact_ops", 1), ("download_jobs", 0)):
        with app.transaction():
            app.execute("SELECT set_config('longshore.tenant', 'a', true)")
            assert app.execute(f"SELECT count(*) FROM {name}".encode()).fetchone() == (count,)


def test_the_application_cannot_change_the_schema_or_history(app: Connection) -> None:
    for statement in (
        "CREATE TABLE mine (x int)",
        "DROP TABLE jobs",
        "ALTER TABLE jobs DISABLE ROW LEVEL SECURITY",
        "INSERT INTO stage_moves VALUES ('download', 'INDEXED', 'PLANNED')",
        "UPDATE _migrations SET checksum = ''",
        "CREATE FUNCTION pg_temp.x() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE POLICY open ON jobs USING (true)",
    ):
        with pytest.raises(psycopg.Error), app.transaction():
            app.execute(statement.encode())


def counts_of_b_as_a(tx: Tx) -> list[Any]:
    tx.enter("a")
    return tx.all("counts", tenant_id="b", project_id="p")


def test_a_superusers_login_is_held_by_the_policies_too(filled: str) -> None:
    backend = Postgres(filled)
    try:
        with pytest.raises(NotPermitted, match="tenant"):
            backend.read(lambda tx: tx.all("job_row", tenant_id="a", project_id="p", job_id="x"))
        assert backend.read(counts_of_b_as_a) == []
    finally:
        backend.close()


def test_a_workers_login_cannot_write_tokens_or_change_the_audit_log(filled: str, app: Connection) -> None:
    with Ledger.open(filled) as service:
        service.write(tokens.create_token, A, ["admin"])
        service.write(audit_log.audit, A, audit_log.NewEntry("t", "post", "/x", "127.0.0.1"))
    app.execute("SELECT set_config('longshore.tenant', 'a', false)")
    for statement in (
        "SELECT * FROM tokens",
        "INSERT INTO tokens SELECT * FROM tokens",
        "UPDATE tokens SET revoked_at = NULL",
        "DELETE FROM tokens",
        "UPDATE audit_log SET target = 'x'",
        "DELETE FROM audit_log",
        "INSERT INTO audit_log (tenant_id, project_id, at, action, number, hash) VALUES ('a', 'p', 1, 'forged', 2, '')",
        "UPDATE audit_heads SET number = 0",
        "DELETE FROM audit_heads",
        "SELECT dispatch_audit_forget('a', 'p', 9000000000000000000, 10)",
        "SELECT dispatch_audit_append('b', 'p', 1, 't', 'forged', 'x', '{}', '')",
    ):
        with pytest.raises(pg.InsufficientPrivilege):
            app.execute(statement.encode())
    app.execute("SELECT dispatch_audit_append('a', 'p', 1, 'command line', 'cancel', 'x', '{}', 'local')")
    assert app.execute("SELECT login FROM audit_log ORDER BY number DESC LIMIT 1").fetchone() == ("postgres",)
    with Ledger.open(filled) as service:
        assert not service.read(audit_log.check_chain, A).broken


def test_the_service_cannot_change_the_audit_log_either(filled: str) -> None:
    with Ledger.open(filled) as service:
        service.write(audit_log.audit, A, audit_log.NewEntry("t", "post", "/x", "127.0.0.1"))
    with psycopg.connect(filled, autocommit=True) as connection:
        connection.execute("SET ROLE longshore_service")
        connection.execute("SELECT set_config('longshore.tenant', 'a', false)")
        for statement in (
            "UPDATE audit_log SET target = 'x'",
            "DELETE FROM audit_log",
            "UPDATE audit_heads SET number = 0",
        ):
            with pytest.raises(pg.InsufficientPrivilege):
                connection.execute(statement.encode())


@pytest.fixture
def logins(postgres_cluster: Cluster) -> Iterator[tuple[str, str]]:
    """An owner that may make roles and is nothing more, and a login for workers."""
    postgres_cluster.template("ledger", build_template)  # the roles exist: made by somebody else
    postgres_cluster.execute("DROP ROLE IF EXISTS plain_owner, plain_worker, plain_nobody")
    postgres_cluster.execute("CREATE ROLE plain_owner LOGIN CREATEROLE NOBYPASSRLS; ")
    postgres_cluster.execute("CREATE ROLE plain_worker LOGIN NOBYPASSRLS IN ROLE longshore_app")
    postgres_cluster.execute("CREATE ROLE plain_nobody LOGIN")
    name = postgres_cluster.create()
    postgres_cluster.execute(f'ALTER DATABASE "{name}" OWNER TO plain_owner')
    postgres_cluster.execute("ALTER SCHEMA public OWNER TO plain_owner", database=name)
    yield postgres_cluster.dsn(name, user="plain_owner"), postgres_cluster.dsn(name, user="plain_worker")
    postgres_cluster.drop(name)
    postgres_cluster.execute("DROP ROLE plain_owner, plain_worker, plain_nobody")


def test_three_logins_owner_worker_and_nobody(logins: tuple[str, str]) -> None:
    owner, worker = logins
    with Ledger.open(owner, create=True) as ledger:
        ledger.plan(A, [download_request("https://a.example/1")])
    with Ledger.open(worker, create=True) as ledger:
        ledger.plan(B, [download_request("https://b.example/1")])
        leases = ledger.claim("w", limit=5, ttl_s=60)
        assert {lease.scope for lease in leases} == {A, B}, "claim sees all tenants"
        assert sum(ledger.counts(A).values()) == 1
        with pytest.raises(NotPermitted, match="tokens"):
            ledger.write(tokens.create_token, A, ["admin"])
    with psycopg.connect(worker, autocommit=True) as connection:
        for role in ("longshore_dispatcher", "longshore_service", "plain_owner"):
            with pytest.raises(pg.InsufficientPrivilege):
                connection.execute(f"SET ROLE {role}".encode())
    with psycopg.connect(owner, autocommit=True) as connection, pytest.raises(pg.InsufficientPrivilege):
        connection.execute("SELECT * FROM jobs")  # FORCE: the owner is no exception
    with (
        pytest.raises(NotPermitted, match="permission denied for database"),  # it may not even connect
        Ledger.open(owner.replace("plain_owner", "plain_nobody")) as ledger,
    ):
        ledger.counts(A)
