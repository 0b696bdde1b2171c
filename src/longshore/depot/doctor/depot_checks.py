"""The checks of `doctor` on the depot: its ledger, its store, its torrent client."""

from __future__ import annotations

import os
import time
import uuid
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from longshore.config import Settings
from longshore.depot.derived_settings import lost_ledger
from longshore.depot.doctor.check import Check, CheckFunction, existing, many, no_ledger, on_postgres, opened
from longshore.depot.doctor.ledger_checks import check_audit, check_schema
from longshore.domain.kinds import TERMINAL
from longshore.domain.model import Scope
from longshore.errors import ForeignStore, LedgerError, LongshoreError, NoStore, NotFound, SchemaMismatch
from longshore.ledger.backends.sqlite.connection import journal_mode
from longshore.ledger.operations import ledger_identity
from longshore.ledger.queries import all_tenants

if TYPE_CHECKING:
    from longshore.ledger import Ledger

SHARED_TABLES: Final = frozenset(
    {"_meta", "_migrations", "stage_moves", "hosts", "tokens", "commits"}
)  # not specific to a tenant
MOST_LOOKED_AT: Final = 10_000


def check_depot(settings: Settings) -> Check:
    """Check that the depot exists and is writable."""
    if not os.path.isdir(settings.depot):
        where = existing(settings.depot)
        if not os.access(where, os.W_OK):
            return Check("depot", "fail", f"{where} is not writable", "name another place with --depot")
        return Check("depot", "ok", f"{settings.depot} does not exist yet; get and add create it")
    if not os.access(settings.depot, os.W_OK | os.X_OK):
        return Check("depot", "fail", f"{settings.depot} is not writable", "check its owner")
    return Check("depot", "ok", settings.depot)


def check_ledger(settings: Settings) -> Check:
    """Check that the ledger opens and has the schema that this program needs."""
    if lost := lost_ledger(settings):
        return Check("ledger", "fail", str(lost), lost.hint)
    if no_ledger(settings):
        return Check("ledger", "skip", f"no ledger at {settings.ledger} yet")
    try:
        with opened(settings) as ledger:
            schema = ledger.read(ledger_identity.schema_version)
    except SchemaMismatch as error:
        return Check("ledger", "fail", str(error), error.hint or "longshore migrate")
    modes = "" if on_postgres(settings) else f", journal mode {journal_mode(Path(settings.ledger))}, synchronous FULL"
    return Check("ledger", "ok", f"{ledger.dialect}, schema {schema}, no migration pending{modes}")


def check_clock(settings: Settings) -> Check:
    """Compare the ledger's clock, which times leases, with this machine's."""
    if no_ledger(settings):
        return Check("clock", "skip", "no ledger yet")
    with opened(settings) as ledger:
        off = ledger.now() / 1_000_000 - time.time()
    evidence = f"{off:+.3f} s between the ledger's clock and this machine's"
    return Check("clock", "warn" if abs(off) > 5 else "ok", evidence, "synchronise the clocks (NTP)")


def check_leases(settings: Settings) -> Check:
    """Check for expired leases and for jobs that are overdue."""
    if no_ledger(settings):
        return Check("leases", "skip", "no ledger yet")
    with opened(settings) as ledger:
        due, workers, now = ledger.next_due(), ledger.read(all_tenants.leases), ledger.now()
    late = 0.0 if due is None else (now - due) / 1_000_000
    expired = [worker for worker in workers if worker.until < now]
    held = sum(worker.leases for worker in workers)
    if expired:
        evidence = f"{len(expired)} of {len(workers)} workers hold expired leases"
        return Check("leases", "warn", evidence, "longshore run takes over their jobs")
    if late > 60:
        return Check(
            "leases", "warn", f"jobs have been due for {late:.0f} s and no worker has claimed them", "longshore run"
        )
    return Check(
        "leases",
        "ok",
        f"{many(held, 'lease')} of {many(len(workers), 'worker')}, none expired; no job is overdue",
    )


def check_role(settings: Settings) -> Check:
    """On PostgreSQL: check that the role cannot bypass row-level security."""
    if not on_postgres(settings):
        return Check("postgresql", "skip", "the ledger is not on PostgreSQL")
    try:
        import psycopg

        from longshore.ledger.backends.postgres.schema import role_facts
    except ImportError:
        return Check("postgresql", "fail", "psycopg is not installed", "pip install 'longshore[postgres]'")
    try:
        facts = role_facts(settings.ledger)
    except psycopg.Error as error:
        return Check("postgresql", "fail", str(error).splitlines()[0], "check the address, the role and the password")
    secured = f"{facts.forced} of {facts.tables} tables have forced row security"
    evidence = f"PostgreSQL {facts.server_version} as {facts.role}; {secured}"
    if open_tables := [name for name in facts.without_policy if name not in SHARED_TABLES]:
        told = f"{evidence}; without a tenant policy: {', '.join(open_tables)}"
        return Check("postgresql", "fail", told, "restore the schema: longshore migrate on a new database, then copy")
    if facts.open_to_all:
        remedy = "REVOKE CONNECT ON DATABASE … FROM PUBLIC: a login without rights can still take locks that the program uses"
        return Check("postgresql", "warn", f"{evidence}; every login of the server may connect", remedy)
    if facts.bypasses:
        return Check("postgresql", "warn", f"{evidence}; this role bypasses it", "connect as the application role")
    return Check("postgresql", "ok", evidence)


