"""Verbs that only look."""

from __future__ import annotations

from longshore.depot.base import Base


class Looking(Base):
    """Verbs that change nothing."""
