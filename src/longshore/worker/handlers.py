"""Which code works on which type of job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from longshore.domain.model import Lease
from longshore.domain.outcomes import Outcome
from longshore.errors import Reasoned

Handler = Callable[[Lease], Awaitable[Outcome]]
Prepare = Callable[[Sequence[Lease]], Awaitable[None]]


@dataclass(slots=True)
class Handlers:
    """job_type → handler. A type may also prepare a whole batch of claimed leases at once."""

    by_type: dict[str, Handler] = field(default_factory=dict)
    preparing: dict[str, Prepare] = field(default_factory=dict)

    def add(self, job_type: str, handler: Handler, prepare: Prepare | None = None) -> None:
        """Register a handler for a job type."""
        self.by_type[job_type] = handler
        if prepare:
            self.preparing[job_type] = prepare

    def types(self) -> tuple[str, ...]:
        """Return the types that this process can work on."""
        return tuple(self.by_type)

    async def prepare(self, leases: Sequence[Lease]) -> None:
        """Call each type's `prepare` with its part of the batch, before the jobs start."""
        for job_type, prepare in self.preparing.items():
            batch = [lease for lease in leases if lease.job.job_type == job_type]
            if batch:
                await prepare(batch)

    async def run(self, lease: Lease) -> Outcome:
        """Work on one lease."""
        handler = self.by_type.get(lease.job.job_type)
        if handler is None:
            raise Reasoned("unknown_type", f"no handler for jobs of type {lease.job.job_type!r} is installed here")
        return await handler(lease)
