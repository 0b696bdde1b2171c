"""Metadata is cached as HTTP says, privately, bounded, on disk; what is damaged or of somebody else is not used."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longshore.domain.settings import (
    CredentialSettings,
    CredentialsSettings,
    MetadataSettings,
    NetworkSettings,
    Secret,
    Settings,
)
from longshore.errors import Reasoned
from longshore.transfer import NetworkPolicy, Transfer
from longshore.transfer.metadata_client import FOLDER, Metadata, MetadataClient
from tests.support.origin import Origin, Thing, redirect, status

HERE = NetworkPolicy.allowing("127.0.0.0/8")
FRESH: dict[str, Any] = {"Date": None, "Cache-Control": "max-age=60"}


class Caller:
    """Asks like one process after the other: each get has a client of its own."""

    def __init__(self, depot: Path, **settings: Any) -> None:
        self.settings = Settings(depot=str(depot), **settings)
        self.now = 1_000_000.0

    def get(self, url: str, tenant: str = "a", *, refresh: bool = False, **changed: Any) -> Metadata:
        settings = self.settings.replaced(**changed)

        async def ask() -> Metadata:
            async with Transfer(settings, HERE) as transfer:
                client = MetadataClient(transfer, settings, tenant, clock=lambda: self.now)
                return await client.get(url, refresh=refresh)

        return asyncio.run(ask())


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    return Caller(tmp_path)


def fresh(body: bytes = b"one\n", **extra: Any) -> Thing:
    return Thing(body, extra={**FRESH, **{name.replace("_", "-"): value for name, value in extra.items()}})


def test_what_is_fresh_is_not_asked_for(origin: Origin, caller: Caller) -> None:
    url = origin.add("/list", fresh())
    assert (caller.get(url).source, caller.get(url).body, origin.count("/list")) == ("fetched", b"one\n", 1)
    caller.now += 59
    assert caller.get(url).source == "stored"
    caller.now += 2
    assert (caller.get(url).source, origin.count("/list")) == ("validated", 2)
    assert origin.seen("/list")[1].headers["if-none-match"] == '"v1"'
    assert (caller.get(url).source, origin.count("/list")) == ("stored", 2), "the 304 made it young again"
    assert caller.get(url, refresh=True).source == "validated"


def test_a_new_version_replaces_the_old(origin: Origin, caller: Caller) -> None:
    url = origin.add("/list", fresh(), replace(fresh(b"two\n"), etag='"v2"'))
    caller.get(url)
    caller.now += 100
    assert (caller.get(url).body, caller.get(url).source) == (b"two\n", "stored")


@pytest.mark.parametrize(
    "extra",
    [{"Cache_Control": "no-store"}, {"Vary": "*"}, {"Cache_Control": "max-age=0", "ETag": None}],
)
def test_what_may_not_be_stored_is_asked_for_each_time(origin: Origin, caller: Caller, extra: dict[str, Any]) -> None:
    url = origin.add("/list", fresh(**extra))
    assert [caller.get(url).source for _ in range(3)] == ["fetched"] * 3
    assert not any((Path(caller.settings.depot) / FOLDER).glob("*"))


def test_a_redirected_answer_is_not_stored(origin: Origin, caller: Caller) -> None:
    origin.add("/list", fresh())
    url = origin.add("/moved", redirect("/list"))
    assert [caller.get(url).source for _ in range(2)] == ["fetched"] * 2


def test_each_tenant_and_each_login_has_its_own_answers(origin: Origin, caller: Caller) -> None:
    url = origin.add("/list", fresh(Cache_Control="private, max-age=60"))
    caller.get(url)
    assert caller.get(url, tenant="b").source == "fetched"
    login = CredentialsSettings(named={f"http://{origin.netloc}": CredentialSettings(token=Secret("canary-token"))})
    assert caller.get(url, credentials=login).source == "fetched"
    assert caller.get(url, credentials=login).source == "stored"
    assert caller.get(url.replace("http://", "http://user:canary@")).source == "fetched"
    for entry in (Path(caller.settings.depot) / FOLDER).iterdir():
        assert b"canary" not in entry.read_bytes()
        assert entry.stat().st_mode & 0o077 == 0


def test_a_cookie_file_turns_the_cache_off(origin: Origin, caller: Caller, tmp_path: Path) -> None:
    url = origin.add("/list", fresh())
    (tmp_path / "cookies").write_text("# Netscape HTTP Cookie File\n")
    with_cookies = NetworkSettings(cookies=str(tmp_path / "cookies"))
    assert [caller.get(url, network=with_cookies).source for _ in range(2)] == ["fetched"] * 2


def spoil_body(entry: bytes) -> bytes:
    return entry[:-1] + b"X"


@pytest.mark.parametrize("spoil", [spoil_body, lambda _: b"", lambda _: b"{}\n", lambda entry: entry[:30]])
def test_a_damaged_entry_is_fetched_again(origin: Origin, caller: Caller, spoil: Callable[[bytes], bytes]) -> None:
    url = origin.add("/list", fresh())
    caller.get(url)
    (entry,) = (Path(caller.settings.depot) / FOLDER).iterdir()
    entry.write_bytes(spoil(entry.read_bytes()))
    assert (caller.get(url).source, caller.get(url).source) == ("fetched", "stored")


def test_the_cache_is_bounded_and_the_least_used_goes_first(origin: Origin, tmp_path: Path) -> None:
    caller = Caller(tmp_path, metadata=MetadataSettings(cache_bytes=10_000))
    urls = [origin.add(f"/{n}", fresh(b"%d" % n * 2_500)) for n in range(3)]
    large = origin.add("/large", fresh(b"x" * 20_000))
    for url in (*urls[:2], urls[0], urls[2]):
        caller.get(url)
        for age, entry in enumerate(sorted((tmp_path / FOLDER).iterdir(), key=lambda one: -one.stat().st_mtime)):
            os.utime(entry, (1_000 - age, 1_000 - age))
    assert len(caller.get(large).body) == 20_000
    assert sum(entry.stat().st_size for entry in (tmp_path / FOLDER).iterdir()) <= 10_000
    assert [caller.get(url).source for url in (urls[2], large)] == ["stored", "fetched"]


def test_without_a_depot_or_with_no_room_nothing_is_kept(origin: Origin, tmp_path: Path) -> None:
    url = origin.add("/list", fresh())
    for caller in (Caller(tmp_path / "none"), Caller(tmp_path, metadata=MetadataSettings(cache_bytes=0))):
        assert [caller.get(url).source for _ in range(2)] == ["fetched"] * 2
    assert list(tmp_path.iterdir()) == []


def test_offline_the_cache_answers_or_says_so(origin: Origin, caller: Caller) -> None:
    url = origin.add("/list", fresh())
    with pytest.raises(Reasoned, match="cache of metadata"):
        caller.get(url, offline=True)
    caller.get(url)
    caller.now += 1_000
    assert (caller.get(url, offline=True).source, origin.count("/list")) == ("stored", 1)


def test_a_server_that_fails_is_answered_for_as_long_as_it_allowed(origin: Origin, caller: Caller) -> None:
    url = origin.add("/list", fresh(Cache_Control="max-age=60, stale-if-error=100"), status(503))
    caller.get(url)
    caller.now += 150
    assert caller.get(url).source == "stale"
    caller.now += 100
    with pytest.raises(Reasoned, match="503"):
        caller.get(url)


def test_a_page_that_is_gone_is_gone(origin: Origin, caller: Caller) -> None:
    url = origin.add("/list", fresh(Cache_Control="max-age=60, stale-if-error=100"), status(404))
    caller.get(url)
    caller.now += 61
    with pytest.raises(Reasoned, match="404"):
        caller.get(url)


def test_the_network_policy_and_the_largest_size_hold(origin: Origin, tmp_path: Path) -> None:
    url = origin.add("/list", fresh(b"x" * 1_000))
    with pytest.raises(Reasoned) as refused:
        Caller(tmp_path, metadata=MetadataSettings(max_bytes=999)).get(url)
    assert refused.value.reason == "too_large"

    async def without_leave() -> None:
        async with Transfer(Settings(depot=str(tmp_path))) as transfer:
            await MetadataClient(transfer, Settings(depot=str(tmp_path)), "a").get(url)

    with pytest.raises(Reasoned) as private:
        asyncio.run(without_leave())
    assert private.value.reason == "forbidden_address"
