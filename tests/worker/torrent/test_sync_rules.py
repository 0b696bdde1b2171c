"""The client's words, the clocks and the paths, by table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from longshore.domain.model import SECOND, Scope
from longshore.domain.settings import QbittorrentSettings, Secret
from longshore.domain.torrents.model import (
    DOWNLOADING,
    MEANINGS,
    QUEUED,
    Clock,
    Identity,
    Meaning,
    Seen,
    book_state,
    check_relative,
    longest_gap,
    main_file,
    map_path,
    meaning_of,
    tick,
    torrent_request,
)
from longshore.domain.torrents.sync_rules import (
    Act,
    PollState,
    PollVerdict,
    Rules,
    import_failed,
    judge,
    progress_of,
    refused,
)
from longshore.errors import BadInput

SETTINGS = QbittorrentSettings(stall_s=600, metadata_s=300)
RULES = Rules.of(SETTINGS, 1)
ADDED = PollState(added_at=1)
KNOWN = PollState(added_at=1, seen_at=2, done_bytes=10)


def seen(state: str, **other: object) -> Seen:
    plain = Seen(
        id="a" * 40,
        identity=Identity(v1="a" * 40),
        name="book",
        state=state,
        progress=0.5,
        size_bytes=100,
        done_bytes=50,
        speed_bytes_s=7,
        save_path="/save",
        content_path="/save/book",
        category="c",
        tags=frozenset(),
    )
    return replace(plain, **other)  # type: ignore[arg-type]


def polls(
    stage: str, watch: PollState, *steps: tuple[float, Seen | None], held: frozenset[int] = frozenset()
) -> PollVerdict:
    """Judge one poll after the other at the given seconds, as the loop does; give the last verdict."""
    verdict = PollVerdict(watch, stage)
    for number, (at, found) in enumerate(steps):
        assert verdict.act is not Act.FAIL
        verdict = judge(verdict.stage, verdict.watch, found, int(at * SECOND), RULES, held=number in held)
    return verdict


@pytest.mark.parametrize(
    ("state", "stage", "act"),
    [
        ("checkingResumeData", QUEUED, Act.KEEP),
        ("queuedDL", QUEUED, Act.KEEP),
        ("metaDL", QUEUED, Act.KEEP),
        ("forcedMetaDL", QUEUED, Act.KEEP),
        ("allocating", DOWNLOADING, Act.KEEP),
        ("downloading", DOWNLOADING, Act.KEEP),
        ("forcedDL", DOWNLOADING, Act.KEEP),
        ("stalledDL", DOWNLOADING, Act.KEEP),
        ("pausedDL", DOWNLOADING, Act.KEEP),
        ("stoppedDL", DOWNLOADING, Act.KEEP),
        ("checkingDL", DOWNLOADING, Act.KEEP),
        ("checkingUP", DOWNLOADING, Act.KEEP),
        ("moving", DOWNLOADING, Act.KEEP),
        ("uploading", QUEUED, Act.IMPORT),
        ("forcedUP", QUEUED, Act.IMPORT),
        ("stalledUP", QUEUED, Act.IMPORT),
        ("queuedUP", QUEUED, Act.IMPORT),
        ("pausedUP", QUEUED, Act.IMPORT),
        ("stoppedUP", QUEUED, Act.IMPORT),
        ("error", QUEUED, Act.KEEP),
        ("missingFiles", QUEUED, Act.KEEP),
        ("unknown", QUEUED, Act.KEEP),
        ("aWordFromTheFuture", QUEUED, Act.KEEP),
    ],
)
def test_every_state_of_the_client(state: str, stage: str, act: Act) -> None:
    done = meaning_of(state)[0] is Meaning.FINISHED
    verdict = judge(QUEUED, ADDED, seen(state, progress=1.0 if done else 0.5), SECOND, RULES)
    assert (verdict.stage, verdict.act) == (stage, act)
    later = judge(DOWNLOADING, ADDED, seen(state), SECOND, RULES)
    assert later.stage == DOWNLOADING, "a job never goes back to queued"


def test_the_table_knows_both_spellings() -> None:
    assert MEANINGS["pausedUP"] == MEANINGS["stoppedUP"]
    assert MEANINGS["pausedDL"] == MEANINGS["stoppedDL"]


@pytest.mark.parametrize(
    "facts",
    [
        {"state": "stalledUP", "progress": 0.99},
        {"state": "stalledUP", "progress": 1.0, "size_bytes": 0},
        {"state": "moving", "progress": 1.0},
        {"state": "checkingUP", "progress": 1.0},
        {"state": "metaDL", "progress": 0.0, "size_bytes": 0},
        {"state": "missingFiles", "progress": 1.0},
    ],
)
def test_one_sign_of_completion_is_not_enough(facts: dict[str, object]) -> None:
    assert judge(DOWNLOADING, KNOWN, seen(str(facts.pop("state")), **facts), SECOND, RULES).act is Act.KEEP


def test_removed_by_hand_fails_after_the_grace_and_not_before() -> None:
    here = (0.0, seen("downloading"))
    gone = [(t, None) for t in (15.0, 30.0, 45.0, 60.0, 74.9)]
    almost = polls(DOWNLOADING, KNOWN, here, *gone)
    assert almost.act is Act.KEEP
    assert almost.watch.missing is not None
    assert almost.watch.missing.since == 15 * SECOND
    late = polls(DOWNLOADING, KNOWN, here, *gone, (75.0, None))
    assert (late.act, late.reason) == (Act.FAIL, "missing_external_job")


def test_two_polls_that_span_the_grace_are_enough() -> None:
    assert polls(DOWNLOADING, KNOWN, (0, None), (59.9, None)).act is Act.KEEP
    assert polls(DOWNLOADING, KNOWN, (0, None), (60.0, None)).act is Act.FAIL


def test_one_miss_never_fails_even_without_grace() -> None:
    rules = replace(RULES, grace=0)
    assert judge(DOWNLOADING, KNOWN, None, SECOND, rules).act is Act.KEEP


def test_flapping_resets_the_clock() -> None:
    steps = [(0, None), (50, None), (55, seen("downloading")), (60, None), (115, None)]
    back = polls(DOWNLOADING, KNOWN, *steps)
    assert back.act is Act.KEEP
    assert back.watch.missing == Clock(60 * SECOND, 115 * SECOND, 55 * SECOND)
    assert polls(DOWNLOADING, KNOWN, *steps[:3]).watch.missing is None


def test_the_clock_stands_while_the_client_is_away() -> None:
    steps = [(0, None), (15, None), (600, None), (640, None)]
    away = polls(DOWNLOADING, KNOWN, *steps, held=frozenset({2}))
    assert away.act is Act.KEEP
    assert away.watch.missing is not None
    assert away.watch.missing.ran == 55 * SECOND
    assert polls(DOWNLOADING, KNOWN, *steps, (645, None), held=frozenset({2})).act is Act.FAIL


def test_a_loop_that_stood_still_does_not_fail_at_its_first_poll() -> None:
    assert polls(DOWNLOADING, KNOWN, (0, None), (7200, None)).act is Act.KEEP
    assert polls(DOWNLOADING, KNOWN, (0, None), (7200, None), (7245, None)).act is Act.FAIL


def test_an_add_that_was_lost_is_repeated_once() -> None:
    assert judge(QUEUED, PollState(), None, SECOND, RULES).act is Act.ADD
    first = judge(QUEUED, ADDED, None, 10 * SECOND, RULES)
    assert first.act is Act.KEEP
    again = judge(QUEUED, first.watch, None, 25 * SECOND, RULES)
    assert again.act is Act.ADD
    assert again.watch.added_again
    assert again.watch.missing is None
    end = polls(QUEUED, again.watch, (40, None), (70, None), (100, None))
    assert (end.act, end.reason) == (Act.FAIL, "missing_external_job")


def test_what_was_seen_and_vanished_is_never_added_again() -> None:
    for verdict in (polls(DOWNLOADING, KNOWN, (0, None), (30, None)), polls(DOWNLOADING, KNOWN, (0, None), (99, None))):
        assert verdict.act is not Act.ADD


def test_an_error_has_its_own_grace_one_start_and_the_clients_reason() -> None:
    noted = replace(KNOWN, note="No space left on device")
    steps = [(t, seen("error")) for t in (0, 60, 120)]
    assert polls(DOWNLOADING, noted, *steps).act is Act.KEEP
    half = polls(DOWNLOADING, noted, *steps, (150, seen("error")))
    assert half.act is Act.RESTART
    after = polls(DOWNLOADING, half.watch, (180, seen("error")), (240, seen("error")))
    assert after.act is Act.KEEP, "one start only"
    end = polls(DOWNLOADING, after.watch, (300, seen("error")))
    assert (end.act, end.reason, end.message) == (Act.FAIL, "external_error", "No space left on device")


def test_an_error_that_passes_is_forgotten() -> None:
    back = polls(DOWNLOADING, KNOWN, (0, seen("error")), (60, seen("error")), (90, seen("downloading")))
    assert back.watch.broken is None
    assert not back.watch.restarted


def test_our_start_alone_does_not_mend_an_error() -> None:
    steps = [(float(t), seen("error", done_bytes=10)) for t in (0, 60, 120, 180)]
    started = polls(DOWNLOADING, KNOWN, *steps)
    assert started.act is Act.RESTART
    trying = polls(DOWNLOADING, started.watch, (190, seen("stalledDL", done_bytes=10)))
    assert trying.watch.broken is not None, "nothing came yet"
    end = polls(DOWNLOADING, trying.watch, *[(float(t), seen("error", done_bytes=10)) for t in (200, 260, 320)])
    assert (end.act, end.reason) == (Act.FAIL, "external_error")
    mended = polls(DOWNLOADING, trying.watch, (200, seen("downloading", done_bytes=20)))
    assert mended.watch.broken is None


def test_missing_files_are_never_started_or_rechecked() -> None:
    steps = [(t, seen("missingFiles")) for t in (0, 60, 120, 180, 240)]
    assert polls(DOWNLOADING, KNOWN, *steps).act is Act.KEEP
    end = polls(DOWNLOADING, KNOWN, *steps, (300, seen("missingFiles")))
    assert (end.act, end.message) == (Act.FAIL, "the client reports missing files")


def test_stalled_and_metadata_have_limits_that_can_be_off() -> None:
    quiet = seen("stalledDL", done_bytes=10)
    steps = [(float(t), quiet) for t in range(0, 660, 60)]
    assert polls(DOWNLOADING, KNOWN, *steps[:-1]).act is Act.KEEP
    end = polls(DOWNLOADING, KNOWN, *steps)
    assert (end.act, end.reason) == (Act.FAIL, "external_stalled")
    moving_on = [(float(t), seen("stalledDL", done_bytes=10 + t)) for t in range(0, 1200, 60)]
    assert polls(DOWNLOADING, KNOWN, *moving_on).act is Act.KEEP
    paused = [(float(t), seen("pausedDL", done_bytes=10)) for t in range(0, 1200, 60)]
    assert polls(DOWNLOADING, KNOWN, *paused).act is Act.KEEP
    meta = [(float(t), seen("metaDL", size_bytes=0, done_bytes=0, progress=0.0)) for t in range(0, 360, 60)]
    assert (polls(QUEUED, ADDED, *meta).act, polls(QUEUED, ADDED, *meta[:-1]).act) == (Act.FAIL, Act.KEEP)
    never = Rules.of(QbittorrentSettings(), 1)
    long = PollState(added_at=1, seen_at=1, stalled=Clock(0, 0, 10**12), metadata=Clock(0, 0, 10**12))
    assert judge(DOWNLOADING, long, seen("stalledDL", done_bytes=0), SECOND, never).act is Act.KEEP


def test_adds_that_fail_are_counted() -> None:
    verdict = refused(QUEUED, ADDED, "external_refused", "no", attempts=2, final=False)
    assert (verdict.act, verdict.watch.refusals, verdict.watch.added_at) == (Act.KEEP, 1, None)
    last = refused(QUEUED, verdict.watch, "external_refused", "no", attempts=2, final=False)
    assert (last.act, last.reason, last.message) == (Act.FAIL, "external_refused", "no")
    assert refused(QUEUED, PollState(), "http_404", "gone", attempts=5, final=True).act is Act.FAIL


def test_an_import_that_failed_rests_longer_each_time() -> None:
    whole, watch, rests = seen("stalledUP", progress=1.0), KNOWN, []
    for _ in range(8):
        watch = import_failed(watch, "no room", 0, RULES)
        rests.append(watch.import_at // SECOND)
        assert judge(DOWNLOADING, watch, whole, watch.import_at - 1, RULES).act is Act.KEEP
        due = judge(DOWNLOADING, watch, whole, watch.import_at, RULES)
        assert (due.act, due.watch.note) == (Act.IMPORT, "no room")
    assert rests == [15, 30, 60, 120, 240, 480, 600, 600]


def test_ticks() -> None:
    first = tick(None, 100, held=False, poll=10, longest=50)
    assert first == Clock(100, 100, 0)
    assert tick(first, 130, held=False, poll=10, longest=50).ran == 30
    assert tick(first, 130, held=True, poll=10, longest=50).ran == 0
    assert tick(first, 1000, held=False, poll=10, longest=50).ran == 10
    assert tick(first, 50, held=False, poll=10, longest=50).ran == 0, "a clock that was set back"
    assert longest_gap(SETTINGS, 250) == 7 * 15 * SECOND
    assert longest_gap(SETTINGS.replaced(poll_s=0.1), 1) == 75 * SECOND


@pytest.mark.parametrize(
    ("path", "root", "below"),
    [
        ("/downloads/books/a", "/mnt/books", "a"),
        ("/downloads/other", "/mnt/all", "other"),
        ("/downloads", "/mnt/all", ""),
        ("/downloads/", "/mnt/all", ""),
        ("/downloadsX/a", "/downloadsX/a", ""),
        ("C:\\Torrents\\book\\x", "/mnt/win", "book/x"),
        ("/elsewhere/a", "/elsewhere/a", ""),
    ],
)
def test_the_longest_prefix_maps_a_path(path: str, root: str, below: str) -> None:
    mappings = {"/downloads": "/mnt/all", "/downloads/books/": "/mnt/books", "C:\\Torrents": "/mnt/win"}
    assert map_path(path, mappings) == (root, below)
    assert map_path(path, dict(reversed(mappings.items()))) == (root, below), (
        "the order of the mappings does not matter"
    )


@pytest.mark.parametrize("name", ["", "../x", "a/../../x", "/etc/passwd", "a//b", "a/./b", "a\0b", "..", "..\\..\\x"])
def test_names_that_lead_elsewhere(name: str) -> None:
    with pytest.raises(BadInput):
        check_relative(name)


@pytest.mark.parametrize("name", ["a", "a/b c/d", "x" * 255, "a\nb", "..a/b..", "ä/ö"])
def test_names_that_are_only_odd(name: str) -> None:
    assert check_relative(name) == tuple(name.split("/"))


@pytest.mark.parametrize(
    ("media_type", "names", "chosen"),
    [
        ("audiobook", {"a.mp3": 5, "b.m4b": 9, "scan.pdf": 50}, "b.m4b"),
        ("ebook", {"scan.PDF": 7, "b.epub": 3, "trailer.mp4": 900}, "scan.PDF"),
        ("Movie", {"a.mkv": 9, "sample.mkv": 1, "a.srt": 99}, "a.mkv"),
        ("ebook", {"readme": 3, "disc.iso": 9}, "disc.iso"),
        ("podcast", {"a.mp3": 3, "b.jpg": 9}, "b.jpg"),
        ("ebook", {"one.epub": 4, "two.epub": 4}, "one.epub"),
    ],
)
def test_the_file_that_stands_for_several(media_type: str, names: dict[str, int], chosen: str) -> None:
    files = list(names.items())
    assert files[main_file(media_type, files)][0] == chosen


def test_small_things() -> None:
    assert (book_state(0), book_state(2)) == ("Archive", "Library")
    assert progress_of(PollState()) is None
    assert progress_of(PollState(done_bytes=999, size_bytes=1000)) == 99
    assert progress_of(PollState(done_bytes=1000, size_bytes=1000)) == 100
    assert QbittorrentSettings(category="x-{media_type}").category_of("audio/book") == "x-audio_book"
    assert "secret" not in repr(QbittorrentSettings(password=Secret("secret"), api_key=Secret("secret")))
    for field in ("user_id", "book_id", "media_type", "source"):
        given = {"user_id": "u", "book_id": "b", "media_type": "ebook", "source": "magnet:?x", field: ""}
        with pytest.raises(BadInput):
            torrent_request(Scope(), **given)  # type: ignore[arg-type]
