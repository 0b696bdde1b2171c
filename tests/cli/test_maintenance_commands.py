"""Operating commands: put, adopt, export, purge, backup, restore, migrate – as a person calls them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import apsw
import pytest

from longshore.checker import check
from longshore.checker.check import LocalFiles
from longshore.domain.model import Scope
from longshore.ledger.operations import audit_log
from longshore.store.staging.quarantine import Quarantine
from tests.cli.conftest import put_instead
from tests.support.origin import Origin, Thing
from tests.support.program import execute, invoke

NET = ("--allow-net", "127.0.0.0/8")


@pytest.fixture
def depot(tmp_path: Path) -> Path:
    return tmp_path / "depot"


def sound(depot: Path) -> None:
    assert check(str(depot / "ledger.db"), LocalFiles(depot / "store")).findings == []


def fill(depot: Path, directory: Path) -> dict[str, bytes]:
    bodies = {"a.txt": b"one", "b.txt": b"two", "deep/c.txt": b"one"}
    for name, body in bodies.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(body)
    invoke("adopt", directory, "--depot", depot).ok()
    return bodies


def test_put_takes_a_file_once(depot: Path, tmp_path: Path) -> None:
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.7 hello")
    (first,) = invoke("put", tmp_path / "paper.pdf", "--depot", depot, "--json").ok().of("taken")
    assert first["sha256"] == hashlib.sha256(b"%PDF-1.7 hello").hexdigest()
    assert Path(first["path"]).read_bytes() == b"%PDF-1.7 hello"
    (again,) = invoke("put", tmp_path / "paper.pdf", "--depot", depot, "--json").ok().of("taken")
    assert (again["job_id"], again["held"]) == (first["job_id"], True)
    sound(depot)


def test_put_takes_a_stream(depot: Path) -> None:
    ran = execute("put", "-", "--name", "notes", "--depot", depot, "--json", stdin=b"from a pipe").ok()
    (taken,) = ran.of("taken")
    assert (taken["size_bytes"], taken["name"]) == (11, "notes")
    sound(depot)


def test_put_says_what_it_cannot_take(depot: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ran = invoke("put", tmp_path / "pipe", tmp_path / "nothing", tmp_path, "--depot", depot)
    assert ran.code == 3
    assert ran.stderr.count("refused") == 3


@pytest.mark.slow
@pytest.mark.parametrize("point", ["put.staged", "put.planned", "publish.intents", "put.linked", "put.settled"])
def test_a_crash_while_putting_leaves_one_result(depot: Path, tmp_path: Path, point: str) -> None:
    (tmp_path / "f").write_bytes(b"bytes" * 1000)
    died = execute("put", tmp_path / "f", "--depot", depot, env={"LONGSHORE_FAILPOINTS": f"{point}=kill"})
    assert died.code == -9
    (taken,) = execute("put", tmp_path / "f", "--depot", depot, "--json").ok().of("taken")
    assert Path(taken["path"]).read_bytes() == b"bytes" * 1000
    invoke("reconcile", "--depot", depot, "--set", "reconcile.stale_part_s=0").ok()
    sound(depot)


@pytest.mark.slow
@pytest.mark.parametrize("killed_too", [False, True])
@pytest.mark.parametrize(
    ("point", "saved"),
    [("put.planned", False), ("publish.intents", False), ("put.linked", True), ("put.settled", True)],
)
def test_an_upload_that_is_not_repeated_is_ended_by_reconcile(
    depot: Path, tmp_path: Path, point: str, saved: bool, killed_too: bool
) -> None:
    """Nobody but the same upload can run such a job: it must not wait for ever, nor its blob be kept for it."""
    (tmp_path / "f").write_bytes(b"bytes" * 1000)
    died = execute("put", tmp_path / "f", "--depot", depot, env={"LONGSHORE_FAILPOINTS": f"{point}=kill"})
    assert died.code == -9
    ran = execute("run", "--depot", depot).ok()
    assert "left" not in ran.stderr  # `run` cannot do it, and does not say that it could
    young = execute("reconcile", "--depot", depot, "--json")
    assert young.of("finding") == []  # a running upload looks the same
    old = ("--depot", depot, "--set", "reconcile.stale_part_s=0")
    if killed_too and point != "put.settled":
        assert execute("reconcile", *old, env={"LONGSHORE_FAILPOINTS": "reconcile.uploads=kill"}).code == -9
    invoke("reconcile", *old)
    counts = invoke("status", "--depot", depot, "--json").ok().lines[0]["jobs"]
    assert (counts["completed"], counts["failed"]) == ((1, 0) if saved else (0, 1))
    invoke("reconcile", *old).ok()
    invoke("verify", "--full", "--depot", depot).ok()
    sound(depot)
    (taken,) = execute("put", tmp_path / "f", "--depot", depot, "--json").ok().of("taken")
    assert taken["held"] is saved


def test_adopt_registers_a_tree_and_leaves_it_alone(depot: Path, tmp_path: Path) -> None:
    bodies = fill(depot, tmp_path / "tree")
    assert {name: (tmp_path / "tree" / name).read_bytes() for name in bodies} == bodies
    (tmp_path / "tree" / "link").symlink_to("/etc/passwd")
    (summary,) = invoke("adopt", tmp_path / "tree", "--depot", depot, "--json").ok().of("summary")
    assert (summary["new"], summary["held"], summary["refused"]) == (0, 3, 0)
    sound(depot)


def test_the_manifest_has_every_job_and_no_path(depot: Path, tmp_path: Path) -> None:
    fill(depot, tmp_path / "tree")
    ran = invoke("export", "jsonl", "--depot", depot).ok()
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {row["sha256"] for row in rows} == {hashlib.sha256(body).hexdigest() for body in (b"one", b"two")}
    assert str(depot) not in ran.stdout
    invoke("export", "parquet", "-o", tmp_path / "m.parquet", "--depot", depot).ok()
    invoke("export", "csv", "-o", tmp_path / "m.csv", "--depot", depot).ok()
    assert (tmp_path / "m.csv").read_text().count("\n") == 3


def test_trees_bags_and_crates_have_the_bytes(depot: Path, tmp_path: Path) -> None:
    fill(depot, tmp_path / "in")
    invoke("export", "tree", "-o", tmp_path / "tree", "--depot", depot).ok()
    invoke("export", "bag", "-o", tmp_path / "bag", "--depot", depot).ok()
    invoke("export", "crate", "-o", tmp_path / "crate", "--depot", depot).ok()
    for place in ("tree", "bag/data", "crate"):
        bodies = {path.read_bytes() for path in (tmp_path / place).iterdir() if path.suffix == ".txt"}
        assert bodies == {b"one", b"two"}, place
    assert invoke("export", "bag", "--depot", depot).code == 2


def test_export_and_import_move_no_byte_that_is_held(depot: Path, tmp_path: Path) -> None:
    """Export → fresh depot → import: the same artifacts, and the server hears nothing."""
    with Origin() as origin:
        for name in ("a", "b"):
            origin.add(f"/{name}", Thing(name.encode() * 5000))
        urls = [origin.url(f"/{name}") for name in ("a", "b")]
        invoke("get", *urls, "--depot", depot, *NET).ok()
        invoke("export", "jsonl", "-o", tmp_path / "manifest.jsonl", "--depot", depot).ok()
        invoke("export", "bag", "-o", tmp_path / "bag", "--depot", depot).ok()
        heard = sum(origin.count(f"/{name}") for name in "ab")
        other = tmp_path / "other"
        invoke("adopt", tmp_path / "bag" / "data", "--depot", other).ok()
        invoke("add", tmp_path / "manifest.jsonl", "--depot", other).ok()
        invoke("run", "--depot", other, *NET).ok()
        assert sum(origin.count(f"/{name}") for name in "ab") == heard
    rows = [json.loads(line) for line in invoke("export", "jsonl", "--depot", other).ok().stdout.splitlines()]
    assert {row["sha256"] for row in rows if row["job_type"] == "download"} == {
        hashlib.sha256(name.encode() * 5000).hexdigest() for name in ("a", "b")
    }
    sound(other)


def test_purge_archives_and_forgets(depot: Path) -> None:
    with Origin() as origin:
        url = origin.url("/nothing-here")
        assert invoke("get", url, "--depot", depot, *NET).code == 3
        (dry,) = invoke("purge", "--older-than", 0, "--dry-run", "--depot", depot, "--json").ok().of("summary")
        assert dry["items"] == 1
        (done,) = invoke("purge", "--older-than", 0, "--depot", depot, "--json").ok().of("summary")
        assert done["items"] == 1
        assert Path(done["files"][0]).exists()
    (status,) = invoke("status", "--depot", depot, "--json").ok().of("status")
    assert sum(status["jobs"].values()) == 0
    sound(depot)


def test_a_backup_comes_back_whole(depot: Path, tmp_path: Path) -> None:
    fill(depot, tmp_path / "in")
    invoke("backup", tmp_path / "backup", "--depot", depot).ok()
    (again,) = invoke("backup", tmp_path / "backup", "--depot", depot, "--json").ok().of("summary")
    assert (again["items"], again["there"]) == (0, 2)
    invoke("restore", tmp_path / "backup", "--depot", tmp_path / "new").ok()
    sound(tmp_path / "new")
    before = invoke("export", "jsonl", "--depot", depot).stdout
    assert invoke("export", "jsonl", "--depot", tmp_path / "new").stdout == before
    assert invoke("restore", tmp_path / "backup", "--depot", tmp_path / "new").code != 0


def test_a_backup_before_migrate_is_possible(depot: Path, tmp_path: Path) -> None:
    """The message of a ledger with an older schema advises a backup first."""
    fill(depot, tmp_path / "in")
    with apsw.Connection(str(depot / "ledger.db")) as ledger:
        ledger.execute("UPDATE _meta SET value = '5' WHERE key = 'schema_version'")
    ran = invoke("status", "--depot", depot)
    assert (ran.code, "make a backup" in ran.stderr) == (12, True)
    (copied,) = invoke("backup", tmp_path / "backup", "--depot", depot, "--json").ok().of("summary")
    assert (copied["items"], copied["missing"], copied["damaged"]) == (2, 0, 0)


def test_a_backup_has_the_configuration_and_the_archives(depot: Path, tmp_path: Path) -> None:
    fill(depot, tmp_path / "in")
    (depot / "longshore.toml").write_text("[transfer]\nconcurrency = 7  # few\n")
    (depot / "archive").mkdir()
    (depot / "archive" / "old.jsonl").write_text("{}\n")
    invoke("backup", tmp_path / "backup", "--depot", depot).ok()
    invoke("restore", tmp_path / "backup", "--depot", tmp_path / "new").ok()
    for name in ("longshore.toml", "archive/old.jsonl"):
        assert (tmp_path / "new" / name).read_bytes() == (depot / name).read_bytes()
        assert (tmp_path / "new" / name).stat().st_mode & 0o777 == 0o600


def test_a_configuration_that_names_a_store_elsewhere_is_restored_beside(depot: Path, tmp_path: Path) -> None:
    """With it the restored depot would read and write the store of the depot that was copied."""
    depot.mkdir()
    (depot / "longshore.toml").write_text(f"store = '{tmp_path / 'elsewhere'}'\n")
    fill(depot, tmp_path / "in")
    invoke("backup", tmp_path / "backup", "--depot", depot).ok()
    invoke("restore", tmp_path / "backup", "--depot", tmp_path / "new").ok()
    assert not (tmp_path / "new" / "longshore.toml").exists()
    assert (tmp_path / "new" / "longshore.toml.from-backup").exists()
    sound(tmp_path / "new")


def test_a_backup_of_a_depot_whose_store_is_not_mounted_is_refused(depot: Path, tmp_path: Path) -> None:
    fill(depot, tmp_path / "in")
    (depot / "store").rename(tmp_path / "unmounted")
    ran = invoke("backup", tmp_path / "backup", "--depot", depot)
    assert (ran.code, "no store was found" in ran.stderr) == (5, True)
    assert not (depot / "store").exists()


def test_a_restore_of_halves_that_do_not_fit_tells_the_truth(depot: Path, tmp_path: Path) -> None:
    """Store older than ledger: what is missing is named, marked and comes back with the bytes."""
    fill(depot, tmp_path / "in")
    invoke("backup", tmp_path / "backup", "--depot", depot).ok()
    lost = next((tmp_path / "backup" / "store").rglob(hashlib.sha256(b"two").hexdigest() + "*"))
    lost.unlink()
    ran = invoke("restore", tmp_path / "backup", "--depot", tmp_path / "new", "--json")
    assert ran.code == 5
    assert [finding["kind"] for finding in ran.of("finding")] == ["missing_blob"]
    invoke("adopt", tmp_path / "in", "--depot", tmp_path / "new").ok()
    invoke("reconcile", "--depot", tmp_path / "new").ok()
    sound(tmp_path / "new")


def test_a_damaged_or_foreign_backup_is_refused(tmp_path: Path, depot: Path) -> None:
    (tmp_path / "other").mkdir()
    assert invoke("restore", tmp_path / "other", "--depot", depot).code == 2
    (tmp_path / "other" / "ledger.db").write_bytes(os.urandom(8192))
    for note in (b"{}", b"[]", os.urandom(64), b'{"longshore_backup": 99}'):
        (tmp_path / "other" / "backup.json").write_bytes(note)
        assert invoke("restore", tmp_path / "other", "--depot", depot).code == 2
    (tmp_path / "other" / "backup.json").write_text('{"longshore_backup": 1}')
    assert invoke("restore", tmp_path / "other", "--depot", depot).code == 5
    assert not depot.exists()


def others_can_read(*places: Path) -> list[Path]:
    """What somebody else can reach below some directories, which are themselves what they are."""
    found = [path for place in places for path in (place, *place.rglob("*"))]
    return [path for path in found if path.stat().st_mode & 0o007 or (path.is_dir() and path.stat().st_mode & 0o070)]


@pytest.mark.slow
def test_what_leaves_a_private_depot_is_private_from_the_first_byte(depot: Path, tmp_path: Path) -> None:
    """Backup, restored depot and archive have the same URLs and hashes of tokens as the ledger; so have half-written ones."""
    fill(depot, tmp_path / "in")
    backup, restored, archive = tmp_path / "b" / "backup", tmp_path / "r" / "new", tmp_path / "a" / "archive"
    with Origin() as origin:
        assert invoke("get", origin.url("/nothing-here"), "--depot", depot, *NET).code == 3
    before = os.umask(0)
    try:
        for stop in ("backup.ledger=kill", "backup.blob=kill", ""):
            execute("backup", backup, "--depot", depot, env={"LONGSHORE_FAILPOINTS": stop})
            assert others_can_read(backup.parent) == []
        for stop in ("restore.blob=kill", "restore.ledger=kill", ""):
            execute("restore", backup, "--depot", restored, env={"LONGSHORE_FAILPOINTS": stop})
            assert others_can_read(restored.parent) == []
        for stop in ("purge.archive=kill", ""):
            arguments = ("purge", "--older-than", 0, "--archive", archive, "--depot", depot)
            execute(*arguments, env={"LONGSHORE_FAILPOINTS": stop})
            assert others_can_read(archive.parent) == []
    finally:
        os.umask(before)
    assert {
        path.stat().st_mode & 0o777 for path in (backup / "ledger.db", restored / "ledger.db", *archive.iterdir())
    } == {0o600}
    sound(restored)


@pytest.mark.parametrize("option", ["--ledger", "--store"])
def test_a_restore_touches_no_ledger_and_no_store_elsewhere(depot: Path, tmp_path: Path, option: str) -> None:
    fill(depot, tmp_path / "in")
    invoke("backup", tmp_path / "backup", "--depot", depot).ok()
    ran = invoke("restore", tmp_path / "backup", "--depot", tmp_path / "new", option, tmp_path / "elsewhere")
    assert (ran.code, "elsewhere" in ran.stderr) == (2, True)
    assert not (tmp_path / "new").exists()


def test_a_backup_goes_only_where_nothing_else_is(depot: Path, tmp_path: Path) -> None:
    """Not into what it copies, not among somebody's files; a backup that was cut goes on."""
    fill(depot, tmp_path / "in")
    (tmp_path / "to-depot").symlink_to(depot)
    for inside in (depot, depot / "inside", depot / "store" / "x", tmp_path / "to-depot" / "y"):
        ran = invoke("backup", inside, "--depot", depot)
        assert (ran.code, "inside" in ran.stderr) == (2, True), ran.stderr
    assert not (depot / "inside").exists()
    ran = invoke("backup", tmp_path / "in", "--depot", depot)
    assert (ran.code, "a.txt" in ran.stderr) == (2, True)
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["a.txt", "b.txt", "deep"]
    assert invoke("backup", tmp_path / "in" / "a.txt", "--depot", depot).code == 2
    cut = execute("backup", tmp_path / "bk", "--depot", depot, env={"LONGSHORE_FAILPOINTS": "backup.blob=kill"})
    assert cut.code == -9
    ran = invoke("restore", tmp_path / "bk", "--depot", tmp_path / "new")
    assert (ran.code, "before its end" in ran.stderr) == (2, True)
    invoke("backup", tmp_path / "bk", "--depot", depot).ok()
    invoke("restore", tmp_path / "bk", "--depot", tmp_path / "new").ok()
    assert invoke("restore", tmp_path / "bk", "--depot", tmp_path / "new").code == 2


