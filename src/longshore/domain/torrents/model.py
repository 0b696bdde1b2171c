"""A torrent client's words and what they mean for a job: all of it, as data.

The client's own machine has twenty states and two spellings of some; ours has five. Only `MEANINGS` connects them.
Whatever takes time is measured by a `Clock` that runs only while the client answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from longshore.domain.identity.keys import check_text
from longshore.domain.model import SECOND, Micros, Scope
from longshore.domain.settings import QbittorrentSettings
from longshore.errors import BadInput

OURS_TAG: Final = "longshore"  # on every torrent that we added; never on one that we found
JOB_TAG: Final = "job:"
QUEUED: Final = "queued"
DOWNLOADING: Final = "downloading"
# What a media type is called and how its files end; the first word that fits decides ("audiobook" is audio).
_MEDIA: Final = (
    (("audio", "music"), " mp3 m4a m4b aac flac ogg oga opus wav wma aax "),
    (("video", "movie", "film", "series"), " mkv mp4 m4v avi mov webm mpg mpeg ts wmv "),
    (
        ("book", "comic", "magazine", "paper"),
        " epub pdf mobi azw azw3 kepub fb2 djvu cbz cbr cb7 lit txt rtf doc docx odt html ",
    ),
)
SHORT_GAP: Final = 75 * SECOND  # a gap up to this never counts as a stopped loop, because a user may sync manually


class Meaning(StrEnum):
    """What a state of the client means for the job."""

    WAITING = "waiting"  # known to the client, not begun: the job stays queued
    WORKING = "working"  # the job is downloading
    FINISHED = "finished"  # every wanted byte is there: import it
    BROKEN = "broken"  # the client gave up for now: a grace begins
    UNKNOWN = "unknown"  # an unknown state: nothing changes


# state -> (meaning, substate shown to people). Both spellings: paused* up to 4.6, stopped* from 5.0.
MEANINGS: Final[dict[str, tuple[Meaning, str]]] = {
    "checkingResumeData": (Meaning.WAITING, "checking"),
    "queuedDL": (Meaning.WAITING, "queued in the client"),
    "metaDL": (Meaning.WAITING, "metadata"),
    "forcedMetaDL": (Meaning.WAITING, "metadata"),
    "allocating": (Meaning.WORKING, "allocating"),
    "downloading": (Meaning.WORKING, "downloading"),
    "forcedDL": (Meaning.WORKING, "downloading"),
    "stalledDL": (Meaning.WORKING, "stalled"),
    "pausedDL": (Meaning.WORKING, "paused"),
    "stoppedDL": (Meaning.WORKING, "paused"),
    "checkingDL": (Meaning.WORKING, "checking"),
    "checkingUP": (Meaning.WORKING, "checking"),  # the check may fail: not finished
    "moving": (Meaning.WORKING, "moving"),  # progress is 1 already and the files are not in place
    "uploading": (Meaning.FINISHED, "seeding"),
    "forcedUP": (Meaning.FINISHED, "seeding"),
    "stalledUP": (Meaning.FINISHED, "seeding"),
    "queuedUP": (Meaning.FINISHED, "seeding"),
    "pausedUP": (Meaning.FINISHED, "finished"),
    "stoppedUP": (Meaning.FINISHED, "finished"),
    "error": (Meaning.BROKEN, "error"),
    "missingFiles": (Meaning.BROKEN, "missing files"),
    "unknown": (Meaning.UNKNOWN, "unknown"),
}
METADATA: Final = frozenset({"metaDL", "forcedMetaDL"})
TRYING: Final = frozenset({"stalledDL", "downloading", "forcedDL"})  # states in which bytes ought to come


def meaning_of(state: str) -> tuple[Meaning, str]:
    """Return the meaning of a client's state; an unknown state changes nothing."""
    return MEANINGS.get(state, (Meaning.UNKNOWN, "unknown"))


@dataclass(frozen=True, slots=True)
class Identity:
    """A torrent's info hashes, lower-case hexadecimal."""

    v1: str | None = None
    v2: str | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """Every id that the client may use for it: a hybrid's changes when its metadata arrives."""
        return tuple(x for x in ((self.v2 or "")[:40], self.v1) if x)

    def overlaps(self, other: Identity) -> bool:
        """Return whether both can be the same torrent."""
        return bool(set(self.ids) & set(other.ids))


NOBODY: Final = Identity()


