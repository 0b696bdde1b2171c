"""Thread pools that continue with fewer threads if the system refuses more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


class Threads(ThreadPoolExecutor):
    """A pool whose calls wait for the existing threads; a call fails only if there is none."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except (RuntimeError, MemoryError):
            if not self._threads:
                raise

    def begun(self) -> Threads:
        """Start the first thread now, while the system still allows it."""
        self.submit(int)
        return self
