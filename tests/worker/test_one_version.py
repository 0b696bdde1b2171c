"""A completed job's bytes are one version of what one server sent, to this caller: servers that tempt to join others."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longshore import failpoints
from longshore.depot import Depot
from longshore.domain.kinds import Status
from tests.support.origin import DATE, Origin, Request, Thing, Wire, check_stamps, cut, redirect, stamped

SIZE, CUT = 700_000, 400_000
FIRST, OTHER = Thing(stamped(1, SIZE)), Thing(stamped(2, SIZE))  # of one size, under one strong entity tag
MakeDepot = Callable[..., Depot]


@pytest.mark.parametrize("where", ["another server", "another path"])
@pytest.mark.parametrize("ranges", [True, False])
def test_a_redirect_that_leads_elsewhere_at_the_retry(depot: Depot, origin: Origin, where: str, ranges: bool) -> None:
    with Origin("127.0.0.2") as second:
        server = second if where == "another server" else origin
        old = origin.add("/old", cut(FIRST, CUT))
        new = server.add("/new", replace(OTHER, ranges=ranges))
        url = origin.add("/latest", redirect(old), redirect(new))
        got = depot.get([url])[0]
        assert got.status is Status.COMPLETED and got.path is not None
        assert check_stamps(got.path.read_bytes()) == 2, "whole bytes of the second server"
        assert origin.count("/latest") <= 3
        assert server.count("/new") <= 2


def test_a_redirect_that_leads_to_the_same_place_is_resumed(depot: Depot, origin: Origin) -> None:
    old = origin.add("/old", cut(FIRST, CUT), FIRST)
    url = origin.add("/latest", redirect(old))
    got = depot.get([url])[0]
    assert got.path is not None and got.path.read_bytes() == FIRST.body
    assert [request.headers.get("range") for request in origin.seen("/old")] == [None, f"bytes={CUT}-"]


def test_a_mirror_does_not_go_on_with_the_bytes_of_another(depot: Depot, origin: Origin) -> None:
    with Origin("127.0.0.2") as second:
        url, mirror = origin.add("/x", cut(FIRST, CUT)), second.add("/x", OTHER)
        got = depot.get([{"url": url, "mirrors": [mirror]}])[0]
        assert got.status is Status.COMPLETED and got.path is not None
        assert check_stamps(got.path.read_bytes()) == 2


def test_not_modified_is_about_the_url_that_answered(depot: Depot, origin: Origin) -> None:
    old, new = origin.add("/old", FIRST), origin.add("/new", OTHER)
    url = origin.add("/latest", redirect(old), redirect(new))
    assert _bytes(depot.get([url])) == FIRST.body
    assert _bytes(depot.get([url], refresh=True)) == OTHER.body, "a 304 of another URL is not about these bytes"
    assert origin.count("/new") == 2
    assert _bytes(depot.get([url], refresh=True)) == OTHER.body
    assert origin.count("/new") == 3, "now it is: asked once, answered with 304"


def test_not_modified_is_not_about_the_bytes_of_a_mirror(depot: Depot, origin: Origin) -> None:
    with Origin("127.0.0.2") as second:
        url = origin.add("/x", cut(FIRST, 0), OTHER)
        mirror = second.add("/x", FIRST)
        item = {"url": url, "mirrors": [mirror]}
        assert _bytes(depot.get([item])) == FIRST.body
        assert _bytes(depot.get([item], refresh=True)) == OTHER.body


OLD, YOUNG = "Mon, 06 Jan 2020 10:00:00 GMT", DATE


def dated(body: bytes, date: str) -> Callable[[Request, Wire], None]:
    """Serve an object that is known by its date alone; If-Modified-Since is answered as the RFC says."""
    thing = Thing(body, etag=None, last_modified=date)

    def serve(request: Request, wire: Wire) -> None:
        if request.headers.get("if-modified-since") == date:
            wire.answer(304, thing.facts())
        else:
            thing(request, wire)

    return serve


@pytest.mark.parametrize(("date", "asked"), [(OLD, OLD), (YOUNG, None)], ids=["old", "young"])
def test_a_date_that_was_young_when_it_was_sent_is_not_asked_with(
    depot: Depot, origin: Origin, date: str, asked: str | None
) -> None:
    """A file can be rewritten within the second of its date; a 304 by that date would keep the old bytes."""
    url = origin.add("/x", dated(FIRST.body, date))
    depot.get([url])
    if asked is None:
        origin.add("/x", dated(OTHER.body, date))
    got = depot.get([url], refresh=True)
    assert _bytes(got) == (FIRST.body if asked else OTHER.body)
    assert [request.headers.get("if-modified-since") for request in origin.seen("/x")] == [None, asked]


def test_an_entity_tag_that_appears_is_another_version(depot: Depot, origin: Origin) -> None:
    first = Thing(FIRST.body, etag=None, last_modified=OLD)
    url = origin.add("/x", cut(first, CUT), Thing(OTHER.body, etag='"new"', last_modified=OLD))
    assert _bytes(depot.get([url])) == OTHER.body
    assert origin.count("/x") <= 3


def test_a_304_with_another_entity_tag_is_not_believed(depot: Depot, origin: Origin) -> None:
    def liar(request: Request, wire: Wire) -> None:
        if "if-none-match" in request.headers:
            wire.answer(304, {"ETag": '"v2"'})
        else:
            OTHER(request, wire)

    url = origin.add("/x", FIRST, liar)
    assert _bytes(depot.get([url])) == FIRST.body
    assert _bytes(depot.get([url], refresh=True)) == OTHER.body


def _per_caller(request: Request, wire: Wire) -> None:
    """Answer each caller differently, under one entity tag, and vary by nothing but the truth."""
    who = request.headers.get("authorization", "nobody")
    Thing(f"for {who}\n".encode(), extra={"Vary": "Authorization"})(request, wire)


@pytest.mark.parametrize("refresh", [False, True])
def test_each_caller_gets_its_own_bytes(depot: Depot, origin: Origin, refresh: bool) -> None:
    url = origin.add("/report", _per_caller)
    for who in ("alice", "bob", "alice", "nobody"):
        headers = [] if who == "nobody" else [("Authorization", who)]
        got = depot.get([{"url": url, "headers": headers}], refresh=refresh)
        assert _bytes(got) == f"for {who}\n".encode()
    assert origin.count("/report") == (4 if refresh else 3)


def test_another_work_of_one_url_is_not_the_answer_to_another_caller(make_depot: MakeDepot, origin: Origin) -> None:
    """Known content of a URL is reused for other works, but only for the caller whom it was given to."""
    depot = make_depot(dedupe={"revalidate": "3600"})
    url = origin.add("/report", _per_caller)
    alice = {"url": url, "headers": [("Authorization", "alice")]}
    assert _bytes(depot.get([{**alice, "work_id": "w1"}])) == b"for alice\n"
    assert _bytes(depot.get([{**alice, "work_id": "w2"}])) == b"for alice\n"
    assert origin.count("/report") == 1
    assert _bytes(depot.get([{"url": url, "work_id": "w3"}])) == b"for nobody\n"


def test_vary_by_everything_is_asked_each_time(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(dedupe={"revalidate": "3600"})
    url = origin.add("/x", Thing(extra={"Vary": "*"}))
    depot.get([{"url": url, "work_id": "w1"}])
    depot.get([{"url": url, "work_id": "w2"}])
    assert origin.count("/x") == 2


def test_a_secret_is_not_in_the_key(depot: Depot, origin: Origin) -> None:
    url = origin.add("/report", _per_caller)
    depot.get([{"url": url, "headers": [("Authorization", "s3cret-value")]}])
    (job,) = depot.jobs()
    assert job.request.key is not None and "s3cret" not in job.request.key


def _digest(body: bytes) -> dict[str, str]:
    return {"Repr-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"}


def test_what_the_first_answer_declared_holds_for_the_resumed_body(make_depot: MakeDepot, origin: Origin) -> None:
    """A digest that came with the first answer is checked although the second one does not repeat it."""
    wrong = replace(FIRST, extra=_digest(b"something else"))
    depot = make_depot(retry={"max_attempts": 1, "base_s": 0.01, "cap_s": 0.05})  # the first one is progress
    url = origin.add("/x", cut(wrong, CUT), FIRST)
    got = depot.get([url])[0]
    assert (got.status, got.reason) == (Status.FAILED, "digest_mismatch")


LIES: dict[str, tuple[Thing, str]] = {
    "digest": (replace(FIRST, extra=_digest(b"something else")), "digest_mismatch"),
    "html as pdf": (Thing(b"<html>" + stamped(1, SIZE), content_type="application/pdf"), "html_page"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_stop_before_the_verdict_changes_nothing(make_depot: MakeDepot, origin: Origin, lie: str) -> None:
    """The whole body is durable, its verdict is not: the next attempt judges it by the stored head."""
    thing, reason = LIES[lie]
    depot = make_depot(retry={"max_attempts": 3, "base_s": 0.01, "cap_s": 0.05})
    url = origin.add("/x", thing)
    failpoints.arm("stream.received=raise")
    try:
        got = depot.get([url])[0]
    finally:
        failpoints.arm("")
    assert (got.status, got.reason) == (Status.FAILED, reason)
    assert origin.count("/x") <= 2, "the stored body was judged, not fetched again"


@pytest.mark.parametrize("order", [1, -1])
def test_twins_with_other_expectations_are_judged_apart_when_they_look_again(
    depot: Depot, origin: Origin, order: int
) -> None:
    """The stored bytes answer both; the new ones answer only who expects nothing."""
    url = origin.add("/x", FIRST, OTHER)
    depot.get([url])
    digest = hashlib.sha256(FIRST.body).hexdigest()
    items = [{"url": url}, {"url": url, "sha256": digest}][::order]
    plain, strict = depot.get(items, refresh=True)[::order]
    assert plain.ok and plain.artifact is not None
    assert strict.artifact is None or strict.artifact.sha256 == digest
    assert origin.count("/x") <= 6


def test_a_further_digest_is_checked_although_the_sha256_is_held(depot: Depot, origin: Origin) -> None:
    url = origin.add("/x", FIRST)
    depot.get([url])
    digest = hashlib.sha256(FIRST.body).hexdigest()
    got = depot.get([{"url": url, "sha256": digest, "digests": [("md5", "0" * 32)]}])[0]
    assert (got.status, got.reason) == (Status.FAILED, "digest_mismatch")


@pytest.mark.parametrize("size", [70_000, SIZE])
def test_a_candidate_that_was_cut_leaves_nothing_behind(depot: Depot, origin: Origin, size: int) -> None:
    with Origin("127.0.0.2") as second:
        url = origin.add("/x", cut(Thing(stamped(1, size)), size - 100))
        mirror = second.add("/x", Thing(stamped(1, size), etag='"other"'))
        assert depot.get([{"url": url, "mirrors": [mirror]}])[0].ok
    end = time.monotonic() + 10
    while left := list(depot.store.parts()):  # they are removed behind the answer
        assert time.monotonic() < end, left
        time.sleep(0.01)


def test_a_mirror_that_is_the_url_itself_is_no_further_candidate(depot: Depot, origin: Origin) -> None:
    url = origin.add("/x", cut(FIRST, CUT), cut(FIRST, 10), FIRST)
    got = depot.get([{"url": url, "mirrors": [url, url + "#again"]}])[0]
    assert got.ok


def _bytes(got: list[Any]) -> bytes:
    (one,) = got
    assert one.path is not None, one
    path: Path = one.path
    return path.read_bytes()
