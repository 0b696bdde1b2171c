"""What one poll of one torrent comes to. Facts in, a verdict out; the clock is an argument."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from longshore.domain.model import SECOND, Micros
from longshore.domain.settings import QbittorrentSettings
from longshore.domain.torrents.model import (
    DOWNLOADING,
    METADATA,
    TRYING,
    Clock,
    Meaning,
    Seen,
    longest_gap,
    meaning_of,
    tick,
)

IMPORT_REST: Final = 600 * SECOND


@dataclass(frozen=True, slots=True)
class PollState:
    """What the loop remembers of one torrent from poll to poll."""

    refusals: int = 0  # adds that failed, in a row
    added_at: Micros | None = None  # our intent to add, committed before the add
    seen_at: Micros | None = None  # first seen in the client
    added_again: bool = False  # the one repetition of an add that the client lost
    foreign: bool = False  # it was in the client before us
    state: str | None = None  # the client's word
    substate: str | None = None  # ours for people
    done_bytes: int = 0
    size_bytes: int = 0
    speed_bytes_s: int = 0
    eta_s: int | None = None
    save_path: str = ""
    name: str = ""
    note: str | None = None  # what a person should know now
    restarted: bool = False  # the one automatic start after an error
    imports: int = 0  # imports that failed, in a row
    import_at: Micros = 0  # the next one not before
    cancel_files: bool = False  # a cancel was asked to remove the files as well
    missing: Clock | None = None
    broken: Clock | None = None
    stalled: Clock | None = None
    metadata: Clock | None = None


class Act(StrEnum):
    """What is to be done after a poll."""

    KEEP = "keep"
    ADD = "add"
    IMPORT = "import"
    RESTART = "restart"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Rules:
    """The patience of one cycle."""

    grace: Micros
    error_grace: Micros
    stall: Micros
    metadata: Micros
    poll: Micros
    longest: Micros

    @classmethod
    def of(cls, settings: QbittorrentSettings, active: int) -> Rules:
        """Derive the rules of a cycle from the settings and the number of jobs that share the rotation."""
        return cls(
            grace=int(settings.not_found_grace_s * SECOND),
            error_grace=int(settings.error_grace_s * SECOND),
            stall=int(settings.stall_s * SECOND),
            metadata=int(settings.metadata_s * SECOND),
            poll=int(settings.poll_s * SECOND),
            longest=longest_gap(settings, active),
        )


@dataclass(frozen=True, slots=True)
class PollVerdict:
    """The new poll state, the new stage, and the action to take."""

    watch: PollState
    stage: str
    act: Act = Act.KEEP
    reason: str | None = None
    message: str | None = None


def judge(
    stage: str, watch: PollState, seen: Seen | None, now: Micros, rules: Rules, *, held: bool = False
) -> PollVerdict:
    """Decide what one successful poll means. `held`: the client was away since the poll before."""
    if watch.added_at is None:
        return PollVerdict(watch, stage, Act.ADD)  # which adopts what the client has already
    if seen is None:
        return _missing(stage, watch, now, rules, held=held)
    return _present(stage, watch, seen, now, rules, held=held)


def _missing(stage: str, watch: PollState, now: Micros, rules: Rules, *, held: bool) -> PollVerdict:
    clock = tick(watch.missing, now, held=held, poll=rules.poll, longest=rules.longest)
    # Never seen in two polls after our add: the client lost it, so add it again. Seen and gone: the user removed it.
    if watch.seen_at is None and not watch.added_again and watch.missing is not None and not held:
        return PollVerdict(replace(watch, added_again=True, missing=None), stage, Act.ADD)
    gone = replace(watch, missing=clock, substate="not in the client", speed_bytes_s=0, eta_s=None)
    if clock.ran < rules.grace or watch.missing is None:
        return PollVerdict(gone, stage)
    what = "was removed from the client" if watch.seen_at is not None else "never appeared in the client"
    return PollVerdict(gone, stage, Act.FAIL, "missing_external_job", f"the torrent {what}")


def _present(stage: str, watch: PollState, seen: Seen, now: Micros, rules: Rules, *, held: bool) -> PollVerdict:
    meaning, substate = meaning_of(seen.state)
    moved = seen.done_bytes > watch.done_bytes or watch.seen_at is None
    broken = _broken_clock(watch, meaning, now, rules, held=held, moved=moved)
    known = replace(
        watch,
        seen_at=watch.seen_at if watch.seen_at is not None else now,
        refusals=0,
        missing=None,
        state=seen.state,
        substate=substate,
        done_bytes=seen.done_bytes,
        size_bytes=max(seen.size_bytes, 0),
        speed_bytes_s=seen.speed_bytes_s,
        eta_s=seen.eta_s,
        save_path=seen.save_path or watch.save_path,
        name=seen.name or watch.name,
        broken=broken,
        stalled=_run(watch.stalled, seen.state in TRYING and not moved, now, rules, held=held),
        metadata=_run(watch.metadata, seen.state in METADATA, now, rules, held=held),
        restarted=watch.restarted and broken is not None,
        note=watch.note if broken is not None or meaning is Meaning.FINISHED else None,
    )
    if meaning is Meaning.BROKEN:
        return _broken(stage, known, rules)
    if meaning is Meaning.FINISHED:
        # Whatever the client's word, the bytes must agree before anything is imported.
        due = seen.complete and now >= watch.import_at
        return PollVerdict(known, stage if seen.complete else DOWNLOADING, Act.IMPORT if due else Act.KEEP)
    return _patience(DOWNLOADING if meaning is Meaning.WORKING else stage, known, rules)


def _run(clock: Clock | None, running: bool, now: Micros, rules: Rules, *, held: bool) -> Clock | None:
    return tick(clock, now, held=held, poll=rules.poll, longest=rules.longest) if running else None


def _broken_clock(
    watch: PollState, meaning: Meaning, now: Micros, rules: Rules, *, held: bool, moved: bool
) -> Clock | None:
    """Measure how long a torrent has been broken. After we restarted it, only new bytes prove that it recovered."""
    if meaning is Meaning.BROKEN:
        return tick(watch.broken, now, held=held, poll=rules.poll, longest=rules.longest)
    if watch.broken is not None and watch.restarted and not moved and meaning is not Meaning.FINISHED:
        return replace(watch.broken, last=now)
    return None


def _broken(stage: str, watch: PollState, rules: Rules) -> PollVerdict:
    """Wait for the client to recover (full disk, sleeping network drive). Restart once, never recheck."""
    assert watch.broken is not None
    if watch.broken.ran >= rules.error_grace:
        why = watch.note or f"the client reports {watch.substate}"
        return PollVerdict(watch, stage, Act.FAIL, "external_error", why)
    if watch.state == "error" and not watch.restarted and watch.broken.ran * 2 >= rules.error_grace:
        return PollVerdict(replace(watch, restarted=True), stage, Act.RESTART)
    return PollVerdict(watch, stage)


def _patience(stage: str, watch: PollState, rules: Rules) -> PollVerdict:
    for clock, limit, what in (
        (watch.metadata, rules.metadata, "no metadata came"),
        (watch.stalled, rules.stall, "no bytes came"),
    ):
        if clock is not None and 0 < limit <= clock.ran:
            return PollVerdict(watch, stage, Act.FAIL, "external_stalled", f"{what} for {clock.ran // SECOND} s")
    return PollVerdict(watch, stage)


def refused(stage: str, watch: PollState, reason: str, message: str, *, attempts: int, final: bool) -> PollVerdict:
    """Count an add that failed; the last one, or one that can only fail again, ends the job."""
    counted = replace(watch, refusals=watch.refusals + 1, added_at=None, note=message)
    if final or counted.refusals >= attempts:
        return PollVerdict(counted, stage, Act.FAIL, reason, message)
    return PollVerdict(counted, stage)


def import_failed(watch: PollState, note: str, now: Micros, rules: Rules) -> PollState:
    """Delay the next import with exponential backoff."""
    delay = min(IMPORT_REST, rules.poll * 2 ** min(watch.imports, 20))
    return replace(watch, imports=watch.imports + 1, import_at=now + delay, note=note)


def at_rest(watch: PollState) -> PollState:
    """Forget what only matters while something moves: speed, and the trouble there was on the way."""
    return replace(watch, speed_bytes_s=0, eta_s=None, note=None, stalled=None)


def progress_of(watch: PollState) -> int | None:
    """Return the percentage that is done, rounded down: 100 means all of it."""
    return min(100, watch.done_bytes * 100 // watch.size_bytes) if watch.size_bytes > 0 else None


__all__ = ["Act", "PollState", "PollVerdict", "Rules", "at_rest", "import_failed", "judge", "progress_of", "refused"]
