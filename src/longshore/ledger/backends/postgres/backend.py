"""The PostgreSQL backend: pooled connections, and transactions that are run again when the server asks for it or goes away.

Problem: many processes on many machines write at once, the server may end any transaction (deadlock, serialization,
failover, a lost connection), and the answer to a COMMIT may be lost although it took place.

Invariant: an operation takes effect exactly once or raises. Isolation is READ COMMITTED: every write is fenced or
idempotent, and what is read in order to be written is locked, so no transaction relies on an unlocked read. A COMMIT whose
answer is lost is looked up by a number that the transaction itself left in `commits`, never guessed (ADR 0018). Sessions
run as the role `longshore_service` or `longshore_app`, so row-level security holds even if the owner's login is configured.

Order: BEGIN and the question for the server's clock are sent with the first statement; `enter` names the tenant before its
rows are touched; the statements for many rows take arrays, one round trip for the whole batch; what only writes is sent
without waiting (`send`), up to the COMMIT, so that a verb costs as many round trips as it has questions; rows are locked in the order of `seq`, so that two batches
cannot wait for each other; then COMMIT. What must see all tenants (lanes, expiry, totals) goes through the functions of
the dispatcher role.

Statements are written for their index, and the planner's alternatives are switched off for the session: after a bulk
load the statistics are wrong for minutes, and one sequential scan per claim would stop every worker.

Not done: SERIALIZABLE (claims of different hosts would conflict on the same index pages), LISTEN/NOTIFY as the queue
itself (notifications are lost with the connection; they only wake workers), and one connection per worker task.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any, Final, Self, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.types.numeric import Int8Dumper

from longshore import failpoints
from longshore.domain.identity.logins import NO_LOGINS, Logins
from longshore.domain.model import Micros
from longshore.domain.policy.tenant_budgets import NO_BUDGET, Budget
from longshore.errors import (
    BadInput,
    Conflict,
    InvalidTransition,
    LeaseLost,
    LongshoreError,
    NotPermitted,
    SchemaMismatch,
    Unavailable,
)
from longshore.ledger.backends.postgres.connections import (
    AGAIN,
    Connection,
    InDoubt,
    Pool,
    Session,
    connect,
    first_line,
    is_lost,
)
from longshore.ledger.backends.postgres.listener import Listener
from longshore.ledger.backends.postgres.silence import SILENCE_S, Silence
from longshore.ledger.statements import Dialect, Statement, statements
from longshore.ledger.transaction import NO_HOOKS, Row, Tx

T = TypeVar("T")
APP_ROLE: Final = "longshore_app"  # of workers
# The service and the command line write tokens, too; a login that may not do that is a worker's.
_ROLE: Final = (
    "SELECT set_config('role', coalesce((SELECT rolname FROM pg_catalog.pg_roles WHERE rolname = 'longshore_service'"
    f" AND pg_catalog.pg_has_role(oid, 'MEMBER')), '{APP_ROLE}'), false)"
)
POOL: Final = 8
PATIENCE_S: Final = 60.0  # how long a transaction waits for a server that went away
CONFLICTS: Final = 30  # how often a transaction is run again because of others
# Every statement is written for its index: no statistics, old or missing, may talk the planner into reading a table.
_PLANS: Final = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}
_LEADER: Final = 0x10AD6
_CLOCK: Final = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
_ENTER: Final = Statement("enter", "SELECT set_config('longshore.tenant', %(tenant_id)s, true)", ("tenant_id",))
_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

failpoints.declare("ledger.begin", "ledger.commit", "ledger.committed")


class _BoolDumper(Dumper):
    """Flags are 0 and 1 in both dialects."""

    oid = Int8Dumper.oid

    def dump(self, obj: bool) -> Buffer:
        return b"1" if obj else b"0"


class _NumericLoader(Loader):
    """Sums of whole numbers are whole numbers."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text else int(text)


class _Lost(Exception):
    """The connection went away before COMMIT was sent: nothing was written."""