def test_migrate_says_when_there_is_nothing_to_do(depot: Path, tmp_path: Path) -> None:
    assert invoke("migrate", "--depot", depot).code == 10
    fill(depot, tmp_path / "in")
    (summary,) = invoke("migrate", "--depot", depot, "--json").ok().of("summary")
    assert summary["applied"] == []


def test_gc_takes_only_what_nothing_refers_to(depot: Path, tmp_path: Path) -> None:
    """First out of reach, after the grace gone; `--dry-run` says so and touches nothing."""
    fill(depot, tmp_path / "in")
    digest = hashlib.sha256(b"orphan").hexdigest()
    orphan = depot / "store" / "default" / "default" / digest[:2] / digest
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"orphan")
    orphan.chmod(0o440)
    (would,) = invoke("gc", "--dry-run", "--depot", depot, "--json").ok().of("collected")
    assert (would["sha256"], would["action"]) == (digest, "would_quarantine")
    assert orphan.exists()
    (done,) = invoke("gc", "--depot", depot, "--json").ok().of("collected")
    assert done["action"] == "quarantined"
    assert not orphan.exists()
    assert invoke("gc", "--depot", depot, "--json").ok().of("collected") == []
    (gone,) = invoke("gc", "--grace", 0, "--depot", depot, "--json").ok().of("collected")
    assert (gone["action"], gone["size_bytes"]) == ("removed", 6)
    sound(depot)


