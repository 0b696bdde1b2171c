"""The ledger: one class, the same verbs on SQLite and PostgreSQL.

A verb is a function `verb(tx, …)` of a module beside this one; the method of the same name runs it in one transaction.
`write` and `write_async` run any verb, so that several can share a transaction: write a function that calls them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

from longshore.domain.model import (
    Artifact,
    Job,
    JobRequest,
    Lease,
    Micros,
    NewArtifact,
    Planned,
    Scope,
    Status,
    UrlVersion,
    Validators,
)
from longshore.domain.outcomes import Completed, Deferred, Failed, Outcome, Released, Reused
from longshore.domain.policy.tenant_budgets import Budget, Usage
from longshore.domain.settings import HostsSettings
from longshore.errors import BadInput, EffectInDoubt, LeaseLost, LongshoreError, Unavailable
from longshore.ledger import schema
from longshore.ledger.backends.sqlite.backend import Sqlite
from longshore.ledger.backends.sqlite.connection import is_readonly
from longshore.ledger.backends.sqlite.readonly import ReadOnlySqlite, refusal
from longshore.ledger.operations import (
    cancel_retry,
    effects,
    expiry,
    hosts,
    leasing,
    planning,
    registry,
    settling,
    stages,
    tenant_budgets,
)
from longshore.ledger.queries import lookup
from longshore.ledger.queries.list_methods import Lists
from longshore.ledger.records import Begun, CancelResult, Effect, EffectClass, Host, Intent, Move, Renewed, Settled
from longshore.ledger.transaction import Backend, Tx
from longshore.thread_pool import Threads

P = ParamSpec("P")
T = TypeVar("T")
MORE = "allow the process more threads or memory"
Verb = Callable[Concatenate[Tx, P], T]


def is_postgres(where: str | Path) -> bool:
    """Return whether a ledger's address is a PostgreSQL URL (otherwise it is a file)."""
    return isinstance(where, str) and where.startswith(("postgresql://", "postgres://"))


