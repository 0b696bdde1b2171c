"""Programs to be killed on their way: each prepares a depot, runs one command as a process, and says what must be true after.

A voyage names the failpoints that its command passes. `test_every_failpoint.py` kills the command at each of them.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import psycopg

import longshore
from longshore.checker import check
from longshore.checker.check import LocalFiles
from longshore.depot.maintenance.gc import UNNAMED
from longshore.domain.identity.keys import op_key
from longshore.domain.identity.requests import download_request
from longshore.domain.model import Scope
from longshore.ledger.records import Intent
from tests.support.origin import Origin, Thing, check_stamps, cut, drip, stamped, status
from tests.support.program import environment, invoke
from tests.worker import crashing

SCOPE = Scope()
ROOT = Path(__file__).resolve().parents[2]
NET = ("--allow-net", "127.0.0.0/8")
STALE = ("--set", "reconcile.stale_part_s=0")
PATIENCE_S = 60.0


class Voyage:
    """A depot, a command and what must hold when it was killed and came again."""

    points: ClassVar[tuple[str, ...]]
    settings: ClassVar[Mapping[str, str]] = {}

    def __init__(self, home: Path, origin: Origin) -> None:
        self.home, self.origin, self.depot = home, origin, home / "depot"
        self.prepare()

    def prepare(self) -> None:
        """Make what the command works on."""

    def command(self) -> list[str]:
        """Say what is run."""
        raise NotImplementedError

    def recovered(self) -> None:
        """Do what an operator would do after a crash."""
        done = self.run()
        assert done.returncode == 0, done.stderr

    # --- for the voyages

    def cli(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "longshore", *map(str, words), "--depot", str(self.depot)]

    def worker(self, *urls: str) -> list[str]:
        return [sys.executable, "-m", "tests.worker.child", str(self.depot), *urls]

    def run(self, **failpoints: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end, whatever that is."""
        extra = {**crashing.SETTINGS, **self.settings, **failpoints, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        return subprocess.run(
            self.command(), env=environment(extra), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )

    def sound(self) -> None:
        """Nothing is wrong, also by an outsider's eyes."""
        invoke("reconcile", "--depot", self.depot, *STALE)
        report = check(str(self.depot / "ledger.db"), LocalFiles(self.depot / "store"))
        assert report.findings == []

    def got(self, name: str = "/a", size: int = 5_000) -> str:
        """Have something."""
        url = self.origin.add(name, Thing(stamped(1, size)))
        invoke("get", url, "--depot", self.depot, *NET).ok()
        return url

    def orphan(self, body: bytes = b"nobody's bytes") -> Path:
        """Leave a blob that no row names, as a restore of an older ledger does."""
        digest = hashlib.sha256(body).hexdigest()
        path = self.depot / "store" / "default" / "default" / digest[:2] / f"{digest}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        path.chmod(0o444)
        return path


class Restarting(Voyage):
    """The object changed: the part begins again within the answer."""

    points = ("part.restart",)

    def prepare(self) -> None:
        one, two = Thing(stamped(1, 900_000)), Thing(stamped(2, 900_000), etag='"v2"')
        self.url = self.origin.add("/changing", cut(one, 600_000), two)

    def command(self) -> list[str]:
        return self.worker(self.url)

    def recovered(self) -> None:
        super().recovered()
        with longshore.open(self.depot, offline=True) as depot:
            (got,) = depot.get([self.url])
            assert got.path is not None
            assert check_stamps(got.path.read_bytes()) == 2


class Beating(Voyage):
    """A body so slow that its lease is renewed on the way."""

    points = ("heartbeat.before", "heartbeat.after")
    settings: ClassVar[Mapping[str, str]] = {"LONGSHORE_LEASE__TTL_S": "6", "LONGSHORE_LEASE__RENEW_S": "0.1"}

    def prepare(self) -> None:
        slow = Thing(stamped(1, 40_000))
        self.url = self.origin.add("/slow", drip(slow, 1_000, 0.05), slow)

    def command(self) -> list[str]:
        return self.worker(self.url)


class Adopting(Voyage):
    """The bytes were linked when the last one died: nothing is fetched again."""

    points = ("adopt.recovered", "adopt.begun")

    def prepare(self) -> None:
        self.url = self.origin.add("/a", Thing(stamped(1, 5_000)))
        code, _, err = crashing.run(self.depot, [self.url], LONGSHORE_FAILPOINTS="publish.linked=kill")
        assert code == -signal.SIGKILL, err
        self.origin.add("/a", status(500))

    def command(self) -> list[str]:
        return self.worker()


class Reconciling(Voyage):
    """Lost bytes, bytes of nobody, a part of nobody, and a blob that a crash left in quarantine."""

    points = (
        "reconcile.begin", "reconcile.part", "part.drop", "quarantine.restore", "quarantine.rename", "quarantine.note",
        "reconcile.quarantined", "reconcile.marked", "reconcile.end",
    )  # fmt: skip

    def prepare(self) -> None:
        lost, away = self.got("/lost", 4_000), self.got("/away", 6_000)
        self.urls = [lost, away]
        self.orphan()
        with longshore.open(self.depot, network={"allow": ["127.0.0.0/8"]}) as depot:
            gone, kept = (one.artifact for one in depot.get(self.urls))
            assert gone is not None
            assert kept is not None
            path = depot.store.path(SCOPE, gone.pointer)
            assert path is not None
            path.unlink()
            assert depot.store.quarantine(SCOPE, kept.pointer, UNNAMED) is not None
            (planned,) = depot.ledger.plan(SCOPE, [download_request("http://127.0.0.1:1/canceled")])
            part = depot.store.part(SCOPE, planned.job_id, 1)
            part.begin(url="http://127.0.0.1:1/canceled")
            part.write(b"half of it")
            part.checkpoint()
            part.close()
            depot.ledger.cancel(SCOPE, [planned.job_id])

    def command(self) -> list[str]:
        return self.cli("reconcile")

    def recovered(self) -> None:
        assert self.run().returncode in (0, 5)  # 5: bytes are still missing
        invoke("run", "--depot", self.depot, *NET).ok()
        invoke("reconcile", "--depot", self.depot, *STALE).ok()
        held = invoke("get", *self.urls, "--depot", self.depot, "--json", env={"LONGSHORE_OFFLINE": "true"}).ok()
        assert len(held.of("held")) == 2


class Returning(Voyage):
    """A blob was taken away for one of nobody's, and at that moment somebody meant to publish it: it is put back."""

    points = ("reconcile.restored",)

    def prepare(self) -> None:
        self.got()
        self.path = self.orphan()

    def command(self) -> list[str]:
        return self.cli("reconcile")

    def run(self, **failpoints: str) -> subprocess.CompletedProcess[str]:
        if not failpoints:
            return super().run()
        pause = self.home / "pause"
        pause.mkdir()
        armed = f"reconcile.quarantined=pause:{pause};{failpoints.pop('LONGSHORE_FAILPOINTS', '')}"
        extra = {**crashing.SETTINGS, **failpoints, "LONGSHORE_FAILPOINTS": armed}
        process = subprocess.Popen(
            self.command(), env=environment(extra), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._mean_it(pause)
        out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def _mean_it(self, pause: Path) -> None:
        end = time.monotonic() + PATIENCE_S
        while not (pause / "reconcile.quarantined.here").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        digest = self.path.name[:64]
        with longshore.open(self.depot) as depot:
            depot.ledger.plan(SCOPE, [download_request("https://example.org/meant")])
            (lease,) = depot.ledger.claim("somebody", limit=1, ttl_s=600)
            key = op_key("FINALIZE", lease.job_id, sha256=digest)
            depot.ledger.begin([Intent(lease, "FINALIZE", key, "verifiable", digest, {})])
        (pause / "reconcile.quarantined.go").touch()

    def recovered(self) -> None:
        super().recovered()
        assert self.path.exists()

    def sound(self) -> None:
        report = check(str(self.depot / "ledger.db"), LocalFiles(self.depot / "store"))
        assert [one.kind for one in report.findings] == ["file_unregistered"]  # meant, not yet registered


class Collecting(Voyage):
    """What nobody names goes to quarantine; what was there for long goes for good."""

    points = ("gc.quarantined", "gc.removed")

    def prepare(self) -> None:
        self.got()
        self.orphan(b"to be quarantined")
        old = self.orphan(b"quarantined long ago")
        with longshore.open(self.depot) as depot:
            assert depot.store.quarantine(SCOPE, str(old.relative_to(self.depot / "store")), UNNAMED, at=1)

    def command(self) -> list[str]:
        return self.cli("gc", "--grace", "1")


class Placing(Voyage):
    """A name outside the store."""

    points: ClassVar[tuple[str, ...]] = ("place.write", "place.name")
    words: ClassVar[tuple[str, ...]] = ()

    def prepare(self) -> None:
        self.url = self.got()
        (self.home / "out").mkdir()

    def command(self) -> list[str]:
        return self.cli("get", self.url, "-o", self.home / "out/out.bin", *self.words)

    def recovered(self) -> None:
        if not self.words:  # a file without a name vanishes with its process
            assert os.listdir(self.home / "out") == []
        super().recovered()
        assert (self.home / "out/out.bin").read_bytes() == stamped(1, 5_000)
        assert os.listdir(self.home / "out") == ["out.bin"]


class Replacing(Placing):
    """A name outside the store replaces another; what a killed process left beside it is removed."""

    points = ("place.replace", "place.sweep")
    words = ("--overwrite",)

    def prepare(self) -> None:
        super().prepare()
        (self.home / "out/out.bin").write_bytes(b"older")
        (self.home / f"out/.longshore-{'0' * 32}").write_bytes(b"left by a killed one")


class Damaging(Voyage):
    """Fresh bytes come, and the blob of their name has lost a bit: it goes away, they take its name."""

    points = ("blob.damaged",)

    def prepare(self) -> None:
        self.got("/a")
        self.url = self.origin.add("/b", Thing(stamped(1, 5_000)))
        [path] = (self.depot / "store").glob("[!.]*/*/??/*")
        path.chmod(0o600)
        path.write_bytes(stamped(1, 5_000)[:-1] + b"?")

    def command(self) -> list[str]:
        return self.worker(self.url)

    def recovered(self) -> None:
        super().recovered()
        [path] = (self.depot / "store").glob("[!.]*/*/??/*")
        assert path.read_bytes() == stamped(1, 5_000)


class Mending(Voyage):
    """The directory of parts is deleted under a process: it is made again, and the run goes on."""

    points = ("staging.mend",)
    CODE = """
import shutil, sys, longshore
with longshore.open(sys.argv[1], network={"allow": ["127.0.0.0/8"]}) as depot:
    shutil.rmtree(depot.settings.store + "/.staging/parts")
    (got,) = depot.get([sys.argv[2]])
    assert got.ok, got
"""

    def prepare(self) -> None:
        self.got("/first")
        self.url = self.origin.add("/large", Thing(stamped(1, 3_000_000)))

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.CODE, str(self.depot), self.url]


class Linkless(Mending):
    """A file system with neither links nor RENAME_NOREPLACE: bodies are renamed under a lock."""

    points = ("link.rename",)
    CODE = """
import errno, os, sys, longshore
from longshore.store.durability import filesystem
def refuse(code):
    def call(*_, **__):
        raise OSError(code, os.strerror(code))
    return call
os.link, filesystem.rename_noreplace = refuse(errno.EPERM), refuse(errno.EINVAL)
with longshore.open(sys.argv[1], network={"allow": ["127.0.0.0/8"]}) as depot:
    (got,) = depot.get([sys.argv[2]])
    assert got.ok, got
"""


class BackingUp(Voyage):
    """A backup that was cut is taken up again, and comes back whole."""

    points = ("backup.ledger", "backup.blob", "backup.end")

    def prepare(self) -> None:
        self.got("/a")
        self.got("/b", 6_000)

    def command(self) -> list[str]:
        return self.cli("backup", self.home / "backup")

    def recovered(self) -> None:
        super().recovered()
        invoke("restore", self.home / "backup", "--depot", self.home / "new").ok()
        assert check(str(self.home / "new" / "ledger.db"), LocalFiles(self.home / "new" / "store")).findings == []


class Restoring(Voyage):
    """A half restore is no depot; the next one finishes it."""

    points = ("restore.blob", "restore.ledger", "restore.end")

    def prepare(self) -> None:
        self.got("/a")
        self.got("/b", 6_000)
        invoke("backup", self.home / "backup", "--depot", self.depot).ok()
        self.depot = self.home / "new"

    def command(self) -> list[str]:
        return self.cli("restore", self.home / "backup")

    def recovered(self) -> None:
        if not (self.depot / "ledger.db").exists():
            super().recovered()
        invoke("verify", "--full", "--depot", self.depot).ok()


class Purging(Voyage):
    """Archived first, forgotten then."""

    points: ClassVar[tuple[str, ...]] = ("purge.archive", "purge.archived", "purge.delete")

    def prepare(self) -> None:
        self.got()
        invoke("get", self.origin.add("/gone", status(404)), "--depot", self.depot, *NET)

    def command(self) -> list[str]:
        return self.cli("purge", "--older-than", "0")

    def recovered(self) -> None:
        super().recovered()
        (summary,) = invoke("status", "--depot", self.depot, "--json").ok().of("status")
        assert (summary["jobs"]["failed"], summary["jobs"]["completed"]) == (0, 1)
        assert list((self.depot / "archive").rglob("*.parquet"))


class ArchivingHistory(Purging):
    """The history of completed jobs: archived first, forgotten then."""

    points = ("purge.history",)

    def command(self) -> list[str]:
        return [*super().command(), "--completed"]


class OwnJob(Voyage):
    """A function of the user's as a job."""

    points = ("own.begin", "own.ran", "own.published")
    CODE = """
import io, sys, longshore, tests.worker.own_types
with longshore.open(sys.argv[1]) as depot:
    source = depot.put(io.BytesIO(b"hello"), name="in.txt").artifact
    depot.submit("t_upper", inputs=[source])
    depot.run()
    (job,) = [job for job in depot.jobs() if job.job_type == "t_upper"]
    assert job.status.value == "completed", job
    (made,) = depot.ledger.results(depot.scope, job.job_id)
    assert depot.store.open(depot.scope, made.pointer).read() == b"HELLO"
"""

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.CODE, str(self.depot)]


