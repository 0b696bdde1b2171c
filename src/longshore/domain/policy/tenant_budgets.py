"""A tenant's limits, and how much of them is left. 0 means unlimited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PLENTY: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one tenant, over all its projects."""

    bytes: int = 0  # held, every blob once
    items: int = 0  # artifacts held and jobs that are not over
    jobs: int = 0  # worked on at the same time, by all workers together

    def __bool__(self) -> bool:
        return bool(self.bytes or self.items or self.jobs)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a tenant has."""

    bytes: int = 0
    artifacts: int = 0
    waiting: int = 0
    jobs: int = 0

    @property
    def items(self) -> int:
        """What counts against the items: things held, and jobs on their way to one."""
        return self.artifacts + self.waiting + self.jobs


NO_BUDGET: Final = Budget()


def overlaid(row: tuple[int | None, int | None, int | None] | None, default: Budget) -> Budget:
    """Return the tenant's own limits, with the configured default for each limit that is not set."""
    if row is None:
        return default
    said = [given if given is not None else usual for given, usual in zip(row, _limits(default), strict=True)]
    return Budget(*said)


def may_start(budget: Budget, used: Usage) -> int:
    """Return how many more jobs may be worked on now."""
    return max(0, budget.jobs - used.jobs) if budget.jobs else PLENTY


def may_plan(budget: Budget, used: Usage) -> int:
    """Return how many more jobs may be planned."""
    return max(0, budget.items - used.items) if budget.items else PLENTY


def may_add(budget: Budget, used: Usage, promised: int = 0) -> int:
    """Return how many more bytes may be published."""
    return max(0, budget.bytes - used.bytes - promised) if budget.bytes else PLENTY


def _limits(budget: Budget) -> tuple[int, int, int]:
    return budget.bytes, budget.items, budget.jobs
