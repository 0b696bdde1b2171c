"""What a verb sees of the database: named statements inside one transaction, and one time for all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

from longshore.domain.identity.logins import Logins
from longshore.domain.model import Micros
from longshore.domain.policy.tenant_budgets import Budget
from longshore.ledger.statements import Dialect

T = TypeVar("T")
Row = tuple[Any, ...]
NO_HOOKS: Final[Mapping[str, Any]] = MappingProxyType({})


class Tx(Protocol):
    """One transaction. Verbs are functions that take it first."""

    @property
    def now(self) -> Micros:
        """The time of the transaction."""

    dialect: Dialect
    budget: Budget  # of a tenant of which the ledger says nothing
    logins: Logins  # the credentials that this process sends
    hooks: Mapping[str, Any]  # `user_tables.Hook` by job type

    def enter(self, tenant_id: str) -> None:
        """Set the tenant for the following statements. (On SQLite the statements alone separate tenants.)"""

    def all(self, name: str, **params: Any) -> list[Row]:
        """Run a statement and give its rows."""

    def one(self, name: str, **params: Any) -> Row | None:
        """Run a statement and give its first row."""

    def run(self, name: str, **params: Any) -> int:
        """Run a statement and give the number of rows it changed."""

    def many(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run a statement once per row and give all rows that came back."""

    def send(self, name: str, rows: Sequence[Row]) -> None:
        """Run a statement once per row without waiting for its end; its error is raised later in the transaction."""

    def execute(self, text: str, params: dict[str, Any]) -> list[Row]:
        """Run a statement of a user's own and give its rows."""

    def attempt(self, call: Callable[[], object]) -> Exception | None:
        """Run a call in a savepoint; undo its writes and return its exception if it raises.

        An exception after which the whole transaction has to be run again is raised.
        """


class Backend(Protocol):
    """One database: runs verbs in transactions."""

    dialect: Dialect
    budget: Budget
    logins: Logins
    hooks: dict[str, Any]
    commit_seconds: Callable[[float], None] | None

    def now(self) -> Micros:
        """Return the ledger's time."""

    def submit(self, call: Callable[[Tx], T]) -> Future[T]:
        """Queue a verb for a writing transaction; it may share the commit with others, never their fate."""

    def read(self, call: Callable[[Tx], T]) -> T:
        """Run a verb that only reads, on a consistent snapshot."""

    def queue_length(self) -> int:
        """Return how many verbs wait for a transaction."""

    def give_up(self) -> None:
        """Fail the calls that wait for a ledger that does not answer, and for a while all that would have to wait."""

    def silent_s(self) -> float:
        """Return how long the oldest call has waited for a ledger that does not answer; 0 if it answers."""

    def close(self) -> None:
        """Finish what is queued and let go."""