class Removing(Voyage):
    """A blob is removed for good."""

    points = ("blob.unlink",)
    CODE = """
import sys, longshore
with longshore.open(sys.argv[1]) as depot:
    for held in list(depot.store.walk()):
        if held.pointer == sys.argv[2]:
            depot.store.remove(held.scope, held.pointer)
"""

    def prepare(self) -> None:
        self.got()
        self.path = self.orphan()

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.CODE, str(self.depot), str(self.path.relative_to(self.depot / "store"))]

    def recovered(self) -> None:
        super().recovered()
        assert not self.path.exists()


class Uploading(Voyage):
    """Bytes handed in over HTTP, served by a process that dies."""

    points = ("upload.received", "upload.linked")
    CODE = """
import asyncio, sys
from longshore.depot import AsyncDepot
from longshore.domain.model import Scope
from longshore.web.service import Service
from longshore.web.server_options import ServerOptions
from longshore.web.api.uploads import UploadRequest, upload
async def stream():
    yield b"bytes from afar" * 1000
async def main():
    async with AsyncDepot.open(sys.argv[1]) as depot:
        service = Service(depot.ledger, depot.store, ServerOptions(), depot=depot)
        taken = await upload(service, Scope(), stream(), UploadRequest(name="far.bin"))
        assert depot.ledger.job(Scope(), taken.job_id).status.value == "completed", taken
asyncio.run(main())
"""

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.CODE, str(self.depot)]


