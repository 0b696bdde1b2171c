"""`longshore torrent` as people and scripts call it, and as it is killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longshore.domain.torrents.model import OURS_TAG, job_tag
from tests.support.origin import Origin, Thing
from tests.support.program import Ran, eventually, execute, invoke, started
from tests.support.qbt import PASSWORD, Made, Swarm, until


class Program:
    """The program with one depot and one client."""

    def __init__(self, depot: Path, url: str) -> None:
        self.depot = depot
        self.env = {
            "LONGSHORE_DEPOT": str(depot),
            "LONGSHORE_QBITTORRENT__URL": url,
            "LONGSHORE_QBITTORRENT__USERNAME": "admin",
            "LONGSHORE_QBITTORRENT__PASSWORD": PASSWORD,
            "LONGSHORE_QBITTORRENT__POLL_S": "0.1",
            "LONGSHORE_NETWORK__ALLOW": '["127.0.0.0/8"]',
        }

    def __call__(self, *arguments: object) -> Ran:
        return invoke("torrent", *arguments, env=self.env)

    def add(self, source: object, *more: object) -> Ran:
        return self("add", source, "--user", "u1", "--book", "b1", "--media-type", "ebook", "--json", *more)

    def show(self, job_id: str) -> dict[str, Any]:
        return self("show", job_id, "--json").ok().lines[0]

    def until(self, job_id: str, stage: str) -> dict[str, Any]:
        def there() -> bool:
            self("sync")
            return bool(self.show(job_id)["stage"] == stage)

        until(f"job {job_id} is {stage}", there)
        return self.show(job_id)

    def killed_at(self, failpoint: str, *arguments: object) -> None:
        """Run a process of its own that dies there."""
        ran = execute("torrent", *arguments, env=self.env | {"LONGSHORE_FAILPOINTS": f"{failpoint}=kill"})
        assert ran.code == -signal.SIGKILL, ran

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(f"file:{self.depot}/ledger.db?mode=ro", uri=True) as connection:
            return connection.execute(sql).fetchall()

    def moves(self, job_id: str) -> list[tuple[Any, ...]]:
        """Give the moves in a job's history, and when they were written."""
        wanted = "'queued', 'downloading', 'completed', 'failed', 'canceled'"
        return self.rows(f"SELECT kind, at FROM events WHERE job_id = '{job_id}' AND kind IN ({wanted}) ORDER BY seq")

    def blobs(self) -> list[Path]:
        return [path for path in (self.depot / "store").rglob("*") if path.is_file() and len(path.name) >= 64]


@pytest.fixture
def program(shared: Swarm, tmp_path: Path) -> Program:
    return Program(tmp_path / "depot", shared.qbt.url)


@pytest.fixture
def torrent_file(shared: Swarm, tmp_path: Path) -> Iterator[tuple[Made, Path]]:
    made = shared.make(f"{tmp_path.name}.epub", os.urandom(40_000))
    path = tmp_path / "given.torrent"
    path.write_bytes(made.data)
    yield made, path


def test_add_sync_list_show(program: Program, torrent_file: tuple[Made, Path]) -> None:
    made, path = torrent_file
    (line,) = program.add(path).ok().lines
    assert (line["type"], line["schema"], line["created"]) == ("planned", 1, True)
    assert (line["stage"], line["status"]) == ("queued", "pending")
    assert (line["user_id"], line["book_id"], line["media_type"]) == ("u1", "b1", "ebook")
    assert line["infohash_v1"] == made.v1
    job_id = line["job_id"]
    again = program.add(path).ok().lines[0]
    assert (again["job_id"], again["created"]) == (job_id, False)
    done = program.until(job_id, "completed")
    assert (done["status"], done["progress"], done["size_bytes"]) == ("completed", 100, 40_000)
    assert (done["speed_bytes_s"], done["eta_s"], done["note"]) == (0, None, None)
    (listed,) = program("list", "--json").ok().lines
    assert listed["job_id"] == job_id
    assert program("list", "--active", "--json").ok().lines == []
    assert job_id in program("list").ok().stdout
    assert "completed" in program("show", job_id).ok().stdout
    (blob,) = program.blobs()
    assert blob.read_bytes() == made.path.read_bytes()
    assert program.rows("SELECT state FROM books") == [("Library",)]


