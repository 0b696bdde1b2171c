"""`doctor`: each check has evidence, and a remedy where something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from longshore.cli.checkup import MACHINE_CHECKS, filesystem_of
from longshore.cli.depot_checkup import DEPOT_CHECKS
from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing
from tests.support.program import Ran


def checked(ran: Ran) -> dict[str, dict[str, str]]:
    return {line["id"]: line for line in ran.of("check")}


def test_every_check_answers_on_an_empty_machine_and_makes_no_depot(box: Box) -> None:
    ran = box("doctor", "--json", env={"LONGSHORE_OFFLINE": "1"})

    found = checked(ran)
    assert found.keys() == MACHINE_CHECKS.keys() | DEPOT_CHECKS.keys()
    assert all(line["evidence"] for line in found.values())
    assert found["sqlite"]["status"] == found["libcurl"]["status"] == found["store"]["status"] == "ok"
    assert found["ledger"]["status"] == "skip"
    assert ran.of("summary")[0]["fail"] == sum(line["status"] == "fail" for line in found.values())
    assert not box.depot.exists()
    assert list(box.home.iterdir()) == []


def test_a_depot_that_works_is_told_so(box: Box, origin: Origin) -> None:
    box("get", origin.add("/x", Thing())).ok()

    found = checked(box("doctor", "--json", env={"LONGSHORE_OFFLINE": "1"}))

    assert {found[name]["status"] for name in ("depot", "ledger", "clock", "leases", "store", "parts")} == {"ok"}


@pytest.mark.parametrize(
    ("env", "name", "status", "word"),
    [
        ({"LONGSHORE_QUOTA__FREE_BYTES_MIN": str(1 << 62)}, "space", "fail", "quota.free_bytes_min"),
        ({"LONGSHORE_TRANSFER__CONCURRENCY": "4096"}, "open_files", None, ""),
        ({"https_proxy": "http://proxy.example:1"}, "proxy", "warn", "network.proxy"),
        ({"LONGSHORE_NETWORK__CA_FILE": "/nowhere/ca.pem"}, "tls", "fail", "network.ca_file"),
        ({"LONGSHORE_QBITTORRENT__URL": "http://127.0.0.1:1"}, "qbittorrent", "fail", "qbittorrent.url"),
        ({"LONGSHORE_LEDGER": "postgresql://nobody@127.0.0.1:1/none"}, "postgresql", "fail", "check the address"),
    ],
)
def test_what_is_wrong_has_a_remedy(box: Box, env: dict[str, str], name: str, status: str | None, word: str) -> None:
    ran = box("doctor", "--json", "--only", name, env=env)

    line = checked(ran)[name]
    if status is not None:
        assert line["status"] == status
        assert word in line["remedy"]
        assert ran.code == (1 if status == "fail" else 0)


def test_a_damaged_ledger_fails_its_check_only(box: Box) -> None:
    box.depot.mkdir()
    (box.depot / "ledger.db").write_bytes(b"no database " * 1000)

    ran = box("doctor", "--json", "--only", "ledger", "--only", "depot")

    found = checked(ran)
    assert (ran.code, found["ledger"]["status"], found["depot"]["status"]) == (1, "fail", "ok")


def test_a_file_with_a_password_that_others_can_read_is_told(box: Box) -> None:
    box.depot.mkdir()
    file = box.depot / "longshore.toml"
    file.write_text('[qbittorrent]\npassword = "hunter2"\n')
    file.chmod(0o644)

    ran = box("doctor", "--only", "configuration")

    assert "chmod 600" in ran.stdout
    assert "hunter2" not in ran.stdout


def test_file_systems_have_names(tmp_path: Path) -> None:
    assert filesystem_of("/proc") == "proc"
    assert filesystem_of(str(tmp_path)) != "proc"


def test_a_check_that_does_not_exist_is_usage(box: Box) -> None:
    ran = box("doctor", "--only", "ledgre")

    assert ran.code == 2
    assert "ledgre" in ran.stderr
    assert "ledger" in ran.stderr.partition("→")[2]