def check_store(settings: Settings) -> Check:
    """Check that blobs can be linked into place, and that the store belongs to this ledger."""
    if (foreign := _foreign(settings)) is not None:
        return Check("store", "fail", str(foreign), foreign.hint)
    if settings.store.startswith("s3://"):
        return _check_s3(settings)
    if "://" in settings.store:
        return Check("store", "skip", "the store is in PostgreSQL; see `postgresql`")
    if (trouble := _trouble(settings)) is not None:
        return Check("store", "fail", str(trouble), trouble.hint)
    if os.path.lexists(settings.store) and not os.path.isdir(settings.store):
        return Check("store", "fail", f"{settings.store} is not a directory", "name another place with --store")
    where = existing(settings.store)
    if not os.access(where, os.W_OK):
        return Check("store", "fail", f"{where} is not writable", "check its owner")
    staging = os.path.join(settings.store, ".staging")
    if os.path.isdir(staging) and os.stat(staging).st_dev != os.stat(settings.store).st_dev:
        return Check("store", "fail", f"{staging} is on another device", "parts and blobs must share a file system")
    probe = os.path.join(where, f".longshore-{uuid.uuid4().hex}")
    try:
        Path(probe).touch()
        os.link(probe, probe + ".2")
        linked = "hard links work"
    except OSError as error:
        linked = f"no hard links ({error.strerror}): blobs are copied"
    finally:
        for name in (probe, probe + ".2"):
            Path(name).unlink(missing_ok=True)
    unborn = "" if where == settings.store else f"{settings.store} does not exist yet; "
    return Check("store", "ok", f"{unborn}{where}: {linked}")


def _trouble(settings: Settings) -> NoStore | None:
    """Return whether the ledger has artifacts but no store. An unreadable ledger is reported by another check."""
    if no_ledger(settings):
        return None
    from longshore.depot.owned_store import store_trouble

    try:
        with opened(settings) as ledger:
            return store_trouble(settings, ledger)
    except LedgerError:
        return None


def _foreign(settings: Settings) -> ForeignStore | None:
    """Open an existing store to check whether it belongs to another ledger. Other checks report other errors."""
    if no_ledger(settings) or ("://" not in settings.store and not os.path.isdir(settings.store)):
        return None
    from longshore.depot.owned_store import open_own_store

    try:
        with opened(settings) as ledger:
            open_own_store(settings, ledger).close()
    except ForeignStore as error:
        return error
    except LongshoreError:
        pass
    return None


def _check_s3(settings: Settings) -> Check:
    from longshore.depot import derived_settings
    from longshore.store.remote.s3_objects import S3Objects

    objects = S3Objects(derived_settings.store_place(settings), settings.s3)
    try:
        trials = objects.probe()
    finally:
        objects.close()
    wrong = [trial for trial in trials if not trial.works]
    evidence = "; ".join(f"{trial.name}: {trial.evidence}" for trial in trials)
    if wrong:
        return Check("store", wrong[0].level, f"{settings.store}: {evidence}", wrong[0].remedy)
    return Check("store", "ok", f"{settings.store}: {evidence}")


def check_orphans(settings: Settings) -> Check:
    """Report orphaned bytes: parts of finished jobs, and quarantined bodies."""
    if no_ledger(settings) or ("://" not in settings.store and not os.path.isdir(settings.store)):
        return Check("orphans", "skip", "no depot yet, or no store")
    if _trouble(settings) is not None:
        return Check("orphans", "skip", "no store; see `store`")
    from longshore.depot.owned_store import open_own_store

    with opened(settings) as ledger:
        store = open_own_store(settings, ledger)
        try:
            parts = list(islice(store.parts(), MOST_LOOKED_AT))
            over = sum(_is_over(ledger, part.scope, part.job_id) for part in parts)
            aside = sum(1 for _ in islice(store.quarantined(), MOST_LOOKED_AT))
        finally:
            store.close()
    evidence = f"{len(parts)} parts, {over} of them of finished jobs; {aside} bodies in quarantine"
    if over > 1_000:
        return Check("orphans", "warn", evidence, "longshore reconcile")
    return Check("orphans", "ok", evidence)


def _is_over(ledger: Ledger, scope: Scope, job_id: str) -> bool:
    try:
        return ledger.job(scope, job_id).status in TERMINAL
    except NotFound:
        return True


def check_torrents(settings: Settings) -> Check:
    """Check that the torrent client answers and its files are visible here; warn about its surprising settings."""
    if not any(name.startswith("qbittorrent.") for name in settings.origins):
        return Check("qbittorrent", "skip", "not configured")
    from longshore.worker.kinds.torrent.client import Client
    from longshore.worker.kinds.torrent.client_checks import check_client, left_behind

    try:
        given = settings.qbittorrent
        client = Client(given)
        found = check_client(given, client)
        if not no_ledger(settings):
            with opened(settings) as ledger:
                found += left_behind(ledger, client)
    except LongshoreError as error:
        return Check("qbittorrent", "fail", str(error), error.hint or _TORRENT_REMEDY)
    worst = min(found, key=lambda finding: ("fail", "warn", "ok").index(finding.level))
    told = [finding.message for finding in found if finding.level == worst.level]
    return Check("qbittorrent", worst.level, "; ".join(told), worst.remedy or _TORRENT_REMEDY)


_TORRENT_REMEDY: Final = "check qbittorrent.url, username and password"
DEPOT_CHECKS: Final[dict[str, CheckFunction]] = {
    "depot": check_depot,
    "ledger": check_ledger,
    "clock": check_clock,
    "leases": check_leases,
    "postgresql": check_role,
    "schema": check_schema,
    "audit": check_audit,
    "store": check_store,
    "orphans": check_orphans,
    "qbittorrent": check_torrents,
}
