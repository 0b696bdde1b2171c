"""Every answer to a resume, for every kind of validator: the published bytes are always one version of one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from longshore.depot import Depot
from longshore.domain.kinds import Status
from longshore.domain.run_events import RunEvent
from tests.support.origin import (
    LAST_MODIFIED,
    Behaviour,
    Origin,
    Thing,
    bad_range,
    check_stamps,
    chunked,
    cut,
    encoded,
    on_range,
    partial_to_plain,
    stamped,
    unsatisfiable,
)

SIZE, CUT = 700_000, 400_000
VALIDATORS = {
    "strong": Thing(stamped(1, SIZE), etag='"v1"'),
    "weak": Thing(stamped(1, SIZE), etag='W/"v1"'),
    "none": Thing(stamped(1, SIZE), etag=None),
    "date": Thing(stamped(1, SIZE), etag=None, last_modified=LAST_MODIFIED),
}
RANGED = ("strong", "date")  # only these let us ask for the rest


@dataclass(frozen=True)
class Cell:
    """What a second answer is, and what must come of it where the rest was asked for."""

    answer: Callable[[Thing], Behaviour]
    requests: int
    resumed: bool
    version: int = 1
    attempts: int = 2
    only: tuple[str, ...] = RANGED


def _newer(thing: Thing) -> Thing:
    date = "Tue, 07 Jan 2025 09:00:00 GMT" if thing.last_modified else None
    return replace(
        thing, body=stamped(2, SIZE + 64), etag=thing.etag and thing.etag.replace("v1", "v2"), last_modified=date
    )


def _bad(how: str) -> Callable[[Thing], Behaviour]:
    return lambda thing: bad_range(thing, how)


CELLS = {
    "206 right": Cell(lambda thing: thing, 2, resumed=True),
    "206 chunked": Cell(lambda thing: on_range(thing, chunked(thing, 50_000)), 2, resumed=True),
    "206 short": Cell(_bad("short"), 3, resumed=True, attempts=3),
    "206 other start": Cell(_bad("start"), 3, resumed=False),
    "206 other end": Cell(_bad("end"), 3, resumed=False),
    "206 other length": Cell(_bad("longer"), 3, resumed=False),
    "206 other total": Cell(_bad("total"), 3, resumed=False),
    "206 unknown total": Cell(_bad("star_total"), 3, resumed=False),
    "206 no Content-Range": Cell(_bad("no_header"), 3, resumed=False),
    "206 other unit": Cell(_bad("unit"), 3, resumed=False),
    "206 garbage": Cell(_bad("garbage"), 3, resumed=False),
    "206 other ETag": Cell(_bad("etag"), 3, resumed=False, only=("strong",)),
    "206 weak ETag": Cell(_bad("weak_etag"), 3, resumed=False, only=("strong",)),
    "206 no ETag": Cell(_bad("no_etag"), 3, resumed=False, only=("strong",)),
    "206 multipart": Cell(_bad("multipart"), 3, resumed=False),
    "206 encoded": Cell(lambda thing: on_range(thing, encoded(thing)), 3, resumed=False),
    "200 same object": Cell(lambda thing: replace(thing, ranges=False), 2, resumed=True),
    "200 new object": Cell(_newer, 2, resumed=False, version=2),
    "416 our size": Cell(lambda thing: unsatisfiable(thing, CUT), 3, resumed=False),
    "416 other size": Cell(lambda thing: unsatisfiable(thing, SIZE + 1), 3, resumed=False),
    "416 bare": Cell(lambda thing: unsatisfiable(thing, None), 3, resumed=False),
}


@pytest.mark.parametrize("kind", VALIDATORS)
@pytest.mark.parametrize("name", CELLS)
def test_whatever_a_server_answers_one_version_is_published(depot: Depot, origin: Origin, name: str, kind: str) -> None:
    cell, thing = CELLS[name], VALIDATORS[kind]
    asks = kind in cell.only or (kind in RANGED and kind not in cell.only)
    last = _newer(thing) if cell.version == 2 else thing
    url = origin.add("/object", cut(thing, CUT), cell.answer(thing), last)
    notes: list[RunEvent] = []
    got = depot.get([url], on_note=notes.append)[0]
    assert got.status is Status.COMPLETED, got
    assert got.path is not None
    assert check_stamps(got.path.read_bytes()) == cell.version
    ranges = [request.headers.get("range") for request in origin.seen("/object")]
    done = next(note.facts for note in notes if note.kind == "completed")
    if not asks:
        assert ranges == [None, None]  # nothing identifies the version: the rest is never asked for
        assert done["resumed_from_bytes"] == 0
        return
    assert ranges[:2] == [None, f"bytes={CUT}-"]
    if kind not in cell.only:
        return  # one version is published; how is up to what this server sends of the other validator
    assert len(ranges) == cell.requests
    assert bool(done["resumed_from_bytes"]) == cell.resumed
    assert got.attempts == cell.attempts


def test_a_piece_that_nobody_asked_for_is_not_the_object(depot: Depot, origin: Origin) -> None:
    thing = VALIDATORS["strong"]
    url = origin.add("/object", partial_to_plain(thing, 5_000, 399_999), thing)
    got = depot.get([url])[0]
    assert got.status is Status.COMPLETED
    assert got.path is not None
    assert got.path.read_bytes() == thing.body


def test_a_whole_object_sent_as_206_is_taken(depot: Depot, origin: Origin) -> None:
    thing = VALIDATORS["strong"]
    got = depot.get([origin.add("/object", partial_to_plain(thing, 0, SIZE - 1))])[0]
    assert got.path is not None
    assert got.path.read_bytes() == thing.body


def test_a_complete_part_of_unknown_length_is_finished_by_416(depot: Depot, origin: Origin) -> None:
    thing = VALIDATORS["strong"]
    url = origin.add("/object", chunked(thing, 50_000, end=b""), unsatisfiable(thing, SIZE), thing)
    got = depot.get([url])[0]
    assert got.path is not None
    assert got.path.read_bytes() == thing.body
    assert origin.count("/object") == 2


def test_an_object_that_changes_at_every_request_fails_and_is_never_spliced(depot: Depot, origin: Origin) -> None:
    behaviours = [cut(replace(VALIDATORS["strong"], body=stamped(v, SIZE), etag=f'"v{v}"'), CUT) for v in range(1, 9)]
    got = depot.get([origin.add("/object", *behaviours)])[0]
    assert got.status is Status.FAILED
    assert got.reason == "truncated"
    assert got.artifact is None


def test_a_server_whose_bytes_change_under_one_tag_is_found_out_where_it_can_be(depot: Depot, origin: Origin) -> None:
    """The tag stays, the bytes do not, and ranges are ignored: the prefix shows it, and the whole object is taken."""
    liar = replace(VALIDATORS["strong"], body=stamped(2, SIZE), ranges=False)
    got = depot.get([origin.add("/object", cut(VALIDATORS["strong"], CUT), liar)])[0]
    assert got.path is not None
    assert check_stamps(got.path.read_bytes()) == 2
    assert origin.count("/object") == 3
