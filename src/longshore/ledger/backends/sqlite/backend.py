"""The SQLite backend: one writer thread with group commit, separate readers, processes queued by a lock file.

Problem: SQLite has one writer at a time, a durable commit costs an fsync, and its busy handler sleeps and polls: with
several processes some of them starve. The ledger must acknowledge only what survives a power cut.

Invariant: a future of `submit` is resolved after COMMIT has returned with synchronous=FULL. Operations of one group share
the commit and nothing else: each runs in its own savepoint, and what one raises undoes only its own writes. All operations
of a group see one time (`tx.now`).

Order: operations queue in memory; the writer thread takes up to 64, takes the lock file (`writer_lock`, which queues the
processes fairly), then BEGIN IMMEDIATE, the operations, COMMIT, releases the lock file and resolves the futures. Between
BEGIN and COMMIT nothing waits: the operations do no I/O but their statements. Reads run in the caller's thread on their
own connections; in WAL mode they see a snapshot and neither wait for the writer nor delay it.

`give_up` fails what has not begun, so that a run can end while another process holds the ledger; what has begun is
finished.

Not done: a connection per thread with the busy handler alone (starvation, and one fsync per operation), synchronous=NORMAL
(a power cut loses acknowledged commits), and one shared connection for reads and writes (a long list would hold up claims).
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from longshore import failpoints
from longshore.domain.identity.logins import NO_LOGINS, Logins
from longshore.domain.model import Micros
from longshore.domain.policy.tenant_budgets import NO_BUDGET, Budget
from longshore.errors import LongshoreError, Unavailable
from longshore.ledger.backends.sqlite import writer_lock
from longshore.ledger.backends.sqlite.connection import HELD, connect, translated, wall_clock
from longshore.ledger.statements import Dialect, Statement, statements
from longshore.ledger.transaction import NO_HOOKS, Row, Tx

T = TypeVar("T")
log = logging.getLogger(__name__)
GROUP: Final = 64  # verbs that may share one commit
BLOCKS: Final = (256, 64, 16)  # rows of an insert or update that are one step: see _in_blocks

BUSY_S: Final = 60.0  # how long a transaction of another program is waited for
SAY_S: Final = 2.0  # a wait longer than this is reported
HURRY_S: Final = 30.0  # for so long after giving up nothing waits for its turn
CLOSE_S: Final = 5.0  # how long the end of what is queued is waited for

failpoints.declare("ledger.begin", "ledger.commit", "ledger.committed")


class SqliteTx:
    """Named statements on one connection inside one transaction."""

    dialect: Dialect = "sqlite"
    __slots__ = ("_cursor", "_statements", "budget", "hooks", "logins", "now")

    def __init__(
        self,
        connection: apsw.Connection,
        now: Micros,
        budget: Budget = NO_BUDGET,
        logins: Logins = NO_LOGINS,
        hooks: Mapping[str, Any] = NO_HOOKS,
    ) -> None:
        self._cursor = connection.cursor()
        self._statements: dict[str, Statement] = statements("sqlite")
        self.now, self.budget, self.logins, self.hooks = now, budget, logins, hooks

    def enter(self, tenant_id: str) -> None:
        """Do nothing: on SQLite a tenant is a namespace that the statements keep."""

    def all(self, name: str, **params: Any) -> list[Row]:
        """Run a statement and give its rows."""
        return self._fetched(self._cursor.execute(self._statements[name].text, params))

    def one(self, name: str, **params: Any) -> Row | None:
        """Run a statement and give its first row."""
        rows = self._fetched(self._cursor.execute(self._statements[name].text, params))
        return rows[0] if rows else None

    def run(self, name: str, **params: Any) -> int:
        """Run a statement and give the number of rows it changed."""
        before = self._cursor.connection.total_changes()
        self._fetched(self._cursor.execute(self._statements[name].text, params))
        return self._cursor.connection.total_changes() - before

    def many(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run a statement once per row and give all rows that came back."""
        if not rows:
            return []
        statement = self._statements[name]
        if statement.block is not None and len(rows) >= BLOCKS[-1]:
            rows = self._in_blocks(statement, rows)
        if statement.gathered is None:
            return self._fetched(self._cursor.executemany(statement.text, rows))
        groups: dict[Row, list[Any]] = {}
        for row in rows:
            groups.setdefault(tuple([row[place] for place in statement.common]), []).append(row[statement.gathered])
        calls = [(json.dumps(items), *common) for common, items in groups.items()]
        return self._fetched(self._cursor.executemany(statement.text, calls))

    def send(self, name: str, rows: Sequence[Row]) -> None:
        """Run a statement once per row."""
        self.many(name, rows)

    def execute(self, text: str, params: dict[str, Any]) -> list[Row]:
        """Run a statement of a user's own and give its rows."""
        return self._fetched(self._cursor.execute(text, params))

    def attempt(self, call: Callable[[], object]) -> Exception | None:
        """Run a call in a savepoint; undo its writes and return its exception if it raises."""
        connection = self._cursor.connection
        connection.execute("SAVEPOINT attempt")
        try:
            call()
        except Exception as error:
            if not connection.in_transaction or isinstance(error, (apsw.FullError, apsw.IOError, apsw.CorruptError)):
                raise
            connection.execute("ROLLBACK TO attempt; RELEASE attempt")
            return error
        connection.execute("RELEASE attempt")
        return None

    def _fetched(self, cursor: apsw.Cursor) -> list[Row]:
        """Give all rows. SQLite keeps texts unread: one that is not UTF-8 is damage that its own checks may not see."""
        try:
            return cursor.fetchall()
        except UnicodeDecodeError as error:
            self._cursor.close(force=True)  # half read, it would hold its snapshot as long as the error lives
            raise apsw.CorruptError("a text in it is not UTF-8") from error

    def _in_blocks(self, statement: Statement, rows: Sequence[Row]) -> Sequence[Row]:
        """Do whole blocks of rows, each in one step; give the rows that are left over.

        The interpreter's lock is let go per step: row by row, the writer would ask for it again a thousand times while
        another thread computes. Texts stay below 16 KiB, beyond which they are not kept prepared.
        """
        width, done = len(statement.columns), 0
        for size in BLOCKS:
            if size * (2 * width + 2) > 15_000 or len(rows) - done < size:
                continue
            text = _block_text(statement, size)
            while len(rows) - done >= size:
                self._cursor.execute(text, tuple(chain.from_iterable(rows[done : done + size])))
                done += size
        return rows[done:]


