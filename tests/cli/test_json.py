"""`--json` of every command, generated from the command table: each is run, each line fits the schema that is shipped for
its type, and stdout carries nothing else. A command without a call here, and a line without a schema, is a failure.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import pytest

import longshore
from longshore.cli.main import entries
from longshore.cli.run_command import program
from tests.cli.conftest import LOOPBACK, Box
from tests.support.origin import Origin, Thing, status
from tests.support.program import SOURCES, Ran, eventually, schema_of, started

MAGNET: Final = "magnet:?xt=urn:btih:" + "a1" * 20
TORRENT: Final = ["--user", "u1", "--book", "b1", "--media-type", "ebook"]


def leaves() -> list[str]:
    """Name every command that does something: groups give their members."""
    names = []
    for name in entries():
        found = program.get_command(click.Context(program), name)
        assert found is not None
        names += [f"{name} {one}" for one in found.commands] if isinstance(found, click.Group) else [name]
    return names


@dataclass
class World:
    """A depot with something of everything, an origin beside it, and what earlier calls gave."""

    box: Box
    origin: Origin

    def made(self, *arguments: object, kind: str) -> dict[str, Any]:
        """Run a command first and give its line of this type."""
        return self.box(*arguments, "--json").of(kind)[0]

    def job(self, wanted: str) -> str:
        return str(next(line["job_id"] for line in self.box("jobs", "--json").ok().lines if line["status"] == wanted))

    def artifact(self) -> str:
        """Name the result of a completed job."""
        shown = self.box("show", self.job("completed"), "--json").ok().lines[0]
        return str(shown["artifacts"][0]["artifact_id"])

    def unnamed_blob(self) -> None:
        """Put a file into the store that no row names."""
        body = b"nobody's"
        name = hashlib.sha256(body).hexdigest()
        place = self.box.depot / "store" / "default" / "default" / name[:2]
        place.mkdir(exist_ok=True)
        (place / name).write_bytes(body)

    def named_run(self) -> None:
        """Plan a job in a run."""
        self.box("add", "-", "--run", "r", stdin=self.origin.url("/named").encode()).ok()


@dataclass(frozen=True)
class Call:
    """How a command is called so that it has something to say, and which lines it must say."""

    arguments: Callable[[World], list[object]]
    types: str
    code: int = 0


def call(*arguments: object, types: str, code: int = 0) -> Call:
    return Call(lambda _: list(arguments), types, code)


@longshore.job_type("json_words")
def json_words(inputs: list[Any], params: dict[str, Any], ctx: Any) -> int:
    return len(inputs)


def _earlier(world: World) -> list[object]:
    """Make the ledger of an earlier program."""
    with contextlib.closing(sqlite3.connect(world.box.home / "earlier.db")) as old:
        old.execute("CREATE TABLE downloads (work_id TEXT, artifact_id TEXT, url TEXT, path TEXT, sha256 TEXT)")
    return [world.box.home / "earlier.db"]


def _webhook(world: World) -> list[object]:
    return [world.made("webhooks", "add", "https://a.example/hook", kind="webhook")["webhook_id"]]


def _collect(world: World) -> list[object]:
    world.unnamed_blob()
    return ["--grace", "0"]


def _restore(world: World) -> list[object]:
    world.box("backup", world.box.home / "backup").ok()
    return [world.box.home / "backup", "--depot", world.box.home / "back"]


def _token(world: World) -> list[object]:
    return [world.made("token", "create", kind="token")["token_id"]]


def _torrent(world: World) -> list[object]:
    return [world.made("torrent", "add", MAGNET, *TORRENT, kind="planned")["job_id"]]


CALLS: Final[dict[str, Call]] = {
    "get": Call(
        lambda w: [*map(w.origin.url, ("/new", "/held", "/flaky", "/gone")), "-d", w.box.home / "out"],
        "planned started retry completed held failed placed summary",
        3,
    ),
    "add": Call(
        lambda w: [w.box.write("list", f"{w.origin.url('/more')}\nnot a url\n")], "planned refused summary", code=3
    ),
    "run": call(types="started completed summary"),
    "put": Call(lambda w: [w.box.write("file", "bytes of ours")], "taken"),
    "adopt": Call(lambda w: [w.box.write("tree", "").unlink() or _tree(w)], "taken summary"),  # type: ignore[func-returns-value]
    "submit": call("json_words", types="submitted"),
    "backfill": Call(_earlier, "backfilled"),
    "torrent add": call(MAGNET, *TORRENT, types="planned"),
    "torrent list": Call(lambda w: _torrent(w) and [], "torrent"),
    "torrent show": Call(_torrent, "torrent"),
    "torrent cancel": Call(_torrent, "torrent"),
    "torrent sync": call(types="summary"),
    "status": call(types="status"),
    "jobs": call(types="job"),
    "runs": Call(lambda w: w.named_run() or [], "run"),  # type: ignore[func-returns-value]
    "show": Call(lambda w: [w.job("completed")], "show"),
    "failures": call(types="failure"),
    "stats": call(types="stats"),
    "feed": call("--consumer", "c", types="new"),
    "export": call(types="manifest"),
    "retry": call("--all", types="retried summary"),
    "cancel": call("--all", types="cancel summary"),
    "replay": Call(lambda w: [w.job("completed")], "replayed"),
    "budget": call(types="budget"),
    "hosts": call(types="host"),
    "serve": call("--port", "0", types="serving"),
    "webhooks add": call("https://a.example/hook", types="webhook"),
    "webhooks list": Call(lambda w: _webhook(w)[:0], "webhook"),
    "webhooks remove": Call(_webhook, "removed"),
    "webhooks deliver": call(types="delivered"),
    "webhooks failures": call("nothing", types=""),
    "webhooks redeliver": Call(_webhook, "delivered"),
    "mcp": call(types=""),  # its stdout is the protocol
    "verify": call(types="summary"),
    "reconcile": Call(lambda w: w.unnamed_blob() or [], "finding summary"),  # type: ignore[func-returns-value]
    "gc": Call(_collect, "collected summary"),
    "delete": Call(lambda w: [w.artifact()], "deleted"),
    "purge": call("--older-than", "0", "--format", "jsonl", types="summary"),
    "backup": Call(lambda w: [w.box.home / "backup"], "summary"),
    "restore": Call(_restore, "summary"),
    "migrate": call(types="summary"),
    "store copy": Call(lambda w: [w.box.home / "other-store"], "summary"),
    "ledger copy": Call(lambda w: [w.box.home / "other.db"], "summary"),
    "config": call(types="config"),
    "doctor": call("--only", "sqlite", types="check summary"),
    "token create": call(types="token"),
    "token list": Call(lambda w: _token(w) and [], "token"),
    "token revoke": Call(_token, "revoked"),
    "completion": call("bash", types="completion"),
    "version": call(types="version"),
}
WITHOUT_LEDGER: Final = {"config", "doctor", "completion", "version", "restore"}
OTHER_FORMS: Final = {  # of commands that can say more than one thing
    "get --dry-run": (["get", "--dry-run", "http://127.0.0.1/x"], "preview summary", 0),
    "add --dry-run": (["add", "--dry-run", "-"], "summary", 0),
    "verify damage": (["verify"], "finding summary", 5),
    "verify --full": (["verify", "--full"], "finding summary", 5),
    "feed --ack": (["feed", "--consumer", "c", "--ack", "0"], "acknowledged", 0),
    "export failures": (["export", "failures"], "list_item", 0),
    "export file": (["export", "csv", "-o", "manifest.csv"], "summary", 0),
    "config set": (["config", "set", "tenant", "default"], "config", 0),
    "config path": (["config", "path"], "config_path", 0),
    "retry --dry-run": (["retry", "--all", "--dry-run"], "retried summary", 0),
    "reconcile --dry-run": (["reconcile", "--dry-run"], "finding summary", 5),
    "cancel --dry-run": (["cancel", "--all", "--dry-run"], "cancel summary", 0),
}


def _tree(world: World) -> Path:
    tree = world.box.home / "adopted"
    tree.mkdir()
    (tree / "one").write_bytes(b"adopted bytes")
    return tree


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Origin]]:
    """A depot with a completed, a failed and a pending job."""
    home = tmp_path_factory.mktemp("template")
    box = Box(home, LOOPBACK | {"LONGSHORE_DEPOT": str(home / "depot")})
    with Origin() as origin:
        for name in ("/held", "/new", "/waits", "/more"):
            origin.add(name, Thing(name.encode() * 100))
        origin.add("/gone", status(404))
        origin.add("/flaky", status(503), Thing(b"at last"))
        assert box("get", origin.url("/held"), origin.url("/gone")).code == 3
        box("add", box.write("list", origin.url("/waits"))).ok()
        yield home / "depot", origin


@pytest.fixture
def world(template: tuple[Path, Origin], tmp_path: Path) -> World:
    depot, origin = template
    shutil.copytree(depot, tmp_path / "depot")
    env = LOOPBACK | {
        "LONGSHORE_DEPOT": str(tmp_path / "depot"),
        "LONGSHORE_QBITTORRENT__URL": "http://127.0.0.1:9",  # nobody: what the client would do is tested elsewhere
    }
    return World(Box(tmp_path, env), origin)


def complaint(ran: Ran) -> dict[str, Any]:
    """Give the one document that says what is wrong: the last line of stderr."""
    error: dict[str, Any] = json.loads(ran.stderr.splitlines()[-1])
    schema_of("error").validate(error)
    assert error["exit_code"] == ran.code
    return error


def test_every_command_has_its_call_here() -> None:
    assert set(CALLS) == set(leaves())


def test_every_schema_is_of_a_line_that_some_test_sees() -> None:
    shipped = {path.stem for path in (SOURCES / "longshore" / "cli" / "schemas").glob("*.json")}
    seen = {kind for one in CALLS.values() for kind in one.types.split()}
    seen |= {kind for _, types, _ in OTHER_FORMS.values() for kind in types.split()}
    elsewhere = {"error", "progress", "canceled", "waiting", "stopped"}  # below, test_run, test_waiting and test_policy
    elsewhere |= {"lost"} | {
        "changed",
        "gone",
        "consumer",
        "forgotten",
        "dead_letter",
    }  # test_damage, test_feed, test_webhooks
    assert shipped == seen | elsewhere


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("serve", "mcp")])
def test_what_a_command_says_fits_its_schema(world: World, name: str) -> None:
    known = CALLS[name]

    ran = world.box(*name.split(), *known.arguments(world), "--json")

    assert ran.code == known.code or (name.startswith("torrent") and ran.code == 4), ran.stdout + ran.stderr
    assert {line["type"] for line in ran.lines} >= set(known.types.split())


@pytest.mark.parametrize("name", list(OTHER_FORMS))
def test_its_other_forms_do_too(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, types, code = OTHER_FORMS[name]
    monkeypatch.chdir(world.box.home)
    if code == 5:
        (blob,) = (path for path in (world.box.depot / "store" / "default").rglob("*") if path.is_file())
        blob.unlink()

    ran = world.box(*arguments, "--json", stdin=b"http://127.0.0.1/y\n")

    assert ran.code == code, ran.stdout + ran.stderr
    assert {line["type"] for line in ran.lines} == set(types.split())


def test_serve_says_where(world: World, tmp_path: Path) -> None:
    with started(tmp_path / "serve", "serve", *CALLS["serve"].arguments(world), "--json", env=world.box.env) as running:
        eventually(lambda: running.stdout.endswith("\n"), "it says where it serves")
        running.signal(signal.SIGTERM)
        ran = running.wait()

    assert ran.code == 143
    assert [line["type"] for line in ran.lines] == ["serving"]


@pytest.mark.parametrize("name", list(CALLS))
def test_a_wrong_option_is_one_document_on_stderr(world: World, name: str) -> None:
    ran = world.box(*name.split(), "--no-such-option", "--json")

    assert (ran.code, ran.stdout) == (2, "")
    assert len(ran.stderr.splitlines()) == 1
    assert "--no-such-option" in complaint(ran)["message"]


@pytest.mark.parametrize("name", [name for name in CALLS if name not in WITHOUT_LEDGER])
def test_a_damaged_ledger_is_one_document_on_stderr(world: World, name: str) -> None:
    arguments = CALLS[name].arguments(world)
    for extra in world.box.depot.glob("ledger.db-*"):
        extra.unlink()
    (world.box.depot / "ledger.db").write_bytes(b"this is not a database " * 1000)

    ran = world.box(*name.split(), *arguments, "--json")

    assert (ran.code, ran.stdout) == (5, "")
    assert "ledger.db" in complaint(ran)["message"]


def test_what_is_no_json_is_refused_with_json(world: World) -> None:
    ran = world.box("export", "csv", "--json")

    assert (ran.code, ran.stdout) == (2, "")
    assert "-o" in complaint(ran)["message"]


def test_an_exported_manifest_can_be_added_again(world: World) -> None:
    lines = world.box("export", "--json").ok().stdout

    (summary,) = world.box("add", "-", "--json", stdin=lines.encode()).ok().of("summary")

    assert (summary["new"], summary["known"], summary["refused"]) == (0, 3, 0)
