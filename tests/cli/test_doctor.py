"""`doctor`: each check has evidence, and a remedy where something is wrong."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from longshore.config import load_settings
from longshore.depot.doctor.depot_checks import DEPOT_CHECKS, check_role
from longshore.depot.doctor.machine_checks import MACHINE_CHECKS, filesystem_of
from longshore.domain.settings import S3Settings, Secret
from longshore.store.remote.s3_objects import S3Objects
from tests.cli.conftest import Box, put_instead
from tests.support.ledgers import postgres_ledger as postgres_ledger  # noqa: PLC0414 - the fixture
from tests.support.origin import Origin, Thing
from tests.support.postgres import postgres_cluster as postgres_cluster  # noqa: PLC0414 - the fixture
from tests.support.program import Ran
from tests.support.weed import Weed
from tests.support.weed import weed as weed  # noqa: PLC0414 - the fixture


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

    assert {found[name]["status"] for name in ("depot", "ledger", "clock", "leases", "store", "orphans")} == {"ok"}


@pytest.mark.parametrize("instead", ["nothing", "file", "directory", "dangling"])
def test_a_store_that_is_not_there_fails(box: Box, origin: Origin, instead: str) -> None:
    """The nearest directory that exists says nothing of the one that should."""
    box("get", origin.add("/x", Thing())).ok()
    store = box.depot / "store"
    store.rename(box.home / "away")
    put_instead(store, instead)

    ran = box("doctor", "--json", env={"LONGSHORE_OFFLINE": "1"})

    found = checked(ran)
    assert (ran.code, found["store"]["status"], found["orphans"]["status"]) == (1, "fail", "skip")
    assert str(store) in found["store"]["evidence"]
    assert "--store" in found["store"]["remedy"]
    assert not store.is_dir() or list(store.iterdir()) == [], "looking begins no store"


def test_a_file_in_the_place_of_a_new_store_fails(box: Box) -> None:
    box.depot.mkdir()
    (box.depot / "store").write_text("x")

    line = checked(box("doctor", "--json", "--only", "store"))["store"]

    assert (line["status"], "not a directory" in line["evidence"]) == ("fail", True)


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


def s3_env(weed: Weed, bucket: str) -> dict[str, str]:
    return {
        "LONGSHORE_OFFLINE": "1",
        "LONGSHORE_STORE": f"s3://{bucket}/blobs?endpoint={weed.url}&region={weed.region}",
        "AWS_ACCESS_KEY_ID": weed.key_id,
        "AWS_SECRET_ACCESS_KEY": weed.secret,
    }


def test_an_object_store_is_tried_with_a_conditional_put_and_a_multipart_upload(box: Box, weed: Weed) -> None:
    bucket = weed.bucket()
    ran = box("doctor", "--json", "--only", "store", env=s3_env(weed, bucket))

    line = checked(ran)["store"]
    assert (ran.code, line["status"]) == (0, "ok"), line
    for word in (
        "conditional put: a second put is refused",
        "multipart: 5,",
        "read back equal",
        "unfinished uploads: 0",
    ):
        assert word in line["evidence"]
    assert b"<Contents>" not in weed.request("GET", f"/{bucket}", "list-type=2"), "nothing of the trial stays"


def test_an_object_store_that_refuses_is_told_with_a_remedy_and_no_secret(box: Box, weed: Weed) -> None:
    env = {**s3_env(weed, weed.bucket()), "AWS_SECRET_ACCESS_KEY": "wrong-secret-value"}
    ran = box("doctor", "--json", "--only", "store", env=env)

    line = checked(ran)["store"]
    assert (ran.code, line["status"]) == (1, "fail")
    assert "credentials" in line["remedy"]
    assert "wrong-secret-value" not in ran.stdout + ran.stderr


def test_a_server_without_conditional_puts_is_a_warning(weed: Weed, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server that ignores If-None-Match does: the second put succeeds too."""
    keys = S3Settings(access_key_id=weed.key_id, secret_access_key=Secret(weed.secret))
    objects = S3Objects(f"s3://{weed.bucket()}/x?endpoint={weed.url}", keys)
    monkeypatch.setattr(
        objects, "_create", lambda key, data, _: objects._store.put(objects._key(key), data) is not None
    )
    condition, multipart, _ = objects.probe()
    assert (condition.works, condition.level) == (False, "warn")
    assert "If-None-Match" in condition.evidence
    assert condition.remedy
    assert multipart.works


def test_a_table_without_a_tenant_policy_fails(postgres_ledger: str) -> None:
    with psycopg.connect(postgres_ledger, autocommit=True) as connection:
        settings = load_settings(environ={"LONGSHORE_LEDGER": postgres_ledger})
        assert check_role(settings).status == "warn", "tests connect as the superuser"
        connection.execute("ALTER TABLE artifacts NO FORCE ROW LEVEL SECURITY")
        found = check_role(settings)
    assert found.status == "fail"
    assert "artifacts" in found.evidence
    assert found.remedy
