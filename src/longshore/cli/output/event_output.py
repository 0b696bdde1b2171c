"""Format the events of a run: as JSON lines, and as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from longshore.cli.output.writer import duration, say, size
from longshore.domain.policy.redaction import LONGEST, safe_url
from longshore.domain.reasons import reason_named
from longshore.domain.run_events import RunEvent

if TYPE_CHECKING:
    from longshore.cli.options import Call
    from longshore.cli.output.progress import ProgressCounts

# These do not count as attempts and the job waits without limit, so the user must see the cause.
FOR_A_PERSON: Final = frozenset({"disk_full", "disk_error", "store_unavailable", "path_unmapped"})
# What a run waits for besides the reasons of failures.
_MEANINGS: Final = {"paused": "by a person", "silent": "it was asked and sends nothing"}


def event_printer(call: Call, *, results: bool | None = True) -> Callable[[RunEvent], None]:
    """Return the listener that writes notes: all of them as JSON, results and failures as text.

    `results` False: only with -v. None: never, because stdout is for bytes.
    """
    if call.json:
        return lambda note: _record(call, _fit_to_print(note))
    shown = {"failed"} if call.verbosity > -2 else set()
    if results is not None and (call.verbosity > 0 or (results and call.verbosity == 0)):
        shown |= {"completed", "held"}
    if call.verbosity > 0:
        shown |= {"retry", "started"}
    waits: set[str] = set()

    def tell(note: RunEvent) -> None:
        if note.kind in shown:
            _text(call, _fit_to_print(note, LONGEST))
        elif note.kind == "retry" and call.verbosity > -2 and note.facts.get("reason") in FOR_A_PERSON - waits:
            waits.add(note.facts["reason"])  # once per reason
            _waits(_fit_to_print(note, LONGEST))
        elif note.kind == "waiting" and call.verbosity > -2:
            say(waiting_text(note.facts))

    return tell


def waiting_text(facts: Mapping[str, Any]) -> str:
    """Return a message with the waiting jobs, the cause and the end of the wait."""
    reason, until = facts["reason"], facts["until"]
    if until is None:
        end = "it answers" if reason == "silent" else "`longshore hosts resume`"
    else:
        left = (datetime.fromisoformat(until) - datetime.now(UTC)).total_seconds()
        end = until if left < 1 else f"{until} ({duration(left)})"
    why = f" ({_meaning(reason)})" if _meaning(reason) else ""
    return f"waiting   {facts['jobs']} job(s) for {facts['host'] or 'other workers'}: {reason}{why}, until {end}"


def _meaning(reason: str) -> str:
    try:
        return reason_named(reason).meaning
    except KeyError:
        return _MEANINGS.get(reason, "")


def _waits(note: RunEvent) -> None:
    """Report why a job waits until the user acts."""
    reason = str(note.facts.get("reason"))
    say(f"waits     {reason}  {note.url or note.job_id}: {note.facts.get('message')}\n  → {remedy(reason)}")


def _fit_to_print(note: RunEvent, limit: int | None = None) -> RunEvent:
    """Remove credentials from the URL; for a stored file add why nothing was fetched."""
    facts = note.facts
    if note.kind == "held" and "why" not in facts:
        facts = {**facts, "why": "already held"}
    return replace(note, url=safe_url(note.url, limit) if note.url else note.url, facts=facts)


def _record(call: Call, note: RunEvent) -> None:
    facts = dict(note.facts)
    if note.job_id is not None:
        facts = {"job_id": note.job_id, "url": note.url, **facts}
    # Frequent lines are flushed at the end of a batch; all others at once.
    call.output.record(note.kind, facts, note.ts, flush=note.kind not in {"planned", "held"})


def _text(call: Call, note: RunEvent) -> None:
    facts = note.facts
    if note.kind in {"completed", "held"}:
        nbytes = facts.get("size_bytes")
        place = facts.get("path") or facts.get("sha256") or ""
        words = [note.kind.ljust(9), size(nbytes).rjust(9) if nbytes is not None else " " * 9, note.url or "", place]
        if note.kind == "held" and facts.get("why"):
            words.append(f"({facts['why']})")
        call.output.text("  ".join(words))
    elif note.kind == "failed":
        say(failure_text(str(facts.get("reason")), note.url or note.job_id or "", str(facts.get("message") or "")))
    elif note.kind == "retry":
        say(f"later     {facts.get('reason')}  {note.url}: {facts.get('message')} (in {facts.get('delay_s')} s)")
    else:
        say(f"started   {note.url}")


def failure_text(reason: str, item: str, message: str) -> str:
    """Return a message: what failed, which item, why, and what to do."""
    return f"failed    {reason}  {item}: {message}\n  → {remedy(reason)}"


def remedy(reason: str) -> str:
    """Return the remedy for a job that failed for good for this reason."""
    try:
        known = reason_named(reason)
    except KeyError:
        return "see `longshore show JOB`"
    if known.remedy.startswith("tried "):  # all automatic attempts are used up
        return "`longshore retry` when the cause is gone"
    return known.remedy


def summary_text(score: ProgressCounts) -> str:
    """Return a one-line summary of a run."""
    words = [("completed", score.completed), ("held before", score.held), ("failed", score.failed)]
    words += [("canceled", score.canceled), ("tried again", score.retries)]
    counted = [f"{count} {word}" for word, count in words if count or word == "completed"]
    return ", ".join([*counted, size(score.bytes)])


def next_steps(score: ProgressCounts, left: int, *, again: str) -> list[str]:
    """Return hints for the failures and for the work that is left."""
    lines = []
    if score.failed:
        lines.append("  → `longshore failures` says why; `longshore retry --all` and `longshore run` try again")
    if left:
        lines.append(f"  → {left} left: {again} goes on where this stopped")
    return lines
