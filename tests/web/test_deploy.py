"""The files in deploy/ are at least well-formed, and speak of metrics and commands that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from longshore.cli.main import entries
from scripts import lock
from tests.web.test_metrics import NAMES

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SUFFIXES = ("", "_bucket", "_count", "_sum")


def used(text: str) -> set[str]:
    return set(re.findall(r"longshore_([a-z_]+)", text))


def known(name: str) -> bool:
    return any(name == known + suffix for known in NAMES for suffix in SUFFIXES)


def test_alert_rules_use_metrics_that_exist() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(alerts) >= 5
    for rule in alerts:
        assert rule["annotations"]["summary"]
        assert {name for name in used(rule["expr"]) if not known(name)} == set()


def test_the_grafana_dashboard_uses_metrics_that_exist() -> None:
    dashboard = json.loads((DEPLOY / "grafana/longshore.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)) >= 10
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            assert {name for name in used(target["expr"]) if not known(name)} == set()


def compose(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "docker" / name).read_text())
    return found


def test_compose_and_scrape_files_are_yaml() -> None:
    alone = compose("compose.yaml")["services"]
    assert {"longshore", "qbittorrent"} <= alone.keys()
    assert alone["longshore"]["read_only"] is True
    scrape = yaml.safe_load((DEPLOY / "prometheus/scrape.yaml").read_text())
    assert scrape["scrape_configs"][0]["metrics_path"] == "/metrics"


def test_service_and_workers_share_one_ledger_and_store() -> None:
    scale = compose("compose.scale.yaml")["services"]
    places = [scale[name]["environment"] for name in ("longshore", "worker")]
    assert places[0]["LONGSHORE_STORE"] == places[1]["LONGSHORE_STORE"]
    assert len({place["LONGSHORE_LEDGER"].partition("@")[2] for place in places}) == 1
    assert scale["worker"]["command"] == ["run", "--forever", "--all-tenants"]
    bucket = places[0]["LONGSHORE_STORE"].removeprefix("s3://").partition("/")[0]
    assert scale["bucket"]["command"][-1].endswith(f"/{bucket}")
    for service in scale.values():
        assert service.get("depends_on", {}).keys() <= scale.keys()


def test_every_variable_of_the_scale_file_has_an_example() -> None:
    text = (DEPLOY / "docker/compose.scale.yaml").read_text()
    wanted = set(re.findall(r"(?<!\$)\$\{(\w+)", text))
    given = set(re.findall(r"^(\w+)=\S*$", (DEPLOY / "docker/.env.example").read_text(), re.MULTILINE))
    assert wanted <= given


def test_units_and_image_start_commands_that_exist() -> None:
    started = [
        re.findall(r"^ExecStart=\S+/longshore (.+)$", unit.read_text(), re.MULTILINE)[0].split()
        for unit in (DEPLOY / "systemd").glob("*.service")
    ]
    image = (DEPLOY / "docker/Dockerfile").read_text()
    started.append(json.loads(re.findall(r"^CMD (\[.*\])$", image, re.MULTILINE)[-1]))
    started += [service["command"] for service in compose("compose.scale.yaml")["services"].values() if "<<" in service]
    for command, *arguments in started:
        module, _, name = entries()[command].place.partition(":")
        parser = getattr(import_module(module), name)
        parser.make_context(command, list(arguments), resilient_parsing=False).close()
    assert "USER 1000:1000" in image


def test_all_units_run_as_the_owner_of_the_one_depot() -> None:
    """With a user of its own each unit would take the depot's files from the others."""
    units = [unit.read_text() for unit in (DEPLOY / "systemd").glob("*.service")]
    assert len(units) == 3
    for unit in units:
        assert "DynamicUser" not in unit
        assert "\nUser=longshore\nGroup=longshore\n" in unit
        assert "\nEnvironment=LONGSHORE_DEPOT=/var/lib/longshore\n" in unit
    assert "u longshore " in (DEPLOY / "systemd/longshore.sysusers").read_text()
    assert "--all-tenants" in (DEPLOY / "systemd/longshore-worker@.service").read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    units = []
    for unit in [*(DEPLOY / "systemd").glob("*.service"), *(DEPLOY / "systemd").glob("*.timer")]:
        # The program need not be installed where the check runs.
        copy = tmp_path / unit.name.replace("@", "@1")
        copy.write_text(unit.read_text().replace("/usr/local/bin/longshore", "/bin/true"))
        units.append(str(copy))
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert ours == []


def test_the_scale_file_gives_each_login_what_it_needs_and_no_default_password() -> None:
    text = (DEPLOY / "docker/compose.scale.yaml").read_text()
    services = compose("compose.scale.yaml")["services"]
    logins = {name: services[name]["environment"]["LONGSHORE_LEDGER"] for name in ("longshore", "worker", "schema")}
    assert [re.findall(r"//(\w+):", login)[0] for login in logins.values()] == [
        "longshore_serve", "longshore_worker", "longshore_owner",
    ]  # fmt: skip
    assert "IN ROLE longshore_service" in text
    assert "IN ROLE longshore_app" in text
    assert "longshore_owner LOGIN NOSUPERUSER" in text
    assert "POSTGRES_USER" not in text
    example = (DEPLOY / "docker/.env.example").read_text()
    assert re.findall(r"^\w*PASSWORD=(\S+)$", example, re.MULTILINE) == []
    assert {use[0] for use in re.findall(r"\$\{\w*PASSWORD(.)", text)} == {":"}, "none may be left out"


@pytest.mark.parametrize("name", ["compose.yaml", "compose.scale.yaml"])
def test_containers_are_bounded_and_images_are_named_exactly(name: str) -> None:
    for service, facts in compose(name)["services"].items():
        if name == "compose.scale.yaml" and service == "longshore":
            continue  # it extends the one of compose.yaml
        assert facts["pids_limit"], service
        assert facts["mem_limit"], service
        assert "no-new-privileges:true" in facts["security_opt"], service
        image = facts["image"]
        assert image == "longshore" or re.search(r":[\w.-]*\d[\w.-]*\}$", image), f"{service}: {image}"
        assert "latest" not in image


def test_the_image_installs_what_is_locked_by_hash() -> None:
    text = (DEPLOY / "docker/Dockerfile").read_text()
    assert "--require-hashes" in text
    assert "-r requirements/runtime.txt" in text
    assert "--no-deps ." in text
    assert "USER 1000:1000" in text


def test_the_runtime_lock_and_the_list_of_components_are_current() -> None:
    assert lock.LOCK.read_text("utf-8") == lock.lock(), "python -m scripts.lock"
    assert lock.SBOM.read_text("utf-8") == lock.sbom(), "python -m scripts.lock"
    entries = [one for one in lock.LOCK.read_text("utf-8").splitlines() if "==" in one]
    parts = json.loads(lock.SBOM.read_text("utf-8"))["components"]
    assert len(entries) == len(parts) > 20
    assert all(part["hashes"] for part in parts), "every component has its hashes"
    assert {"apsw", "pycurl", "psycopg", "fastapi", "obstore"} <= {part["name"] for part in parts}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_the_units_are_hardened() -> None:
    for unit in (DEPLOY / "systemd").glob("*.service"):
        done = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", str(unit)], capture_output=True, text=True, timeout=60
        )
        found = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
        if found is None:
            pytest.skip("this systemd-analyze cannot judge a file")
        assert float(found[1]) <= 2.5, done.stdout
