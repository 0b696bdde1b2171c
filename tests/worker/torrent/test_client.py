"""The client's verbs against a real 4.5, and the differences of 5.x at the wire."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.domain.settings import QbittorrentSettings, Secret
from longshore.domain.torrents.model import OURS_TAG
from longshore.errors import BadInput, LongshoreError
from longshore.worker.kinds.torrent.client import Client, ClientAway, ClientRefused, NotAdded
from tests.support.qbt import PASSWORD, Made, Qbt, Swarm, make_torrent, until
from tests.worker.torrent.v5 import API_KEY, V5


def settings_for(url: str, **other: object) -> QbittorrentSettings:
    return QbittorrentSettings(**{"url": url, "username": "admin", "password": Secret(PASSWORD), **other})


@pytest.fixture(scope="module")
def client(shared: Swarm) -> Client:
    return Client(settings_for(shared.qbt.url))


@pytest.fixture
def v5() -> Iterator[V5]:
    with V5() as server:
        yield server


@pytest.fixture
def made(tmp_path: Path) -> Made:
    (tmp_path / "book").write_bytes(os.urandom(50_000))
    return make_torrent(tmp_path / "book")


def test_add_find_tag_start_and_remove(client: Client, shared: Swarm) -> None:
    made = shared.make("verbs.bin", os.urandom(60_000))
    assert client.by_ids([made.id]) == []
    assert client.files(made.id) is None
    client.add(made.data, category="longshore-ebook", tags=[OURS_TAG, "job:1"])
    done = until("finished", lambda: [seen for seen in client.by_ids([made.id]) if seen.complete])[0]
    assert (done.id, done.identity.v1, done.category) == (made.id, made.id, "longshore-ebook")
    assert done.tags == {OURS_TAG, "job:1"}
    assert done.ours
    assert (done.size_bytes, done.done_bytes, done.save_path) == (60_000, 60_000, str(shared.qbt.save))
    files = client.files(made.id)
    assert files is not None
    assert [(file.name, file.size_bytes, file.progress, file.wanted) for file in files] == [
        ("verbs.bin", 60_000, 1, True)
    ]
    client.tag(made.id, ["job:2"])
    client.untag(made.id, ["job:1"])
    assert client.by_ids([made.id])[0].tags == {OURS_TAG, "job:2"}
    assert made.v1 in {seen.id for seen in client.ours()}
    client.start(made.id)
    with pytest.raises(NotAdded):
        client.add(made.data, category="c", tags=[])
    client.remove(made.id, with_files=False)
    until("gone", lambda: not client.by_ids([made.id]))
    assert (shared.qbt.save / "verbs.bin").exists()


def test_ratio_limits_of_the_client_do_not_remove_ours(client: Client, shared: Swarm) -> None:
    made = shared.make("ratio.bin", os.urandom(30_000))
    client.add(made.magnet, category="c", tags=[OURS_TAG])
    row = until("added", lambda: shared.qbt.api().torrents_info(torrent_hashes=made.id))[0]
    assert (row["ratio_limit"], row["seeding_time_limit"]) == (-1, -1)
    client.remove(made.id, with_files=True)


def test_what_is_no_torrent_is_refused(client: Client) -> None:
    with pytest.raises(NotAdded):
        client.add(b"garbage", category="c", tags=[])
    with pytest.raises(NotAdded):
        client.add("magnet:?xt=urn:btih:zz", category="c", tags=[])


@pytest.mark.parametrize("id_", ["", "all", "a" * 39, "A" * 40, "|".join(["a" * 40] * 2)])
def test_nothing_is_ever_asked_for_all_torrents_by_mistake(id_: str) -> None:
    client = Client(settings_for("http://127.0.0.1:1"))
    for call in (
        lambda: client.by_ids([id_]),
        lambda: client.files(id_),
        lambda: client.tag(id_, ["x"]),
        lambda: client.untag(id_, ["x"]),
        lambda: client.start(id_),
        lambda: client.remove(id_, with_files=True),
    ):
        with pytest.raises(BadInput):
            call()
    assert client.by_ids([]) == []


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, never listening: nothing can answer
        client = Client(settings_for(f"http://127.0.0.1:{taken.getsockname()[1]}"))
        with pytest.raises(ClientAway) as caught:
            client.everything()
    assert not isinstance(caught.value, ClientRefused)
    assert PASSWORD not in str(caught.value)


def test_a_refused_password_is_tried_once(tmp_path: Path, version: str) -> None:
    qbt = Qbt(tmp_path / "q", version=version, max_fail=2)
    qbt.start()
    try:
        wrong = Client(settings_for(qbt.url, password=Secret("wrong")))
        for _ in range(5):
            with pytest.raises(ClientRefused):
                wrong.everything()
        # One wrong try of two allowed: the right password still gets in, so we did not loop.
        assert Client(settings_for(qbt.url)).version()[0].startswith(qbt.generation)
    finally:
        qbt.stop()


def test_a_ban_is_waited_for(tmp_path: Path, version: str) -> None:
    qbt = Qbt(tmp_path / "q", version=version, max_fail=1)
    qbt.start()
    try:
        with pytest.raises(ClientRefused):
            Client(settings_for(qbt.url, password=Secret("wrong"))).everything()
        now = [0.0]
        banned = Client(settings_for(qbt.url), monotonic=lambda: now[0])
        with pytest.raises(ClientRefused, match="banned"):
            banned.everything()
        qbt.stop()
        qbt.start()  # a new start forgets bans; we do not look before the hour is over
        with pytest.raises(ClientRefused, match="banned"):
            banned.everything()
        now[0] = 3601.0
        assert banned.everything() == []
    finally:
        qbt.stop()


def test_the_session_is_renewed_once_when_it_ended(shared: Swarm) -> None:
    client = Client(settings_for(shared.qbt.url))
    assert client.everything() is not None
    client._api.auth_log_out()
    assert client.version()[0].startswith(shared.qbt.generation)


def test_secrets_stand_in_no_message() -> None:
    client = Client(
        settings_for(
            "http://who:secretword@127.0.0.1:1/sub", password=Secret("secretword"), api_key=Secret("secretword")
        )
    )
    assert "secretword" not in client.url
    with pytest.raises(ClientAway) as caught:
        client.everything()
    assert "secretword" not in f"{caught.value!r} {caught.value.__cause__!r}"
    for url in ("ftp://x", "http://", "::"):
        with pytest.raises(BadInput):
            Client(settings_for(url))


def test_environment_proxies_are_not_used(shared: Swarm, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert Client(settings_for(shared.qbt.url)).version()[0].startswith(shared.qbt.generation)


@pytest.mark.torture
def test_api_key_and_basic_login_at_the_real_newest(tmp_path: Path) -> None:
    qbt = Qbt(tmp_path / "q", version="newest", max_fail=2)
    qbt.start()
    try:
        key = qbt.api().app_rotate_api_key()["apiKey"]
        with_key = Client(QbittorrentSettings(url=qbt.url, api_key=Secret(str(key))))
        assert with_key.everything() == []
        basic = Client(QbittorrentSettings(url=qbt.url.replace("//", f"//admin:{PASSWORD}@")))
        assert basic.everything() == []
        with pytest.raises(ClientRefused, match="API key"):
            Client(QbittorrentSettings(url=qbt.url, api_key=Secret("qbt_wrong"))).everything()
    finally:
        qbt.stop()


# --- 5.x at the wire


def test_v5_login_is_204_with_another_cookie(v5: V5) -> None:
    client = Client(settings_for(v5.url))
    assert client.version() == ("v5.3.0", "2.16.2")
    assert client.everything() == []
    assert v5.count("auth/login") == 1
    v5.session = None  # the session ends
    assert client.everything() == []
    assert v5.count("auth/login") == 2


def test_v5_wrong_password_is_401_and_tried_once(v5: V5) -> None:
    client = Client(settings_for(v5.url, password=Secret("wrong")))
    for _ in range(3):
        with pytest.raises(ClientRefused):
            client.everything()
    assert v5.count("auth/login") == 1


def test_v5_api_key_and_basic_need_no_login(v5: V5) -> None:
    key = Client(QbittorrentSettings(url=v5.url, api_key=Secret(API_KEY)))
    assert key.everything() == []
    basic = Client(QbittorrentSettings(url=v5.url.replace("//", f"//admin:{PASSWORD}@")))
    assert basic.everything() == []
    assert v5.count("auth/login") == 0
    with pytest.raises(ClientRefused, match="API key"):
        Client(QbittorrentSettings(url=v5.url, api_key=Secret("qbt_wrong"))).everything()


def test_v5_add_counts_and_409(v5: V5, made: Made) -> None:
    client = Client(settings_for(v5.url))
    client.add(made.data, category="longshore-ebook", tags=[OURS_TAG, "job:1"])
    seen = client.by_ids([made.id])[0]
    assert (seen.state, seen.category, seen.tags) == ("stalledDL", "longshore-ebook", frozenset({OURS_TAG, "job:1"}))
    given = v5.torrents[made.id].fields
    assert (given["ratioLimit"], given["seedingTimeLimit"], given["stopped"]) == ("-1", "-1", "False")
    for source in (made.data, made.magnet, "magnet:?xt=urn:btih:zz"):
        with pytest.raises(NotAdded):
            client.add(source, category="c", tags=[])
    with pytest.raises(NotAdded):
        client.add(b"garbage", category="c", tags=[])


def test_v5_start_has_another_name(v5: V5, made: Made) -> None:
    client = Client(settings_for(v5.url))
    client.add(made.magnet, category="c", tags=[OURS_TAG])
    v5.torrents[made.id].state = "stoppedDL"
    client.start(made.id)
    assert v5.torrents[made.id].state == "stalledDL"
    assert v5.count("torrents/resume") == 0
    v5.torrents[made.id].state, v5.torrents[made.id].progress = "stoppedUP", 1.0
    assert client.by_ids([made.id])[0].complete
    client.tag(made.id, ["job:9"])
    client.untag(made.id, ["job:9"])
    client.remove(made.id, with_files=False)
    assert client.everything() == []


def test_something_else_at_the_address(v5: V5) -> None:
    v5.answer = lambda *_: (200, b"<html>a router</html>", None)  # type: ignore[method-assign]
    with pytest.raises(ClientAway):
        Client(settings_for(v5.url)).everything()
    v5.answer = lambda *_: (200, b'[{"surprise": 1}]', None)  # type: ignore[method-assign]
    with pytest.raises(ClientAway, match="like qBittorrent"):
        Client(settings_for(v5.url)).everything()
    v5.answer = lambda *_: (500, b"", None)  # type: ignore[method-assign]
    with pytest.raises(LongshoreError):
        Client(settings_for(v5.url)).version()