@cache
def _block_text(statement: Statement, size: int) -> str:
    row = f"({','.join('?' * len(statement.columns))})"
    return (statement.block or "").format(rows=",".join([row] * size))


class _Call:
    __slots__ = ("error", "future", "result", "verb")

    def __init__(self, verb: Callable[[Tx], Any]) -> None:
        self.verb = verb
        self.future: Future[Any] = Future()
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self, error: BaseException | None = None) -> None:
        """Set the call's result or exception on its future."""
        if self.future.done():  # given up meanwhile
            return
        if (failure := self.error or error) is not None:
            self.future.set_exception(failure)
        else:
            self.future.set_result(self.result)


class Sqlite:
    """A ledger file."""

    dialect: Dialect = "sqlite"

    def __init__(self, path: Path, clock: Callable[[], Micros] | None = None, *, bulk: bool = False) -> None:
        self.path = path
        self._clock = clock or wall_clock
        self.budget = NO_BUDGET  # what the settings say; the depot fills it in
        self.logins = NO_LOGINS  # likewise
        self.hooks: dict[str, Any] = {}
        self.commit_seconds: Callable[[float], None] | None = None
        self._writer = connect(path, bulk=bulk)
        self._lock = os.open(lock_path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._readers: list[apsw.Connection] = []
        self._queue: deque[_Call] = deque()
        self._coming: list[_Call] = []  # wait for their turn
        self._coming_at = 0.0
        self._busy_at = 0.0  # since then another program's transaction is waited for
        self._hurried_until = 0.0
        self._writer.set_busy_handler(self._wait_busy)
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="ledger-writer", daemon=True)
        self._thread.start()

    def now(self) -> Micros:
        """Return the ledger's time."""
        return self._clock()

    def queue_length(self) -> int:
        """Return how many verbs wait for a transaction."""
        return len(self._queue)

    def submit(self, call: Callable[[Tx], T]) -> Future[T]:
        """Queue a verb for the writer thread."""
        item = _Call(call)
        with self._wake:
            if self._closed:
                raise Unavailable(f"{self.path}: the ledger is closed")
            if self._coming and self._hurried:
                item.future.set_exception(self._given_up())
            else:
                self._queue.append(item)
                self._wake.notify()
        return item.future

    def give_up(self) -> None:
        """Fail the queued calls, and for a while all calls that would have to wait. A running transaction continues."""
        with self._wake:
            self._hurried_until = time.monotonic() + HURRY_S
            waiting = [*self._coming, *self._queue]
            self._queue.clear()
            for call in waiting:
                call.settle(self._given_up())

    def silent_s(self) -> float:
        """Return how long calls have waited for a ledger that another process holds."""
        return time.monotonic() - self._coming_at if self._coming else 0.0

    @property
    def _hurried(self) -> bool:
        return time.monotonic() < self._hurried_until

    def _given_up(self) -> Unavailable:
        return Unavailable(f"{self.path}: the ledger is held by another process", hint=HELD)

    def _wait_busy(self, before: int) -> bool:
        """Busy handler: sleep briefly for another process's transaction; return False to stop waiting."""
        now = time.monotonic()
        if not before:
            self._busy_at = now
        waited = now - self._busy_at
        if waited > BUSY_S or self._hurried or (self._closed and waited > CLOSE_S):
            return False
        pause = min(0.001 * 2 ** min(before, 6), 0.05)
        if waited < SAY_S <= waited + pause:
            log.warning("%s: another program is in a transaction on the ledger, and is waited for", self.path)
        time.sleep(pause)
        return True

    def read(self, call: Callable[[Tx], T]) -> T:
        """Run a verb on a snapshot, in the caller's thread."""
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = connect(self.path, readonly=True)
        try:
            connection.execute("BEGIN")
            try:
                return call(SqliteTx(connection, self.now(), self.budget, self.logins))
            finally:
                connection.execute("COMMIT" if connection.in_transaction else "SELECT 1")
        except apsw.Error as error:
            raise translated(error, self.path) from error
        finally:
            if self._closed:
                connection.close()
            else:
                self._readers.append(connection)

    def close(self) -> None:
        """Finish what is queued, then close every connection."""
        with self._wake:
            already, self._closed = self._closed, True
            self._wake.notify()
        if already:
            return
        self._thread.join(1.0 if self._hurried else None)
        while self._readers:
            self._readers.pop().close()
        if not self._thread.is_alive():  # otherwise it waits for a process that stands still, and ends with ours
            os.close(self._lock)

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._queue and not self._closed:
                    self._wake.wait()
                if not self._queue:
                    break
                group = [self._queue.popleft() for _ in range(min(GROUP, len(self._queue)))]
                group = [call for call in group if call.future.set_running_or_notify_cancel()]
                self._coming, self._coming_at = group, time.monotonic()
            if group:
                self._commit(group)
        self._writer.close()

    def _commit(self, group: list[_Call]) -> None:
        """Run a group in one transaction: each verb in a savepoint of its own, one commit for all."""
        failure: LongshoreError | None = None
        try:
            writer_lock.acquire(self._lock, self.path)
            try:
                self._transact(group)
            finally:
                writer_lock.release(self._lock)
            failpoints.hit("ledger.committed")
        except (apsw.Error, OSError) as error:
            failure = translated(error, self.path)
            failure.__cause__ = error
        with self._wake:
            self._coming = []
        for call in group:
            call.settle(failure)

    def _transact(self, group: list[_Call]) -> None:
        writer = self._writer
        failpoints.hit("ledger.begin")
        writer.execute("BEGIN IMMEDIATE")
        with self._wake:  # the write lock is held: calls can no longer be abandoned, and abandoned ones are dropped
            group, self._coming = [call for call in group if not call.future.done()], []
        try:
            tx = SqliteTx(writer, self.now(), self.budget, self.logins, self.hooks)
            for call in group:
                self._attempt(call, tx, alone=len(group) == 1)
            started = time.perf_counter()
            failpoints.hit("ledger.commit")
            writer.execute("COMMIT")
            if self.commit_seconds is not None:
                self.commit_seconds(time.perf_counter() - started)
        finally:
            if writer.in_transaction:
                writer.execute("ROLLBACK")

    def _attempt(self, call: _Call, tx: SqliteTx, *, alone: bool) -> None:
        """Run one verb; what it raises undoes its own writes only."""
        writer = self._writer
        if not alone:
            writer.execute("SAVEPOINT verb")
        try:
            call.result = call.verb(tx)
        except BaseException as error:  # re-raised in the caller
            call.error = error if not isinstance(error, apsw.Error) else translated(error, self.path)
            if call.error is not error:
                call.error.__cause__ = error
            if not writer.in_transaction:  # SQLite rolled back the whole transaction, with the writes of every call
                raise
            if alone:
                writer.execute("ROLLBACK; BEGIN IMMEDIATE")
            else:
                writer.execute("ROLLBACK TO verb")
        if not alone:
            writer.execute("RELEASE verb")


def lock_path(path: Path) -> Path:
    """Return the file whose lock queues the processes."""
    return path.with_name(path.name + ".lock")
