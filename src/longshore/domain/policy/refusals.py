"""When a run stops because item after item is refused: one missing setting must not fail a whole queue."""

from __future__ import annotations

from longshore.domain.outcomes import Completed, Failed, Outcome, Released, Reused
from longshore.domain.reasons import REASONS


class Refusals:
    """Counts refusals in a row that one setting is to blame for. From the limit on, further ones stay pending."""

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit  # 0: none
        self.in_a_row = 0
        self.reason: str | None = None  # the reason that stopped the run; None: it goes on

    def judged(self, outcome: Outcome) -> Outcome:
        """Return the outcome to write: a refusal beyond the limit becomes a release."""
        if isinstance(outcome, Completed | Reused):
            self.in_a_row = 0
        if not isinstance(outcome, Failed):
            return outcome
        if outcome.reason not in REASONS or not REASONS[outcome.reason].by_setting:
            self.in_a_row = 0
            return outcome
        if self.reason is not None:
            return Released(outcome.reason)
        self.in_a_row += 1
        if self._limit and self.in_a_row >= self._limit:
            self.reason = outcome.reason
        return outcome
