"""What `doctor` sees of the torrent client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longshore.domain.settings import QbittorrentSettings, Secret
from longshore.worker.kinds.torrent.client import ClientAway, ClientRefused
from longshore.worker.kinds.torrent.client_checks import check_client
from tests.support.program import invoke
from tests.support.qbt import PASSWORD, Swarm


def settings(shared: Swarm, **other: object) -> QbittorrentSettings:
    return QbittorrentSettings(url=shared.qbt.url, username="admin", password=Secret(PASSWORD), **other)


def test_a_client_whose_files_can_be_seen(shared: Swarm) -> None:
    found = check_client(settings(shared))
    assert [finding.level for finding in found if finding.level == "fail"] == []
    text = " ".join(finding.message for finding in found)
    assert f"qBittorrent {shared.qbt.generation}" in text
    assert f"{str(shared.qbt.save)!r}, seen here as {str(shared.qbt.save)!r}" in text
    assert "DHT is off" in text


def test_a_mapping_that_leads_nowhere_names_both_paths(shared: Swarm, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    failed = [
        f for f in check_client(settings(shared, path_map={str(shared.qbt.save): str(nowhere)})) if f.level == "fail"
    ]
    assert len(failed) == 2
    for finding in failed:
        assert str(shared.qbt.save) in finding.message
        assert str(nowhere) in finding.message
        assert "path_map" in (finding.remedy or "")


def test_habits_of_the_client_are_told(shared: Swarm) -> None:
    api = shared.qbt.api()
    before = api.app_preferences()
    changed = {"max_ratio_enabled": True, "max_ratio": 1, "max_ratio_act": 1, "auto_tmm_enabled": True}
    api.app_set_preferences(prefs=changed)
    try:
        warned = " ".join(f.message for f in check_client(settings(shared)) if f.level == "warn")
    finally:
        api.app_set_preferences(prefs={name: before[name] for name in changed})
    assert "share limit" in warned
    assert "automatic management" in warned


def test_a_client_that_does_not_answer_or_let_us_in(shared: Swarm) -> None:
    with pytest.raises(ClientAway):
        check_client(QbittorrentSettings(url="http://127.0.0.1:1"))
    with pytest.raises(ClientRefused):
        check_client(QbittorrentSettings(url=shared.qbt.url, username="admin", password=Secret("wrong")))


def test_doctor_says_it(shared: Swarm, tmp_path: Path) -> None:
    env = {
        "LONGSHORE_DEPOT": str(tmp_path / "depot"),
        "LONGSHORE_QBITTORRENT__URL": shared.qbt.url,
        "LONGSHORE_QBITTORRENT__USERNAME": "admin",
        "LONGSHORE_QBITTORRENT__PASSWORD": PASSWORD,
        "LONGSHORE_QBITTORRENT__PATH_MAP": json.dumps({str(shared.qbt.save): str(tmp_path / "nowhere")}),
    }
    ran = invoke("doctor", "--only", "qbittorrent", "--json", env=env)
    assert ran.code == 1
    (check,) = ran.of("check")
    assert check["status"] == "fail"
    assert str(shared.qbt.save) in check["evidence"]
    assert str(tmp_path / "nowhere") in check["evidence"]
    env["LONGSHORE_QBITTORRENT__PATH_MAP"] = "{}"
    ran = invoke("doctor", "--only", "qbittorrent", "--json", env=env)
    assert (ran.code, ran.of("check")[0]["status"]) == (0, "warn")
    assert PASSWORD not in ran.stdout + ran.stderr
