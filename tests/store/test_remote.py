"""What is special about stores elsewhere: servers that are away, uploads that nobody finished, secrets that stay secret."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree as ET

import psycopg
import pytest

from longshore import failpoints
from longshore.domain.model import Blob, Scope
from longshore.domain.settings import S3Settings, Secret, Settings
from longshore.errors import BadInput, StoreUnavailable
from longshore.store import Store, open_store
from longshore.store.copy import copy_store
from longshore.store.remote import s3_objects
from longshore.store.remote.object_store import RemoteStore
from longshore.store.remote.s3_objects import Bucket
from tests.store.publishing import SCOPE, of_part, publish, staged
from tests.support.postgres import Cluster
from tests.support.program import invoke
from tests.support.weed import Weed


def open_s3(server: Weed, bucket: str, parts: Path, secret: str | None = None, **more: int) -> RemoteStore:
    keys = S3Settings(access_key_id=server.key_id, secret_access_key=Secret(secret or server.secret), **more)
    store = open_store(f"s3://{bucket}/p?endpoint={server.url}", Settings(s3=keys), parts=parts)
    assert isinstance(store, RemoteStore)
    return store


def test_a_server_that_is_away(tmp_path: Path) -> None:
    with socket.socket() as nobody:  # bound and not listening: every connection is refused
        nobody.bind(("127.0.0.1", 0))
        settings = Settings(s3=S3Settings(access_key_id="x", secret_access_key=Secret("y")))
        store = open_store(f"s3://bucket?endpoint=http://127.0.0.1:{nobody.getsockname()[1]}", settings, parts=tmp_path)
        item = staged(b"small")
        assert store.stage([item]) == [None]
        [outcome] = store.link([item])
        assert isinstance(outcome, StoreUnavailable)
        assert outcome.reason == "store_unavailable"
        with pytest.raises(StoreUnavailable):
            store.stat(SCOPE, item.sha256)
        store.close()


@pytest.mark.torture  # the server takes up to half a minute to find itself again
def test_a_server_that_is_away_and_comes_back(own_weed: Weed, tmp_path: Path) -> None:
    store = open_s3(own_weed, own_weed.bucket(), tmp_path)
    [kept] = publish(store, staged(b"before", "a"))
    own_weed.kill()
    item = staged(b"meanwhile", "b")
    assert store.stage([item]) == [None]
    [outcome] = store.link([item])
    assert isinstance(outcome, StoreUnavailable)
    assert outcome.reason == "store_unavailable"
    own_weed.restart()
    again = publish_when_it_answers(store, b"meanwhile")
    assert store.check(SCOPE, again.pointer, again.sha256, 9) is None
    assert store.check(SCOPE, kept.pointer, kept.sha256, 6) is None
    store.close()


def publish_when_it_answers(store: Store, body: bytes) -> Blob:
    """A server that has just started may refuse for a moment."""
    deadline = time.monotonic() + 60
    for attempt in itertools.count():
        item = staged(body, f"again{attempt}")
        assert store.stage([item]) == [None]
        [outcome] = store.link([item])
        if isinstance(outcome, Blob):
            return outcome
        assert isinstance(outcome, StoreUnavailable)
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    pytest.fail("the server does not take anything any more")


def test_wrong_credentials_are_said_without_showing_them(weed: Weed, tmp_path: Path) -> None:
    store = open_s3(weed, weed.bucket(), tmp_path, secret="canary-secret")
    item = staged(b"x")
    store.stage([item])
    [outcome] = store.link([item])
    assert isinstance(outcome, StoreUnavailable)
    assert "canary" not in f"{outcome} {outcome!r} {outcome.__cause__} {store.settings!r}"
    store.close()


def test_abandoned_uploads_are_collected(weed: Weed, tmp_path: Path) -> None:
    bucket = weed.bucket()
    store = open_s3(weed, bucket, tmp_path)
    weed.request("POST", f"/{bucket}/p/acme/corpus/ab/abandoned", "uploads=")
    weed.request("POST", f"/{bucket}/elsewhere/of-somebody-else", "uploads=")
    assert store.collect(older_than_s=3600) == 0
    assert store.collect(older_than_s=-3600) == 1
    assert store.collect(older_than_s=-3600) == 0
    left = ET.fromstring(weed.request("GET", f"/{bucket}", "uploads="))
    keys = [element.text for element in left.iter() if element.tag.endswith("}Key") or element.tag == "Key"]
    assert keys == ["elsewhere/of-somebody-else"]
    store.close()


def test_a_large_body_is_uploaded_in_chunks(weed: Weed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_objects, "SINGLE_BYTES", 1 << 20)
    store = open_s3(weed, weed.bucket(), tmp_path, part_bytes=5 << 20)
    part = store.part(SCOPE, "large", 1)
    part.write(os.urandom((12 << 20) + 1))
    [blob] = publish(store, of_part(part))
    assert store.check(SCOPE, blob.pointer, blob.sha256, blob.size_bytes) is None
    assert store.collect(older_than_s=-3600) == 0
    store.close()


def test_a_damaged_object_is_replaced(weed: Weed, tmp_path: Path) -> None:
    store = open_s3(weed, weed.bucket(), tmp_path)
    item = staged(b"good bytes", "a")
    assert store.objects.put(f"acme/corpus/{item.sha256[:2]}/{item.sha256}", b"bad", "x/y")
    [blob] = publish(store, item)
    assert not blob.deduplicated
    assert store.check(SCOPE, blob.pointer, blob.sha256, 10) is None
    assert [found.key for found in store.objects.list(".quarantine/")]
    store.close()


@pytest.mark.parametrize("where", ["s3://", "s3://user:pw@bucket/x", "s3://bucket/x?secret=1"])
def test_what_is_no_bucket(where: str) -> None:
    with pytest.raises(BadInput):
        Bucket.parse(where, S3Settings())


def test_a_bucket_taken_apart() -> None:
    bucket = Bucket.parse("s3://bucket/a/b/?endpoint=http://127.0.0.1:1&region=eu-x-1", S3Settings())
    assert (bucket.name, bucket.prefix, bucket.endpoint, bucket.region) == (
        "bucket",
        "a/b",
        "http://127.0.0.1:1",
        "eu-x-1",
    )


def test_an_unknown_kind_of_store() -> None:
    with pytest.raises(BadInput, match="gopher"):
        open_store("gopher://x")


def test_postgres_restarted_under_the_store(own_postgres_cluster: Cluster, tmp_path: Path) -> None:
    cluster = own_postgres_cluster
    store = open_store(cluster.dsn(cluster.create()), parts=tmp_path)
    [kept] = publish(store, staged(b"before", "a"))
    cluster.restart(immediate=True)
    again = publish_when_it_answers(store, b"after")
    assert store.check(SCOPE, again.pointer, again.sha256, 5) is None
    assert store.check(SCOPE, kept.pointer, kept.sha256, 6) is None
    store.close()


@pytest.mark.parametrize("step", ["put.object", "put.done"])
def test_killed_while_putting(postgres_dsn: str, tmp_path: Path, step: str) -> None:
    """The next process finds the object, or the part to make it from."""
    code = f"""
