"""The rows of the resume matrix that the engine's own test leaves out: overlaps, splices, ends that were never announced.

The first answer is cut after 400,000 bytes; then the object is asked for again. Bodies carry version and offset stamps:
whatever the server does, what is published is one version of one object, and it is the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from longshore.config import load_settings
from longshore.depot import Depot
from longshore.domain.run_events import RunEvent
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


# The second answer, made from the old and the new version, and the version that must be published.
CELLS: dict[str, tuple[Callable[[Thing, Thing], Behaviour], int]] = {
    "206 right": (lambda old, _: old, 1),
    "206 wrong start": (lambda old, _: bad_range(old, "start"), 1),
    "206 short": (lambda old, _: bad_range(old, "short"), 1),
    "206 other total": (lambda old, _: bad_range(old, "total"), 1),
    "206 star total": (lambda old, _: bad_range(old, "star_total"), 1),
    "206 spliced": (lambda _, new: splice(new), 2),
    "206 no range": (lambda old, _: bad_range(old, "no_header"), 1),
    "206 other unit": (lambda old, _: bad_range(old, "unit"), 1),
    "206 longer": (lambda old, _: bad_range(old, "longer"), 1),
    "206 chunked": (lambda old, _: chunked(old, 10_000), 1),
    "206 encoded": (lambda old, _: on_range(old, encoded(old)), 1),
    "206 multipart": (lambda old, _: bad_range(old, "multipart"), 1),
    "200 same": (lambda old, _: replace(old, ranges=False), 1),
    "200 new": (lambda _, new: replace(new, ranges=False), 2),
    "416 other": (lambda old, _: unsatisfiable(old, CUT - 100), 1),
    "416 bare": (lambda old, _: unsatisfiable(old, None), 1),
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

    def listen(note: RunEvent) -> None:
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
        name: origin.add(f"/{at}", cut(old, CUT), second(old, new), new if version == 2 else old)
        for at, (name, (second, version)) in enumerate(CELLS.items())
    }


def asked(origin: Origin, url: str) -> list[Request]:
    return origin.seen(url.removeprefix(origin.url("")))


@pytest.mark.parametrize("kind", ["weak", "none"])
def test_where_configured_an_overlap_is_compared(origin: Origin, tmp_path: Path, kind: str) -> None:
    urls = script(origin, kind)
    results = publish(tmp_path, urls, resume={"prefix_check_bytes": 65_536, "allow_without_validators": True})
    for name, (_, version) in CELLS.items():
        second = asked(origin, urls[name])[1].headers
        assert (len(results[name].body), check_stamps(results[name].body)) == (SIZE, version), name
        assert second["range"] == f"bytes={CUT - 65_536}-" and "if-range" not in second, name


def test_a_server_that_splices_two_versions(origin: Origin, tmp_path: Path) -> None:
    """A range of the new version, whatever If-Range said: its own validators give it away, where it has strong ones."""
    urls = {}
    for kind in VALIDATED:
        new = other_version(KINDS[kind], 2)
        urls[kind] = origin.add(f"/{kind}", cut(KINDS[kind], CUT), splice(new), new)
    for kind, result in publish(tmp_path, urls).items():
        assert (len(result.body), check_stamps(result.body), result.resumed_from) == (SIZE, 2, 0), kind


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
