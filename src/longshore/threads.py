"""Thread pools that go on with fewer threads where the system refuses more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


class Threads(ThreadPoolExecutor):
    """A pool whose calls wait for the threads that there are; only without any does a call fail."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except (RuntimeError, MemoryError):
            if not self._threads:
                raise

    def begun(self) -> Threads:
        """Start the first thread now, while there is one to be had."""
        self.submit(int)
        return self