from pathlib import Path
from longshore.store import open_store
from tests.store.publishing import SCOPE, of_part
store = open_store({postgres_dsn!r}, parts=Path({str(tmp_path)!r}))
part = store.part(SCOPE, "job", 1)
part.write(bytes(2_000_000))
item = of_part(part)
print(item.sha256, flush=True)
store.stage([item])
store.link([item])
"""
    environment = {**os.environ, "LONGSHORE_FAILPOINTS": f"{step}=kill"}
    killed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    sha256 = killed.stdout.strip()
    store = open_store(postgres_dsn, parts=tmp_path)
    assert len(list(store.walk())) == (1 if step == "put.done" else 0)
    blob = store.recover(SCOPE, "job", 2, sha256=sha256, size_bytes=2_000_000, content_type="x/y")
    assert blob is not None
    assert store.check(SCOPE, blob.pointer, sha256, 2_000_000) is None
    store.close()


def test_a_put_that_breaks_off_leaves_nothing(postgres_dsn: str, tmp_path: Path) -> None:
    """One transaction: the object appears whole or not at all."""
    store = open_store(postgres_dsn, parts=tmp_path)
    part = store.part(SCOPE, "large", 1)
    part.write(os.urandom(3 << 20))
    item = of_part(part)
    assert store.stage([item]) == [None]
    part.cut(1 << 20)  # the file gets shorter under our hands
    [outcome] = store.link([item])
    assert not isinstance(outcome, Blob)
    assert list(store.walk()) == []
    store.clean([item])
    store.close()


def test_a_password_stays_out_of_errors(tmp_path: Path) -> None:
    where = f"postgresql://user:{quote('canary-secret')}@127.0.0.1:1/nothing?connect_timeout=1"
    with pytest.raises(StoreUnavailable) as refused:
        from longshore.store.remote.postgres_objects import PostgresObjects

        PostgresObjects(where, timeout_s=1)
    assert "canary" not in f"{refused.value} {refused.value.__cause__}"


def test_a_copy_that_breaks_off_is_gone_on_with(weed: Weed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_store(tmp_path / "source")
    publish(source, *(staged(b"body %d" % n, f"job{n}") for n in range(70)))
    target = open_s3(weed, weed.bucket(), tmp_path / "parts")
    hits = 0

    def fail(name: str) -> None:
        nonlocal hits
        hits += name == "put.object"
        if hits >= 66 and name == "put.object":
            raise StoreUnavailable("injected")

    monkeypatch.setattr(failpoints, "hit", fail)
    with pytest.raises(StoreUnavailable):
        copy_store(source, target)
    monkeypatch.undo()
    report = copy_store(source, target, verify=True)
    assert report.held >= 64
    assert report.held + report.copied == 70
    assert list(target.parts()) == []
    source.close()
    target.close()


def test_a_damaged_blob_is_reported_and_not_copied(tmp_path: Path) -> None:
    source, target = open_store(tmp_path / "source"), open_store(tmp_path / "target")
    good, bad = publish(source, staged(b"good", "a"), staged(b"evil", "b"))
    path = source.path(SCOPE, bad.pointer)
    assert path is not None
    path.chmod(0o600)
    path.write_bytes(b"EVIL")
    report = copy_store(source, target)
    assert (report.copied, [held.sha256 for held in report.damaged]) == (1, [bad.sha256])
    assert [held.sha256 for held in target.walk()] == [good.sha256]
    source.close()
    target.close()


def test_a_reconcile_and_a_gc_abort_unfinished_uploads(weed: Weed, tmp_path: Path) -> None:
    bucket = weed.bucket()
    env = {
        "LONGSHORE_DEPOT": str(tmp_path / "depot"),
        "LONGSHORE_STORE": f"s3://{bucket}/p?endpoint={weed.url}",
        "LONGSHORE_S3__ACCESS_KEY_ID": weed.key_id,
        "LONGSHORE_S3__SECRET_ACCESS_KEY": weed.secret,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    invoke("put", "-", stdin=b"some bytes", env=env).ok()
    for command in (("reconcile", "--set", "reconcile.stale_part_s=0"), ("gc", "--grace", "0")):
        weed.request("POST", f"/{bucket}/p/default/default/ab/abandoned", "uploads=")
        assert b"abandoned" in weed.request("GET", f"/{bucket}", "uploads=")
        invoke("reconcile", env=env).ok()  # it may be under way
        assert b"abandoned" in weed.request("GET", f"/{bucket}", "uploads=")
        invoke(*command, env=env).ok()
        assert b"abandoned" not in weed.request("GET", f"/{bucket}", "uploads=")


def test_rows_of_blobs_in_postgresql_are_seen_in_their_tenants_name_only(
    postgres_cluster: Cluster, tmp_path: Path
) -> None:
    """Also by the login that owns the tables; an older store is secured when it is opened."""
    postgres_cluster.execute("DROP ROLE IF EXISTS blob_owner")
    postgres_cluster.execute("CREATE ROLE blob_owner LOGIN")
    name = postgres_cluster.create()
    postgres_cluster.execute(f'ALTER DATABASE "{name}" OWNER TO blob_owner')
    where = postgres_cluster.dsn(name, user="blob_owner")
    try:
        open_store(where, parts=tmp_path).close()
        postgres_cluster.execute(
            "DROP POLICY tenant ON longshore_store.pieces", database=name
        )  # as an older program left it
        store = open_store(where, parts=tmp_path)
        one, other = staged(b"one", "a"), staged(b"other", "b", scope=Scope("other", "p"))
        publish(store, one, other)
        assert {found.scope.tenant_id for found in store.walk()} == {SCOPE.tenant_id, "other"}
        pointer = store.stat(SCOPE, one.sha256)
        assert pointer is not None
        assert store.quarantine(SCOPE, pointer.pointer, "test") is not None
        assert [found.scope for found in store.quarantined()] == [SCOPE]
        store.close()
        with psycopg.connect(where, autocommit=True) as owner:
            seen = (
                "SELECT (SELECT count(*) FROM longshore_store.objects), (SELECT count(*) FROM longshore_store.pieces)"
            )
            assert owner.execute(seen).fetchone() == (0, 0)
            owner.execute("SELECT set_config('longshore.store_tenant', 'other', false)")
            assert owner.execute(seen).fetchone() == (1, 1)
            assert (
                owner.execute("DELETE FROM longshore_store.objects WHERE object_key NOT LIKE 'other/%'").rowcount == 0
            )
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                owner.execute("UPDATE longshore_store.objects SET object_key = 'foreign/x'")
    finally:
        postgres_cluster.drop(name)
        postgres_cluster.execute("DROP ROLE blob_owner")
