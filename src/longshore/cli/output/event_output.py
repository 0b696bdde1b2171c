"""Format the events of a run: as JSON lines, and as text for a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from longshore.cli.output.failure_lines import FailureLines, grouped, remedy
from longshore.cli.output.writer import counted, duration, on_terminal, readable, say, size
from longshore.domain.policy.redaction import LONGEST, safe_url
from longshore.domain.reasons import reason_named
from longshore.domain.run_events import RunEvent

if TYPE_CHECKING:
    from longshore.cli.options import Call
    from longshore.cli.output.progress import ProgressCounts

# These do not count as attempts and the job waits without limit, so the user must see the cause.
FOR_A_PERSON: Final = frozenset({"disk_full", "disk_error", "store_unavailable", "path_unmapped"})
SAME: Final = "the same command"
RETRY: Final = "`longshore retry --all`, then `longshore run`,"
DAY_S: Final = 86_400
AGAIN_S: Final = 10.0  # several workers of one run tell the same
PLAIN_AGAIN_S: Final = 300.0  # where the line of progress repeats it
# What a run waits for besides the reasons of failures.
_MEANINGS: Final = {
    "paused": "by a person",
    "silent": "it was asked and sends nothing",
    "connecting": "no connection yet",
}


def event_printer(call: Call, *, results: bool | None = True) -> Callable[[RunEvent], None]:
    """Return the listener that writes notes: all of them as JSON, results and failures as text.

    `results` False: only with -v. None: never, because stdout is for bytes.
    """
    if call.json:
        return lambda note: _record(call, _fit_to_print(note))
    return TextPrinter(call, results=results).tell


class TextPrinter:
    """Writes notes as text. What many items have in common is said once."""

    def __init__(self, call: Call, *, results: bool | None) -> None:
        self._call = call
        self._shown = {"failed", "waiting"} if call.verbosity > -2 else set()
        if results is not None and (call.verbosity > 0 or (results and call.verbosity == 0)):
            self._shown |= {"completed", "held"}
        if call.verbosity > 0:
            self._shown |= {"retry", "started"}
        self._lines = FailureLines(all_of_them=call.verbosity > 0)
        self._said: set[str] = set()  # reasons
        self._told_at: dict[str, float] = {}
        if call.verbosity >= 0 and on_terminal():
            self._shown.discard("waiting")  # the display has it

    def tell(self, note: RunEvent) -> None:
        """Write one note, if it is to be seen."""
        facts = note.facts
        if note.kind == "retry" and facts.get("reason") == "offline" and self._call.verbosity > -2:
            self._failed("waits", _fit_to_print(note, LONGEST))
        elif note.kind == "failed" and note.kind in self._shown:
            self._failed("failed", _fit_to_print(note, LONGEST))
        elif note.kind == "waiting" and note.kind in self._shown:
            self._wait(facts)
        elif note.kind in self._shown:
            _text(self._call, _fit_to_print(note, LONGEST))
        elif note.kind == "retry" and self._call.verbosity > -2 and facts.get("reason") in FOR_A_PERSON - self._said:
            self._said.add(facts["reason"])
            _waits(_fit_to_print(note, LONGEST))

    def _failed(self, word: str, note: RunEvent) -> None:
        item, message = note.url or note.job_id or "", str(note.facts.get("message") or "")
        if (line := self._lines.text(word, str(note.facts.get("reason")), item, message)) is not None:
            say(line)

    def _wait(self, facts: Mapping[str, Any]) -> None:
        """Write what jobs wait for, unless another worker of this run has just said the same."""
        now, same = time.monotonic(), f"{facts.get('host')} {facts.get('reason')}"
        again = AGAIN_S if self._call.verbosity < 0 else PLAIN_AGAIN_S
        if now - self._told_at.get(same, -again) >= again:
            self._told_at[same] = now
            say(waiting_text(facts))


def tell_stop(call: Call, score: ProgressCounts) -> None:
    """Write why a run stopped because of refusals, as its last word."""
    if score.refused is not None and not call.json and call.verbosity > -2:
        say(stopped_text(score.refused))


def stopped_text(facts: Mapping[str, Any]) -> str:
    """Return a message for a run that stopped because of refusals, with the missing setting."""
    reason = str(facts["reason"])
    again = f"then `longshore retry --reason {reason}` and `longshore run`"
    what = f"{facts['refusals']} items in a row were refused: {reason} ({_meaning(reason)}); the others stay pending"
    return f"stopped   {what}\n  → {remedy(reason)}; {again}"


def waiting_text(facts: Mapping[str, Any], *, brief: bool = False) -> str:
    """Return a message with the waiting jobs, the cause and the end of the wait; `brief`: to fit a row of a display."""
    reason, until = facts["reason"], facts["until"]
    if until is None:
        end = "it answers" if reason == "silent" else "`longshore hosts resume`"
    else:
        at = datetime.fromisoformat(until)
        left = (at - datetime.now(UTC)).total_seconds()
        shown = f"{at.astimezone():%H:%M:%S}" if brief and left < DAY_S else readable(until)
        end = shown if left < 1 else f"{shown} ({duration(left)})"
    why = f" ({_meaning(reason)})" if _meaning(reason) and not brief else ""
    jobs, whom = counted(facts["jobs"], "job"), facts["host"] or "other workers"
    return f"waiting   {jobs} for {whom}: {reason}{why}, until {end}"


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
        place = _place_of(facts, short=sys.stdout.isatty() and call.verbosity <= 0)
        words = [note.kind.ljust(9), size(nbytes).rjust(9) if nbytes is not None else " " * 9, note.url or "", place]
        if note.kind == "held" and facts.get("why"):
            words.append(f"({facts['why']})")
        call.output.text("  ".join(words))
    elif note.kind == "retry":
        say(f"later     {facts.get('reason')}  {note.url}: {facts.get('message')} (in {facts.get('delay_s')} s)")
    else:
        say(f"started   {note.url}")


def _place_of(facts: Mapping[str, Any], *, short: bool) -> str:
    """Return where a result is stored. A person at a terminal gets the beginning of its hash: a path fills two lines."""
    if short and facts.get("sha256"):
        return f"sha256:{facts['sha256'][:12]}"
    return str(facts.get("path") or facts.get("sha256") or "")


def summary_text(score: ProgressCounts) -> str:
    """Return a one-line summary of a run."""
    words = [("completed", score.completed), ("held before", score.held), ("failed", score.failed)]
    words += [("canceled", score.canceled), ("not stored (offline)", score.offline), ("tried again", score.retries)]
    parts = [f"{count} {word}" for word, count in words if count or word == "completed"]
    return ", ".join([*parts, size(score.bytes)])


def refused_text(refused: Mapping[str, int]) -> str:
    """Return the lines of lists that did not become jobs, for the end of a summary."""
    words = {"refused": "refused", "without_file": "without a file"}
    return "".join(f", {refused[name]} {word}" for name, word in words.items() if refused[name])


def doubles_text(count: int) -> str:
    """Return how many items of a list were the same as others, for the end of a summary."""
    return f", {counted(count, 'item')} named more than once" if count else ""


def next_steps(score: ProgressCounts, left: int, *, again: str) -> list[str]:
    """Return hints for the failures and for the work that is left; `again`: the command that goes on."""
    lines = grouped(score.failures)
    if score.failed:
        retry = f"{again}, or `longshore retry --all` and `longshore run`," if again == SAME else RETRY
        lines.append(f"  → `longshore failures` says why; {retry} asks for them again")
    if left:
        lines.append(f"  → {left} left: {again} goes on where this stopped")
    return lines