class Remote(Voyage):
    """Blobs elsewhere: in a PostgreSQL server."""

    points: ClassVar[tuple[str, ...]] = ("put.object", "put.done", "delete.object")
    server: str = ""
    CODE = """
import sys, longshore
with longshore.open(sys.argv[1], network={"allow": ["127.0.0.0/8"]}) as depot:
    (got,) = depot.get([sys.argv[2]])
    assert got.ok, got
    assert depot.store.check(depot.scope, got.artifact.pointer, got.artifact.sha256, got.artifact.size_bytes) is None
    assert [held.sha256 for held in depot.store.walk()] == [got.artifact.sha256]
    if len(sys.argv) > 3:
        depot.store.remove(depot.scope, got.artifact.pointer)
        assert list(depot.store.walk()) == []
"""

    def prepare(self) -> None:
        self.url = self.origin.add("/a", Thing(stamped(1, 5_000)))

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.CODE, str(self.depot), self.url, *(["remove"] if self.removing else [])]

    removing = False

    def run(self, **failpoints: str) -> subprocess.CompletedProcess[str]:
        self.removing = "delete.object" in failpoints.get("LONGSHORE_FAILPOINTS", "delete.object")
        return super().run(**failpoints, LONGSHORE_STORE=self.server)

    def sound(self) -> None:
        report = check(str(self.depot / "ledger.db"), None)
        assert report.findings == []


class RemoteDamaging(Remote):
    """Fresh bytes come, and the object of their name has lost a bit: it is kept aside, they take its place."""

    points = ("put.damaged",)

    def run(self, **failpoints: str) -> subprocess.CompletedProcess[str]:
        if failpoints:
            with_blob = super().run(LONGSHORE_FAILPOINTS="")
            assert with_blob.returncode == 0, with_blob.stderr
            with psycopg.connect(self.server) as connection:
                flipped = "UPDATE longshore_store.pieces SET data = set_byte(data, 9, get_byte(data, 9) # 1) WHERE object_key LIKE '%/%'"
                connection.execute(flipped)
            self.url = self.origin.add("/b", Thing(stamped(1, 5_000)))
        return super().run(**failpoints)


VOYAGES: tuple[type[Voyage], ...] = (
    Restarting, Beating, Adopting, Reconciling, Returning, Collecting, Placing, Replacing, Damaging, Mending, Linkless,
    BackingUp, Restoring, Purging, ArchivingHistory, OwnJob, Removing, Uploading, Remote, RemoteDamaging,
)  # fmt: skip
