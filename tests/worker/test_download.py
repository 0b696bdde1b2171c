"""The flow over real sockets: fetch, verify, publish, register; and every way in which nothing has to be fetched."""

from __future__ import annotations

import hashlib

import pytest

from longshore.depot import Depot
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from longshore.domain.run_events import RunEvent
from tests.support.origin import Origin, Thing, check_stamps, close_delimited, cut, redirect, stamped, status
from tests.worker.conftest import MakeDepot

SMALL, LARGE = 20_000, 3_000_000


@pytest.mark.parametrize("size", [0, 1, SMALL, 262_144, 262_145, LARGE])
def test_a_body_is_fetched_verified_and_published_under_its_hash(depot: Depot, origin: Origin, size: int) -> None:
    body = stamped(1, size)
    got = depot.get([origin.add("/a.bin", Thing(body))])[0]
    assert (got.status, got.held_before, got.attempts) == (Status.COMPLETED, False, 1)
    assert got.artifact is not None
    assert got.path is not None
    assert got.artifact.sha256 == hashlib.sha256(body).hexdigest() == got.path.name[:64]
    assert got.path.read_bytes() == body


def test_asking_again_asks_nobody(depot: Depot, origin: Origin) -> None:
    url = origin.add("/a", Thing(stamped(1, SMALL)))
    first = depot.get([url])[0]
    again = depot.get([url])[0]
    assert origin.count("/a") == 1
    assert again.held_before
    assert again.job_id == first.job_id
    assert again.path == first.path


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_cut_body_is_never_published_and_the_next_attempt_ends_well(depot: Depot, origin: Origin, size: int) -> None:
    thing = Thing(stamped(1, size))
    got = depot.get([origin.add("/a", cut(thing, size // 2), thing)])[0]
    assert got.status is Status.COMPLETED
    assert got.attempts == 2
    assert got.path is not None
    assert check_stamps(got.path.read_bytes()) == 1


def test_a_permanent_reason_ends_at_once_and_a_transient_one_when_attempts_are_spent(
    make_depot: MakeDepot, origin: Origin
) -> None:
    depot = make_depot(retry={"base_s": 0.01, "cap_s": 0.02, "max_attempts": 3})
    gone, ill = depot.get([origin.add("/gone", status(404)), origin.add("/ill", status(500))])
    assert (gone.status, gone.reason, gone.attempts) == (Status.FAILED, "http_404", 1)
    assert (ill.status, ill.reason, ill.attempts) == (Status.FAILED, "http_500", 3)
    assert origin.count("/gone") == 1
    assert origin.count("/ill") == 3


def test_private_addresses_are_refused_unless_allowed(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(network={"allow": []})
    got = depot.get([origin.add("/a", Thing())])[0]
    assert (got.status, got.reason) == (Status.FAILED, "forbidden_address")
    assert origin.count("/a") == 0


def test_a_page_instead_of_a_file_is_its_own_reason(depot: Depot, origin: Origin) -> None:
    page = Thing(b"<!DOCTYPE html><html><title>Log in</title>", content_type="application/pdf")
    got = depot.get([origin.add("/paper.pdf", page)])[0]
    assert got.status is Status.FAILED
    assert got.reason in {"html_page", "blocked_challenge"}
    assert got.artifact is None


def test_expected_digest_and_size_are_checked(depot: Depot, origin: Origin) -> None:
    body = stamped(1, SMALL)
    url = origin.add("/a", Thing(body))
    wrong = download_request(url, work_id="w1", sha256="0" * 64)
    right = download_request(
        url, work_id="w2", sha256=hashlib.sha256(body).hexdigest(), digests=[("md5", hashlib.md5(body).hexdigest())]
    )
    short = download_request(url, work_id="w3", size_bytes=7)
    first, second, third = depot.get([wrong]), depot.get([right]), depot.get([short])
    assert (first[0].status, first[0].reason) == (Status.FAILED, "digest_mismatch")
    assert second[0].status is Status.COMPLETED
    assert (third[0].status, third[0].reason) == (Status.FAILED, "size_mismatch")


def test_a_body_that_only_the_connection_ends_is_marked(depot: Depot, origin: Origin) -> None:
    notes: list[RunEvent] = []
    got = depot.get([origin.add("/a", close_delimited(Thing(stamped(1, SMALL))))], on_note=notes.append)[0]
    assert got.status is Status.COMPLETED
    assert [note.facts.get("unverified_length") for note in notes if note.kind == "completed"] == [True]


def test_another_job_for_known_content_is_skipped_after_asking(depot: Depot, origin: Origin) -> None:
    url = origin.add("/a", Thing(stamped(1, SMALL)))
    first = depot.get([download_request(url, work_id="one")])[0]
    second = depot.get([download_request(url, work_id="two")])[0]
    assert second.status is Status.SKIPPED
    assert second.held_before
    assert second.path == first.path
    assert [request.headers.get("if-none-match") for request in origin.seen("/a")] == [None, '"v1"']


def test_a_dedupe_hit_that_is_fresh_calls_no_network(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(dedupe={"revalidate": "never"})
    url = origin.add("/a", Thing(stamped(1, SMALL)))
    depot.get([download_request(url, work_id="one")])
    second = depot.get([download_request(url, work_id="two")])[0]
    assert second.status is Status.SKIPPED
    assert origin.count("/a") == 1


def test_a_dedupe_hit_whose_bytes_are_gone_is_fetched(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(dedupe={"revalidate": "never"})
    url = origin.add("/a", Thing(stamped(1, SMALL)))
    first = depot.get([download_request(url, work_id="one")])[0]
    assert first.path is not None
    first.path.unlink()
    second = depot.get([download_request(url, work_id="two")])[0]
    assert second.status is Status.COMPLETED
    assert second.path is not None
    assert check_stamps(second.path.read_bytes()) == 1


def test_a_completed_job_whose_bytes_are_gone_is_fetched_again(depot: Depot, origin: Origin) -> None:
    url = origin.add("/a", Thing(stamped(1, SMALL)))
    first = depot.get([url])[0]
    assert first.path is not None
    first.path.unlink()
    again = depot.get([url])[0]
    assert again.status is Status.COMPLETED
    assert again.job_id != first.job_id
    assert again.path is not None
    assert again.path.exists()


def test_equal_bytes_from_two_urls_are_one_blob_and_two_artifacts(depot: Depot, origin: Origin) -> None:
    body = Thing(stamped(1, SMALL))
    one, two = depot.get([origin.add("/a", body), origin.add("/b", body)])
    assert one.path == two.path
    assert one.artifact is not None
    assert two.artifact is not None
    assert one.artifact.artifact_id != two.artifact.artifact_id


def test_offline_serves_what_is_held_and_lets_the_rest_wait(make_depot: MakeDepot, origin: Origin) -> None:
    url = origin.add("/a", Thing(stamped(1, SMALL)))
    with make_depot() as online:
        online.get([url])
    offline = make_depot(offline=True)
    held, other, new = offline.get([url, download_request(url, work_id="two"), origin.add("/b", Thing())])
    assert held.ok
    assert (other.ok, other.status) == (True, Status.SKIPPED)
    assert (new.status, new.reason) == (Status.PENDING, "offline")
    assert origin.count("/a") + origin.count("/b") == 1


def test_a_mirror_on_another_origin_gets_no_secrets(depot: Depot, origin: Origin) -> None:
    """The job's own headers go where they were given for, and nowhere else."""
    with Origin("127.0.0.2") as other:
        request = download_request(
            origin.add("/gone", status(404)),
            mirrors=[other.add("/there", Thing(b"bytes"))],
            headers=[("Authorization", "Bearer s3cret")],
        )
        (got,) = depot.get([request])
        assert got.ok
        (first,) = origin.seen("/gone")
        (second,) = other.seen("/there")
    assert first.headers["authorization"] == "Bearer s3cret"
    assert "authorization" not in second.headers


def test_redirects_and_mirrors_lead_to_the_bytes(depot: Depot, origin: Origin) -> None:
    target = origin.add("/target", Thing(stamped(1, SMALL)))
    moved = origin.add("/moved", redirect(target))
    mirrored = download_request(origin.add("/gone", status(404)), mirrors=[origin.add("/ill", status(503)), target])
    one, two = depot.get([moved, mirrored])
    assert one.ok
    assert two.ok


def test_refresh_asks_again_and_takes_a_new_version(depot: Depot, origin: Origin) -> None:
    url = origin.add("/a", Thing(stamped(1, SMALL)), Thing(stamped(2, SMALL), etag='"v2"'))
    first = depot.get([url])[0]
    second = depot.get([url], refresh=True)[0]
    third = depot.get([url], refresh=True)[0]
    assert first.path != second.path
    assert second.path is not None
    assert check_stamps(second.path.read_bytes()) == 2
    assert third.status is Status.SKIPPED
    assert third.path == second.path
