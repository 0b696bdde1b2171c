"""The resume matrix over the wire and through the depot: {validator} × {what the server does with the second request}.

The first answer is cut after 400,000 bytes; then the object is asked for again. Bodies carry version and offset stamps:
whatever the server does, what is published is one version of one object, and it is the right one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from longshore.config import load_settings
from longshore.depot import Depot
from longshore.domain.notes import Note
from tests.support.origin import (
    LAST_MODIFIED,
    Behaviour,
    Origin,
    Request,
    Thing,
    Wire,
    bad_range,
    check_stamps,
    chunked,
    cut,
    encoded,
    on_range,
    other_version,
    partial,
    partial_to_plain,
    stamped,
    unsatisfiable,
)

SIZE, CUT = 600_000, 400_000
PLAIN = Thing(stamped(1, SIZE))
KINDS = {
    "strong": replace(PLAIN, etag='"v1"', last_modified=LAST_MODIFIED),
    "weak": replace(PLAIN, etag='W/"v1"', last_modified=LAST_MODIFIED),
    "none": replace(PLAIN, etag=None),
    "date": replace(PLAIN, etag=None, last_modified=LAST_MODIFIED),
}
VALIDATED = ("strong", "date")


def splice(thing: Thing) -> Behaviour:
    """Answer every range with 206 from this version, whatever If-Range says: the classic corruption."""

    def behave(request: Request, wire: Wire) -> None:
        span = request.wanted(len(thing.body))
        if span is None:
            thing(request, wire)
        else:
            wire.answer(206, partial(thing, *span), thing.body[span[0] : span[1] + 1])

    return behave


@dataclass(frozen=True)
class Cell:
    """The second answer, made from the old and the new version; then what must be published, and how."""

    second: Any  # (old, new) -> Behaviour
    version: int = 1  # of what is published
    asks: int = 3  # requests in all, where a range is asked for
    resumed: bool = False  # the held bytes were used


CELLS = {
    "206 right": Cell(lambda old, _: old, asks=2, resumed=True),
    "206 wrong start": Cell(lambda old, _: bad_range(old, "start")),
    "206 short": Cell(lambda old, _: bad_range(old, "short"), resumed=True),
    "206 other total": Cell(lambda old, _: bad_range(old, "total")),
    "206 star total": Cell(lambda old, _: bad_range(old, "star_total")),
    "206 other validator": Cell(lambda _, new: splice(new), version=2),
    "206 no range": Cell(lambda old, _: bad_range(old, "no_header")),
    "206 other unit": Cell(lambda old, _: bad_range(old, "unit")),
    "206 garbage": Cell(lambda old, _: bad_range(old, "garbage")),
    "206 longer": Cell(lambda old, _: bad_range(old, "longer")),
    "206 chunked": Cell(lambda old, _: chunked(old, 10_000), asks=2, resumed=True),
    "206 encoded": Cell(lambda old, _: on_range(old, encoded(old))),
    "206 multipart": Cell(lambda old, _: bad_range(old, "multipart")),
    "200 same": Cell(lambda old, _: replace(old, ranges=False), asks=2, resumed=True),
    "200 new": Cell(lambda _, new: new, version=2, asks=2),
    "200 same validator, other bytes": Cell(lambda old, new: replace(old, body=new.body, ranges=False), version=2),
    "416 other": Cell(lambda old, _: unsatisfiable(old, CUT - 100)),
    "416 shorter than declared": Cell(lambda old, _: unsatisfiable(old, CUT)),
    "416 bare": Cell(lambda old, _: unsatisfiable(old, None)),
}


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        yield server


@dataclass(frozen=True)
class Published:
    body: bytes
    resumed_from: int


def publish(tmp_path: Path, urls: dict[str, str], **flags: Any) -> dict[str, Published]:
    """Get all URLs in one new depot, retries included, and give what was published."""
    usual = {"network": {"allow": ["127.0.0.0/8"]}, "retry": {"base_s": 0.01, "cap_s": 0.02, "max_attempts": 6}}
    resumed: dict[str | None, int] = {}

    def listen(note: Note) -> None:
        if note.kind == "completed":
            resumed[note.url] = note.facts.get("resumed_from_bytes") or 0

    with Depot(settings=load_settings(tmp_path / "depot", environ={}, **(usual | flags))) as depot:
        results = dict(zip(urls, depot.get(list(urls.values()), on_note=listen), strict=True))
        failed = {name: f"{got.reason}: {got.message}" for name, got in results.items() if got.path is None}
        assert not failed
        return {n: Published(g.path.read_bytes(), resumed[g.url]) for n, g in results.items() if g.path is not None}


def script(origin: Origin, kind: str) -> dict[str, str]:
    """Give every cell a path of its own: cut, then the cell's answer, then an honest server."""
    old = KINDS[kind]
    new = other_version(old, 2)
    return {
        name: origin.add(f"/{at}", cut(old, CUT), cell.second(old, new), new if cell.version == 2 else old)
        for at, (name, cell) in enumerate(CELLS.items())
    }


