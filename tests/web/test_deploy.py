"""The files in deploy/ are at least well-formed, and speak of metrics and commands that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from longshore.cli.main import entries
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


def test_compose_and_scrape_files_are_yaml() -> None:
    compose = yaml.safe_load((DEPLOY / "docker/compose.yaml").read_text())
    assert {"longshore", "worker", "postgres", "s3", "qbittorrent"} <= compose["services"].keys()
    assert compose["services"]["longshore"]["read_only"] is True
    scrape = yaml.safe_load((DEPLOY / "prometheus/scrape.yaml").read_text())
    assert scrape["scrape_configs"][0]["metrics_path"] == "/metrics"


def test_units_and_image_start_commands_that_exist() -> None:
    commands = set()
    for unit in (DEPLOY / "systemd").glob("*.service"):
        [line] = re.findall(r"^ExecStart=\S+/longshore (\w+)", unit.read_text(), re.MULTILINE)
        commands.add(line)
    image = (DEPLOY / "docker/Dockerfile").read_text()
    commands.add(json.loads(re.findall(r"^CMD (\[.*\])$", image, re.MULTILINE)[-1])[0])
    assert commands <= entries().keys()
    assert "USER 1000:1000" in image


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    units = []
    for unit in (DEPLOY / "systemd").iterdir():
        # The program need not be installed where the check runs.
        copy = tmp_path / unit.name.replace("@", "@1")
        copy.write_text(unit.read_text().replace("/usr/local/bin/longshore", "/bin/true"))
        units.append(str(copy))
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert ours == []
