"""What handlers get as `ctx` in the worker's own process: served to pool processes, awaited, or called in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from longshore.domain.identity.keys import op_key
from longshore.domain.model import Lease
from longshore.errors import BadInput, EffectInDoubt, LongshoreError, Reasoned
from longshore.ledger.operations.effects import effect_failed, effect_in_doubt
from longshore.ledger.operations.stages import report
from longshore.ledger.records import Intent
from longshore.worker.kinds.custom.handler_io import ScratchDirectory
from longshore.worker.kinds.custom.messages import BadMessage, error_message
from longshore.worker.kinds.custom.process_pool import JobFacts

if TYPE_CHECKING:
    from longshore.ledger import Ledger

REPORT_S: Final = 1.0


def job_facts(lease: Lease) -> JobFacts:
    """Return what a handler may know of its job."""
    request = lease.job.request
    return JobFacts(*lease.scope, lease.job_id, request.run_id, request.request_id)


def _counter(value: int) -> int:
    """Return a count that the ledger's column can hold."""
    return min(max(value, 0), 2**63 - 1)


class LedgerContext:
    """What a handler may know of its job, and its writes to the ledger."""

    def __init__(self, ledger: Ledger, lease: Lease, scratch: ScratchDirectory) -> None:
        self._ledger, self._lease = ledger, lease
        self._reported = 0.0
        self._opaque: set[str] = set()  # keys of the opaque effects that this attempt began
        self.tenant_id, self.project_id, self.job_id, self.run_id, self.request_id = job_facts(lease)
        self.attempt, self._scratch = lease.job.attempts + 1, scratch

    @property
    def scratch(self) -> Path:
        """A directory of this attempt, removed after it."""
        return self._scratch.path

    def _report(self, done: int, total: int | None) -> bool:
        if time.monotonic() - self._reported >= REPORT_S:
            self._reported = time.monotonic()
            total = None if total is None else _counter(total)
            self._ledger.write(report, [(self._lease, _counter(done), total)])
        return False

    def _begin(self, kind: str, effect_class: Any, extras: dict[str, Any]) -> tuple[str, Any]:
        key = op_key(kind, self.job_id, **extras)
        if effect_class == "opaque":
            self._opaque.add(key)
        intent = Intent(self._lease, kind, key, effect_class)
        begun = self._ledger.begin([intent])[0]
        if isinstance(begun, LongshoreError):
            raise begun
        return begun.state, begun.result

    def _confirm(self, kind: str, extras: dict[str, Any], result: dict[str, Any]) -> None:
        try:
            self._ledger.confirm(self._lease, op_key(kind, self.job_id, **extras), result)
        except BadInput as error:
            self._unstorable(kind, extras, error)

    def _unstorable(self, kind: str, extras: dict[str, Any], error: BadInput) -> NoReturn:
        """End an effect that has happened, but whose result cannot be stored."""
        key = op_key(kind, self.job_id, **extras)
        if key not in self._opaque:
            self._ledger.write(effect_failed, self._lease, key, type(error).__name__)
            raise error
        self._ledger.write(effect_in_doubt, self._lease, key)
        raise EffectInDoubt(f"the effect {kind} has happened, but its result cannot be stored: {error}") from None


class LocalContext(LedgerContext):
    """`ctx` of async handlers; it also serves the requests of pool processes."""

    def answer(self, kind: str, value: Any) -> dict[str, Any]:
        """Serve one request of a pool process, in its thread; errors are returned as answers."""
        try:
            return {"value": self._answer(kind, value)}
        except BadMessage:
            raise
        except LongshoreError as error:
            return error_message(error)

    def _answer(self, kind: str, value: Any) -> Any:
        match kind, value:
            case "check", None:
                return False
            case "progress", [int() as done, int() | None as total]:
                return self._report(done, total)
            case "effect_begin", [str() as name, str() as effect_class, dict() as extras]:
                return self._begin(name, effect_class, extras)
            case "effect_confirm", [str() as name, dict() as extras, result]:
                return self._confirm(name, extras, result)
            case "effect_unstorable", [str() as name, dict() as extras, str() as why]:
                self._unstorable(name, extras, BadInput(why))
        raise BadMessage(f"{kind!r} is not a request")

    async def progress(self, done: int, total: int | None = None) -> None:
        """Report progress."""
        await asyncio.to_thread(self._report, done, total)

    async def check(self) -> None:
        """Yield to the event loop; raises CancelledError here if the job was canceled."""
        await asyncio.sleep(0)

    async def effect(
        self, kind: str, act: Callable[[], Awaitable[dict[str, Any]]], *, effect_class: str = "keyed", **extras: Any
    ) -> dict[str, Any]:
        """Perform an external effect at most once, as far as that can be known; return its result, new or recorded."""
        state, result = await asyncio.to_thread(self._begin, kind, effect_class, extras)
        if state == "confirmed":
            return dict(result or {})
        if state == "in_doubt":
            raise EffectInDoubt(f"the effect {kind} may or may not have happened")
        done = await act()
        await asyncio.to_thread(self._confirm, kind, extras, done)
        return done


class ThreadContext(LedgerContext):
    """`ctx` of a plain function that runs in the worker's process, in a thread."""

    def __init__(self, ledger: Ledger, lease: Lease, scratch: ScratchDirectory, stop: threading.Event) -> None:
        super().__init__(ledger, lease, scratch)
        self._stop = stop

    def check(self) -> None:
        """Raise if the job was canceled or the worker has to stop."""
        if self._stop.is_set():
            raise Reasoned("interrupted", "the worker was stopped")

    def progress(self, done: int, total: int | None = None) -> None:
        """Report progress; raise if the job should stop."""
        self.check()
        self._report(int(done), None if total is None else int(total))

    def effect(
        self, kind: str, act: Callable[[], dict[str, Any]], *, effect_class: str = "keyed", **extras: Any
    ) -> dict[str, Any]:
        """Perform an external effect at most once, as far as that can be known; return its result, new or recorded."""
        state, result = self._begin(kind, effect_class, extras)
        if state == "confirmed":
            return dict(result or {})
        if state == "in_doubt":
            raise EffectInDoubt(f"the effect {kind} may or may not have happened")
        done = act()
        self._confirm(kind, extras, done)
        return done
