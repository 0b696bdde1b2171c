"""Several hosts on one PostgreSQL and one S3, with nothing else in common, and a witness who belongs to none of them."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import psycopg

from longshore.checker import check
from longshore.checker.check import Finding, LocalFiles
from longshore.ledger import Ledger
from tests.support.cable import Cable
from tests.support.lan import Lan
from tests.support.postgres import Cluster
from tests.support.program import environment, eventually
from tests.support.weed import Weed

QUICK = {
    "LONGSHORE_LEASE__TTL_S": "3",
    "LONGSHORE_LEASE__RENEW_S": "0.5",
    "LONGSHORE_RETRY__BASE_S": "0.05",
    "LONGSHORE_RETRY__CAP_S": "0.5",
    "LONGSHORE_HOSTS__CONCURRENCY": "64",
}


class Host:
    """One machine: its own directory, its own cables, its own worker process."""

    def __init__(self, name: str, folder: Path, fleet: Fleet) -> None:
        self.name, self.folder, self._fleet = name, folder, fleet
        self._space = fleet.lan.join() if fleet.lan else None
        where = fleet.lan.address if fleet.lan else "127.0.0.1"
        self._cables = [
            Cable(fleet.cluster.base / ".s.PGSQL.5432", where),
            Cable(("127.0.0.1", fleet.weed.port), where),
        ]
        ledger, store = self._cables
        self.env = {
            "LONGSHORE_DEPOT": str(folder / "depot"),
            "LONGSHORE_LEDGER": f"postgresql://postgres@{ledger.host}:{ledger.port}/{fleet.database}",
            "LONGSHORE_STORE": f"s3://{fleet.bucket}/depot",
            "LONGSHORE_S3__ENDPOINT": f"http://{store.host}:{store.port}",
            "LONGSHORE_S3__REGION": fleet.weed.region,
            "LONGSHORE_S3__ACCESS_KEY_ID": fleet.weed.key_id,
            "LONGSHORE_S3__SECRET_ACCESS_KEY": fleet.weed.secret,
            "LONGSHORE_NETWORK__ALLOW": '["127.0.0.0/8", "10.0.0.0/8"]',
            **QUICK,
            **fleet.settings,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **extra: str) -> Self:
        """Start a worker that stays."""
        self.folder.mkdir(parents=True, exist_ok=True)
        prefix = ["ip", "netns", "exec", self._space] if self._space else []
        words = [*prefix, sys.executable, "-m", "longshore", "run", "--forever", "--all-tenants", "--json"]
        with (self.folder / "out").open("ab") as out, (self.folder / "err").open("ab") as err:
            self.process = subprocess.Popen(
                words, env=environment(self.env | extra), stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        return self

    def pull(self) -> None:
        """Cut the host off: from the ledger, the store and, in a namespace, from everybody."""
        if self._space and self._fleet.lan:
            self._fleet.lan.pull(self._space)
        else:
            for cable in self._cables:
                cable.pull()

    def plug(self) -> None:
        """Let it back in."""
        if self._space and self._fleet.lan:
            self._fleet.lan.plug(self._space)
        else:
            for cable in self._cables:
                cable.plug()

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()

    def stop(self) -> int:
        """Ask it to drain, and wait for its end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def heal(self) -> None:
        """Do what a worker does hourly: remove the parts of jobs that others finished."""
        words = [sys.executable, "-m", "longshore", "reconcile"]
        env = environment(self.env | {"LONGSHORE_RECONCILE__STALE_PART_S": "0"})
        where = f"postgresql://postgres@/{self._fleet.database}?host={self._fleet.cluster.base}"
        env |= {"LONGSHORE_LEDGER": where, "LONGSHORE_S3__ENDPOINT": self._fleet.weed.url}
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    def close(self) -> None:
        """Leave nothing behind."""
        self.kill()
        for cable in self._cables:
            cable.close()

    def words(self) -> str:
        """What it said, for a failed test."""
        path = self.folder / "err"
        return path.read_text()[-3000:] if path.exists() else ""