def test_show_names_every_file_the_asset_and_the_book(program: Program, shared: Swarm, tmp_path: Path) -> None:
    files = {"one.mp3": os.urandom(30_000), "two.mp3": os.urandom(40_000)}
    made = shared.make(f"{tmp_path.name} folder", files)
    (tmp_path / "folder.torrent").write_bytes(made.data)
    job_id = program.add(tmp_path / "folder.torrent").ok().lines[0]["job_id"]
    waiting = program.show(job_id)
    assert (waiting["files"], waiting["book_state"], waiting["asset_status"]) == ([], "Archive", None)
    shown = program.until(job_id, "completed")
    assert (shown["book_state"], shown["asset_status"]) == ("Library", "available")
    held = {file["name"]: Path(file["path"]).read_bytes() for file in shown["files"]}
    assert sorted(held.values()) == sorted(files.values())
    assert f"{made.path.name}/one.mp3" in held
    assert Path(shown["storage_path"]).read_bytes() == max(files.values(), key=len)
    text = program("show", job_id).ok().stdout
    assert f"{made.path.name}/one.mp3" in text
    exported = [json.loads(line) for line in invoke("export", env=program.env).ok().stdout.splitlines()]
    assert [line["sha256"] for line in exported] == [file["sha256"] for file in shown["files"]], "every file, in order"
    invoke("export", "tree", "-o", tmp_path / "tree", env=program.env).ok()
    assert sorted(path.read_bytes() for path in (tmp_path / "tree").rglob("*.mp3")) == sorted(files.values())


def test_a_trackers_key_is_shown_to_nobody(program: Program, shared: Swarm, tmp_path: Path) -> None:
    made = shared.make(f"{tmp_path.name} private.epub", os.urandom(20_000))
    magnet = f"{made.magnet}&tr=https%3A%2F%2Ftracker.invalid%2FCANARY%2Fannounce&ws=https://u:CANARY@w.invalid/"
    ran = program.add(magnet).ok()
    job_id = ran.lines[0]["job_id"]
    assert (made.v1 or "") in ran.lines[0]["source"]
    assert "tr=https://tracker.invalid/***" in ran.lines[0]["source"]
    told = [ran, program("show", job_id), program("list"), program("list", "--json")]
    program.until(job_id, "completed")
    told += [program("show", job_id), program("show", job_id, "--json"), program.add(magnet)]
    told += [invoke(*words, env=program.env) for words in (("show", job_id, "--json"), ("jobs", "--json"), ("export",))]
    for one in told:
        assert "CANARY" not in one.ok().stdout + one.stderr
    for table in ("events", "torrents", "effects", "artifacts"):
        assert "CANARY" not in str(program.rows(f"SELECT * FROM {table}"))


def test_another_source_names_the_active_job(program: Program, torrent_file: tuple[Made, Path]) -> None:
    job_id = program.add(torrent_file[1]).ok().lines[0]["job_id"]
    ran = program.add("magnet:?xt=urn:btih:" + "a" * 40)
    assert ran.code == 1
    assert job_id in ran.stderr
    assert job_id in json.loads(ran.stderr)["message"]


@pytest.mark.parametrize("source", ["nowhere.torrent", "magnet:?dn=x", "ftp://example.org/x.torrent", "/etc"])
def test_what_is_no_source_is_usage(program: Program, source: str) -> None:
    ran = program.add(source)
    assert ran.code == 2, ran
    assert "Traceback" not in ran.stderr


def test_a_file_that_is_no_torrent_is_usage(program: Program, tmp_path: Path) -> None:
    (tmp_path / "x.torrent").write_bytes(b"<html>")
    ran = program.add(tmp_path / "x.torrent")
    assert (ran.code, "not a torrent" in ran.stderr) == (2, True)


