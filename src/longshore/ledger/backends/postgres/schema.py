"""The schema of a PostgreSQL ledger: made, checked, migrated and compared, always by the owner's login.

The application's role may read the version and nothing more of this. Each step is one transaction with its version row,
under an advisory lock, so that two programs that start at once make one ledger.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import errors as pg

from longshore import failpoints
from longshore.errors import Damaged, NoDepot, NotPermitted, SchemaMismatch, Unavailable
from longshore.ledger.backends.postgres.backend import translated
from longshore.ledger.backends.postgres.connections import Connection, connect, first_line, is_lost
from longshore.ledger.backends.postgres.silence import Silence
from longshore.ledger.migrate import FOLDER, check_version, current_version, migrations
from longshore.ledger.statements import statements

OLDEST: Final = 150_000  # security_invoker views; older ones would let a view see all tenants
_LOCK: Final = 0x10AD5
_DATABASE: Final = re.compile(r'database "([^"]*)" does not exist')
_SCRATCH: Final = "longshore_wanted"
# Long steps on a big ledger are the owner's business.
_OWNER: Final = {"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}
_UP: Final = "check the address and that the server is up"
_SPACE: Final = re.compile(r"\s+")

failpoints.declare("schema.migrate")


def create_postgres(url: str) -> None:
    """Make a new ledger in an existing, empty database; leave an existing one as it is."""
    with _connected(url, as_owner=False) as connection:
        if version_of(connection):
            return
    with _connected(url) as connection, _locked(connection):
        if version_of(connection) == 0:
            apply(connection)
            _prime(connection)


def _prime(connection: Connection) -> None:
    """Seed the planner statistics of a new ledger."""
    text = (FOLDER / "postgres" / "prime.sql").read_text(encoding="utf-8")
    with connection.transaction():
        _fix_search_path(connection)
        connection.execute(text.encode(), prepare=False)


def check_postgres(url: str) -> None:
    """Raise unless the database holds a ledger with this program's schema version."""
    with _connected(url, as_owner=False) as connection:
        have = version_of(connection)
        if have == 0:
            name = connection.info.dbname
            raise NoDepot(
                f"no ledger found in the database {name!r}", hint="`longshore migrate` makes its schema there"
            )
        check_version(have, "postgres", f"the ledger in {connection.info.dbname!r}")
        connection.execute("SELECT dispatch_rebase_events()")  # of a ledger that was restored on another server


def migrate_postgres(url: str) -> list[int]:
    """Bring a ledger up to date, or make one in a database without; return the versions that were applied."""
    with _connected(url) as connection, _locked(connection):
        have = version_of(connection)
        if have == 0:
            applied = apply(connection)
            _prime(connection)
            return applied
        if have > current_version("postgres"):
            check_version(have, "postgres", f"the ledger in {connection.info.dbname!r}")
        return apply(connection)


def _sql(name: str) -> str:
    return statements("postgres")[name].text


def version_of(connection: Connection) -> int:
    """Read the version of a ledger; 0 when there is none in the database."""
    row = connection.execute(_sql("has_meta")).fetchone()
    if not (row and row[0]):
        return 0
    row = connection.execute(_sql("meta_value"), {"key": "schema_version"}).fetchone()
    if row is None or not str(row[0]).isdigit():
        raise Damaged("the ledger does not say which schema it has")
    return int(row[0])


def apply(connection: Connection) -> list[int]:
    """Apply what is missing, each step in one transaction with its version row."""
    done = []
    for step in migrations("postgres")[version_of(connection) :]:
        with connection.transaction():
            _fix_search_path(connection)
            connection.execute(step.text.encode(), prepare=False)
            done_step = {"version": step.version, "name": step.name, "checksum": step.checksum}
            connection.execute(_sql("migration_put"), done_step)
            connection.execute(_sql("meta_put"), {"key": "schema_version", "value": str(step.version)})
            failpoints.hit("schema.migrate")
        done.append(step.version)
    return done


def _fix_search_path(connection: Connection) -> None:
    """Functions that run with the dispatcher's rights keep this path: nothing of a caller's own can stand in front."""
    connection.execute("SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)")


