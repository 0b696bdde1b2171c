"""Long ones: many jobs, a full disk, a client that dies again and again while it downloads."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from longshore.domain.kinds import ACTIVE, Status
from tests.support.disks import small_disk
from tests.support.qbt import swarm, until
from tests.worker.torrent.bench import bench

pytestmark = pytest.mark.torture


def test_250_jobs_are_each_polled_within_three_cycles(tmp_path: Path, version: str) -> None:
    with swarm(tmp_path / "s", version=version) as own, bench(tmp_path / "depot", own.qbt.url) as depot:
        jobs = []
        for n in range(250):
            digest = random.Random(n).randbytes(20).hex()
            jobs.append(depot.start(f"magnet:?xt=urn:btih:{digest}", book=f"b{n}"))
        until("all seen", lambda: depot.cycle(1) and all(depot.job(job).watch.seen_at for job in jobs), 300)
        for _ in range(3):
            since = depot.clock.now
            assert sum(depot.cycle(15).polled for _ in range(3)) == 300
            assert all(at > since for _, at in depot.rows("SELECT job_id, synced_at FROM torrents"))
        assert len(own.qbt.api().torrents_info()) == 250


def test_a_full_disk_at_the_client_is_waited_for_and_then_told(tmp_path: Path, version: str) -> None:
    with small_disk("200k") as disk, swarm(tmp_path / "s", version=version) as own:
        made = own.make("large.epub", os.urandom(2_000_000))
        with bench(tmp_path / "depot", own.qbt.url, save_path=str(disk)) as depot:
            job_id = depot.start(made)
            until("error", lambda: depot.cycle() and depot.job(job_id).watch.state == "error", 120)
            until("words", lambda: depot.cycle() and depot.job(job_id).watch.note)
            assert "space" in (depot.job(job_id).watch.note or "")
            for _ in range(4):
                depot.cycle(60)
                assert depot.job(job_id).status in ACTIVE
            depot.until_stage(job_id, "failed", each_s=60)
            assert depot.job(job_id).failure_reason == "external_error"


def test_a_full_disk_at_the_store_only_waits(tmp_path: Path, version: str) -> None:
    with small_disk("3m") as disk, swarm(tmp_path / "s", version=version) as own:
        made = own.make("large.epub", os.urandom(2_000_000))
        with bench(tmp_path / "depot", own.qbt.url, store=disk / "store") as depot:
            (disk / "filler").write_bytes(b"x" * 1_500_000)
            job_id = depot.start(made)
            until("no room", lambda: depot.cycle() and "fit" in (depot.job(job_id).watch.note or ""), 120)
            assert depot.job(job_id).stage == "downloading"
            (disk / "filler").unlink()
            depot.until_stage(job_id, "completed", each_s=15)
            assert depot.bytes_of(depot.results(job_id)[0]) == made.path.read_bytes()


def test_a_client_that_is_killed_again_and_again(tmp_path: Path, version: str) -> None:
    with swarm(tmp_path / "s", version=version) as own, bench(tmp_path / "depot", own.qbt.url) as depot:
        content = os.urandom(8_000_000)
        made = own.make("slow.epub", content)
        job_id = depot.start(made.magnet)
        for _ in range(5):
            until("there", lambda: depot.cycle() and depot.job(job_id).watch.seen_at and own.qbt.saved(made.id))
            own.qbt.api().torrents_set_download_limit(torrent_hashes=made.id, limit=500_000)
            own.qbt.kill()
            assert depot.cycle(600).away or depot.job(job_id).status is Status.COMPLETED
            own.qbt.start()
        own.qbt.api().torrents_set_download_limit(torrent_hashes=made.id, limit=0)
        depot.until_stage(job_id, "completed")
        assert depot.bytes_of(depot.results(job_id)[0]) == content
        assert len(own.qbt.api().torrents_info()) == 1
