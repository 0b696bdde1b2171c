"""A real Chromium for tests. It runs in a thread of its own, because Playwright's event loop must not be seen by other tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE_MS = 60_000
ARGUMENTS = ["--disable-dev-shm-usage", "--disable-gpu"]


class Chromium:
    """Runs calls in the thread that owns the browser."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[Any], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._own, name="chromium", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._calls.put(None)
        self._thread.join(60)

    def _own(self) -> None:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
            while (item := self._calls.get()) is not None:
                call, future = item
                try:
                    future.set_result(call(browser))
                except BaseException as error:
                    future.set_exception(error)
            browser.close()

    def run(self, call: Callable[[Any], T]) -> T:
        """Run something with the browser, to its end."""
        future: Future[T] = Future()
        self._calls.put((call, future))
        return future.result()

    def visit(self, call: Callable[..., T], *, pages: int = 1, **options: Any) -> T:
        """Run something with fresh pages, each in a context (cookies, theme) of its own."""

        def visiting(browser: Any) -> T:
            contexts = [
                browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options}) for _ in range(pages)
            ]
            try:
                for context in contexts:
                    context.set_default_timeout(PATIENCE_MS)
                return call(*(context.new_page() for context in contexts))
            finally:
                for context in contexts:
                    context.close()

        return self.run(visiting)


@contextmanager
def chromium() -> Iterator[Chromium]:
    """Start a browser for as long as the block lasts."""
    running = Chromium()
    running.start()
    try:
        yield running
    finally:
        running.stop()