class Fleet:
    """The two shared servers and the hosts."""

    def __init__(self, cluster: Cluster, weed: Weed, folder: Path, *, lan: Lan | None = None, **settings: str) -> None:
        self.cluster, self.weed, self.lan, self.settings = cluster, weed, lan, settings
        self.bucket = weed.bucket()
        self.database = cluster.create()
        self._folder = folder
        self.hosts: list[Host] = []
        Ledger.open(self.dsn, create=True).close()

    @property
    def dsn(self) -> str:
        """The ledger as somebody beside the server sees it."""
        return self.cluster.dsn(self.database)

    def host(self) -> Host:
        """Add a machine."""
        name = f"host-{len(self.hosts)}"
        made = Host(name, self._folder / name, self)
        self.hosts.append(made)
        return made

    def run(self, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run one command on a machine of its own that is not cut off."""
        if not self.hosts:
            self.host()
        command = [sys.executable, "-m", "longshore", *words]
        env = environment(
            self.hosts[0].env | {"LONGSHORE_DEPOT": str(self._folder / "service"), "LONGSHORE_LEDGER": self.dsn}
        )
        env |= {"LONGSHORE_S3__ENDPOINT": self.weed.url, **extra}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Ask the database itself, as the superuser, whatever policies say; no word of our code in between."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(text.encode()).fetchall()

    def counts(self) -> dict[str, int]:
        """Jobs by status, counted."""
        return {str(status): int(n) for status, n in self.sql("SELECT status, count(*) FROM jobs GROUP BY status")}

    def all_done(self, jobs: int, timeout_s: float = 120) -> None:
        """Wait until this many jobs are completed and nothing else is left."""
        try:
            eventually(lambda: self.counts() == {"completed": jobs}, f"{jobs} completed", timeout_s)
        except AssertionError:
            words = "\n".join(f"--- {host.name}\n{host.words()}" for host in self.hosts)
            raise AssertionError(f"{self.counts()}\n{words}") from None

    def objects(self) -> dict[str, int]:
        """List the bucket with a client that is not ours."""
        return {str(one["path"]): int(one["size"]) for page in self._client().list() for one in page}

    def _client(self) -> Any:
        from obstore.store import S3Store

        config = {
            "region": self.weed.region,
            "endpoint": self.weed.url,
            "access_key_id": self.weed.key_id,
            "secret_access_key": self.weed.secret,
            "virtual_hosted_style_request": False,
        }
        return S3Store(self.bucket, config=config, client_options={"allow_http": True})

    def close(self) -> None:
        """Stop every host."""
        for host in self.hosts:
            host.close()
        self.cluster.drop(self.database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── the witness ──

    def findings(self) -> list[Finding]:
        """Let the checker read everything: rows, objects, and what waits on every host."""
        return check(self.dsn, Objects(self)).findings

    def everything_once(self, bodies: Mapping[str, bytes]) -> None:
        """Every URL has one completed job with one artifact of exactly its bytes; nothing is there twice."""
        rows = self.sql(
            "SELECT j.canonical_url, j.status, j.lease_epoch, a.sha256, a.byte_size,"
            " (SELECT count(*) FROM events e WHERE e.job_id = j.job_id AND e.kind = 'completed'),"
            " (SELECT count(*) FROM job_claims c WHERE c.job_id = j.job_id AND c.outcome = 'completed'),"
            " (SELECT count(*) FROM job_claims c WHERE c.job_id = j.job_id AND c.ended_at IS NULL)"
            " FROM jobs j LEFT JOIN job_artifacts l ON l.job_id = j.job_id AND l.role = 'result'"
            " LEFT JOIN artifacts a ON a.artifact_id = l.artifact_id"
        )
        found = {
            url: (status, sha, size, events, ended, still) for url, status, _, sha, size, events, ended, still in rows
        }
        assert len(rows) == len(found) == len(bodies), "a job, or a job's result, is there twice"
        for url, body in bodies.items():
            digest = hashlib.sha256(body).hexdigest()
            assert found[url] == ("completed", digest, len(body), 1, 1, 0), url
        hashes = {hashlib.sha256(body).hexdigest() for body in bodies.values()}
        stored = [key for key in self.objects() if hashlib_name(key)]
        assert sorted(hashlib_name(key) or "" for key in stored) == sorted(hashes)
        findings = [(one.kind, one.subject, one.detail) for one in self.findings()]
        assert findings == [], findings


def hashlib_name(key: str) -> str | None:
    """Give the hash that an object's name begins with."""
    name = key.rsplit("/", 1)[-1].partition(".")[0]
    return name if len(name) == 64 else None


class Objects:
    """The bucket, as the checker wants to see it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._client = fleet._client()

    def entries(self) -> Iterator[tuple[str, int, bool]]:
        """Give every blob; what is not named by a hash is a note of the store's own."""
        for key, size in self._fleet.objects().items():
            if hashlib_name(key) and "/.quarantine/" not in key:
                yield key.removeprefix("depot/"), size, False

    def digest(self, pointer: str) -> tuple[str, int] | None:
        """Hash an object."""
        body = bytes(self._client.get(f"depot/{pointer}").bytes())
        return hashlib.sha256(body).hexdigest(), len(body)

    def parts(self) -> Iterator[str]:
        """Give what waits on the hosts."""
        for host in self._fleet.hosts:
            place = Path(host.env["LONGSHORE_DEPOT"], "parts")
            if os.path.isdir(place):
                yield from LocalFiles(place).parts()
