"""When to try again. The random number is an argument."""

from __future__ import annotations

from longshore.errors import BadInput


def retry_delay_s(
    attempt: int, draw: float, *, base_s: float, cap_s: float, retry_after_s: float | None = None
) -> float:
    """Return a delay with full jitter: uniform between 0 and the exponential ceiling, at least the server's delay.

    `attempt` counts from 1; `draw` is uniform in [0, 1).
    """
    if attempt < 1 or not 0 <= draw < 1:
        raise BadInput("attempt counts from 1 and draw lies in [0, 1)")
    ceiling = min(cap_s, base_s * 2.0 ** min(attempt - 1, 62))
    delay = ceiling * draw
    return max(delay, min(retry_after_s, 86_400.0) + delay * 0.1) if retry_after_s is not None else delay
