"""One suite for every backend: what a store promises, wherever its bytes lie."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longshore.domain.model import Blob, Scope
from longshore.domain.settings import QuotaSettings, S3Settings, Secret, Settings
from longshore.errors import BlobDamaged, ForeignStore, NotFound, OverBudget, PublishFailed
from longshore.store import LocalStore, Part, Problem, Quarantined, Staged, Store, open_store, place
from longshore.store.copy import copy_store
from longshore.store.local.place_outside import Mode
from longshore.store.remote.object_store import RemoteStore
from longshore.store.remote.postgres_objects import PostgresObjects
from longshore.store.remote.s3_objects import S3Objects
from tests.store.publishing import SCOPE, linked, of_part, publish, staged
from tests.support.weed import Weed

Open = Callable[..., Store]
OTHER = Scope("other tenant/../x", "Projekt Ä")
LONG = Scope("t" * 300, "p")


@pytest.fixture(params=["local", "s3", "postgres"])
def open_one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Give a function that opens one and the same store of one backend, as often as it is called."""
    if request.param == "local":
        where, extra = str(tmp_path / "store"), {}
    elif request.param == "s3":
        server: Weed = request.getfixturevalue("weed")
        where = f"s3://{server.bucket()}/some/prefix?endpoint={server.url}"
        extra = {"s3": S3Settings(access_key_id=server.key_id, secret_access_key=Secret(server.secret))}
    else:
        where, extra = request.getfixturevalue("postgres_dsn"), {}
    opened: list[Store] = []

    def open_it(machine: str = "here", ledger_id: str | None = None, **settings: object) -> Store:
        parts = None if request.param == "local" else tmp_path / machine
        opened.append(open_store(where, Settings(**extra, **settings), parts=parts, ledger_id=ledger_id))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def one(open_one: Open) -> Store:
    return open_one()


def read(store: Store, blob: Blob, scope: Scope = SCOPE) -> bytes:
    with store.open(scope, blob.pointer) as file:
        return file.read()


def large_part(store: Store, body: bytes, job_id: str = "large", epoch: int = 1) -> Part:
    part = store.part(SCOPE, job_id, epoch)
    part.begin(url="http://example.org/", total=len(body))
    part.write(body)
    return part


