"""What can go wrong with a depot: a clear message, the right exit code, nothing lost, never a traceback."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from longshore.cli import run_command
from longshore.domain.identity.requests import download_request
from longshore.domain.model import Scope
from longshore.ledger import Ledger
from longshore.ledger.backends.sqlite.connection import translated
from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing
from tests.support.program import Ran, environment

READING = ["status", "run", "verify", "reconcile"]


@pytest.fixture
def filled(box: Box, origin: Origin) -> Box:
    box("get", origin.add("/x", Thing(b"held bytes"))).ok()
    return box


@pytest.mark.parametrize("name", READING)
def test_no_depot_is_exit_10_and_none_is_made(box: Box, name: str) -> None:
    ran = box(name)

    assert ran.code == 10
    assert str(box.depot) in ran.stderr
    assert "longshore get URL" in ran.stderr
    assert not box.depot.exists()


@pytest.mark.parametrize("name", [*READING, "get"])
def test_a_newer_schema_is_exit_12(filled: Box, name: str) -> None:
    connection = apsw.Connection(str(filled.depot / "ledger.db"))
    connection.execute(
        "UPDATE _meta SET schema_version = 999" if _column(connection) else "UPDATE _meta SET value = '999'"
    )
    connection.close()

    ran = filled(name, *(["http://127.0.0.1/x"] if name == "get" else []))

    assert ran.code == 12
    assert "999" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_nobody_s_business(box: Box, origin: Origin, closed: str) -> None:
    body = bytes(range(256)) * 2_000
    url = origin.add("/streams", Thing(body))
    words = ["get", url, "--depot", str(box.depot), "--allow-net", "127.0.0.0/8"]
    script = f'"{sys.executable}" -m longshore "$@" {closed}'

    code = subprocess.run(["sh", "-c", script, "sh", *words], env=environment(), check=False).returncode

    assert code == 0
    (blob,) = [path for path in (box.depot / "store" / "default").rglob("*") if path.is_file()]
    assert blob.read_bytes() == body


@pytest.mark.parametrize(("command", "code"), [("get", 4), ("run", 4), ("status", 1)])
def test_want_of_threads_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, code: int
) -> None:
    def refused(_: list[str]) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(run_command, "_call", refused)
    assert run_command.run([command]) == code
    told = capsys.readouterr().err
    assert "too few resources" in told
    assert "internal" not in told


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_worker_processes_do_not_need_the_streams(box: Box, origin: Origin, closed: str) -> None:
    urls = [origin.add(f"/{n}", Thing(b"%d" % n)) for n in range(6)]
    box("add", box.write("list", "\n".join(urls))).ok()
    words = ["run", "--workers", "2", "--depot", str(box.depot), "--allow-net", "127.0.0.0/8"]
    script = f'"{sys.executable}" -m longshore "$@" {closed}'

    done = subprocess.run(
        ["sh", "-c", script, "sh", *words], env=environment(), check=False, stderr=subprocess.PIPE, text=True
    )

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert box("status", "--json").ok().of("status")[0]["jobs"]["completed"] == 6


@pytest.mark.parametrize("words", [["put", "-"], ["put", "/etc/hostname", "-"], ["add", "-"], ["get", "-i", "-"]])
def test_a_closed_stdin_is_not_an_empty_input(box: Box, words: list[str]) -> None:
    script = f'"{sys.executable}" -m longshore "$@" <&-'
    given = ["sh", "-c", script, "sh", *words, "--depot", str(box.depot)]
    ran = subprocess.run(given, env=environment(), capture_output=True, text=True, check=False)
    assert ran.returncode == 2, ran.stderr
    assert "stdin is closed" in ran.stderr
    assert not box.depot.exists()


def test_an_empty_stdin_is_an_empty_input(box: Box) -> None:
    assert box.process("put", "-", "--depot", box.depot, stdin=b"").code == 0
    script = f'"{sys.executable}" -m longshore put - --depot "{box.depot}" </dev/null'
    assert subprocess.run(["sh", "-c", script], env=environment(), check=False).returncode == 0


def _column(connection: apsw.Connection) -> bool:
    return any(row[1] == "schema_version" for row in connection.execute("PRAGMA table_info(_meta)"))


@pytest.mark.parametrize("name", [*READING, "get"])
def test_a_corrupted_ledger_is_exit_5_and_left_alone(filled: Box, name: str) -> None:
    ledger = filled.depot / "ledger.db"
    for extra in filled.depot.glob("ledger.db-*"):
        extra.unlink()
    ledger.write_bytes(b"this is not a database " * 1000)
    before = ledger.read_bytes()

    ran = filled(name, *(["http://127.0.0.1/x"] if name == "get" else []))

    assert ran.code == 5
    assert "ledger.db" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ledger.read_bytes() == before


def test_damaged_bytes_are_exit_5(filled: Box) -> None:
    (blob,) = [path for path in (filled.depot / "store" / "default").rglob("*") if path.is_file()]
    blob.chmod(0o644)
    blob.write_bytes(b"other bytes")

    ran = filled("verify", "--json")

    assert ran.code == 5
    assert len(ran.of("finding")) == 1
    assert str(blob) not in ran.stdout


def test_verify_says_where_damaged_bytes_went(filled: Box) -> None:
    blob = only_blob(filled)
    blob.chmod(0o644)
    blob.write_bytes(b"other bytes")

    ran = filled("verify")

    assert "moved to quarantine" in ran.stdout
    aside = filled.depot / "store" / ".staging" / "quarantine"
    assert f"{aside} until `longshore gc`" in ran.stderr
    assert [path.read_bytes() for path in aside.glob(f"{blob.name}.*") if path.suffix != ".json"] == [b"other bytes"]


def test_lost_bytes_are_found_and_fetched_again(filled: Box, origin: Origin) -> None:
    shutil.rmtree(filled.depot / "store" / "default")

    assert filled("verify").code == 5
    filled("get", origin.url("/x")).ok()
    assert filled("verify").code == 0
    assert origin.count("/x") == 2


def test_a_depot_where_none_can_be_is_told(box: Box, tmp_path: Path) -> None:
    file = box.write("a-file", "x")

    ran = box("get", "http://127.0.0.1/x", env={"LONGSHORE_DEPOT": str(file / "depot")})

    assert ran.code == 1
    assert "a-file" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_full_disk_pauses_and_nothing_is_lost(box: Box, origin: Origin) -> None:
    url = origin.add("/x", Thing(b"x" * 3_000_000))
    full = {"LONGSHORE_QUOTA__FREE_BYTES_MIN": str(1 << 60)}

    ran = box("get", url, "--max-wait", "0.3", "--json", env=full)

    assert ran.code == 4, ran.stdout + ran.stderr
    assert box.counts() == {"pending": 1}
    box("get", url).ok()


@pytest.mark.parametrize("text", ["[transfer]\nnope = 1\n", "not toml", "[transfer]\nconcurrency = 'x'\n"])
def test_a_wrong_configuration_is_exit_2(box: Box, text: str) -> None:
    box.depot.mkdir()
    (box.depot / "longshore.toml").write_text(text)

    ran = box("status")

    assert ran.code == 2
    assert "longshore.toml" in ran.stderr


@pytest.mark.parametrize(
    ("error", "word"),
    [(apsw.FullError("full"), "make room"), (apsw.IOError("i/o"), "full"), (apsw.CantOpenError("no"), "writable")],
)
def test_a_ledger_that_cannot_be_used_comes_with_what_to_do(error: apsw.Error, word: str) -> None:
    said = translated(error, Path("/depot/ledger.db"))

    assert "/depot/ledger.db" in str(said)
    assert word in (said.hint or "")


def test_a_port_in_use_is_named(box: Box, origin: Origin) -> None:
    ran = box("serve", "--port", origin.port)

    assert ran.code == 1
    assert f"127.0.0.1:{origin.port}" in ran.stderr


def only_blob(box: Box) -> Path:
    (blob,) = (path for path in (box.depot / "store" / "default").rglob("*") if path.is_file())
    return blob


def remedies(ran: Ran) -> list[str]:
    return [line.strip() for line in ran.stderr.splitlines() if "→" in line]


def test_damage_is_told_with_the_way_back(filled: Box) -> None:
    """What is said is what is left to do: first to plan, then to run, then nothing."""
    only_blob(filled).unlink()
    for command in (("verify",), ("reconcile", "--dry-run")):
        ran = filled(*command)
        assert ran.code == 5
        (remedy,) = remedies(ran)
        assert "`longshore reconcile`" in remedy
        assert "`longshore run`" in remedy

    for _ in range(2):
        (remedy,) = remedies(filled("reconcile"))
        assert "`longshore run`" in remedy
        assert "get URL" not in remedy
    filled("run").ok()

    ran = filled("reconcile").ok()
    assert remedies(ran) == []


def test_a_restored_depot_says_how_the_rest_comes_back(filled: Box) -> None:
    only_blob(filled).unlink()
    assert filled("backup", filled.home / "backup").code == 5

    ran = filled("restore", filled.home / "backup", env={"LONGSHORE_DEPOT": str(filled.home / "new")})

    assert ran.code == 5
    assert "fetches them again" in ran.stdout
    (remedy,) = remedies(ran)
    assert "`longshore run`" in remedy
    assert "get URL" not in remedy


def test_leases_that_ran_out_are_no_lost_bytes(filled: Box) -> None:
    with Ledger.open(filled.depot / "ledger.db") as ledger:
        ledger.plan(Scope("default", "default"), [download_request("https://example.org/a")])
        ledger.claim("gone", limit=1, ttl_s=1e-6)

    ran = filled("reconcile", "--dry-run")

    assert "expired_leases" in ran.stdout
    (remedy,) = remedies(ran)
    assert "without --dry-run" in remedy


def test_a_collection_that_is_only_tried_removes_nothing_and_says_so(filled: Box) -> None:
    blob = only_blob(filled)
    blob.chmod(0o644)
    blob.write_bytes(b"other bytes")
    filled("verify")

    ran = filled("gc", "--grace", 0, "--dry-run").ok()

    assert "1 found, 11 B would be removed" in ran.stderr
    assert "1 found, 11 B removed" in filled("gc", "--grace", 0).ok().stderr


@pytest.mark.parametrize("text", ["", "{", "[]", '{"layout": "x"}', '{"layout": 1, "shard_width": "two"}'])
def test_a_damaged_layout_is_told_with_a_way_that_works(filled: Box, text: str) -> None:
    layout = filled.depot / "store" / ".layout.json"
    layout.write_text(text)

    ran = filled("verify")

    assert (ran.code, str(layout) in ran.stderr, "{" in ran.stderr) == (1, True, False)
    assert "remove it" in ran.stderr
    layout.unlink()
    filled("verify").ok()


def test_a_store_of_another_width_or_kind_is_told(filled: Box) -> None:
    ran = filled("verify", "--set", "shard.width=3")
    assert (ran.code, "shard.width = 2" in ran.stderr, "{" in ran.stderr) == (1, True, False)
    (filled.depot / "store" / ".layout.json").write_text('{"layout": 7, "shard_width": 2}')
    assert "newer" in filled("verify").stderr


def test_a_run_without_work_says_so(filled: Box) -> None:
    assert "no job waits" in filled("run").ok().stderr


def test_reconcile_tells_what_is_missing_until_it_is_back(filled: Box) -> None:
    only_blob(filled).unlink()

    first = filled("verify", "--json")
    again = [filled("reconcile", "--json"), filled("reconcile", "--dry-run", "--json"), filled("verify", "--json")]

    assert first.code == 5
    for ran in again:
        assert ran.code == 5
        assert [line["subject"] for line in ran.of("finding")] == [line["subject"] for line in first.of("finding")]


@pytest.mark.parametrize("looked", [True, False])
def test_lost_bytes_come_again_by_add_and_run(filled: Box, origin: Origin, looked: bool) -> None:
    shutil.rmtree(filled.depot / "store" / "default")
    if looked:
        assert filled("verify").code == 5
    urls = origin.url("/x").encode()

    (summary,) = filled("add", "-", "--json", stdin=urls).ok().of("summary")
    filled("run").ok()

    assert (summary["new"], summary["known"]) == (1, 0)
    assert origin.count("/x") == 2
    filled("verify").ok()
    filled("reconcile", "--dry-run").ok()
    (again,) = filled("add", "-", "--json", stdin=urls).ok().of("summary")
    assert (again["new"], again["known"]) == (0, 1)


@pytest.mark.parametrize("arguments", [["get", "http://127.0.0.1:9/x", "--max-wait", "0"], ["add", "-"], ["put", "-"]])
def test_a_new_depot_is_told(box: Box, arguments: list[str]) -> None:
    ran = box(*arguments, stdin=b"http://127.0.0.1:9/y")

    assert f"new depot: {box.depot}" in ran.stderr
    assert "new depot" not in box(*arguments, stdin=b"http://127.0.0.1:9/y").stderr
