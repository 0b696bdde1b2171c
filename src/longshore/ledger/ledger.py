"""The ledger: one class, the same verbs on SQLite and PostgreSQL.

A verb is a function `verb(tx, …)` in `operations/` or `queries/`; a method of the same name runs it in one transaction.
`write` and `write_async` run any verb, so that several can share a transaction: write a function that calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar

from longshore.domain.model import Artifact, Job, JobRequest, Lease, Micros, Planned, Scope, Status
from longshore.domain.outcomes import Outcome
from longshore.domain.places import is_address, without_login
from longshore.domain.policy.tenant_budgets import Budget, Usage
from longshore.domain.settings import HostsSettings
from longshore.errors import BadInput, LongshoreError, Unavailable
from longshore.ledger import migrate, user_tables
from longshore.ledger.backends.sqlite.backend import Sqlite
from longshore.ledger.backends.sqlite.connection import is_readonly
from longshore.ledger.backends.sqlite.readonly import ReadOnlySqlite, refusal
from longshore.ledger.operations import (
    artifact_registry,
    cancel_retry,
    effects,
    leasing,
    make_claimable,
    planning,
    repair,
    settling,
    stages,
    tenant_budgets,
)
from longshore.ledger.queries import history, listing, lookup
from longshore.ledger.queries.history import FailureGroup, Timeline
from longshore.ledger.queries.listing import ArtifactFilter, JobFilter, Page
from longshore.ledger.records import Begun, CancelResult, Intent, Move, Renewed, Settled
from longshore.ledger.transaction import Backend, Tx
from longshore.thread_pool import Threads

P = ParamSpec("P")
if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
MORE = "allow the process more threads or memory"
Verb = Callable[Concatenate[Tx, P], T]


def is_postgres(where: str | Path) -> bool:
    """Return whether a ledger's address is a PostgreSQL URL (otherwise it is a file)."""
    return isinstance(where, str) and where.startswith(("postgresql://", "postgres://"))