def test_cancel(program: Program, shared: Swarm, torrent_file: tuple[Made, Path]) -> None:
    made, path = torrent_file
    job_id = program.add(path).ok().lines[0]["job_id"]
    until("there", lambda: shared.qbt.api().torrents_info(torrent_hashes=made.id))
    (line,) = program("cancel", job_id, "--delete-files", "--json").ok().lines
    assert (line["job_id"], line["stage"]) == (job_id, "canceled")
    until("gone", lambda: not shared.qbt.api().torrents_info(torrent_hashes=made.id))
    assert program("cancel", "nothing", "--json").code == 1


def test_a_client_that_is_away_is_no_disaster(program: Program, torrent_file: tuple[Made, Path]) -> None:
    program.env["LONGSHORE_QBITTORRENT__URL"] = "http://127.0.0.1:1"
    added = program.add(torrent_file[1]).ok()
    job_id = added.lines[0]["job_id"]
    assert "does not answer (connection refused); the job waits" in added.stderr
    ran = program("sync", "--json")
    assert ran.code == 4
    assert "does not answer" in ran.lines[0]["away"]
    assert "qbittorrent.url" in program("sync").stderr, "and what to do"
    assert program.show(job_id)["stage"] == "queued"
    ran = program("cancel", job_id)
    assert (ran.code, "when the client answers" in ran.stdout) == (4, True)


def test_reading_makes_no_depot(program: Program) -> None:
    assert program("list").code == 10
    assert not program.depot.exists()


def test_sync_forever_completes_and_ends_with_its_signal(
    program: Program, torrent_file: tuple[Made, Path], tmp_path: Path
) -> None:
    job_id = program.add(torrent_file[1]).ok().lines[0]["job_id"]
    with started(tmp_path / "run", "torrent", "sync", "--forever", "--json", env=program.env) as running:
        eventually(lambda: program.show(job_id)["stage"] == "completed", "completed")
        running.signal(signal.SIGTERM)
        assert running.wait().code == 143


def test_run_forever_keeps_torrents_in_step_too(
    program: Program, torrent_file: tuple[Made, Path], tmp_path: Path
) -> None:
    with Origin() as origin:
        origin.add("/a.torrent", Thing(torrent_file[0].data))
        job_id = program.add(origin.url("/a.torrent")).ok().lines[0]["job_id"]
        with started(tmp_path / "run", "run", "--forever", env=program.env) as running:
            eventually(lambda: program.show(job_id)["stage"] == "completed", "completed")
            running.signal(signal.SIGTERM)
            assert running.wait().code == 143


def test_the_same_on_postgresql(
    program: Program, shared: Swarm, torrent_file: tuple[Made, Path], tmp_path: Path, postgres_dsn: str
) -> None:
    program.env["LONGSHORE_LEDGER"] = postgres_dsn
    execute("migrate", env=program.env).ok()
    job_id = program.add(torrent_file[1]).ok().lines[0]["job_id"]
    assert program.add("magnet:?xt=urn:btih:" + "a" * 40).code == 1, "the place is taken"
    with started(tmp_path / "run", "run", "--forever", env=program.env) as running:
        eventually(lambda: program.show(job_id)["stage"] == "completed", "completed")
        running.signal(signal.SIGTERM)
        assert running.wait().code == 143
    shown = program.show(job_id)
    assert (shown["book_state"], shown["asset_status"]) == ("Library", "available")
    assert Path(shown["storage_path"]).read_bytes() == torrent_file[0].path.read_bytes()
    other = program.add("magnet:?xt=urn:btih:" + "b" * 40).ok().lines[0]["job_id"]
    assert program("cancel", other).ok().stdout.split() == [other, "canceled"]
    until("gone", lambda: not shared.qbt.api().torrents_info(torrent_hashes="b" * 40))
    assert invoke("doctor", "--only", "qbittorrent", env=program.env).code == 0


# --- killed


TORTURE = pytest.mark.torture


