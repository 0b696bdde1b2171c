"""Pointers appear in nothing that a command prints or writes; a path only where the store is local and the caller's own.

Every command there is runs on a depot whose bytes lie in PostgreSQL; one that nobody taught fails.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from longshore.cli.commands.export import DIRECTORIES, FILES
from longshore.cli.main import entries
from longshore.domain.model import Scope
from longshore.ledger import Ledger
from tests.cli.conftest import LOOPBACK, Box
from tests.support.origin import Origin, Thing, status
from tests.support.postgres import postgres_cluster, postgres_dsn

__all__ = ["postgres_cluster", "postgres_dsn"]

HOME = Scope("default", "default")
# How each command is called, several times if need be; `{}` are things of the depot.
CALLS: dict[str, list[str]] = {
    "get": ["get {url}", "get {url} --refresh", "get {gone}"],
    "add": ["add {list}"],
    "run": ["run"],
    "put": ["put {file}"],
    "adopt": ["adopt {file}"],
    "torrent": ["torrent list"],
    "submit": ["submit unknown"],
    "backfill": ["backfill {file}"],
    "delete": ["delete --older-than 0 --dry-run", "delete --type raw_upload --expect 1"],
    "status": ["status"],
    "jobs": ["jobs"],
    "show": ["show {job}", "show {failed}"],
    "failures": ["failures"],
    "stats": ["stats"],
    "export": [
        *(f"export {form}" for form in FILES if form != "parquet"),
        *(f"export {form} -o {{out}}/{form}" for form in DIRECTORIES),
        *(f"export {form} -o {{out}}/file-{form}" for form in FILES),
    ],
    "runs": ["runs"],
    "feed": ["feed --consumer c", "feed --list"],
    "webhooks": ["webhooks list", "webhooks failures"],
    "mcp": [],  # for agents: tests/integrations/test_mcp.py
    "retry": ["retry {failed}"],
    "cancel": ["cancel --all"],
    "replay": ["replay {job}"],
    "hosts": ["hosts"],
    "budget": ["budget", "budget --items 1000"],
    "verify": ["verify"],
    "reconcile": ["reconcile"],
    "gc": ["gc --dry-run"],
    "purge": ["purge --older-than 0s --dry-run"],
    "backup": ["backup {out}/backup"],
    "restore": ["restore {out}/nothing"],
    "migrate": ["migrate"],
    "store": ["store copy {out}/copy"],
    "ledger": ["ledger copy {out}/ledger.db"],
    "config": ["config"],
    "doctor": ["doctor"],
    "token": ["token create --name t", "token list"],
    "completion": ["completion bash"],
    "version": ["version"],
    "serve": [],  # the service: tests/web/test_pointers.py
}


@pytest.fixture
def far(tmp_path: Path, postgres_dsn: str) -> Box:
    env = {"LONGSHORE_DEPOT": str(tmp_path / "depot"), "LONGSHORE_STORE": postgres_dsn}
    return Box(tmp_path, LOOPBACK | env)


def test_every_command_is_taught() -> None:
    assert CALLS.keys() == entries().keys()


def test_no_command_and_no_export_tells_where_bytes_lie(far: Box, origin: Origin) -> None:
    url, gone = origin.add("/a.txt", Thing(b"pointed bytes")), origin.add("/gone", status(404))
    done = far("get", url, gone, "--json")
    (out := far.home / "out").mkdir()
    things = {
        "url": url,
        "gone": gone,
        "job": done.of("completed")[0]["job_id"],
        "failed": done.of("failed")[0]["job_id"],
        "file": str(far.write("mine.txt", "my own bytes")),
        "list": str(far.write("list.txt", url + "\n")),
        "out": str(out),
    }
    far("put", things["file"]).ok()
    with Ledger.open(far.depot / "ledger.db") as ledger:
        pointers = [artifact.pointer for artifact in ledger.artifacts(HOME).items]
    assert len(pointers) == 2
    for calls in CALLS.values():
        for call in calls:
            words = call.format(**things).split()
            for how in ([], ["--json"]):
                ran = far(*words, *how, *(["-v"] if not how else []))
                told = ran.stdout + ran.stderr
                assert [one for one in pointers if one in told] == [], f"{call} {how}"
                assert "Traceback" not in told, f"{call}: {told}"
    for path in sorted(out.rglob("*")):
        inside = path.relative_to(out).parts[0]
        if path.is_file() and inside not in ("backup", "copy") and not inside.startswith("ledger.db"):
            body = path.read_bytes()
            assert [one for one in pointers if one.encode() in body] == [], path


def test_a_path_is_shown_for_the_callers_own_local_depot_only(box: Box, far: Box, origin: Origin) -> None:
    url = origin.add("/a.txt", Thing(b"pointed bytes"))
    (here,) = box("get", url, "--json", "--depot", box.home / "local").ok().of("completed")
    assert Path(here["path"]).read_bytes() == b"pointed bytes"
    (there,) = far("get", url, "--json").ok().of("completed")
    assert "path" not in there
