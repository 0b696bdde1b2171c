"""Every combination of lost calls, at every moment of the publish protocol: no blob is ever half there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from longshore.domain.model import Validators
from longshore.store import LocalStore, PartFacts
from longshore.store.durability import barriers
from tests.store.publishing import SCOPE, linked, of_part, staged
from tests.store.reordering import Disk, Trace, record, states


def wrong_states(trace: Trace, *, part_body: bytes = b"") -> list[str]:
    """Say in which states something is not as promised."""
    wrong, count = [], 0
    for after, promised, where in states(trace):
        count += 1
        for path, data in after.files():
            if not path.startswith(".") and hashlib.sha256(data).hexdigest() != path.rsplit("/", 1)[1][:64]:
                wrong.append(f"{where}: {path} is half there")
            if path.endswith("/facts.json"):
                wrong += part_problems(after, path, data, part_body, where)
        wrong += [f"{where}: {what} is lost" for what in promised if not kept(after, what)]
    assert count > 20, "the model saw too little"
    return wrong


def kept(after: Disk, pointer: str) -> bool:
    data = after.read(pointer)
    return data is not None and hashlib.sha256(data).hexdigest() == pointer.rsplit("/", 1)[1][:64]


def part_problems(after: Disk, path: str, data: bytes, body: bytes, where: str) -> list[str]:
    """A part's facts, if they can be read at all, promise only what its body holds."""
    try:
        facts = PartFacts.from_json(data)
    except ValueError:
        return [f"{where}: facts are half there"]
    held = after.read(path.replace("facts.json", "body"))
    if held is None or len(held) < facts.durable_bytes:
        return []  # nobody believes facts without their body: see test_parts
    right = held[: facts.durable_bytes] == body[: facts.durable_bytes]
    return [] if right else [f"{where}: the part promises {facts.durable_bytes}"]


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[LocalStore, Trace]]:
    monkeypatch.setattr(barriers, "POOL", 1)
    stores = []

    def begin() -> tuple[LocalStore, Trace]:
        root = tmp_path / "store"
        root.mkdir()
        trace = record(monkeypatch, str(root))
        stores.append(LocalStore(root))
        return stores[-1], trace

    return begin


def publish_batch(store: LocalStore, trace: Trace, bodies: list[bytes]) -> None:
    items = [staged(body, f"job{number}") for number, body in enumerate(bodies)]
    assert store.stage(items) == [None] * len(items)
    for blob in linked(store, items):
        trace.promise(blob.pointer)
    store.clean(items)


@pytest.mark.parametrize("few", [8, 0], ids=["fsync-each", "syncfs"])
def test_a_batch(traced: Callable[[], tuple[LocalStore, Trace]], few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barriers, "FEW", few)
    store, trace = traced()
    publish_batch(store, trace, [b"one", b"two"])
    publish_batch(store, trace, [b"two", b"three"])  # one of them is known
    store.close()
    assert wrong_states(trace) == []


def test_a_new_process_trusts_no_directory_that_it_did_not_make_durable(
    traced: Callable[[], tuple[LocalStore, Trace]], tmp_path: Path
) -> None:
    """Another process made the shard and died before its barrier: who finds the shard must not take it for durable."""
    store, trace = traced()
    sha256 = staged(b"late").sha256
    project = os.open(tmp_path / "store", os.O_RDONLY)
    for name in ("acme", "corpus", sha256[:2]):
        os.mkdir(name, 0o700, dir_fd=project)
        below = os.open(name, os.O_RDONLY, dir_fd=project)
        os.close(project)
        project = below
    os.close(project)
    publish_batch(store, trace, [b"late"])
    store.close()
    assert wrong_states(trace) == []


def test_a_part_from_first_byte_to_blob(traced: Callable[[], tuple[LocalStore, Trace]]) -> None:
    body = os.urandom(10_000)
    store, trace = traced()
    part = store.part(SCOPE, "big", 1)
    part.begin(url="http://example.org/", validators=Validators('"v1"'), total=len(body))
    part.write(body[:4000])
    part.checkpoint()
    part.write(body[4000:])
    item = of_part(part)
    store.stage([item])
    for blob in linked(store, [item]):
        trace.promise(blob.pointer)
    store.clean([item])
    store.close()
    assert wrong_states(trace, part_body=body) == []


def test_a_part_that_starts_over_takes_its_promise_back_first(traced: Callable[[], tuple[LocalStore, Trace]]) -> None:
    """The facts of version one never stand beside bytes of version two."""
    store, trace = traced()
    part = store.part(SCOPE, "big", 1)
    part.begin(url="http://example.org/", validators=Validators('"v1"'), total=9)
    part.write(b"version 1")
    part.checkpoint()
    part.restart()
    part.write(b"VERSION 2")
    part.close()
    store.close()
    assert wrong_states(trace, part_body=b"version 1") == []


def test_quarantine_and_replacement(traced: Callable[[], tuple[LocalStore, Trace]]) -> None:
    store, trace = traced()
    publish_batch(store, trace, [b"good bytes"])
    trace.events = [event for event in trace.events if event[0] != "promise"]
    [held] = store.walk()
    path = store.path(SCOPE, held.pointer)
    assert path is not None
    before = path.read_bytes()
    name = store.quarantine(SCOPE, held.pointer, "test")
    assert name is not None
    assert store.restore(SCOPE, name)
    trace.promise(held.pointer)
    store.close()
    assert path.read_bytes() == before
    assert wrong_states(trace) == []


@pytest.mark.parametrize("skipped", ["stage.barrier", "link.dirsync"])
@pytest.mark.parametrize("few", [8, 0], ids=["fsync-each", "syncfs"])
def test_the_model_finds_a_missing_barrier(
    traced: Callable[[], tuple[LocalStore, Trace]], skipped: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(barriers, "FEW", few)
    wait = barriers.Barrier.wait

    def forgetful(barrier: barriers.Barrier) -> None:
        if barrier._name != skipped:
            wait(barrier)

    monkeypatch.setattr(barriers.Barrier, "wait", forgetful)
    store, trace = traced()
    publish_batch(store, trace, [b"one", b"two"])
    store.close()
    assert wrong_states(trace)
