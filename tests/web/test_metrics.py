"""Metrics: all the promised names, right after a restart, no label that grows."""

from __future__ import annotations

import re
from pathlib import Path

from longshore.domain.model import SECOND, Scope
from longshore.domain.outcomes import Released
from longshore.domain.reasons import REASONS
from longshore.domain.run_events import RunEvent
from longshore.errors import LeaseLost
from longshore.web.metrics import label
from tests.support.site import Site

NAMES = [
    "downloads_total",
    "downloaded_bytes_total",
    "dedup_saved_bytes_total",
    "download_duration_seconds",
    "request_duration_seconds",
    "attempts_total",
    "verify_failures_total",
    "jobs",
    "oldest_ready_age_seconds",
    "leases_expired_total",
    "fenced_writes_total",
    "circuits",
    "rate_limited_total",
    "store_bytes",
    "store_objects",
    "disk_free_bytes",
    "ledger_commit_duration_seconds",
    "ledger_writer_queue",
    "build_info",
    "last_success_timestamp_seconds",
    "resumes_total",
    "fsync_duration_seconds",
    "dedupe_total",
    "quota_refusals_total",
    "disk_reserved_bytes",
    "disk_floor_bytes",
]
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


def scrape(site: Site) -> dict[str, float]:
    answer = site.client("metrics").get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    found = {}
    for line in answer.text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.match(line)
            assert match, line
            found[match[1] + ("{" + match[2] + "}" if match[2] else "")] = float(match[3])
    return found


def test_every_promised_name_is_there(site: Site) -> None:
    text = site.client("metrics").get("/metrics").text
    typed = set(re.findall(r"^# TYPE longshore_(\w+) ", text, re.MULTILINE))
    assert set(NAMES) <= typed


def test_gauges_are_right_after_a_restart(tmp_path: Path) -> None:
    with Site.local(tmp_path) as site:
        site.complete("https://a.example/1", b"12345", scope=Scope("one", "p"))
        site.complete("https://a.example/1", b"12345", scope=Scope("two", "p"))
        site.fail("https://a.example/2", scope=Scope("two", "p"))
        site.plan("https://b.example/3", scope=Scope("two", "p"))
    with Site.local(tmp_path) as site:
        found = scrape(site)
        assert found['longshore_jobs{state="completed"}'] == 2
        assert found['longshore_jobs{state="failed"}'] == 1
        assert found['longshore_jobs{state="pending"}'] == 1
        assert found["longshore_store_objects"] == 2
        assert found["longshore_store_bytes"] == 10
        assert found["longshore_oldest_ready_age_seconds"] > 0
        assert found["longshore_last_success_timestamp_seconds"] > 1e9
        assert found["longshore_disk_free_bytes"] > 0


def test_notes_are_counted(tmp_path: Path) -> None:
    with Site.local(tmp_path) as site:
        hear = site.service.metrics.note
        for kind, facts in (
            ("completed", {"size_bytes": 100, "resumed_from_bytes": 40, "elapsed_s": 0.5, "deduplicated": False}),
            ("completed", {"size_bytes": 100, "resumed_from_bytes": 0, "elapsed_s": 0.5, "deduplicated": True}),
            ("completed", {"resume_decision": "resume", "dedupe_action": "hardlink", "fsync_s": 0.25}),
            ("held", {"size_bytes": 7}),
            ("retry", {"reason": "disk_full", "quota_decision": "disk_full", "resume_decision": "bogus"}),
            ("failed", {"reason": "digest_mismatch"}),
            ("retry", {"reason": "http_429"}),
            ("retry", {"reason": "http_503", "retry_after_s": 0.0, "elapsed_s": 0.25}),
            ("retry", {"reason": "https://evil.example/secret"}),
            ("canceled", {}),
        ):
            hear(RunEvent(kind, SECOND, Scope(), "job", "https://secret.example/", facts))  # type: ignore[arg-type]
        found = scrape(site)
        assert found['longshore_downloads_total{outcome="stored",reason=""}'] == 2
        assert found['longshore_resumes_total{decision="resume",result="completed"}'] == 1
        assert found['longshore_dedupe_total{action="hardlink"}'] == 1
        assert found['longshore_dedupe_total{action="skipped"}'] == 1
        assert found['longshore_quota_refusals_total{decision="disk_full"}'] == 1
        assert (found["longshore_fsync_duration_seconds_count"], found["longshore_disk_floor_bytes"] >= 0) == (1, True)
        assert found['longshore_downloads_total{outcome="deduplicated",reason=""}'] == 1
        assert found['longshore_downloads_total{outcome="not_modified",reason=""}'] == 1
        assert found['longshore_downloads_total{outcome="cancelled",reason=""}'] == 1
        assert found["longshore_downloaded_bytes_total"] == 160
        assert found['longshore_dedup_saved_bytes_total{kind="content"}'] == 100
        assert found['longshore_dedup_saved_bytes_total{kind="request"}'] == 7
        assert found['longshore_verify_failures_total{check="digest_mismatch"}'] == 1
        assert found['longshore_attempts_total{reason="other",result="retried"}'] == 1
        assert found["longshore_rate_limited_total"] == 2
        assert found['longshore_request_duration_seconds_sum{code_class="5xx"}'] == 0.25
        assert 'longshore_request_duration_seconds_count{code_class="none"}' not in found  # nobody was asked
        assert found["longshore_download_duration_seconds_count"] == 2
        assert not any("secret" in name or "evil" in name for name in found)


def test_fenced_writes_are_counted(tmp_path: Path) -> None:
    with Site.local(tmp_path) as site:
        before = scrape(site)["longshore_fenced_writes_total"]
        [lease] = site.lease(site.plan("https://a.example/1"))
        site.ledger.settle([(lease, Released())])
        assert isinstance(site.ledger.settle([(lease, Released())])[0], LeaseLost)
        assert scrape(site)["longshore_fenced_writes_total"] == before + 1


def test_labels_come_from_a_fixed_vocabulary() -> None:
    for reason in (*REASONS, "http_404", ""):
        assert label(reason) == reason
    for odd in ("http_4040", "http_999", "x" * 1000, "https://a.example/", 7):
        assert label(odd) == "other"
