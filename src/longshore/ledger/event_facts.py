"""Facts of events: JSON without secrets."""

from __future__ import annotations

from typing import Any

from longshore.domain.policy.redaction import may_hold_url, safe_text
from longshore.ledger.rows import encoded


def facts_text(facts: dict[str, Any]) -> str:
    """Write facts; URLs in them lose credentials and signatures."""
    text = encoded(facts)
    return encoded(redacted(facts)) if may_hold_url(text) else text


def redacted(value: Any) -> Any:
    """Return the same value with every URL in it made safe to show."""
    if isinstance(value, str):
        return safe_text(value, limit=None)
    if isinstance(value, dict):
        return {key: redacted(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(item) for item in value]
    return value
