"""The loop against 5.x, at the wire: other words, other answers, the same jobs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.domain.kinds import ACTIVE, Status
from longshore.domain.model import Scope
from longshore.domain.torrents.model import OURS_TAG, Seen, job_tag
from longshore.ledger.queries.torrents import Tracked
from longshore.worker.kinds.torrent.service import TorrentService
from longshore.worker.kinds.torrent.sync_loop import Cycle, forever
from tests.support.qbt import Made, make_torrent
from tests.worker.torrent.bench import SCOPE, Bench, bench
from tests.worker.torrent.v5 import V5


@pytest.fixture
def v5() -> Iterator[V5]:
    with V5() as server:
        yield server


@pytest.fixture
def made(tmp_path: Path) -> Made:
    (tmp_path / "book").write_bytes(os.urandom(100))
    return make_torrent(tmp_path / "book")


@pytest.fixture
def depot(v5: V5, tmp_path: Path) -> Iterator[Bench]:
    mapping = {"/save": str(tmp_path)}
    with bench(tmp_path / "depot", v5.url, path_map=mapping) as opened:
        yield opened


def test_a_job_from_start_to_end(depot: Bench, v5: V5, made: Made) -> None:
    job_id = depot.start(made)
    depot.cycle()
    assert v5.torrents[made.id].tags == {OURS_TAG, job_tag(job_id)}
    depot.cycle(15)
    assert depot.job(job_id).stage == "downloading"
    v5.torrents[made.id].state = "stoppedDL"
    depot.cycle(15)
    assert depot.job(job_id).watch.substate == "paused"
    v5.torrents[made.id].state, v5.torrents[made.id].progress = "moving", 1.0
    depot.cycle(15)
    assert depot.job(job_id).stage == "downloading"
    v5.torrents[made.id].state = "stoppedUP"
    depot.cycle(15)
    assert depot.job(job_id).stage == "completed"
    assert depot.bytes_of(depot.results(job_id)[0]) == made.path.read_bytes()


def test_409_is_looked_into_and_adopted(depot: Bench, v5: V5, made: Made) -> None:
    first, second = depot.start(made, user="u1"), depot.start(made, user="u2")
    depot.cycle()
    depot.cycle(15)
    depot.cycle(15)
    assert v5.torrents[made.id].tags == {OURS_TAG, job_tag(first), job_tag(second)}
    assert depot.job(first).status in ACTIVE
    assert depot.job(second).status in ACTIVE


OTHER = Scope("other", "p")


def test_a_torrent_of_another_tenants_job_is_not_adopted(depot: Bench, v5: V5, made: Made) -> None:
    first = depot.start(made)
    depot.cycle()
    second = depot.start(made, user="u2", scope=OTHER)
    depot.cycle(15)
    depot.cycle(15)
    refused = depot.job(second, OTHER)
    assert (refused.status, refused.failure_reason) == (Status.FAILED, "not_adopted")
    assert v5.torrents[made.id].tags == {OURS_TAG, job_tag(first)}
    assert depot.job(first).status in ACTIVE
    depot.settings = depot.settings.replaced(adopt_foreign=True)
    third = depot.start(made, user="u3", scope=OTHER)
    depot.cycle(15)
    depot.cycle(15)
    assert v5.torrents[made.id].tags == {OURS_TAG, job_tag(first), job_tag(third)}


def test_a_torrent_that_nobodys_job_added_is_not_adopted(depot: Bench, v5: V5, made: Made) -> None:
    first = depot.start(made)
    depot.cycle()
    v5.torrents[made.id].tags = {"by hand"}
    second = depot.start(made, user="u2")
    depot.cycle(15)
    assert depot.job(second).failure_reason == "not_adopted"
    assert "qbittorrent.adopt_foreign" in str(
        depot.rows("SELECT error_message_safe FROM jobs WHERE job_id <> '" + first + "'")
    )


def test_a_refusal_that_stays_one_is_final(depot: Bench, v5: V5, made: Made) -> None:
    job_id = depot.start(made)
    v5._add = lambda *_: (409, b"")  # type: ignore[method-assign]
    for attempt in range(1, 5):
        depot.cycle(15)
        assert depot.job(job_id).watch.refusals == attempt
    depot.cycle(15)
    job = depot.job(job_id)
    assert (job.status, job.failure_reason) == (Status.FAILED, "external_refused")
    assert v5.count("torrents/add") == 5


def test_a_lost_add_is_repeated_once(depot: Bench, v5: V5, made: Made) -> None:
    v5.swallow_adds = 1
    job_id = depot.start(made)
    for _ in range(3):
        depot.cycle(15)
    assert made.id in v5.torrents
    assert v5.count("torrents/add") == 2
    depot.cycle(15)
    assert depot.job(job_id).watch.seen_at is not None


def test_a_hybrid_that_changes_its_id_is_found_by_its_tag(depot: Bench, v5: V5, made: Made) -> None:
    hybrid = make_torrent(made.path, version="hybrid")
    job_id = depot.start(hybrid.v1_magnet)
    depot.cycle()
    depot.cycle(15)
    assert depot.job(job_id).external_job_id == hybrid.v1
    torrent = v5.torrents.pop(str(hybrid.v1))
    torrent.id, torrent.v2 = hybrid.id, str(hybrid.v2)
    v5.torrents[hybrid.id] = torrent
    depot.cycle(15)
    job = depot.job(job_id)
    assert (job.external_job_id, job.identity.v2, job.first_not_found_at) == (hybrid.id, hybrid.v2, None)
    depot.cycle(15)
    assert v5.calls[-1] == ("torrents/info", 200)


def test_a_torrent_removed_at_its_end_is_not_polled_into_failure_at_once(depot: Bench, v5: V5, made: Made) -> None:
    job_id = depot.start(made)
    depot.cycle()
    depot.cycle(15)
    del v5.torrents[made.id]
    depot.cycle(15)
    depot.cycle(15)
    job = depot.job(job_id)
    assert (job.status in ACTIVE, job.first_not_found_at is not None) == (True, True)


@pytest.mark.parametrize("code", [400, 404, 409, 500, 503])
def test_errors_of_the_server_conclude_nothing(depot: Bench, v5: V5, made: Made, code: int) -> None:
    job_id = depot.start(made)
    depot.cycle()
    depot.cycle(15)
    honest = v5.answer
    v5.answer = lambda *_: (code, b"busy", None)  # type: ignore[method-assign]
    for _ in range(20):
        assert depot.cycle(15).away
    v5.answer = honest  # type: ignore[method-assign]
    depot.cycle(15)
    assert depot.job(job_id).status in ACTIVE
    assert depot.job(job_id).first_not_found_at is None


def test_jobs_with_something_under_way_do_not_hold_the_others_up(v5: V5, made: Made, tmp_path: Path) -> None:
    """Two of three jobs are being added for ever, and a cycle looks at one job."""
    with bench(tmp_path / "depot", v5.url, batch=1) as depot:
        slow = [depot.start(made, book=f"slow {n}") for n in range(2)]
        last = depot.start(made, book="last")

        async def work(service: TorrentService) -> list[int]:
            never = asyncio.get_running_loop().create_future()
            for job_id in slow:
                service.sync._busy[SCOPE, job_id] = never  # type: ignore[assignment]
            polled = []
            for _ in range(6):
                depot.clock.turn(15)
                polled.append((await service.sync.cycle()).polled)
                if task := service.sync._busy.get((SCOPE, last)):
                    await task
            return polled

        polled = asyncio.run(depot._with_service(work))
        assert (sum(polled[:3]), sum(polled[3:])) == (1, 1), "once in every three cycles"
        assert depot.job(last).watch.seen_at is not None


def test_a_surprise_in_one_cycle_does_not_end_the_loop(
    v5: V5, made: Made, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with bench(tmp_path / "depot", v5.url, poll_s=0.01) as depot:
        job_id = depot.start(made)
        cycles = 0

        async def work(service: TorrentService) -> None:
            stop, honest = asyncio.Event(), service.sync._look

            async def look(jobs: list[Tracked]) -> list[Seen | None]:
                nonlocal cycles
                cycles += 1
                if cycles == 1:
                    raise ZeroDivisionError("a defect")
                return await honest(jobs)

            service.sync._look = look  # type: ignore[method-assign]

            def seen(_: Cycle) -> None:
                depot.clock.turn(15)
                if depot.job(job_id).watch.seen_at is not None:
                    stop.set()

            await asyncio.wait_for(forever(service.sync, stop, seen), 60)

        asyncio.run(depot._with_service(work))
        assert "a defect" in caplog.text
