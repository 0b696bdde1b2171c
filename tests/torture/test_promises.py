"""What was said is true through a power cut; and every publish goes its way in the one order that makes it so."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.checker import check
from longshore.checker.check import LocalFiles
from tests.support.disks import power_cut_disk
from tests.support.origin import Origin, Thing, stamped
from tests.support.program import command, environment, execute, invoke
from tests.torture.sweeping import _packages

NET = ("--allow-net", "127.0.0.0/8")
ROOM = {"LONGSHORE_QUOTA__FREE_BYTES_MIN": "0"}


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        yield server


def test_what_was_added_and_what_was_completed_survives_a_power_cut(origin: Origin) -> None:
    """The exit of `add` and of `get` is the promise; the power goes right after it."""
    url = origin.add("/a", Thing(stamped(1, 300_000)))
    with power_cut_disk(48) as disk:
        depot = disk.root / "depot"
        added = execute("add", "-", "--depot", depot, "--json", stdin=url.encode(), env=ROOM).ok()
        after_add = disk.cut()
        got = execute("get", url, "--depot", depot, *NET, "--json", env=ROOM).ok()
        after_get = disk.cut()
        with disk.after(after_add) as where:
            (job,) = invoke("jobs", "--depot", where / "depot", "--json", env=ROOM).ok().of("job")
            assert (job["job_id"], job["status"]) == (added.of("planned")[0]["job_id"], "pending")
        with disk.after(after_get) as where:
            (job,) = invoke("jobs", "--depot", where / "depot", "--json", env=ROOM).ok().of("job")
            assert (job["job_id"], job["status"]) == (got.of("completed")[0]["job_id"], "completed")
            assert check(str(where / "depot" / "ledger.db"), LocalFiles(where / "depot" / "store")).damage == []


@pytest.mark.torture
@pytest.mark.timeout(900)
def test_the_power_goes_while_two_processes_write_and_checkpoint(origin: Origin) -> None:
    """Both are frozen, the image is copied, both go on: at every such moment the ledger is sound and has what was said."""
    code = (
        "import sys; from longshore.ledger import Ledger; from longshore.domain.model import Scope;"
        "from longshore.domain.identity.requests import download_request as r\\n"
        "l = Ledger.open(sys.argv[1])\\n"
        "for n in range(100000):\\n"
        "    print(l.plan(Scope(), [r(f'https://example.org/{sys.argv[2]}/{n}/{m}') for m in range(50)])[0].job_id, flush=True)"
    ).replace("\\n", "\n")
    with power_cut_disk(256) as disk:
        invoke("add", "-", "--depot", disk.root / "depot", stdin=b"https://example.org/first", env=ROOM).ok()
        where = str(disk.root / "depot" / "ledger.db")
        logs = [disk.root.parent / f"{disk.root.name}-{n}.log" for n in range(2)]
        writers = [
            subprocess.Popen([sys.executable, "-c", code, where, str(n)], env=environment(), stdout=log.open("wb"))
            for n, log in enumerate(logs)
        ]
        try:
            cuts = []
            for place in range(8):
                _until_more(logs, place)
                for writer in writers:
                    writer.send_signal(signal.SIGSTOP)
                said = {line for log in logs for line in log.read_text().split("\n")[:-1]}
                cuts.append((disk.cut(), said))
                for writer in writers:
                    writer.send_signal(signal.SIGCONT)
        finally:
            for writer in writers:
                writer.kill()
                writer.wait()
            for log in logs:
                log.unlink()
        for copy, said in cuts:
            with disk.after(copy) as mounted:
                assert check(str(mounted / "depot" / "ledger.db"), None, acknowledged=said).findings == []


def _until_more(logs: list[Path], place: int) -> None:
    from tests.support.program import eventually

    eventually(lambda: all(log.read_text().count("\n") > 25 * place for log in logs), "both write")


CALL = re.compile(r"^(\d+) +(\w+)\((.*)$")


def test_every_publish_goes_its_way_in_order(tmp_path: Path, origin: Origin) -> None:
    """I18: bytes, fsync, intent committed, link, fsync of the directory, row committed – seen by strace from outside."""
    url = origin.add("/body", Thing(stamped(1, 400_000)))
    trace = tmp_path / "trace"
    words = command("get", url, "--depot", tmp_path / "depot", *NET)
    words[0] = os.path.realpath(sys.executable)
    calls = "trace=linkat,renameat,rename,fsync,fdatasync,syncfs,pwrite64,write,io_submit"
    extra = {"PYTHONPATH": os.pathsep.join([environment()["PYTHONPATH"], *_packages()])}
    subprocess.run(
        ["strace", "-f", "-qq", "-y", "-o", str(trace), "-e", calls, *words], env=environment(extra), check=True
    )
    lines = [match.groups() for match in map(CALL.match, trace.read_text(errors="replace").splitlines()) if match]
    (link,) = [place for place, (_, call, rest) in enumerate(lines) if call == "linkat" and "/default/default/" in rest]
    synced = [place for place, (_, call, _) in enumerate(lines) if call in ("fsync", "fdatasync", "syncfs")]
    body = [place for place, (_, call, rest) in enumerate(lines) if call == "pwrite64" and "/.staging/" in rest]
    ledger = [
        place
        for place, (_, call, rest) in enumerate(lines)
        if call in ("fsync", "fdatasync") and "ledger.db-wal" in rest
    ]
    directory_syncs = [
        place
        for place in synced
        if place > link and re.search(r"/default/default(/[0-9a-f]{2})?>|syncfs", lines[place][2] + lines[place][1])
    ]
    assert max(place for place in body if place < link) < max(place for place in synced if place < link)
    assert [place for place in ledger if place < link], "the intent is durable before the link"
    assert directory_syncs, "the directory is made durable after the link"
    assert [place for place in ledger if place > directory_syncs[0]], "the row is committed after that"
