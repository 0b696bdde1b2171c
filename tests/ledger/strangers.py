"""One tenant that has a row in every table, and the arguments with which somebody else would try to reach them.

Arguments are made by the name of the parameter: a verb with a parameter that nobody taught fails its test, and so does
a table in which the tenant has no row.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import apsw
import psycopg

import longshore.ledger
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from longshore.domain.model import Blob, JobRequest, Lease, NewArtifact, Scope
from longshore.domain.outcomes import Completed, Failed
from longshore.domain.settings import HostsSettings
from longshore.domain.torrents.model import torrent_request
from longshore.domain.torrents.sync_rules import PollState
from longshore.ledger import Intent, Ledger, Move
from longshore.ledger.operations.audit_log import NewEntry
from longshore.ledger.operations.deleting import By
from longshore.ledger.operations.torrents import Noted, start_torrent
from longshore.ledger.queries.listing import ArtifactFilter, JobFilter
from longshore.ledger.queries.torrents import torrent

OWNER = Scope("a", "p")
FAR = 1 << 60
# What verbs cannot write without a client, a purge or the service; the same words on both engines.
BY_HAND = (
    (
        "INSERT INTO tombstones (tenant_id, project_id, job_type, idempotency_key, job_id, status, stage, purged_at)"
        " VALUES ('a', 'p', 'download', 'canary-tomb', 'canary-tomb', 'completed', 'INDEXED', 1)"
    ),
    (
        "INSERT INTO media_assets (tenant_id, project_id, book_id, media_type, status, storage_path, source_url, updated_at)"
        " VALUES ('a', 'p', 'canary-book', 'audio', 'available', 'canary-path', 'canary-source', 1)"
    ),
    (
        "INSERT INTO job_summaries (tenant_id, project_id, job_id, facts, archived_at)"
        " SELECT tenant_id, project_id, job_id, '{\"canary-facts\": 1}', 1 FROM jobs WHERE tenant_id = 'a' LIMIT 1"
    ),
    (
        "INSERT INTO artifact_tombstones (tenant_id, project_id, artifact_id, artifact_type, sha256, byte_size,"
        " storage_pointer, created_at, created_by_job_id, deleted_at, deleted_by)"
        " VALUES ('a', 'p', 'canary-gone', 'download', 'canary-hash', 1, 'canary-where', 1, 'canary-job', 1, 'canary-who')"
    ),
    (
        "INSERT INTO failed_releases (tenant_id, project_id, book_id, media_type, release, job_id, reason, failed_at)"
        " VALUES ('a', 'p', 'canary-book', 'audio', 'canary-release', 'canary-job', 'dns', 1)"
    ),
    (
        "INSERT INTO feed_consumers (tenant_id, project_id, consumer, seq, created_at, updated_at)"
        " VALUES ('a', 'p', 'canary-consumer', 1, 1, 1)"
    ),
    (
        "INSERT INTO webhooks (tenant_id, project_id, webhook_id, url, secret, kinds, created_at)"
        " VALUES ('a', 'p', 'canary-hook', 'https://canary-source.example/', 'canary-source', '[\"new\"]', 1)"
    ),
    (
        "INSERT INTO webhook_failures (tenant_id, project_id, webhook_id, message_id, body, reason, failed_at)"
        " VALUES ('a', 'p', 'canary-hook', 'canary-message-id', 'canary-source', 'dns', 1)"
    ),
    (
        "INSERT INTO audit_log (tenant_id, project_id, at, action, target, number, hash)"
        " VALUES ('a', 'p', 1, 'canary', 'canary-target', 1, 'canary-hash')"
    ),
    "INSERT INTO audit_heads (tenant_id, project_id, number, hash) VALUES ('a', 'p', 1, 'canary-hash') ON CONFLICT DO NOTHING",
    (
        "INSERT INTO request_keys (tenant_id, project_id, request_key, fingerprint, answer, created_at)"
        " VALUES ('a', 'p', 'request', 'print', '\"canary-answer\"', 1)"
    ),
    (
        "INSERT INTO tokens (token_id, kind, name, token_hash, tenant_id, project_id, scopes, created_at)"
        " VALUES ('tok', 'api', 'canary-token', 'hash', 'a', 'p', '[]', 1)"
    ),
)


def verbs() -> dict[str, Callable[..., Any]]:
    """Find every verb of the ledger: public functions whose first parameter is the transaction."""
    found: dict[str, Callable[..., Any]] = {}
    for module in pkgutil.walk_packages(longshore.ledger.__path__, "longshore.ledger."):
        for name, function in inspect.getmembers(importlib.import_module(module.name), inspect.isfunction):
            first = next(iter(inspect.signature(function).parameters), "")
            if function.__module__ == module.name and first == "tx" and not name.startswith("_"):
                found[f"{module.name.rpartition('.')[2]}.{name}"] = function
    return found


class World:
    """The owner's things and their names."""

    def __init__(self, ledger: Ledger, where: str) -> None:
        self._where = where
        self.url = "https://canary-a.example/secret"
        self.sha256, self.pointer = "ca" * 32, "a/p/ca/canary-pointer"
        self.request = download_request(self.url, work_id="canary-work", artifact_id="canary-ref", run_id="canary-run")
        others = [download_request(f"https://canary-a.example/{n}") for n in range(4)]
        ledger.plan(OWNER, [self.request, *others])
        done, failed, self.lease, self.other, _ = ledger.claim("worker", limit=5, ttl_s=600, scope=OWNER)
        self.key = "canary-effect"
        ledger.begin([Intent(self.lease, "HEAD", self.key, "keyed", None, {"x": "canary-request"})])
        ledger.begin([Intent(self.other, "HEAD", "canary-confirmed", "keyed")])
        ledger.confirm(self.other, "canary-confirmed", {"code": "canary-result"})
        blob = Blob(self.sha256, 5, self.pointer, "local", "text/plain")
        (settled,) = ledger.settle(
            [(done, Completed((NewArtifact(blob, name="canary-name", metadata={"id": "canary-label"}),)))]
        )
        assert not isinstance(settled, Exception)
        self.artifact_id = settled.artifact_ids[0]
        ledger.settle([(failed, Failed("http_404", "canary-message"))])
        ledger.plan(OWNER, [JobRequest("own", "canary-own", params={"id": "canary-param"}, inputs=(self.artifact_id,))])
        ledger.set_budget("a", bytes=10_000)
        self.torrent = torrent_request(
            OWNER, user_id="u", book_id="canary-book", media_type="audio", source=f"magnet:?xt=urn:btih:{'ca' * 20}"
        )
        started = ledger.write(start_torrent, self.torrent)
        with self.connection() as run:
            for text in BY_HAND:
                run(text)
        self.tracked = ledger.read(torrent, OWNER, started.job_id)
        self.job_id = done.job_id
        self.done = ledger.job(OWNER, done.job_id)
        self.job_ids = [job.job_id for job in ledger.jobs(OWNER).items]

    @contextmanager
    def connection(self) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
        """Give the database itself, past every policy."""
        if self._where.startswith("postgresql://"):
            with psycopg.connect(self._where, autocommit=True) as server:

                def ask(text: str) -> list[tuple[Any, ...]]:
                    cursor = server.execute(text.encode())
                    return cursor.fetchall() if cursor.description else []

                yield ask
            return
        file = apsw.Connection(self._where)
        file.set_busy_timeout(60_000)
        try:
            yield lambda text: file.execute(text).fetchall()
        finally:
            file.close()

    def tables(self) -> dict[str, bool]:
        """Name every table that has a tenant; say whether it has a project."""
        with self.connection() as run:
            if self._where.startswith("postgresql://"):
                rows = run(
                    "SELECT c.table_name, c.column_name FROM information_schema.columns c JOIN information_schema.tables t"
                    " USING (table_schema, table_name) WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'"
                )
            else:
                rows = run(
                    "SELECT m.name, c.name FROM sqlite_schema AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'"
                )
        columns: dict[str, set[str]] = {}
        for table, column in rows:
            columns.setdefault(table, set()).add(column)
        return {table: "project_id" in have for table, have in sorted(columns.items()) if "tenant_id" in have}

    def rows(self, *, of_project: bool = False) -> dict[str, list[tuple[Any, ...]]]:
        """Read everything the owner has; with `of_project`, without what is the whole tenant's."""
        with self.connection() as run:
            return {
                table: sorted(
                    run(
                        f"SELECT * FROM {table} WHERE tenant_id = 'a'{' AND project_id = ' + repr('p') if has else ''}"
                    ),
                    key=repr,
                )
                for table, has in self.tables().items()
                if has or not of_project
            }

    @property
    def canaries(self) -> list[str]:
        """Name what must not reach anybody else."""
        words = ["canary-message", "canary-name", "canary-answer", "canary-result", "canary-request", "canary-target"]
        words += ["canary-source", "canary-path", "canary-tomb", "canary-work", "canary-token"]
        return [*words, self.pointer, self.url, self.sha256, self.artifact_id, *self.job_ids]

    def forged(self, stranger: Scope) -> Lease:
        """A lease as somebody would make it up who knows everything of the owner's but is somebody else."""
        return replace(self.lease, scope=stranger)

    def argument(self, verb: str, name: str, stranger: Scope) -> Any:
        """Make the argument of one parameter."""
        name, lease = name.lstrip("_"), self.forged(stranger)
        tracked = replace(self.tracked, scope=stranger)
        special = {
            ("listing.artifacts", "wanted"): ArtifactFilter(),
            ("book_assets.mark_assets", "status"): "missing",
            ("tenant_budgets.set_budget", "changes"): {"jobs": 3},
            ("hosts.set_host", "changes"): {},
            ("torrents.start_torrent", "request"): replace(self.torrent, scope=stranger),
            ("planning.plan_job_if_absent", "artifact_id"): "canary-ref",
            ("torrents.lease_import", "owner"): "worker",
            ("effects.confirm", "result"): {"x": 1},
            ("make_claimable.release_expired", "rows"): [],
            ("due_work.artifacts_after", "after"): "",
            ("due_work.artifacts_between", "hashes"): ("", "g"),
            ("due_work.artifacts_between", "after"): ("", ""),
        }
        if (verb, name) in special:
            return special[verb, name]
        by_name: dict[str, Any] = {
            "scope": stranger,
            "tenant_id": stranger.tenant_id,
            "tenant": stranger.tenant_id,
            "lease": lease,
            "leases": [lease],
            "moves": [Move(lease, "HEAD_DONE")],
            "to_state": "HEAD_DONE",
            "progress": [(lease, 1, 2)],
            "intents": [Intent(lease, "HEAD", self.key, "keyed")],
            "intent": Intent(lease, "HEAD", self.key, "transactional"),
            "act": lambda _tx: {"done": True},
            "ended": [(lease, Failed("http_404", "mine now"))],
            "job_id": self.job_id,
            "short": self.job_id[-8:],
            "job_ids": self.job_ids,
            "artifact_id": self.artifact_id,
            "artifact_ids": [self.artifact_id],
            "sha256": self.sha256,
            "hashes": [self.sha256],
            "job_types": ["download", "own"],
            "canonical_url": self.url,
            "canonical_urls": [self.url],
            "work_id": "canary-work",
            "key": self.key,
            "job_type": "download",
            "requests": [self.request],
            "wanted": JobFilter(),
            "at_most": 100,
            "limit": 100,
            "many": 100,
            "seq": 0,
            "run_id": "canary-run",
            "cursor": 0,
            "url": "https://stranger.example/",
            "webhook_id": "canary-hook",
            "hold_s": 0.0,
            "wait_s": 0.0,
            "attempts": 1,
            "message_id": "canary-message-id",
            "body": "mine now",
            "consumer": "canary-consumer",
            "before": FAR,
            "status": Status.COMPLETED,
            "ttl_s": 600,
            "owner": "stranger",
            "more": 1,
            "code": "x",
            "host": "canary-a.example",
            "names": ["canary-a.example"],
            "keys": [self.request.key],
            "text": "canary-name",
            "defaults": HostsSettings(),
            "book_id": "canary-book",
            "media_type": "audio",
            "entry": NewEntry("t", "act", "target", "remote"),
            "since": lambda now: now - FAR,
            "not_before": 0,
            "slot_s": 60,
            "scopes": ["read"],
            "parent": None,
            "expires_s": 60.0,
            "request_key": "request",
            "fingerprint": "print",
            "job": tracked,
            "jobs": [self.done],
            "notes": [Noted(tracked, PollState(), "downloading")],
            "artifacts": [NewArtifact(Blob("ab" * 32, 1, "b/p/x", "local", "text/plain"))],
            "main": 0,
            "storage_path": "x",
            "watch": PollState(),
            "reason": "external_error",
            "by": By("stranger"),
            "sha256s": [self.sha256],
            "freed_at": 1,
        }
        assert name in by_name, f"teach tests/ledger/strangers.py what {verb} means by {name!r}"
        return by_name[name]