def flip(store: Store, blob: Blob) -> bytes:
    """Flip one bit of a blob where it lies, past the store: size and name stay. Return what is there now."""
    body = bytearray(read(store, blob))
    body[len(body) // 2] ^= 1
    overwrite(store, blob, bytes(body))
    return bytes(body)


def overwrite(store: Store, blob: Blob, body: bytes) -> None:
    if isinstance(store, LocalStore):
        path = store.path(SCOPE, blob.pointer)
        assert path is not None
        path.chmod(0o600)
        path.write_bytes(body)
        path.chmod(0o444)
        return
    assert isinstance(store, RemoteStore)
    if isinstance(store.objects, S3Objects):
        store.objects._store.put(store.objects._key(blob.pointer), body)
        return
    assert isinstance(store.objects, PostgresObjects)
    with store.objects._connection("damaging") as connection:
        connection.execute("DELETE FROM longshore_store.pieces WHERE object_key = %s", (blob.pointer,))
        for place, start in enumerate(range(0, len(body), 1 << 20)):
            row = (blob.pointer, place, body[start : start + (1 << 20)])
            connection.execute("INSERT INTO longshore_store.pieces VALUES (%s, %s, %s)", row)


def found_damaged(store: Store, blob: Blob, wrong: bytes) -> None:
    """The damaged bytes are in quarantine, the right ones have the name, and nothing else is there."""
    assert store.check(SCOPE, blob.pointer, blob.sha256, blob.size_bytes) is None
    [aside] = store.quarantined()
    assert (aside.sha256, aside.size_bytes) == (blob.sha256, len(wrong))
    assert "wrong_hash" in aside.why or "wrong_size" in aside.why
    assert len(list(store.walk())) == 1


@pytest.mark.parametrize("size", [1, 5_000, (9 << 20) + 7])
def test_fresh_bytes_win_over_a_flipped_blob(one: Store, caplog: pytest.LogCaptureFixture, size: int) -> None:
    body = os.urandom(size)
    [first] = publish(one, of_part(large_part(one, body, "a")))
    wrong = flip(one, first)
    item = staged(body, "b") if size < 1 << 20 else of_part(large_part(one, body, "b"))
    [second] = publish(one, item)
    assert not second.deduplicated
    assert second.pointer == first.pointer
    found_damaged(one, second, wrong)
    assert first.sha256 in caplog.text
    assert "damaged" in caplog.text
    [third] = publish(one, staged(body, "c"))
    assert third.deduplicated


def test_a_batch_of_duplicates_over_a_flipped_blob(one: Store) -> None:
    body = os.urandom(3_000)
    [first] = publish(one, staged(body, "a"))
    wrong = flip(one, first)
    blobs = publish(one, *(staged(body, f"job{n}") for n in range(9)))
    assert sum(not blob.deduplicated for blob in blobs) >= 1
    if one.backend == "local":  # elsewhere the items of a batch race, and each may keep what it found
        found_damaged(one, first, wrong)
    assert one.check(SCOPE, first.pointer, first.sha256, len(body)) is None


def test_many_replace_one_flipped_blob_at_once(open_one: Open) -> None:
    stores = [open_one(f"machine{n}") for n in range(2)]
    body = os.urandom(50_000)
    [first] = publish(stores[0], staged(body, "a"))
    flip(stores[0], first)
    barrier = threading.Barrier(6)

    def work(number: int) -> Blob:
        item = staged(body, f"job{number}")
        assert stores[number % 2].stage([item]) == [None]
        barrier.wait(60)
        return linked(stores[number % 2], [item])[0]

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert stores[1].check(SCOPE, first.pointer, first.sha256, len(body)) is None
    assert len(list(stores[0].walk())) == 1


def test_adoption_after_a_crash_does_not_trust_a_flipped_blob(open_one: Open) -> None:
    store = open_one()
    body = os.urandom(40_000)
    item = of_part(large_part(store, body, "job"))
    assert store.stage([item]) == [None]
    [blob] = linked(store, [item])
    assert isinstance(item.body, Part)
    item.body.close()  # and here the process died, before the part was removed
    wrong = flip(store, blob) if store.backend != "local" else flip_copy(store, blob)
    facts = {"sha256": blob.sha256, "size_bytes": len(body), "content_type": "x/y"}
    again = store.recover(SCOPE, "job", 2, **facts)  # type: ignore[arg-type]
    assert again is not None
    found_damaged(store, again, wrong)
    flip_copy(store, again)
    for left in list(store.parts()):
        store.drop_part(left)
    assert store.recover(SCOPE, "job", 3, **facts) is None  # type: ignore[arg-type]


def flip_copy(store: Store, blob: Blob) -> bytes:
    """Flip a bit of a blob whose inode a part may share."""
    path = store.path(SCOPE, blob.pointer)
    if path is None:
        return flip(store, blob)
    body = path.read_bytes()
    path.unlink()
    path.write_bytes(body)
    return flip(store, blob)


def test_a_proof_reads_the_bytes(one: Store) -> None:
    [blob] = publish(one, staged(b"some bytes", "a"))
    assert one.prove(blob, SCOPE, "test")
    assert list(one.quarantined()) == []
    flip(one, blob)
    assert not one.prove(blob, SCOPE, "test")
    assert not one.prove(blob, SCOPE, "test")  # gone by now
    assert len(list(one.quarantined())) == 1
    assert list(one.walk()) == []


def test_a_sound_blob_is_not_set_aside(one: Store) -> None:
    [blob] = publish(one, staged(b"some bytes", "a"))
    assert one.set_aside(SCOPE, blob.pointer, blob.sha256, blob.size_bytes, "by mistake") is None
    assert read(one, blob) == b"some bytes"
    assert list(one.quarantined()) == []


@pytest.mark.parametrize("mode", ["reflink", "copy", "hardlink"])
@pytest.mark.parametrize("size", [1, 5_000, (3 << 20) + 5])
def test_a_flipped_blob_is_never_placed(one: Store, tmp_path: Path, mode: Mode, size: int) -> None:
    body = os.urandom(size)
    [blob] = publish(one, staged(body, "a"))
    place(one, SCOPE, blob.pointer, tmp_path / "out/first", mode=mode)
    assert (tmp_path / "out/first").read_bytes() == body
    (tmp_path / "out/first").unlink()
    wrong = flip(one, blob)
    with pytest.raises(BlobDamaged) as refused:
        place(one, SCOPE, blob.pointer, tmp_path / "out/second", mode=mode)
    assert refused.value.exit_code == 5
    assert os.listdir(tmp_path / "out") == []
    [aside] = one.quarantined()
    assert aside.size_bytes == len(wrong)
    with pytest.raises(NotFound):
        place(one, SCOPE, blob.pointer, tmp_path / "out/second", mode=mode)


def test_a_truncated_blob_is_never_placed(one: Store, tmp_path: Path) -> None:
    [blob] = publish(one, staged(b"0123456789", "a"))
    overwrite(
        one, blob, b"01234"
    )  # in PostgreSQL the size is a column of its own: there the bytes are fewer than it says
    with pytest.raises(BlobDamaged):
        place(one, SCOPE, blob.pointer, tmp_path / "out/name")
    assert os.listdir(tmp_path / "out") == []


def test_a_copy_that_verifies_replaces_a_flipped_blob(open_one: Open, tmp_path: Path) -> None:
    target = open_one()
    source = open_store(tmp_path / "source")
    [blob] = publish(source, staged(b"right bytes", "a"))
    copy_store(source, target)
    found = target.stat(SCOPE, blob.sha256)
    assert found is not None
    wrong = flip(target, found)
    report = copy_store(source, target)
    assert (report.copied, report.held) == (1, 0)
    found_damaged(target, found, wrong)
    source.close()


def test_published_bytes_can_be_read(one: Store) -> None:
    items = [staged(b"body %d" % n * 100, f"job{n}") for n in range(7)] + [staged(b"", "empty")]
    blobs = publish(one, *items)
    for item, blob in zip(items, blobs, strict=True):
        assert read(one, blob) == item.body
        assert (blob.sha256, blob.size_bytes, blob.deduplicated, blob.backend) == (
            item.sha256,
            item.size_bytes,
            False,
            one.backend,
        )
        assert one.check(SCOPE, blob.pointer, blob.sha256, blob.size_bytes) is None
    assert one.sizes(SCOPE, [blob.pointer for blob in blobs] + ["none"]) == [item.size_bytes for item in items] + [None]


def test_a_large_body_goes_from_its_part(one: Store) -> None:
    body = os.urandom((20 << 20) + 4321)
    part = one.part(SCOPE, "large", 1)
    part.begin(url="http://example.org/", total=len(body))
    pump = one.pump(part)
    for start in range(0, len(body), 1 << 20):
        pump.feed(body[start : start + (1 << 20)])
    pump.finish_now()
    [blob] = publish(one, of_part(part))
    assert one.check(SCOPE, blob.pointer, hashlib.sha256(body).hexdigest(), len(body)) is None
    with one.open(SCOPE, blob.pointer) as file:
        file.seek(9_999_999)
        assert file.read(1234) == body[9_999_999 : 9_999_999 + 1234]
        file.seek(-10, os.SEEK_END)
        assert file.read() == body[-10:]
    assert list(one.parts()) == []


def test_the_second_of_the_same_bytes_is_a_duplicate(one: Store) -> None:
    large = os.urandom(9 << 20)
    [first], [second] = publish(one, staged(b"same", "a")), publish(one, staged(b"same", "b"))
    [third] = publish(one, of_part(large_part(one, large, "c")))
    [fourth] = publish(one, of_part(large_part(one, large, "d")))
    assert [blob.deduplicated for blob in (first, second, third, fourth)] == [False, True, False, True]
    assert first.pointer == second.pointer
    assert len(list(one.walk())) == 2


def test_many_publish_one_hash_at_once(open_one: Open) -> None:
    stores = [open_one(f"machine{n}") for n in range(2)]
    barrier = threading.Barrier(6)
    body = os.urandom(50_000)

    def work(number: int) -> Blob:
        store = stores[number % 2]
        item = staged(body, f"job{number}")
        assert store.stage([item]) == [None]
        barrier.wait(60)
        return linked(store, [item])[0]

    with ThreadPoolExecutor(6) as pool:
        blobs = list(pool.map(work, range(6)))
    if stores[0].backend != "s3":  # a put that is tried again after a lost answer finds its own object
        assert sum(not blob.deduplicated for blob in blobs) == 1
    assert len(list(stores[0].walk())) == 1
    assert read(stores[1], blobs[0]) == body


def test_scopes_do_not_meet(one: Store) -> None:
    mine, theirs, long = publish(one, staged(b"x", "a"), staged(b"x", "b", scope=OTHER), staged(b"x", "c", scope=LONG))
    assert [blob.deduplicated for blob in (mine, theirs, long)] == [False] * 3
    for scope, foreign in ((SCOPE, theirs), (OTHER, mine), (SCOPE, long)):
        with pytest.raises(NotFound):
            one.open(scope, foreign.pointer)
        assert not one.remove(scope, foreign.pointer)
        assert one.quarantine(scope, foreign.pointer, "not mine") is None
        assert one.sizes(scope, [foreign.pointer]) == [None]
    assert one.stat(Scope("nobody", "p"), mine.sha256) is None
    assert {held.scope for held in one.walk()} == {SCOPE, OTHER, LONG}
    assert {held.pointer for held in one.walk()} == {mine.pointer, theirs.pointer, long.pointer}


@pytest.mark.parametrize("content_type", ["", "text/html; charset=utf-8", "x/y\r\nEvil: 1", "ä/ö", "\0"])
def test_any_content_type_that_a_server_sends(one: Store, content_type: str) -> None:
    item = staged(b"body", "a")
    item.content_type = content_type
    [blob] = publish(one, item)
    assert blob.content_type == content_type
    assert read(one, blob) == b"body"


@pytest.mark.parametrize("scope", [OTHER, LONG], ids=["other", "long"])
def test_parts_of_any_scope_are_listed_and_dropped(one: Store, scope: Scope) -> None:
    with_facts = one.part(scope, "a", 1)
    with_facts.write(b"x")
    with_facts.checkpoint()
    with_facts.close()
    one.part(scope, "Job B", 2).close()
    waiting = staged(b"small", "c", 3, scope)
    assert one.stage([waiting]) == [None]
    found = {(facts.scope, facts.job_id, facts.epoch) for facts in one.parts()}
    expected = {(scope, "a", 1), (scope, "Job B", 2)}
    assert found == (expected | {(scope, "c", 3)} if one.backend == "local" else expected)
    for facts in list(one.parts()):
        one.drop_part(facts)
    assert list(one.parts()) == []


def test_found_by_hash(one: Store) -> None:
    [blob] = publish(one, staged(b"%PDF-1.7", "a"))
    found = one.stat(SCOPE, blob.sha256)
    assert found is not None
    assert (found.pointer, found.size_bytes) == (blob.pointer, 8)
    assert one.stat(SCOPE, "0" * 64) is None


def test_a_place_without_a_trace_is_told_from_one_that_held_something(one: Store) -> None:
    assert one.blank()
    [first, _] = publish(one, staged(b"gone", "a"), staged(b"kept", "b"))
    one.remove(SCOPE, first.pointer)
    assert not one.blank()


def test_removed(one: Store) -> None:
    [blob] = publish(one, staged(b"gone", "a"))
    assert one.remove(SCOPE, blob.pointer)
    assert not one.remove(SCOPE, blob.pointer)
    assert list(one.walk()) == []
    assert one.check(SCOPE, blob.pointer, blob.sha256, 4) == Problem.MISSING
    with pytest.raises(NotFound):
        one.open(SCOPE, blob.pointer)


def test_quarantined_restored_forgotten(one: Store) -> None:
    [blob] = publish(one, staged(b"suspect", "a"))
    name = one.quarantine(SCOPE, blob.pointer, "nobody points to it", at=1_700_000_000_000_000)
    assert name is not None
    assert list(one.walk()) == []
    [found] = one.quarantined()
    assert found == Quarantined(SCOPE, name, blob.sha256, 7, 1_700_000_000_000_000)
    assert found.why == "nobody points to it"
    assert not one.restore(OTHER, name)
    assert one.restore(SCOPE, name)
    assert read(one, blob) == b"suspect"
    name = one.quarantine(SCOPE, blob.pointer, "größer/als . angekündigt-- " * 40)  # kept as far as a name can
    assert next(one.quarantined()).why.startswith("größer/als . angekündigt--")
    assert name is not None
    [again] = publish(one, staged(b"suspect", "b"))
    assert not again.deduplicated
    assert one.restore(SCOPE, name)
    assert len(list(one.walk())) == 1
    name = one.quarantine(SCOPE, blob.pointer, "for good")
    assert name is not None
    body = one.quarantine_body(SCOPE, "job", 1, b"<html>", "html_page")
    assert {(found.name, found.sha256) for found in one.quarantined()} == {(name, blob.sha256), (body, None)}
    assert body is not None
    one.forget(SCOPE, body)
    one.forget(SCOPE, name)
    assert list(one.quarantined()) == []
    assert not one.restore(SCOPE, name)


def test_what_was_not_staged_is_not_published(one: Store) -> None:
    [outcome] = one.link([staged(b"never")])
    assert isinstance(outcome, PublishFailed)
    wrong = staged(b"body")
    wrong.size_bytes = 3
    [refused] = one.stage([wrong])
    assert isinstance(refused, PublishFailed)
    assert isinstance(one.link([wrong])[0], PublishFailed)
    assert list(one.walk()) == []


def test_an_intent_is_finished_from_what_is_there(open_one: Open) -> None:
    first = open_one()
    body = os.urandom(200_000)
    item = of_part(large_part(first, body, "job"))
    assert first.stage([item]) == [None]
    assert isinstance(item.body, Part)
    item.body.close()  # and here the process died
    store = open_one()
    facts = {"sha256": item.sha256, "size_bytes": item.size_bytes, "content_type": "x/y"}
    blob = store.recover(SCOPE, "job", 2, **facts)  # type: ignore[arg-type]
    assert blob is not None
    assert store.check(SCOPE, blob.pointer, blob.sha256, len(body)) is None
    again = store.recover(SCOPE, "job", 3, **facts)  # type: ignore[arg-type]
    assert again is not None
    assert again.pointer == blob.pointer
    assert store.recover(SCOPE, "job", 3, sha256="0" * 64, size_bytes=1, content_type="x/y") is None


def test_placed_outside(one: Store, tmp_path: Path) -> None:
    [blob] = publish(one, staged(b"hello" * 1000, "a"))
    place(one, SCOPE, blob.pointer, tmp_path / "out/name", mode="hardlink")
    assert (tmp_path / "out/name").read_bytes() == b"hello" * 1000
    assert os.listdir(tmp_path / "out") == ["name"]


def test_a_tenants_budget_counts_what_it_holds(open_one: Open) -> None:
    store = open_one(quota=QuotaSettings(free_bytes_min=0, tenant_bytes=1000))
    publish(store, staged(bytes(900), "a"))
    with pytest.raises(OverBudget):
        store.reserve(SCOPE, 200)
    store.reserve(OTHER, 200).release()


def test_copied_elsewhere_and_checked(open_one: Open, tmp_path: Path) -> None:
    source = open_one()
    bodies = [b"body %d" % n for n in range(5)] + [os.urandom(3 << 20)]
    publish(source, *(staged(body, f"job{n}") for n, body in enumerate(bodies)))
    publish(source, staged(b"theirs", "x", scope=OTHER))
    target = open_store(tmp_path / "copy")
    report = copy_store(source, target)
    assert (report.copied, report.held, report.damaged) == (7, 0, [])
    again = copy_store(source, target)
    assert (again.copied, again.held) == (0, 7)
    assert {(held.scope, held.sha256) for held in target.walk()} == {(h.scope, h.sha256) for h in source.walk()}
    back = copy_store(target, open_one())
    assert (back.copied, back.held) == (0, 7)
    target.close()


def test_items_are_independent_of_their_order(one: Store) -> None:
    items: list[Staged] = [staged(b"%d" % n, f"job{n}", scope=(SCOPE, OTHER)[n % 2]) for n in range(12)]
    blobs = publish(one, *items)
    assert [blob.sha256 for blob in blobs] == [item.sha256 for item in items]
    assert all(read(one, blob, item.scope) == item.body for item, blob in zip(items, blobs, strict=True))


def test_a_store_belongs_to_the_ledger_that_opened_it_first(open_one: Open) -> None:
    old = open_one()  # of a version that knew no owners
    [kept] = publish(old, staged(b"of nobody yet"))
    assert open_one(ledger_id="").stat(SCOPE, kept.sha256) is not None
    open_one(ledger_id="alice")
    for other in ("bob", ""):
        with pytest.raises(ForeignStore, match="alice") as refused:
            open_one(ledger_id=other)
        assert refused.value.exit_code == 2
        assert "--store" in str(refused.value.hint)
    again = open_one("elsewhere", ledger_id="alice")
    assert [one.sha256 for one in again.walk()] == [kept.sha256]


def test_a_claimed_store_is_blank_until_bytes_come(open_one: Open) -> None:
    store = open_one(ledger_id="alice")
    assert store.blank()
    publish(store, staged(b"bytes"))
    assert not store.blank()


def test_of_many_ledgers_that_begin_a_store_at_once_one_gets_it(open_one: Open) -> None:
    gate = threading.Barrier(6)

    def claim(name: str) -> str | None:
        gate.wait()
        try:
            open_one(name, ledger_id=name)
        except ForeignStore:
            return None
        return name

    with ThreadPoolExecutor(6) as pool:
        owners = [name for name in pool.map(claim, [f"ledger-{n}" for n in range(6)]) if name]
    assert len(owners) == 1
    open_one(ledger_id=owners[0])