class Ledger(Lists):
    """Jobs, leases, effects and artifacts that survive anything."""

    result_limit = effects.RESULT_LIMIT

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.dialect: Literal["sqlite", "postgres"] = backend.dialect
        self.defaults = HostsSettings()  # of the last claim; hop uses them
        self._after_tenant = ""
        self._readers = Threads(2, thread_name_prefix="ledger-reader")

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
        path = Path(where)
        if create and not path.exists():
            schema.create_sqlite(path)
        if is_readonly(path):
            if create:  # `create` implies write access
                raise refusal(path)
            schema.check_frozen(path)
            return cls(ReadOnlySqlite(path, clock))
        schema.check_sqlite(path)
        return cls(Sqlite(path, clock, bulk=bulk))

    @property
    def frozen(self) -> bool:
        """Return whether it can only be read: its disk or its directory cannot be written."""
        return isinstance(self.backend, ReadOnlySqlite)

    @staticmethod
    def apply_migration(where: str | Path) -> list[int]:
        """Migrate an existing ledger to the current schema and return the versions that were applied."""
        if is_postgres(where):
            applied: list[int] = import_module("longshore.ledger.backends.postgres.schema").migrate_postgres(str(where))
            return applied
        return schema.migrate_sqlite(Path(where))

    def close(self) -> None:
        """Finish the queued transactions and close the database."""
        self._readers.shutdown(wait=True)
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
        """Fail the queued transactions. (On PostgreSQL the server's own timeouts limit the wait.)"""
        if give_up := getattr(self.backend, "give_up", None):
            give_up()

    # Running verbs

    def write(self, verb: Verb[P, T], *args: P.args, **kw: P.kwargs) -> T:
        """Run a verb in one transaction and wait until it is durable."""
        return self.backend.submit(partial(_call, verb, args, kw)).result()

    def write_async(self, verb: Verb[P, T], *args: P.args, **kw: P.kwargs) -> asyncio.Future[T]:
        """Run a verb in one transaction without blocking the event loop."""
        return asyncio.wrap_future(self.backend.submit(partial(_call, verb, args, kw)))

    def read(self, verb: Verb[P, T], *args: P.args, **kw: P.kwargs) -> T:
        """Run a verb that only reads."""
        return self.backend.read(partial(_call, verb, args, kw))

    def read_async(self, verb: Verb[P, T], *args: P.args, **kw: P.kwargs) -> asyncio.Future[T]:
        """Run a verb that only reads without blocking the event loop."""
        call = partial(_call, verb, args, kw)
        try:
            return asyncio.get_running_loop().run_in_executor(self._readers, self.backend.read, call)
        except (RuntimeError, MemoryError) as error:  # no thread
            raise Unavailable(f"the ledger cannot be read now: {error or 'no memory'}", hint=MORE) from error

    # Planning

    def plan(self, scope: Scope, requests: Sequence[JobRequest], *, again: planning.Again = "never") -> list[Planned]:
        """Return the job of every request, in order; make the ones that do not exist."""
        return self.write(planning.plan, scope, requests, again=again)

    def plan_stream(
        self, scope: Scope, requests: Iterable[JobRequest], *, again: planning.Again = "never", batch: int = 1_000
    ) -> Iterator[Planned]:
        """Plan an endless list in transactions of `batch`: each answer given out is durable, memory stays flat."""
        if batch < 1:
            raise BadInput("batch must be a whole number from 1")
        source = iter(requests)
        while part := list(islice(source, batch)):
            yield from self.plan(scope, part, again=again)

    def plan_begun(
        self, scope: Scope, requests: Sequence[JobRequest], *, again: planning.Again = "never"
    ) -> Future[list[Planned]]:
        """Do the same while the caller prepares the next batch; nothing is promised before the answer is there."""
        return self.backend.submit(partial(planning.plan, scope=scope, requests=requests, again=again))

    def plan_job_if_absent(self, scope: Scope, *, work_id: str, artifact_id: str, canonical_url: str) -> str:
        """Plan one download by its v1 key (work, artifact, URL) and return the job's id."""
        return self.write(
            planning.plan_job_if_absent, scope, work_id=work_id, artifact_id=artifact_id, canonical_url=canonical_url
        )

    # Leases

    def claiming(self, **kw: Any) -> dict[str, Any]:
        """Return the arguments of a claim, including this process's fairness cursor."""
        if kw.get("defaults") is not None:
            self.defaults = kw["defaults"]
        return {"defaults": self.defaults, "after_tenant": self._after_tenant} | {
            name: value for name, value in kw.items() if value is not None
        }

    def claim(
        self,
        owner: str,
        *,
        limit: int,
        ttl_s: float,
        job_types: Sequence[str] | None = None,
        scope: Scope | None = None,
        job_ids: Sequence[str] | None = None,
        defaults: HostsSettings | None = None,
        max_claims: int = 100,
        ahead: int = 0,
    ) -> list[Lease]:
        """Lease up to `limit` jobs, as fairly as politeness allows."""
        kw = self.claiming(job_types=job_types, scope=scope, job_ids=job_ids, defaults=defaults)
        leases = self.write(leasing.claim, owner, limit=limit, ttl_s=ttl_s, max_claims=max_claims, ahead=ahead, **kw)
        return self.served(leases)

    def served(self, leases: list[Lease]) -> list[Lease]:
        """Remember the tenants that were served, so that the next claim begins after them."""
        if leases:
            self._after_tenant = leases[-1].scope.tenant_id
        return leases

    async def claim_async(self, owner: str, *, limit: int, ttl_s: float, **kw: Any) -> list[Lease]:
        """Lease as `claim` does, without blocking the event loop."""
        return self.served(
            await self.write_async(leasing.claim, owner, limit=limit, ttl_s=ttl_s, **self.claiming(**kw))
        )

    def lease_next_job(self, owner: str, ttl_s: float = 120) -> Lease | None:
        """Claim one job; return None if no job is claimable. The single form of `claim`."""
        leases = self.claim(owner, limit=1, ttl_s=ttl_s)
        return leases[0] if leases else None

    def renew(self, leases: Sequence[Lease], ttl_s: float = 120) -> Renewed:
        """Renew live leases; return the lost ones and the jobs whose cancellation was requested."""
        return self.write(leasing.renew, leases, ttl_s)

    def renew_lease(self, lease: Lease, ttl_s: float = 120) -> Micros:
        """Renew one lease and return its new expiry; raise LeaseLost if it is lost. The single form of `renew`."""
        renewed = self.renew([lease], ttl_s)
        if renewed.lost:
            raise LeaseLost(f"the lease of job {lease.job_id} is lost")
        return renewed.until

    def release_lease(self, lease: Lease) -> None:
        """Release one lease at once; the job becomes claimable again."""
        self._ended(lease, Released())

    def advance(self, moves: Sequence[Move]) -> list[LongshoreError | None]:
        """Move leased jobs to their next stages; return an error, by index, for each that could not be moved."""
        return self.write(stages.advance, moves)

    def advance_state(self, lease: Lease, to_state: str, allowed_from: Sequence[str] | None = None) -> None:
        """Move one leased job to a stage; raise if its current stage is not in `allowed_from` (if given)."""
        self.write(stages.advance_state, lease, to_state, allowed_from)

    def get_current_state(self, scope: Scope, job_id: str) -> str:
        """Return the current stage of a job."""
        return self.read(stages.get_current_state, scope, job_id)

    def hop(self, lease: Lease, host: str, *, defaults: HostsSettings | None = None) -> bool:
        """Take a slot of another host for this lease; False: that host is full or rests."""
        return self.write(hosts.hop, lease, host, defaults=defaults or self.defaults)

    def settle(self, ended: Sequence[tuple[Lease, Outcome]]) -> list[Settled | LongshoreError]:
        """End leases with their outcomes; results are registered in the same transaction."""
        return self.write(settling.settle, ended)

    def complete(
        self,
        lease: Lease,
        artifacts: Sequence[NewArtifact] = (),
        *,
        validators: Validators | None = None,
        final_url: str | None = None,
        facts: dict[str, Any] | None = None,
    ) -> Settled:
        """Complete one job: register its results and end its lease, in one transaction."""
        return self._ended(lease, Completed(tuple(artifacts), validators, final_url, facts or {}))

    def fail(self, lease: Lease, reason: str, message: str, *, debug_id: str | None = None) -> Settled:
        """Fail one job permanently with a reason from `domain.reasons`, and end its lease."""
        return self._ended(lease, Failed(reason, message, debug_id))

    def defer(self, lease: Lease, reason: str, message: str, delay_s: float, *, counts: bool = True) -> Settled:
        """End one lease and retry the job after `delay_s`. `counts`: count this as a failed attempt."""
        return self._ended(lease, Deferred(reason, message, delay_s, counts))

    def skip(self, lease: Lease, of_job_id: str, artifact_id: str) -> Settled:
        """End one lease by reusing the result of another job."""
        return self._ended(lease, Reused(of_job_id, artifact_id))

    def _ended(self, lease: Lease, outcome: Outcome) -> Settled:
        settled = self.settle([(lease, outcome)])[0]
        if isinstance(settled, LongshoreError):
            raise settled
        return settled

    # Effects

    def begin(self, intents: Sequence[Intent]) -> list[Begun | LongshoreError]:
        """Commit intents; return for each whether it is new, already done, or was left unfinished."""
        return self.write(effects.begin, intents)

    def confirm(self, lease: Lease, key: str, result: dict[str, Any]) -> None:
        """Store the result of an effect whose intent this lease holds; raise if it is invalid or too large."""
        self.write(effects.confirm, lease, key, result, limit=self.result_limit)

    def run_effect(
        self,
        lease: Lease,
        kind: str,
        opkey: str,
        effect_fn: Callable[[], dict[str, Any]],
        *,
        effect_class: EffectClass = "verifiable",
        fingerprint: str | None = None,
        max_result: int | None = None,
    ) -> dict[str, Any]:
        """Run an effect unless the ledger has its result. `max_result`, if known, is checked before it runs."""
        effects.check_size(max_result, self.result_limit)
        begun = self.begin([Intent(lease, kind, opkey, effect_class, fingerprint)])[0]
        if isinstance(begun, LongshoreError):
            raise begun
        if begun.state == "confirmed":
            return begun.result or {}
        if begun.state == "in_doubt":
            raise EffectInDoubt(f"the {kind} of job {lease.job_id} may or may not have happened")
        try:
            result = effect_fn()
        except BaseException as error:
            self.write(effects.effect_failed, lease, opkey, type(error).__name__)
            raise
        try:
            effects.checked_result(result, self.result_limit)
        except LongshoreError as error:  # it happened, but its result cannot be stored
            if effect_class == "opaque":
                self.write(effects.effect_in_doubt, lease, opkey)
            else:
                self.write(effects.effect_failed, lease, opkey, type(error).__name__)
            raise
        self.confirm(lease, opkey, result)
        return result

    def get_effect_result(self, scope: Scope, opkey: str) -> dict[str, Any] | None:
        """Return the stored result of an effect; None when it is not done."""
        return self.read(effects.get_effect_result, scope, opkey)

    def unfinished(self, scope: Scope, job_id: str) -> list[Effect]:
        """Return the open intents of a job, oldest first."""
        return self.read(effects.unfinished, scope, job_id)

    # Healing

    def cleanup_stale_leases(self) -> int:
        """Release every expired lease."""
        return self.write(expiry.cleanup_stale_leases)

    def cleanup_stale_ops(self) -> int:
        """Close the intents of effects that no worker can finish any more."""
        return self.write(effects.cleanup_stale_ops)

    def reconcile_jobs(self) -> cancel_retry.Healed:
        """Repair the ledger's own rows: leases, intents, lanes and counters."""
        return self.write(cancel_retry.reconcile_jobs)

    def release_dead(self, owners: Sequence[str]) -> int:
        """Release the leases of owners whose process is known to be dead."""
        return self.write(expiry.release_dead, owners)

    def next_due(self) -> Micros | None:
        """Return when the next job becomes claimable by itself; None if there is none."""
        return self.read(expiry.next_due)

    # Control

    def cancel(self, scope: Scope, job_ids: Sequence[str]) -> CancelResult:
        """Cancel jobs: pending ones at once, running ones by asking their worker to stop."""
        return self.write(cancel_retry.cancel, scope, job_ids)

    def retry(self, scope: Scope, job_ids: Sequence[str]) -> list[Planned]:
        """Make a linked new job of each that failed or was canceled."""
        return self.write(cancel_retry.retry, scope, job_ids)

    # Hosts

    def hosts(self, after: str = "", limit: int = 1_000) -> list[Host]:
        """List hosts by name, with what is in flight."""
        return self.read(hosts.hosts, after, limit)

    def set_host(self, host: str, **changes: Any) -> None:
        """Change what is configured for a host: concurrency, rate_per_s, paused, cooldown_until."""
        self.write(hosts.set_host, host, changes)

    # Budgets

    def budget(self, tenant_id: str) -> tuple[Budget, Usage]:
        """Return a tenant's limits and what it has, over all its projects."""
        return self.read(tenant_budgets.budget, tenant_id)

    def set_budget(self, tenant_id: str, **changes: int | None) -> None:
        """Change one tenant's limits (bytes, items, jobs). None means the configured default, 0 means unlimited."""
        self.write(tenant_budgets.set_budget, tenant_id, changes)

    # Reading one thing; lists are in listing

    def job(self, scope: Scope, job_id: str) -> Job:
        """Return one job, or raise NotFound."""
        return self.read(lookup.job, scope, job_id)

    def counts(self, scope: Scope) -> dict[Status, int]:
        """Return the number of jobs of each status."""
        return self.read(lookup.counts, scope)

    def results(self, scope: Scope, job_id: str, *, role: str = "result") -> list[Artifact]:
        """Return the result (or input) artifacts of a job, in order."""
        return self.read(lookup.results, scope, job_id, role=role)

    def url_version(self, scope: Scope, canonical_url: str) -> UrlVersion | None:
        """Return the version that one URL returned last."""
        return self.read(lookup.url_version, scope, canonical_url)

    def url_versions(self, scope: Scope, canonical_urls: Sequence[str]) -> dict[str, UrlVersion]:
        """Return the versions that URLs returned last, by URL."""
        return self.read(lookup.url_versions, scope, canonical_urls)

    def held(self, scope: Scope, sha256: str) -> Artifact | None:
        """Return an available artifact with these bytes."""
        return self.read(lookup.held, scope, sha256)

    def mark_missing(self, scope: Scope, artifact_ids: Sequence[str]) -> int:
        """Mark artifacts whose bytes are lost as missing."""
        return self.write(registry.mark_missing, scope, artifact_ids)


def _call(verb: Callable[..., T], args: tuple[Any, ...], kw: dict[str, Any], tx: Tx) -> T:
    return verb(tx, *args, **kw)