@dataclass(frozen=True, slots=True)
class TorrentRequest:
    """One start as it is handed in, checked."""

    scope: Scope
    user_id: str
    book_id: str
    media_type: str
    source: str  # a magnet link, a URL of a .torrent, or the name of the file that was read
    identity: Identity = NOBODY
    metainfo: bytes | None = None
    request_id: str | None = None
    again: bool = False  # although this release failed before


def torrent_request(
    scope: Scope,
    *,
    user_id: str,
    book_id: str,
    media_type: str,
    source: str,
    identity: Identity = NOBODY,
    metainfo: bytes | None = None,
    request_id: str | None = None,
    again: bool = False,
) -> TorrentRequest:
    """Check a start before anything is written."""
    for name, value in (("user", user_id), ("book", book_id), ("media type", media_type)):
        check_text(name, value, limit=1024)
    check_text("source", source)
    return TorrentRequest(scope, user_id, book_id, media_type, source, identity, metainfo, request_id, again)


@dataclass(frozen=True, slots=True)
class Seen:
    """A torrent as the client shows it."""

    id: str
    identity: Identity
    name: str
    state: str
    progress: float
    size_bytes: int  # of the wanted files
    done_bytes: int
    speed_bytes_s: int
    save_path: str
    content_path: str
    category: str
    tags: frozenset[str]
    eta_s: int | None = None

    @property
    def ours(self) -> bool:
        """Return whether we added it."""
        return OURS_TAG in self.tags

    @property
    def complete(self) -> bool:
        """Return whether the client says so in every way it has: state, progress and size."""
        return meaning_of(self.state)[0] is Meaning.FINISHED and self.progress >= 1 and self.size_bytes > 0


@dataclass(frozen=True, slots=True)
class Clock:
    """Time that counts only between two answers of the client."""

    since: Micros
    last: Micros
    ran: Micros = 0


def tick(clock: Clock | None, now: Micros, *, held: bool, poll: Micros, longest: Micros) -> Clock:
    """Advance a clock to now. An outage adds nothing; a stopped loop adds one poll interval."""
    if clock is None:
        return Clock(now, now)
    gap = max(0, now - clock.last)
    counted = 0 if held else gap if gap <= longest else min(gap, poll)
    return Clock(clock.since, now, clock.ran + counted)


def longest_gap(settings: QbittorrentSettings, active: int) -> Micros:
    """Return how far apart two polls of one job may lie while the loop runs: a few cycles more than a full rotation."""
    rotation = -(-active // settings.batch) if active else 1
    return max(SHORT_GAP, int((rotation + 4) * settings.poll_s * SECOND))


def map_path(path: str, mappings: Mapping[str, str]) -> tuple[str, str]:
    """Translate a path of the client's machine: (our root, what lies below it). The longest prefix wins.

    Without a mapping the path is ours as it stands.
    """
    plain = path.replace("\\", "/") if re.match(r"[A-Za-z]:[\\/]", path) else path
    best: tuple[str, str] | None = None
    for remote, local in mappings.items():
        prefix = (remote.replace("\\", "/") if re.match(r"[A-Za-z]:[\\/]", remote) else remote).rstrip("/")
        if (plain == prefix or plain.startswith(prefix + "/")) and (best is None or len(prefix) > len(best[0])):
            best = (prefix, local)
    if best is None:
        return plain, ""
    return best[1], plain[len(best[0]) :].strip("/")


def check_relative(name: str) -> tuple[str, ...]:
    """Split a file's name inside a torrent into its parts; refuse what could lead elsewhere."""
    parts = tuple(name.replace("\\", "/").split("/")) if "\\" in name and "/" not in name else tuple(name.split("/"))
    if not name or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise BadInput(f"a file of the torrent has a name that leads elsewhere: {name[:200]!r}")
    return parts


def main_file(media_type: str, files: Sequence[tuple[str, int]]) -> int:
    """Choose the file that stands for an asset of several: the largest of its medium, else the largest of all."""
    medium = next((ends for words, ends in _MEDIA if any(word in media_type.lower() for word in words)), "")
    fits = [f" {name.rpartition('.')[2].lower()} " in medium for name, _ in files]
    return max(range(len(files)), key=lambda i: (fits[i], files[i][1], -i))


def book_state(available: int) -> str:
    """Return where a book with so many available assets stands."""
    return "Library" if available else "Archive"


def job_tag(job_id: str) -> str:
    """Return the tag by which the client remembers a job."""
    return JOB_TAG + job_id