def drift_postgres(url: str) -> list[str]:
    """Return what differs from the schema that the migrations make; they are tried in a scratch schema, rolled back."""
    with _connected(url) as connection, _locked(connection):
        version = version_of(connection)
        steps = migrations("postgres")[:version]
        here = _one(connection, "SELECT current_schema()")
        have = _objects(connection, here)
        sums = dict(connection.execute(_sql("migration_checksums")).fetchall())
        with connection.transaction(force_rollback=True):
            connection.execute(f"CREATE SCHEMA {_SCRATCH}")
            connection.execute(f"SET LOCAL search_path = {_SCRATCH}, pg_temp")
            for step in steps:
                connection.execute(step.text.encode(), prepare=False)
            need = _objects(connection, _SCRATCH)
    found = [f"{name} is missing" for name in sorted(need.keys() - have.keys())]
    found += [f"{name} is not ours" for name in sorted(have.keys() - need.keys())]
    found += [f"{name} differs" for name in sorted(need.keys() & have.keys()) if need[name] != have[name]]
    found += [
        f"migration {step.version:04} {step.name} is not the one that was applied"
        for step in steps
        if sums.get(step.version) != step.checksum
    ]
    return found


def _objects(connection: Connection, schema: str) -> dict[str, str]:
    with connection.transaction():
        connection.execute("SELECT set_config('search_path', %s, true)", (schema,))
        rows = connection.execute(_sql("schema_objects"), {"schema": schema}).fetchall()
    bare = re.compile(rf"\b{re.escape(schema)}\.|(?<=search_path TO )'{re.escape(schema)}'")
    return {str(name): _SPACE.sub(" ", bare.sub("", str(text))) for name, text in rows}


def _one(connection: Connection, text: str) -> Any:
    row = connection.execute(text.encode()).fetchone()
    return row[0] if row else None


@contextmanager
def _connected(url: str, *, as_owner: bool = True) -> Iterator[Connection]:
    """Yield a connection for the schema, and raise our errors. Steps of the owner may take as long as they need."""
    try:
        with _opened(url, as_owner=as_owner) as connection:
            if connection.info.server_version < OLDEST:
                raise SchemaMismatch("the ledger needs PostgreSQL 15 or newer")
            if (encoding := _one(connection, "SHOW server_encoding")) != "UTF8":
                raise SchemaMismatch(f"the ledger needs a database in UTF8, not {encoding}")
            yield connection
    except pg.InsufficientPrivilege as error:
        raise NotPermitted(
            f"this login may not do that with the ledger: {first_line(error)}",
            hint="to work with it: GRANT longshore_app TO the login; to make or change it: connect as the owner,"
            " who needs CREATEROLE once",
        ) from error
    except psycopg.Error as error:
        if not is_lost(error):
            raise translated(error) from error
        raise Unavailable(f"PostgreSQL went away: {first_line(error)}", hint=_UP) from error


def _opened(url: str, *, as_owner: bool) -> contextlib.closing[Connection]:
    try:
        if as_owner:
            return contextlib.closing(connect(url, settings=_OWNER, silence=Silence(None)))
        return contextlib.closing(connect(url))
    except psycopg.OperationalError as error:
        if match := _DATABASE.search(str(error)):
            raise NoDepot(
                f"the database {match[1]!r} does not exist", hint=f"create it with `createdb {match[1]}`"
            ) from None
        raise Unavailable(f"PostgreSQL cannot be reached: {first_line(error)}", hint=_UP) from None


class _locked:  # noqa: N801 - reads as a with-block
    """One program at a time makes or changes the schema."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))

    def __exit__(self, *_: object) -> None:
        if not self._connection.closed:
            self._connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """What the server says about the login of a ledger and its tables."""

    role: str
    server_version: str
    bypasses: bool  # it is not bound by row-level security
    tables: int
    forced: int  # tables with forced row-level security
    without_policy: list[str]
    open_to_all: bool  # everybody with a login may connect


def role_facts(url: str) -> RoleFacts:
    """Ask the server what the login may do, and which tables a tenant policy protects."""
    with psycopg.connect(url, connect_timeout=5) as connection:
        role, superuser, bypasses, version, open_to_all = connection.execute(_sql("role_facts")).fetchall()[0]
        tables = connection.execute(_sql("tables_with_policy")).fetchall()
    return RoleFacts(
        role=role,
        server_version=version,
        bypasses=superuser or bypasses,
        tables=len(tables),
        forced=sum(forced for _, forced, _ in tables),
        without_policy=[name for name, _, protected in tables if not protected],
        open_to_all=bool(open_to_all),
    )