@pytest.mark.parametrize("failpoint", [pytest.param("torrent.add.before", marks=TORTURE), "torrent.add.after"])
def test_killed_around_the_add(
    program: Program, shared: Swarm, torrent_file: tuple[Made, Path], failpoint: str
) -> None:
    made, path = torrent_file
    arguments = ("add", path, "--user", "u1", "--book", "b1", "--media-type", "ebook")
    program.killed_at(failpoint, *arguments)
    ((job_id,),) = program.rows("SELECT job_id FROM jobs")
    assert program("add", *arguments[1:], "--json").ok().lines[0]["job_id"] == job_id
    program.until(job_id, "completed")
    rows = [row for row in shared.qbt.api().torrents_info() if row["infohash_v1"] == made.v1]
    assert [set(row["tags"].split(", ")) for row in rows] == [{OURS_TAG, job_tag(job_id)}]
    assert program.rows("SELECT count(*) FROM artifacts") == [(1,)]


@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param("torrent.cycle", marks=TORTURE),
        pytest.param("torrent.import.leased", marks=TORTURE),
        pytest.param("torrent.import.hashed", marks=TORTURE),
        "publish.intents",
        pytest.param("link.dirsync", marks=TORTURE),
        pytest.param("torrent.import.linked", marks=TORTURE),
        "torrent.import.before",
        pytest.param("torrent.import.after", marks=TORTURE),
    ],
)
def test_killed_around_the_import(
    program: Program, shared: Swarm, torrent_file: tuple[Made, Path], failpoint: str
) -> None:
    made, path = torrent_file
    job_id = program.add(path).ok().lines[0]["job_id"]
    api = shared.qbt.api()
    until("finished", lambda: [row for row in api.torrents_info(torrent_hashes=made.id) if row["state"] == "stalledUP"])
    program.killed_at(failpoint, "sync")
    if failpoint != "torrent.import.after":
        assert program.moves(job_id) == []
    program.until(job_id, "completed")
    assert [kind for kind, _ in program.moves(job_id)] == ["downloading", "completed"]
    assert len({at for _, at in program.moves(job_id)}) == 1, "faster than the polls: both moves in one transaction"
    assert program.rows("SELECT count(*), min(status) FROM media_assets") == [(1, "available")]
    assert program.rows("SELECT count(*) FROM artifacts") == [(1,)]
    assert program.rows("SELECT state FROM books") == [("Library",)]
    assert program.rows("SELECT count(*) FROM effects WHERE state <> 'confirmed'") == [(0,)]
    (blob,) = program.blobs()
    assert blob.read_bytes() == made.path.read_bytes()
    assert made.path.exists()


def test_killed_before_a_foreign_torrent_got_its_tag(
    program: Program, shared: Swarm, torrent_file: tuple[Made, Path]
) -> None:
    made, path = torrent_file
    program.env["LONGSHORE_QBITTORRENT__ADOPT_FOREIGN"] = "true"
    shared.qbt.api().torrents_add(torrent_files=made.data, tags="mine")
    until("there", lambda: shared.qbt.api().torrents_info(torrent_hashes=made.id))
    program.killed_at("torrent.adopt.before", "add", path, "--user", "u1", "--book", "b1", "--media-type", "ebook")
    ((job_id,),) = program.rows("SELECT job_id FROM jobs")
    program.until(job_id, "completed")
    (row,) = shared.qbt.api().torrents_info(torrent_hashes=made.id)
    assert OURS_TAG not in row["tags"].split(", "), "it stays theirs"


@pytest.mark.parametrize("failpoint", [pytest.param("torrent.cancel.before", marks=TORTURE), "torrent.cancel.after"])
def test_killed_around_a_cancel(
    program: Program, shared: Swarm, torrent_file: tuple[Made, Path], failpoint: str
) -> None:
    made, path = torrent_file
    job_id = program.add(path).ok().lines[0]["job_id"]
    until("there", lambda: shared.qbt.api().torrents_info(torrent_hashes=made.id))
    program.killed_at(failpoint, "cancel", job_id)
    program.until(job_id, "canceled")
    until("gone", lambda: not shared.qbt.api().torrents_info(torrent_hashes=made.id))