def test_gc_goes_on_after_an_item_that_cannot_be_removed(
    depot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(depot, tmp_path / "tree")
    blobs = sorted(path for path in (depot / "store/default").rglob("*") if path.is_file() and len(path.name) >= 64)
    for path in blobs:
        path.unlink()
        path.mkdir()
    assert invoke("verify", "--depot", depot).code == 5
    forget, stuck = Quarantine.forget, blobs[0].name

    def failing(self: Quarantine, scope: Scope, name: str) -> None:
        if name.startswith(stuck[:64]):
            raise OSError(errno.EPERM, "Operation not permitted")
        forget(self, scope, name)

    with monkeypatch.context() as patched:
        patched.setattr(Quarantine, "forget", failing)
        ran = invoke("gc", "--grace", 0, "--depot", depot, "--json")
    assert ran.code == 3
    actions = {line["sha256"]: (line["action"], line["why"]) for line in ran.of("collected")}
    assert {sha256: action for sha256, (action, _) in actions.items()} == {
        path.name[:64]: "failed" if path == blobs[0] else "removed" for path in blobs
    }
    assert "not permitted" in actions[stuck[:64]][1]
    invoke("gc", "--grace", 0, "--depot", depot).ok()
    assert os.listdir(depot / "store/.staging/quarantine") == []


@pytest.mark.parametrize("instead", ["nothing", "file", "directory", "dangling"])
def test_a_store_that_is_not_mounted_is_not_taken_for_a_lost_one(depot: Path, tmp_path: Path, instead: str) -> None:
    """Two blobs are few, and still: nothing is begun in its place, nothing marked, nothing planned."""
    fill(depot, tmp_path / "in")
    store, listing = depot / "store", tmp_path / "list"
    listing.write_text("https://example.org/a\n")
    store.rename(tmp_path / "away")
    put_instead(store, instead)
    for command in ("reconcile --dry-run", "reconcile", "verify", "gc", f"put {listing}", "get https://example.org/a"):
        ran = invoke(*command.split(), "--depot", depot)
        assert (ran.code, str(store) in ran.stderr, "--store-lost" in ran.stderr) == (5, True, True), ran.stderr
        assert not store.is_dir() or list(store.iterdir()) == [], command
    (status,) = invoke("status", "--depot", depot, "--json").ok().of("status")
    assert {name: n for name, n in status["jobs"].items() if n} == {"completed": 2}
    if instead != "nothing":
        store.rmdir() if instead == "directory" else store.unlink()
    (tmp_path / "away").rename(store)
    invoke("reconcile", "--depot", depot).ok()
    sound(depot)


def test_a_lost_store_is_begun_anew_when_that_is_said(depot: Path, tmp_path: Path) -> None:
    with Origin() as origin:
        urls = [origin.add(f"/{n}", Thing(b"%d" % n * 500)) for n in range(2)]
        invoke("get", *urls, "--depot", depot, *NET).ok()
        (depot / "store").rename(tmp_path / "away")
        assert invoke("reconcile", "--store-lost", "--dry-run", "--depot", depot).code == 2
        assert not (depot / "store").exists()
        ran = invoke("reconcile", "--store-lost", "--depot", depot, "--json")
        assert (ran.code, [one["kind"] for one in ran.of("finding")]) == (5, ["missing_blob"] * 2)
        invoke("run", "--depot", depot, *NET).ok()
        invoke("reconcile", "--depot", depot).ok()
    sound(depot)


def test_one_blob_deleted_by_hand_is_fetched_again(depot: Path) -> None:
    with Origin() as origin:
        urls = [origin.add(f"/{n}", Thing(b"%d" % n * 500)) for n in range(2)]
        lost, *_ = invoke("get", *urls, "--depot", depot, "--json", *NET).ok().of("completed")
        Path(lost["path"]).unlink()
        ran = invoke("reconcile", "--depot", depot, "--json")
        assert (ran.code, [one["kind"] for one in ran.of("finding")]) == (5, ["missing_blob"])
        invoke("run", "--depot", depot, *NET).ok()
        invoke("reconcile", "--depot", depot).ok()
    sound(depot)


def test_a_store_moves_to_another_place(depot: Path, tmp_path: Path) -> None:
    """Copied, named with --store, and everything is there; what is damaged is said and not copied."""
    fill(depot, tmp_path / "in")
    invoke("store", "copy", tmp_path / "elsewhere", "--depot", depot).ok()
    (again,) = invoke("store", "copy", tmp_path / "elsewhere", "--depot", depot, "--json").ok().of("summary")
    assert (again["items"], again["there"]) == (0, 2)
    invoke("verify", "--depot", depot, "--store", tmp_path / "elsewhere").ok()
    blob = next((depot / "store").glob("default/default/*/*"))
    blob.chmod(0o640)
    blob.write_bytes(b"xxx")
    assert invoke("store", "copy", tmp_path / "third", "--depot", depot).code == 5


def test_a_ledger_moves_to_another_place(depot: Path, tmp_path: Path) -> None:
    fill(depot, tmp_path / "in")
    (summary,) = invoke("ledger", "copy", tmp_path / "other.db", "--depot", depot, "--json").ok().of("summary")
    assert summary["rows"]["jobs"] == 2
    before = invoke("export", "jsonl", "--depot", depot).stdout
    assert invoke("export", "jsonl", "--depot", depot, "--ledger", tmp_path / "other.db").stdout == before


def test_verify_full_lets_the_witness_look(depot: Path, tmp_path: Path) -> None:
    fill(depot, tmp_path / "in")
    invoke("verify", "--full", "--depot", depot).ok()
    next((depot / "store").glob("default/default/*/*")).chmod(0o644)
    invoke("verify", "--depot", depot).ok()
    ran = invoke("verify", "--full", "--depot", depot, "--json")
    assert (ran.code, [finding["kind"] for finding in ran.of("finding")]) == (5, ["file_writable"])


def test_stats_say_what_downloads_were_like(depot: Path) -> None:
    with Origin() as origin:
        bodies = [b"a" * 5000, b"b" * 300_000, b"a" * 5000]
        urls = [origin.add(f"/{n}", Thing(body)) for n, body in enumerate(bodies)]
        invoke("get", *urls, "--depot", depot, *NET).ok()
    (stats,) = invoke("stats", "--depot", depot, "--json").ok().of("stats")
    assert (stats["downloads"], stats["completed"], stats["corrupted"]) == (3, 3, 0)
    assert stats["bytes_streamed"] == sum(len(body) for body in bodies)
    assert stats["fsync_ms_p95"] > 0
    assert stats["shards"]["used"] == 2
    assert "fsync_ms_p95" in invoke("stats", "--depot", depot).ok().stdout


def test_tokens_made_and_revoked_on_the_command_line_are_in_the_audit_log(depot: Path) -> None:
    from longshore.domain.model import Scope
    from longshore.ledger import Ledger
    from longshore.ledger.operations import tokens

    invoke("token", "create", "--scope", "read", "--name", "night shift", "--depot", depot).ok()
    with Ledger.open(depot / "ledger.db") as ledger:
        [token] = ledger.read(tokens.list_tokens)
    invoke("token", "revoke", token.token_id, "--depot", depot).ok()
    with Ledger.open(depot / "ledger.db") as ledger:
        lines = ledger.read(audit_log.audit_entries, Scope())
    assert [(line.token_id, line.detail["act"], line.target) for line in lines] == [
        ("command line", "revoke token", token.token_id),
        ("command line", "create token", token.token_id),
    ]
    assert all(line.detail["name"] == "night shift" and line.detail["user"] for line in lines)


def test_a_token_that_ran_out_is_listed_as_expired(depot: Path) -> None:
    invoke("token", "create", "--expires", "0.001s", "--name", "short", "--depot", depot).ok()
    invoke("token", "create", "--expires", "1d", "--name", "long", "--depot", depot).ok()
    lines = invoke("token", "list", "--depot", depot).ok().stdout.splitlines()
    assert [("expired" in line, "until" in line) for line in lines if "short" in line] == [(True, False)]
    assert [("expired" in line, "until" in line) for line in lines if "long" in line] == [(False, True)]