def asked(origin: Origin, url: str) -> list[Request]:
    return origin.seen(url.removeprefix(origin.url("")))


@pytest.mark.parametrize("kind", ["strong", "date"])
def test_with_a_strong_validator(origin: Origin, tmp_path: Path, kind: str) -> None:
    urls = script(origin, kind)
    results = publish(tmp_path, urls)
    for name, cell in CELLS.items():
        requests = asked(origin, urls[name])
        assert (len(results[name].body), check_stamps(results[name].body)) == (SIZE, cell.version), name
        assert requests[1].headers["if-range"] == ('"v1"' if kind == "strong" else LAST_MODIFIED), name
        assert requests[1].headers["range"] == f"bytes={CUT}-", name
        assert len(requests) == cell.asks, name
        assert (results[name].resumed_from > 0) is cell.resumed, name


@pytest.mark.parametrize("kind", ["weak", "none"])
def test_without_one_nothing_is_resumed(origin: Origin, tmp_path: Path, kind: str) -> None:
    urls = script(origin, kind)
    results = publish(tmp_path, urls)
    for name, cell in CELLS.items():
        assert (len(results[name].body), check_stamps(results[name].body)) == (SIZE, cell.version), name
        assert all("range" not in request.headers for request in asked(origin, urls[name])), name
        assert results[name].resumed_from == 0, name


@pytest.mark.parametrize("kind", ["weak", "none"])
def test_where_configured_an_overlap_is_compared(origin: Origin, tmp_path: Path, kind: str) -> None:
    urls = script(origin, kind)
    results = publish(tmp_path, urls, resume={"prefix_check_bytes": 65_536, "allow_without_validators": True})
    for name, cell in CELLS.items():
        second = asked(origin, urls[name])[1].headers
        assert (len(results[name].body), check_stamps(results[name].body)) == (SIZE, cell.version), name
        assert second["range"] == f"bytes={CUT - 65_536}-" and "if-range" not in second, name


def test_206_to_a_plain_request(origin: Origin, tmp_path: Path) -> None:
    urls = {
        kind: origin.add(f"/{kind}", partial_to_plain(thing, 5000, 499_999), thing) for kind, thing in KINDS.items()
    }
    for kind, result in publish(tmp_path, urls).items():
        assert (len(result.body), check_stamps(result.body)) == (SIZE, 1), kind


def test_416_for_a_body_whose_end_was_never_announced(origin: Origin, tmp_path: Path) -> None:
    """A chunked body that lost only its last chunk: with a strong validator the 416 proves that nothing is missing."""
    urls = {}
    for kind, thing in KINDS.items():
        whole = replace(thing, body=stamped(1, CUT))
        urls[kind] = origin.add(f"/{kind}", chunked(whole, 10_000, end=b""), unsatisfiable(whole, CUT))
    for kind, result in publish(tmp_path, urls).items():
        assert result.body == stamped(1, CUT), kind
        assert (result.resumed_from > 0) is (kind in VALIDATED), kind


def test_an_object_that_changes_with_every_request_is_never_mixed(origin: Origin, tmp_path: Path) -> None:
    old = KINDS["strong"]
    changing = [cut(other_version(old, n, f'"v{n}"'), CUT) for n in range(1, 5)]
    result = publish(tmp_path, {"a": origin.add("/a", *changing, other_version(old, 5, '"v5"'))})["a"]
    assert (len(result.body), check_stamps(result.body)) == (SIZE, 5)
