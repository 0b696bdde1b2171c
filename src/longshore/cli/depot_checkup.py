"""The checks of `doctor` that look at the depot: its ledger, its store, its torrent client."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from longshore.cli.checkup import Check, Looker, existing
from longshore.config import Settings
from longshore.errors import LongshoreError, SchemaMismatch

if TYPE_CHECKING:
    from longshore.ledger import Ledger


def _on_postgres(settings: Settings) -> bool:
    return settings.ledger.startswith(("postgresql://", "postgres://"))


def _no_ledger(settings: Settings) -> bool:
    return not _on_postgres(settings) and not os.path.exists(settings.ledger)


def _opened(settings: Settings) -> Ledger:
    from longshore.ledger import Ledger

    return Ledger.open(settings.ledger if _on_postgres(settings) else Path(settings.ledger))


def check_depot(settings: Settings) -> Check:
    """Is there one, and may we write it?"""
    if not os.path.isdir(settings.depot):
        where = existing(settings.depot)
        if not os.access(where, os.W_OK):
            return Check("depot", "fail", f"{where} is not writable", "name another place with --depot")
        return Check("depot", "ok", f"{settings.depot} does not exist yet; get and add make it")
    if not os.access(settings.depot, os.W_OK | os.X_OK):
        return Check("depot", "fail", f"{settings.depot} is not writable", "check who owns it")
    return Check("depot", "ok", settings.depot)


def check_ledger(settings: Settings) -> Check:
    """Does it open, with the schema that this program needs?"""
    if _no_ledger(settings):
        return Check("ledger", "skip", f"no ledger at {settings.ledger} yet")
    try:
        with _opened(settings) as ledger:
            return Check("ledger", "ok", f"{ledger.dialect}, opened with all its settings and the current schema")
    except SchemaMismatch as error:
        return Check("ledger", "fail", str(error), error.hint or "longshore migrate")


def check_clock(settings: Settings) -> Check:
    """Leases are timed by the ledger's clock; a person compares it with this machine's."""
    if _no_ledger(settings):
        return Check("clock", "skip", "no ledger yet")
    with _opened(settings) as ledger:
        off = ledger.now() / 1_000_000 - time.time()
    evidence = f"{off:+.3f} s between the ledger's clock and this machine's"
    return Check("clock", "warn" if abs(off) > 5 else "ok", evidence, "synchronise the clocks (NTP)")


def check_leases(settings: Settings) -> Check:
    """Work that somebody should have finished or given back."""
    if _no_ledger(settings):
        return Check("leases", "skip", "no ledger yet")
    with _opened(settings) as ledger:
        due = ledger.next_due()
        late = 0.0 if due is None else (ledger.now() - due) / 1_000_000
    if late > 60:
        return Check("leases", "warn", f"work has been waiting for {late:.0f} s", "longshore run")
    return Check("leases", "ok", "nothing waits longer than it should")


def check_role(settings: Settings) -> Check:
    """On PostgreSQL: a role that cannot walk around the tenants' walls."""
    if not _on_postgres(settings):
        return Check("postgresql", "skip", "the ledger is not on PostgreSQL")
    try:
        import psycopg
    except ImportError:
        return Check("postgresql", "fail", "psycopg is not installed", "pip install 'longshore[postgres]'")
    try:
        with psycopg.connect(settings.ledger, connect_timeout=5) as connection:
            row = connection.execute(
                "SELECT current_user, rolsuper, rolbypassrls, current_setting('server_version') "
                "FROM pg_roles WHERE rolname = current_user"
            ).fetchone()
            walls = connection.execute(
                "SELECT count(*) FILTER (WHERE relforcerowsecurity), count(*) FROM pg_class "
                "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
            ).fetchone()
    except psycopg.Error as error:
        return Check("postgresql", "fail", str(error).splitlines()[0], "check the address, the role and the password")
    assert row is not None
    assert walls is not None
    evidence = f"PostgreSQL {row[3]} as {row[0]}; {walls[0]} of {walls[1]} tables have forced row security"
    if row[1] or row[2]:
        return Check("postgresql", "warn", f"{evidence}; this role walks through it", "connect as the application role")
    return Check("postgresql", "ok", evidence)


def check_store(settings: Settings) -> Check:
    """Can a blob be linked into its place?"""
    if settings.store.startswith("s3://"):
        return _check_s3(settings)
    if "://" in settings.store:
        return Check("store", "skip", "the store is in PostgreSQL; see `postgresql`")
    where = existing(settings.store)
    if not os.access(where, os.W_OK):
        return Check("store", "fail", f"{where} is not writable", "check who owns it")
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
    return Check("store", "ok", f"{where}: {linked}")


def _check_s3(settings: Settings) -> Check:
    from longshore.depot import wiring
    from longshore.store import open_store

    store = open_store(wiring.store_place(settings), wiring.store_settings(settings))
    try:
        probe = getattr(store, "probe", None)
        evidence = probe() if probe else "opened"
    finally:
        store.close()
    return Check("store", "ok", f"{settings.store}: {evidence}")


def check_parts(settings: Settings) -> Check:
    """Bytes on their way in that nobody may be waiting for."""
    staging = os.path.join(settings.store, ".staging")
    if "://" in settings.store or not os.path.isdir(staging):
        return Check("parts", "skip", "no parts on this disk")
    count = sum(len(files) for _, _, files in os.walk(staging))
    return Check("parts", "ok", f"{count} files in {staging}; `longshore reconcile --dry-run` tells what they are")


def check_torrents(settings: Settings) -> Check:
    """Does the torrent client answer, can its files be seen from here, and has it habits that surprise?"""
    if not any(name.startswith("qbittorrent.") for name in settings.origins):
        return Check("qbittorrent", "skip", "not configured")
    from longshore.torrents.checks import examine, left_behind
    from longshore.torrents.client import Client
    from longshore.torrents.opening import torrent_settings

    try:
        given = torrent_settings(settings)
        client = Client(given)
        found = examine(given, client)
        if not _no_ledger(settings):
            with _opened(settings) as ledger:
                found += left_behind(ledger, client)
    except LongshoreError as error:
        return Check("qbittorrent", "fail", str(error), error.hint or _TORRENT_REMEDY)
    worst = min(found, key=lambda finding: ("fail", "warn", "ok").index(finding.level))
    told = [finding.message for finding in found if finding.level == worst.level]
    return Check("qbittorrent", worst.level, "; ".join(told), worst.remedy or _TORRENT_REMEDY)


_TORRENT_REMEDY: Final = "check qbittorrent.url, username and password"
DEPOT_CHECKS: Final[dict[str, Looker]] = {
    "depot": check_depot,
    "ledger": check_ledger,
    "clock": check_clock,
    "leases": check_leases,
    "postgresql": check_role,
    "store": check_store,
    "parts": check_parts,
    "qbittorrent": check_torrents,
}
