"""Arguments of every command: places that are URLs, common options before the command, sizes, short job ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Box
from tests.support.program import Ran

URLS = "https://a.example/1\nhttps://a.example/2\nhttps://b.example/3\n"


def config(ran: Ran) -> dict[str, Any]:
    (line,) = ran.ok().lines
    return {one["name"]: one["value"] for one in line["settings"]}


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("--ledger", "mysql://h/db"),
        ("--ledger", "sqlite:///x.db"),
        ("--ledger", "postgresql:/h/db"),
        ("--store", "s3:/bucket"),
        ("--store", "s3:bucket"),
        ("--store", "gs://bucket/x"),
        ("--store", "S3://bucket"),
        ("--depot", "s3://bucket/depot"),
    ],
)
def test_no_directory_is_made_of_a_url(
    box: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str, place: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    ran = box("add", box.write("list", URLS), option, place)

    assert ran.code == 2, ran.stderr
    assert place in ran.stderr
    assert option in ran.stderr
    assert list(here.iterdir()) == []
    assert not box.depot.exists()


@pytest.mark.parametrize(
    "words", [["get", "https://a.example/1", "-d"], ["get", "https://a.example/1", "-o"], ["export", "-o"], ["backup"]]
)
def test_no_target_is_made_of_a_url(
    box: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    box("add", box.write("list", URLS)).ok()
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    ran = box(*words, "s3://bucket/x")

    assert ran.code == 2, ran.stderr
    assert "s3://bucket/x" in ran.stderr
    assert list(here.iterdir()) == []


def test_a_directory_with_a_colon_can_be_named(box: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    box("add", box.write("list", URLS), "--depot", "./s3:/depot").ok()

    assert (tmp_path / "s3:" / "depot" / "ledger.db").exists()


def test_common_options_may_come_before_the_command(box: Box) -> None:
    other = box.home / "other"
    listed = box.write("list", URLS)

    box("--depot", other, "--tenant", "t", "add", listed).ok()
    (status,) = box("--json", f"--depot={other}", "status", "--tenant", "t").ok().lines

    assert status["jobs"]["pending"] == 3
    assert not box.depot.exists()


def test_an_option_after_the_command_wins_and_lists_are_joined(box: Box) -> None:
    listed = box.write("list", URLS)

    box("--depot", box.home / "a", "-q", "add", listed, "--depot", box.home / "b").ok()
    shown = box(
        "--set", "retry.max_attempts=7", "--allow-net", "10.0.0.0/8", "--json", "config", "--set", "shard.width=3"
    )

    assert (box.home / "b").exists()
    assert not (box.home / "a").exists()
    values = config(shown)
    assert (values["retry.max_attempts"], values["shard.width"]) == (7, 3)
    assert "10.0.0.0/8" in values["network.allow"]


def test_common_options_reach_commands_of_a_group(box: Box) -> None:
    box("add", box.write("list", URLS), "--depot", box.home / "other").ok()

    assert box("--depot", box.home / "other", "torrent", "list").code == 0
    assert box("torrent", "list").code == 10


def test_an_unknown_option_before_the_command_is_usage(box: Box) -> None:
    ran = box("--depo", "x", "status")

    assert ran.code == 2
    assert "--depot" in ran.stderr


def test_a_file_as_the_depot_is_named(box: Box) -> None:
    file = box.write("plain", "not a depot")

    for words in (["add", box.write("list", URLS)], ["status"], ["get", "https://a.example/"]):
        ran = box(*words, "--depot", file)

        assert ran.code == 2, ran.stderr
        assert f"{file} is a file" in ran.stderr
        assert "new depot" not in ran.stderr
    assert file.read_text() == "not a depot"


def test_the_default_depot_is_named_in_the_help(box: Box) -> None:
    assert "~/.local/share/longshore" in box("--help").stdout
    assert "~/.local/share/longshore" in box("get", "--help").stdout


def test_a_budget_takes_units(box: Box) -> None:
    box("add", box.write("list", URLS)).ok()

    (line,) = box("budget", "--bytes", "1.5GB", "--json").ok().lines

    assert line["bytes"]["limit"] == 1_500_000_000
    assert box("budget", "--items", "1GB").code == 2
    assert "2GiB" in box("budget", "--bytes", "many").stderr


def test_settings_of_bytes_take_units(box: Box) -> None:
    box.depot.mkdir()
    (box.depot / "longshore.toml").write_text('[quota]\ntenant_bytes = "2GiB"\nfree_bytes_min = 5_000_000\n')

    ran = box("config", "--json", "--set", "transfer.max_bytes=64k", env={"LONGSHORE_TRANSFER__SMALL_BYTES": "1MB"})

    values = config(ran)
    assert values["quota.tenant_bytes"] == 2 << 30
    assert values["quota.free_bytes_min"] == 5_000_000
    assert values["transfer.max_bytes"] == 64 << 10
    assert values["transfer.small_bytes"] == 1_000_000
    refused = box("config", "--set", "transfer.max_bytes=1 parsec")
    assert refused.code == 2
    assert "2GiB" in refused.stderr
    assert box("config", "--set", "retry.max_attempts=2k").code == 2


def test_a_short_job_id_is_enough(box: Box) -> None:
    box("add", box.write("list", URLS)).ok()
    ids = [line["job_id"] for line in box("jobs", "--json").ok().lines]

    (shown,) = box("show", ids[0][-8:], "--json").ok().lines
    assert shown["job"]["job_id"] == ids[0]
    box("cancel", ids[1][-12:].upper()).ok()
    assert box.counts() == {"pending": 2, "canceled": 1}
    (again,) = box("retry", ids[1][-12:], "--json").ok().of("retried")
    box("cancel", again["job_id"]).ok()
    assert box("replay", ids[0][-8:]).code != 10  # found; it is not over yet


def test_an_ambiguous_or_unknown_short_job_id_is_an_error(box: Box) -> None:
    box("add", box.write("list", URLS)).ok()
    ids = [line["job_id"] for line in box("jobs", "--json").ok().lines]

    ambiguous = box("cancel", ids[0][:8])  # the time, which they share

    assert ambiguous.code == 2
    assert all(job_id in ambiguous.stderr for job_id in ids)
    assert box.counts() == {"pending": 3}
    assert box("show", ids[0][-5:]).code == box("show", "0" * 36).code
    assert "at least 6" in box("show", ids[0][-5:]).stderr
    assert box("show", "%%%%%%").code != 0


def test_times_are_readable(box: Box) -> None:
    box("add", box.write("list", "https://127.0.0.1:1/x\n")).ok()
    box("run", "--max-wait", "0.5", "--set", "retry.base_s=3600", "--set", "retry.cap_s=3600")
    ((job_id, *_),) = [line.split() for line in box("jobs").ok().stdout.splitlines()]

    shown, jobs = box("show", job_id).ok().stdout, box("jobs").ok().stdout

    assert "next_attempt_at=2" in shown  # a year, not microseconds
    assert "next_attempt_at=17" not in shown
    assert f"{shown.split('updated_at')[1].split()[0][:16].replace('T', ' ')}" in jobs