class PostgresTx:
    """Named statements on one connection inside one transaction, in pipeline mode.

    A statement is waited for only where its rows or their number are asked for: the name of the tenant, all writes whose
    result nobody reads, and the clock cost no round trip of their own. They leave together with the next question or the
    COMMIT, not before: in between the server counts the session as idle, and ends it if this machine stands still.
    """

    dialect: Dialect = "postgres"
    __slots__ = ("_begun", "_connection", "_later", "_pipeline", "_statements", "_tenant", "budget", "hooks", "logins")

    def __init__(
        self,
        connection: Connection,
        pipeline: psycopg.Pipeline,
        begun: Begun,
        budget: Budget = NO_BUDGET,
        logins: Logins = NO_LOGINS,
        hooks: Mapping[str, Any] = NO_HOOKS,
    ) -> None:
        self._connection, self._pipeline, self._begun = connection, pipeline, begun
        self._statements: dict[str, Statement] = statements("postgres")
        self._tenant: str | None = None
        self._later: list[tuple[Statement, Sequence[Row]]] = []
        self.budget, self.logins, self.hooks = budget, logins, hooks

    @property
    def now(self) -> Micros:
        """The time of the transaction."""
        if self._begun.at is None and not self._begun.is_here:
            self._pipeline.sync()
        return self._begun.at if self._begun.at is not None else self._begun.read()

    def enter(self, tenant_id: str) -> None:
        """Set the tenant for the following statements; row-level security rejects statements without one."""
        if tenant_id != self._tenant:
            self._later.append((_ENTER, [(tenant_id,)]))
            self._tenant = tenant_id

    def _ended(self, name: str, params: Mapping[str, Any]) -> psycopg.Cursor[Any]:
        """Run a statement, and wait for it and all before."""
        self.flush()
        cursor = self._connection.execute(self._statements[name].text, params)
        self._pipeline.sync()
        return cursor

    def all(self, name: str, **params: Any) -> list[Row]:
        """Run a statement and give its rows."""
        cursor = self._ended(name, params)
        return cursor.fetchall() if cursor.description else []

    def one(self, name: str, **params: Any) -> Row | None:
        """Run a statement and give its first row."""
        cursor = self._ended(name, params)
        return cursor.fetchone() if cursor.description else None

    def run(self, name: str, **params: Any) -> int:
        """Run a statement and give the number of rows it changed."""
        return max(self._ended(name, params).rowcount, 0)

    def many(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run a statement for every row and give all rows that came back.

        A text with arrays takes the columns whole, all rows at once; any other is sent row by row, pipelined.
        """
        if not rows:
            return []
        statement = self._statements[name]
        if "[]" in statement.text:
            cursor = self._ended(name, _columns(statement, rows))
            return cursor.fetchall() if cursor.description else []
        self.flush()
        cursor = self._connection.cursor()
        cursor.executemany(statement.text, _rows(statement, rows), returning=True)
        found: list[Row] = []
        while True:
            if cursor.description:
                found += cursor.fetchall()
            if not cursor.nextset():
                return found

    def send(self, name: str, rows: Sequence[Row]) -> None:
        """Run a statement for every row without waiting for its end."""
        if rows:
            self._later.append((self._statements[name], rows))

    def flush(self) -> None:
        """Hand what was sent to the connection."""
        later, self._later = self._later, []
        for statement, rows in later:
            if "[]" in statement.text:
                self._connection.execute(statement.text, _columns(statement, rows))
            else:
                self._connection.cursor().executemany(statement.text, _rows(statement, rows))

    def execute(self, text: str, params: dict[str, Any]) -> list[Row]:
        """Run a statement of a user's own and give its rows."""
        self.flush()
        cursor = self._connection.execute(text.encode(), params)
        self._pipeline.sync()
        return cursor.fetchall() if cursor.description else []

    def attempt(self, call: Callable[[], object]) -> Exception | None:
        """Run a call in a savepoint; undo its writes and return its exception if it raises."""
        self.flush()
        self._connection.execute("SAVEPOINT attempt", prepare=False)
        try:
            call()
            self.flush()
            self._pipeline.sync()
        except Exception as error:
            if isinstance(error, psycopg.Error) and (isinstance(error, AGAIN) or is_lost(error)):
                raise
            self._later.clear()
            with suppress(psycopg.Error):  # what was sent after the error
                self._pipeline.sync()
            self._connection.execute("ROLLBACK TO attempt", prepare=False)
            self._pipeline.sync()
            return error
        return None


def _columns(statement: Statement, rows: Sequence[Row]) -> dict[str, list[Any]]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return dict(zip(statement.columns, columns, strict=True))


def _rows(statement: Statement, rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [dict(zip(statement.columns, row, strict=True)) for row in rows]


class Begun:
    """The server's time at the begin of a transaction: asked for at once, read when it is needed."""

    __slots__ = ("_asked", "_sent_at", "ahead", "at")

    def __init__(self, connection: Connection, clock: Callable[[], Micros] | None) -> None:
        self._asked = connection.execute(_CLOCK)
        self._sent_at = _uptime()
        self.at: Micros | None = clock() if clock else None
        self.ahead: Micros | None = None  # the server's clock minus this machine's; the error is below one round trip

    @property
    def is_here(self) -> bool:
        """Return whether the server's answer has come."""
        return self._asked.pgresult is not None

    def read(self) -> Micros:
        """Return the time of the transaction; the server's answer has come."""
        if self.ahead is None:
            (server,) = self._asked.fetchone() or (0,)
            self.ahead = server - self._sent_at
            self.at = server if self.at is None else self.at
        return self.at or 0


class Postgres:
    """A ledger in a database."""

    dialect: Dialect = "postgres"

    def __init__(
        self,
        url: str,
        clock: Callable[[], Micros] | None = None,
        *,
        size: int = POOL,
        patience_s: float = PATIENCE_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.url = url
        self._clock = clock
        self._patience_s = patience_s
        self.budget = NO_BUDGET  # what the settings say; the depot fills it in
        self.logins = NO_LOGINS  # likewise
        self.hooks: dict[str, Any] = {}
        self.commit_seconds: Callable[[float], None] | None = None
        self._waiting = 0
        self._silence = Silence(silence_s)
        self._clock_ahead: Micros | None = None  # the server's clock minus this machine's, at the last transaction
        self._pool = Pool(self._connect, size)
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="ledger-pg")
        self._listener: Listener | None = None
        self._lock = threading.Lock()
        self._closed = False

    def _connect(self) -> Connection:
        connection = connect(self.url, settings=_PLANS, silence=self._silence)
        try:
            adopt_role(connection)
        except BaseException:
            connection.close()
            raise
        for kind, dumper in ((int, Int8Dumper), (bool, _BoolDumper)):
            connection.adapters.register_dumper(kind, dumper)
        connection.adapters.register_loader("numeric", _NumericLoader)
        connection.prepare_threshold = 2
        connection.prepared_max = 400
        return connection

    def now(self) -> Micros:
        """Return the ledger's time: the server's, unless a test has its own.

        After the first transaction the server is not asked: the event loop calls this, and must not wait.
        """
        if self._clock is not None:
            return self._clock()
        if self._clock_ahead is not None:
            return _uptime() + self._clock_ahead
        return self._run(lambda tx: tx.now, _READ)

    def queue_length(self) -> int:
        """Return how many verbs wait for a transaction."""
        return self._waiting

    def give_up(self) -> None:
        """Fail the calls that wait for a silent server, and for a while all that would have to wait."""
        self._silence.give_up()

    def silent_s(self) -> float:
        """Return how long the oldest call has waited for the server."""
        return self._silence.longest_s()

    def submit(self, call: Callable[[Tx], T]) -> Future[T]:
        """Queue a verb for a transaction of its own in a thread of the pool."""
        with self._lock:
            if self._closed:
                raise Unavailable("the ledger is closed")
            self._waiting += 1
            return self._threads.submit(self._work, call)

    def _work(self, call: Callable[[Tx], T]) -> T:
        with self._lock:
            self._waiting -= 1
        return self._run(call, _WRITE)

    def read(self, call: Callable[[Tx], T]) -> T:
        """Run a verb on a snapshot, in the caller's thread."""
        return self._run(call, _READ)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` from another thread whenever some process made work ready; give what ends that."""
        with self._lock:
            if self._listener is None:
                self._listener = Listener(self._connect)
            return self._listener.add(wake)

    @contextmanager
    def leading(self) -> Iterator[bool]:
        """Try to become the leader of all processes on this ledger for the block; yield whether that succeeded."""
        try:
            connection = self._connect()
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", (_LEADER,)).fetchone()
        except psycopg.Error as error:
            raise translated(error) from error
        mine = bool(row and row[0])
        with closing(connection):
            yield mine
            if mine:  # explicitly: the server may notice the close too late for the next process
                with suppress(psycopg.Error):  # the lock ends with a lost connection
                    connection.execute("SELECT pg_advisory_unlock(%s)", (_LEADER,))

    def close(self) -> None:
        """Finish what is queued, then close every connection."""
        with self._lock:
            already, self._closed = self._closed, True
        if already:
            return
        self._threads.shutdown(wait=True)
        self._silence.give_up()
        if self._listener is not None:
            self._listener.close()
        self._pool.close()

    def _run(self, call: Callable[[Tx], T], begin: str) -> T:
        """Run a verb until it commits or fails permanently; retry on serialization conflicts and lost connections."""
        conflicts = 0
        with RetryBudget(self._patience_s, self._silence) as patience:
            while True:
                try:
                    return self._once(call, begin, patience)
                except _Lost as lost:
                    self._pool.forget()
                    why = first_line(lost.__cause__ or lost)
                    if not patience(why):
                        raise Unavailable(
                            f"PostgreSQL does not answer: {why}",
                            hint="check that the server is up; what was accepted is safe in it",
                        ) from lost.__cause__
                except (*AGAIN, pg.UniqueViolation) as error:
                    conflicts += 1
                    if conflicts > (3 if isinstance(error, pg.UniqueViolation) else CONFLICTS):
                        raise translated(error) from error
                    time.sleep(random.random() * min(0.2, 0.002 * 2**conflicts))

    def _once(self, call: Callable[[Tx], T], begin: str, patience: RetryBudget) -> T:
        try:
            with self._pool.session() as session:
                return self._transact(session, call, begin, patience)
        except LongshoreError:
            raise
        except psycopg.Error as error:
            if isinstance(error, (*AGAIN, pg.UniqueViolation)):
                raise
            if is_lost(error):
                raise _Lost from error
            raise translated(error) from error

    def _transact(self, session: Session, call: Callable[[Tx], T], begin: str, patience: RetryBudget) -> T:
        failpoints.hit("ledger.begin")
        started = time.perf_counter()

        def committing() -> None:
            nonlocal started
            started = time.perf_counter()
            failpoints.hit("ledger.commit")
            tx.flush()

        connection, writes = session.connection, begin is _WRITE
        try:
            with session.transaction(begin, committing if writes else None) as pipeline:
                begun = Begun(connection, self._clock)
                tx = PostgresTx(connection, pipeline, begun, self.budget, self.logins, self.hooks)
                result = call(tx)
        except InDoubt:
            connection.close()
            if not session.is_committed(self._connect, patience):
                raise _Lost("the transaction is not in the database") from None
        if begun.is_here:
            begun.read()
            self._clock_ahead = begun.ahead
        if writes:
            failpoints.hit("ledger.committed")
            if self.commit_seconds is not None:
                self.commit_seconds(time.perf_counter() - started)
        return result


def open_postgres(url: str, *, create: bool = False, clock: Callable[[], Micros] | None = None) -> Postgres:
    """Open the ledger of a database; `create` makes one where there is none. The owner's login is enough for all."""
    from longshore.ledger.backends.postgres import schema

    if create:
        schema.create_postgres(url)
    schema.check_postgres(url)
    return Postgres(url, clock)


class RetryBudget:
    """Sleeps between attempts, a little longer each time, and says when it has run out."""

    def __init__(self, seconds: float, silence: Silence | None = None) -> None:
        self._silence = silence or Silence()
        self._began = time.monotonic()
        self._end = self._began + seconds
        self._pause = 0.01

    def __call__(self, why: str) -> bool:
        """Sleep briefly and return True; return False once the deadline has passed or the process gives up."""
        if time.monotonic() >= self._end:
            return False
        pause, self._pause = self._pause * (0.5 + random.random()), min(self._pause * 2, 1.0)
        return self._silence.pause(id(self), self._began, pause, why)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._silence.ended(id(self))


def _uptime() -> Micros:
    """Return a clock of this machine that nothing sets, and that goes on while the machine is suspended."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


def adopt_role(connection: Connection) -> None:
    """Switch to the application's role, whichever login it is: the service's, or else the workers'; raise if it has neither.

    Also turn `synchronous_commit` on if the server would acknowledge a COMMIT before it is durable.
    """
    try:
        connection.execute(f"{_ROLE}; {_DURABLE}".encode())
    except (pg.InsufficientPrivilege, pg.UndefinedObject, pg.InvalidParameterValue) as error:
        raise NotPermitted(
            f"the ledger's user may not work as {APP_ROLE}: {first_line(error)}",
            hint=f"the owner of the database runs: GRANT {APP_ROLE} TO the user (`longshore migrate` makes the role)",
        ) from None


def translated(error: psycopg.Error) -> LongshoreError:
    """Return the LongshoreError for a PostgreSQL error."""
    text = first_line(error)
    if "longshore:" in text:
        return _refused(text.partition("longshore:")[2])
    match error:
        case pg.InsufficientPrivilege():
            return NotPermitted(f"the database does not allow this: {text}")
        case pg.ProgramLimitExceeded() | psycopg.DataError():
            return BadInput(f"the ledger cannot store this: {text}")
        case psycopg.IntegrityError():
            return Conflict(f"the ledger refuses this: {text}")
        case pg.UndefinedTable() | pg.UndefinedColumn() | pg.UndefinedFunction():
            return SchemaMismatch(f"the ledger's schema does not fit: {text}", hint="see `longshore doctor`")
        case _:
            return Unavailable(f"the ledger cannot be used now: {text}")


def _refused(text: str) -> LongshoreError:
    kind, _, message = text.partition(": ")
    match kind:
        case "terminal" | "invalid_transition" | "result":
            return InvalidTransition(message)
        case "lease" | "epoch":
            return LeaseLost(message)
        case "tenant" | "audit":
            return NotPermitted(message)
        case _:
            return Conflict(message)