class Ledger:
    """Jobs, leases, effects and artifacts that survive anything."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.dialect: Literal["sqlite", "postgres"] = backend.dialect
        self._after_tenant = ""
        self._readers = Threads(2, thread_name_prefix="ledger-reader")
        self._costly = Threads(2, thread_name_prefix="ledger-search")  # searches must not delay the other reads

    @classmethod
    def open(
        cls, where: str | Path, *, create: bool = False, clock: Callable[[], Micros] | None = None, bulk: bool = False
    ) -> Ledger:
        """Open a ledger: a file, or a PostgreSQL server. `create` makes a new one; an old one is never migrated.

        `bulk`: a great deal will be written in large batches, and little else.
        """
        if is_postgres(where):
            backend = import_module("longshore.ledger.backends.postgres.backend")  # psycopg is an extra
            return cls(backend.open_postgres(str(where), create=create, clock=clock))
        if isinstance(where, str) and is_address(where):
            raise BadInput(f"a ledger is a file or postgresql://…, not {without_login(where)}")
        path = Path(where)
        if create and not path.exists():
            migrate.create_sqlite(path)
        if is_readonly(path):
            if create:  # `create` implies write access
                raise refusal(path)
            migrate.check_frozen(path)
            return cls(ReadOnlySqlite(path, clock))
        migrate.check_sqlite(path)
        return cls(Sqlite(path, clock, bulk=bulk))

    @property
    def frozen(self) -> bool:
        """Return whether it can only be read: its disk or its directory cannot be written."""
        return isinstance(self.backend, ReadOnlySqlite)

    @staticmethod
    def apply_migration(where: str | Path) -> list[int]:
        """Migrate a ledger to the current schema and return the versions that were applied; on PostgreSQL also a new one."""
        if is_postgres(where):
            applied: list[int] = import_module("longshore.ledger.backends.postgres.schema").migrate_postgres(str(where))
            return applied
        return migrate.migrate_sqlite(Path(where))

    def close(self) -> None:
        """Finish the queued transactions and close the database."""
        self._readers.shutdown(wait=True)
        self._costly.shutdown(wait=True)
        self.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now(self) -> Micros:
        """Return the ledger's time."""
        return self.backend.now()

    def queue_length(self) -> int:
        """Return how many verbs wait for a transaction."""
        return self.backend.queue_length()

    def give_up(self) -> None:
        """Fail the calls that wait for a ledger that does not answer, and for a while all that would have to wait."""
        self.backend.give_up()

    def silent_s(self) -> float:
        """Return how long the oldest call has waited for a ledger that does not answer; 0 if it answers."""
        return self.backend.silent_s()

    # Running verbs

    def write(self, verb: Verb[P, T], *args: P.args, **kw: P.kwargs) -> T:
        """Run a verb in one transaction and wait until it is durable."""
        return self.backend.submit(partial(_call, verb, args, kw)).result()

    def write_async(self, verb: Verb[P, T], *args: P.args, **kw: P.kwargs) -> asyncio.Future[T]:
        """Run a verb in one transaction without blocking the event loop."""
        from asyncio import wrap_future  # here: loading asyncio takes a tenth of the time of `add`

        return wrap_future(self.backend.submit(partial(_call, verb, args, kw)))

    def read(self, verb: Verb[P, T], *args: P.args, **kw: P.kwargs) -> T:
        """Run a verb that only reads."""
        return self.backend.read(partial(_call, verb, args, kw))

    def read_async(self, verb: Verb[P, T], *args: P.args, **kw: P.kwargs) -> asyncio.Future[T]:
        """Run a verb that only reads without blocking the event loop."""
        return self._read_in(self._readers, partial(_call, verb, args, kw))

    def read_costly_async(self, verb: Verb[P, T], *args: P.args, **kw: P.kwargs) -> asyncio.Future[T]:
        """Run a verb that reads many rows, such as a search, in threads of its own."""
        return self._read_in(self._costly, partial(_call, verb, args, kw))

    def _read_in(self, threads: Threads, call: Callable[[Tx], T]) -> asyncio.Future[T]:
        from asyncio import get_running_loop

        try:
            return get_running_loop().run_in_executor(threads, self.backend.read, call)
        except (RuntimeError, MemoryError) as error:  # no thread
            raise Unavailable(f"the ledger cannot be read now: {error or 'no memory'}", hint=MORE) from error

    # Planning

    def plan(self, scope: Scope, requests: Sequence[JobRequest], *, again: planning.Again = "never") -> list[Planned]:
        """Return the job of every request, in order; make the ones that do not exist."""
        return self.write(planning.plan, scope, requests, again=again)

    def plan_begun(
        self, scope: Scope, requests: Sequence[JobRequest], *, again: planning.Again = "never"
    ) -> Future[list[Planned]]:
        """Do the same while the caller prepares the next batch; nothing is promised before the answer is there."""
        return self.backend.submit(partial(planning.plan, scope=scope, requests=requests, again=again))

    # Leases

    def _claiming(self, **kw: Any) -> dict[str, Any]:
        """Return the arguments of a claim, including this process's fairness cursor."""
        given = {name: value for name, value in kw.items() if value is not None}
        return {"defaults": HostsSettings(), "after_tenant": self._after_tenant} | given

    def claim(
        self,
        owner: str,
        *,
        limit: int,
        ttl_s: float,
        job_types: Sequence[str] | None = None,
        scope: Scope | None = None,
        tenant: str | None = None,
        job_ids: Sequence[str] | None = None,
        defaults: HostsSettings | None = None,
        max_claims: int = 100,
        ahead: int = 0,
    ) -> list[Lease]:
        """Lease up to `limit` jobs, as fairly as politeness allows: of all, of a project (`scope`) or of one tenant."""
        kw = self._claiming(job_types=job_types, scope=scope, tenant=tenant, job_ids=job_ids, defaults=defaults)
        leases = self.write(leasing.claim, owner, limit=limit, ttl_s=ttl_s, max_claims=max_claims, ahead=ahead, **kw)
        return self._served(leases)

    def _served(self, leases: list[Lease]) -> list[Lease]:
        """Remember the tenants that were served, so that the next claim begins after them."""
        if leases:
            self._after_tenant = leases[-1].scope.tenant_id
        return leases

    async def claim_async(self, owner: str, *, limit: int, ttl_s: float, **kw: Any) -> list[Lease]:
        """Lease as `claim` does, without blocking the event loop."""
        return self._served(
            await self.write_async(leasing.claim, owner, limit=limit, ttl_s=ttl_s, **self._claiming(**kw))
        )

    def renew(self, leases: Sequence[Lease], ttl_s: float = 120) -> Renewed:
        """Renew live leases; return the lost ones and the jobs whose cancellation was requested."""
        return self.write(leasing.renew, leases, ttl_s)

    def advance(self, moves: Sequence[Move]) -> list[LongshoreError | None]:
        """Move leased jobs to their next stages; return an error, by index, for each that could not be moved."""
        return self.write(stages.advance, moves)

    def settle(self, ended: Sequence[tuple[Lease, Outcome]]) -> list[Settled | LongshoreError]:
        """End leases with their outcomes; results are registered in the same transaction."""
        return self.write(settling.settle, ended)

    # Effects

    def begin(self, intents: Sequence[Intent]) -> list[Begun | LongshoreError]:
        """Commit intents; return for each whether it is new, already done, or was left unfinished."""
        return self.write(effects.begin, intents)

    def confirm(self, lease: Lease, key: str, result: dict[str, Any]) -> None:
        """Store the result of an effect whose intent this lease holds; raise if it is invalid or too large."""
        self.write(effects.confirm, lease, key, result, limit=effects.RESULT_LIMIT)

    def on_completed(self, job_type: str, hook: user_tables.Hook) -> None:
        """Call `hook(tx, done)` in each transaction of this process that completes a job of a type.

        It writes tables of your own with `tx.execute`; if it raises, the job's attempt failed and nothing is written.
        """
        self.backend.hooks[job_type] = hook

    # Healing

    def reconcile_jobs(self) -> repair.Healed:
        """Repair the ledger's own rows: leases, intents, lanes and counters."""
        return self.write(repair.reconcile_jobs)

    def release_dead(self, owners: Sequence[str]) -> int:
        """Release the leases of owners whose process is known to be dead."""
        return self.write(make_claimable.release_dead, owners)

    def next_due(self) -> Micros | None:
        """Return when the next job becomes claimable by itself; None if there is none."""
        return self.read(make_claimable.next_due)

    # Control

    def cancel(self, scope: Scope, job_ids: Sequence[str]) -> CancelResult:
        """Cancel jobs: pending ones at once, running ones by asking their worker to stop."""
        return self.write(cancel_retry.cancel, scope, job_ids)

    def retry(self, scope: Scope, job_ids: Sequence[str]) -> list[Planned]:
        """Make a linked new job of each that failed or was canceled."""
        return self.write(cancel_retry.retry, scope, job_ids)

    # Budgets

    def budget(self, tenant_id: str) -> tuple[Budget, Usage]:
        """Return a tenant's limits and what it has, over all its projects."""
        return self.read(tenant_budgets.budget, tenant_id)

    def set_budget(self, tenant_id: str, **changes: int | None) -> None:
        """Change one tenant's limits (bytes, items, jobs). None means the configured default, 0 means unlimited."""
        self.write(tenant_budgets.set_budget, tenant_id, changes)

    # Reading one thing

    def job(self, scope: Scope, job_id: str) -> Job:
        """Return one job, or raise NotFound."""
        return self.read(lookup.job, scope, job_id)

    def ids_like(self, scope: Scope, short: str, at_most: int) -> list[str]:
        """Return the ids of jobs that begin or end with these hexadecimal digits."""
        return self.read(lookup.ids_like, scope, short, at_most)

    def counts(self, scope: Scope) -> dict[Status, int]:
        """Return the number of jobs of each status."""
        return self.read(lookup.counts, scope)

    def results(self, scope: Scope, job_id: str, *, role: str = "result") -> list[Artifact]:
        """Return the result (or input) artifacts of a job, in order."""
        return self.read(lookup.results, scope, job_id, role=role)

    def held(self, scope: Scope, sha256: str) -> Artifact | None:
        """Return an available artifact with these bytes."""
        return self.read(lookup.held, scope, sha256)

    def mark_missing(self, scope: Scope, artifact_ids: Sequence[str]) -> int:
        """Mark artifacts whose bytes are lost as missing."""
        return self.write(artifact_registry.mark_missing, scope, artifact_ids)

    # Pages

    def jobs(
        self, scope: Scope, wanted: JobFilter | None = None, *, after: str | None = None, limit: int = 100
    ) -> Page[Job]:
        """Return one page of the jobs that match, newest first unless the filter says otherwise."""
        return self.read(listing.jobs, scope, wanted or JobFilter(), after=after, limit=limit)

    def matching_ids(self, scope: Scope, wanted: JobFilter, at_most: int = 1_000_000) -> list[str]:
        """Return the jobs that match, at most so many."""
        return self.read(listing.matching_ids, scope, wanted, at_most)

    def failures(self, scope: Scope, limit: int = 1_000, *, run_id: str | None = None) -> list[FailureGroup]:
        """Group what failed and was not tried again, by reason and host."""
        return self.read(history.failures, scope, limit, run_id=run_id)

    def timeline(self, scope: Scope, job_id: str) -> Timeline:
        """Return one job's whole life."""
        return self.read(history.timeline, scope, job_id)

    def artifact(self, scope: Scope, artifact_id: str) -> Artifact:
        """Return one artifact, or raise NotFound."""
        return self.read(lookup.artifact, scope, artifact_id)

    def artifacts(
        self, scope: Scope, wanted: ArtifactFilter | None = None, *, after: str | None = None, limit: int = 100
    ) -> Page[Artifact]:
        """Return one page of the artifacts that match, newest first."""
        return self.read(listing.artifacts, scope, wanted or ArtifactFilter(), after=after, limit=limit)


def _call(verb: Callable[..., T], args: tuple[Any, ...], kw: dict[str, Any], tx: Tx) -> T:
    return verb(tx, *args, **kw)
