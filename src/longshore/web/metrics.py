"""Metrics for Prometheus. Gauges are read from the ledger at each scrape, so they are right after a restart; counters count
what this process did. No label ever holds a URL, a host, a tenant or an id.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from longshore import __version__
from longshore.domain.kinds import Status
from longshore.domain.model import SECOND
from longshore.domain.reasons import REASONS
from longshore.domain.run_events import RunEvent
from longshore.ledger import process_metrics
from longshore.ledger.operations import ledger_identity
from longshore.ledger.queries import all_tenants
from longshore.web import health
from longshore.web.security.auth import Scraper
from longshore.web.service import Service

routes = APIRouter(tags=["health"])
disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double the number of counter series

_HTTP: Final = re.compile(r"http_[1-5]\d\d\Z")
_CHECKS: Final = frozenset(
    {
        "truncated",
        "length_mismatch",
        "digest_mismatch",
        "size_mismatch",
        "type_mismatch",
        "html_page",
        "blocked_challenge",
        "content_encoding",
        "prefix_mismatch",
        "bad_range",
        "object_changed",
    }
)
_DECISIONS: Final = frozenset({"fresh", "resume", "discard_part", "adopted"})
_ACTIONS: Final = frozenset({"download", "hardlink", "copy", "skipped"})
_QUOTA: Final = ("disk_full", "too_large", "quota_exceeded")
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
_COMMITS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)


def label(reason: object) -> str:
    """Return a reason as a label: one of a fixed vocabulary."""
    text = str(reason or "")
    return text if not text or text in REASONS or _HTTP.match(text) else "other"


def code_class(reason: str) -> str:
    """Return the class of an HTTP response by the attempt's reason."""
    if not reason:
        return "2xx"
    return f"{reason[5]}xx" if _HTTP.match(reason) else "none"


class Metrics:
    """The counters of this process, and the collector for the gauges."""

    def __init__(self, service: Service) -> None:
        self.registry = registry = CollectorRegistry()
        self.downloads = Counter(
            "longshore_downloads_total", "Finished downloads.", ["outcome", "reason"], registry=registry
        )
        self.bytes = Counter("longshore_downloaded_bytes_total", "Bytes received.", registry=registry)
        self.saved = Counter(
            "longshore_dedup_saved_bytes_total", "Bytes not fetched or not stored again.", ["kind"], registry=registry
        )
        self.duration = Histogram(
            "longshore_download_duration_seconds", "From lease to registration.", buckets=_SECONDS, registry=registry
        )
        self.requests = Histogram(
            "longshore_request_duration_seconds", "Attempts that asked a server, by class of answer.", ["code_class"], buckets=_SECONDS, registry=registry
        )  # fmt: skip
        self.attempts = Counter(
            "longshore_attempts_total", "Finished attempts.", ["result", "reason"], registry=registry
        )
        self.refused = Counter(
            "longshore_verify_failures_total", "Bodies that failed a check.", ["check"], registry=registry
        )
        self.limited = Counter(
            "longshore_rate_limited_total",
            "Answers that asked us to wait: 429, or with Retry-After.",
            registry=registry,
        )
        self.commits = Histogram(
            "longshore_ledger_commit_duration_seconds", "Group commits.", buckets=_COMMITS, registry=registry
        )
        self.resumes = Counter(
            "longshore_resumes_total",
            "Attempts by what became of bytes of an earlier one.",
            ["decision", "result"],
            registry=registry,
        )
        self.fsyncs = Histogram(
            "longshore_fsync_duration_seconds", "Barriers of published bodies.", buckets=_COMMITS, registry=registry
        )
        self.dedupe = Counter(
            "longshore_dedupe_total", "Finished downloads by what was stored.", ["action"], registry=registry
        )
        self.quota = Counter(
            "longshore_quota_refusals_total", "Bodies for which there was no space.", ["decision"], registry=registry
        )
        for kind in ("request", "content"):
            self.saved.labels(kind)
        for action in ("download", "hardlink", "copy", "skipped"):
            self.dedupe.labels(action)
        for decision in _QUOTA:
            self.quota.labels(decision)
        registry.register(LedgerGauges(service))

    def note(self, note: RunEvent) -> None:
        """Count a worker's events."""
        facts = note.facts
        reason = label(facts.get("reason"))
        match note.kind:
            case "completed":
                self._completed(facts)
            case "held":
                self.downloads.labels("not_modified", "").inc()
                self.saved.labels("request").inc(_number(facts, "size_bytes"))
                self.dedupe.labels("skipped").inc()
            case "failed":
                self.downloads.labels("failed", reason).inc()
                self._attempt("failed", reason, facts)
            case "canceled":
                self.downloads.labels("cancelled", "").inc()
            case "retry":
                self._attempt("retried", reason, facts)
            case _:
                pass

    def _completed(self, facts: dict[str, Any]) -> None:
        again = bool(facts.get("deduplicated"))
        size = _number(facts, "size_bytes")
        self.downloads.labels("deduplicated" if again else "stored", "").inc()
        self.bytes.inc(max(0.0, size - _number(facts, "resumed_from_bytes")))
        if again:
            self.saved.labels("content").inc(size)
        if (action := facts.get("dedupe_action")) in _ACTIONS:
            self.dedupe.labels(action).inc()
        if "fsync_s" in facts:
            self.fsyncs.observe(_number(facts, "fsync_s"))
        self._attempt("completed", "", facts)
        if "elapsed_s" in facts:
            self.duration.observe(_number(facts, "elapsed_s"))

    def _attempt(self, result: str, reason: str, facts: dict[str, Any]) -> None:
        self.attempts.labels(result, reason).inc()
        if (decision := facts.get("resume_decision")) in _DECISIONS:
            self.resumes.labels(decision, result).inc()
        if (refused := facts.get("quota_decision")) in _QUOTA:
            self.quota.labels(refused).inc()
        if "elapsed_s" in facts:  # otherwise no request was sent
            self.requests.labels(code_class(reason)).observe(_number(facts, "elapsed_s"))
        if reason in _CHECKS:
            self.refused.labels(reason).inc()
        if reason == "http_429" or facts.get("retry_after_s") is not None:
            self.limited.inc()


def _number(facts: dict[str, Any], name: str) -> float:
    value = facts.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


class LedgerGauges(Collector):
    """Gauges that are read from the ledger and the store at each scrape."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def describe(self) -> Iterator[Any]:
        """Return nothing: registration must not query the ledger."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield all gauges from one snapshot."""
        service = self.service
        found: all_tenants.Totals = service.ledger.read(all_tenants.totals, service.hosts)
        now = service.ledger.now()
        yield _labelled("longshore_jobs", "Jobs by state.", "state", {s.value: found.jobs.get(s, 0) for s in Status})
        oldest = max(0, now - found.oldest_ready_at) / SECOND if found.oldest_ready_at else 0.0
        yield GaugeMetricFamily("longshore_oldest_ready_age_seconds", "Age of the oldest waiting job.", oldest)
        yield _labelled("longshore_circuits", "Hosts by state.", "state", found.circuits)
        yield GaugeMetricFamily("longshore_store_bytes", "Bytes of all artifacts.", found.artifact_bytes)
        yield GaugeMetricFamily("longshore_store_objects", "Artifacts.", found.artifacts)
        last = (found.last_success_at or 0) / SECOND
        yield GaugeMetricFamily("longshore_last_success_timestamp_seconds", "When something was last completed.", last)
        yield GaugeMetricFamily("longshore_ledger_writer_queue", "Writes that wait.", service.ledger.queue_length())
        expired, fenced = process_metrics.LEASE_EVENTS["expired"], process_metrics.LEASE_EVENTS["fenced"]
        yield CounterMetricFamily("longshore_leases_expired", "Leases that ran out, noticed here.", expired)
        yield CounterMetricFamily("longshore_fenced_writes", "Writes of a lost lease, refused.", fenced)
        if (room := health.room(service)) is not None:
            yield GaugeMetricFamily("longshore_disk_free_bytes", "Free bytes on the store's disk.", room.free_bytes)
            yield GaugeMetricFamily(
                "longshore_disk_reserved_bytes", "Promised to bodies under way.", room.reserved_bytes
            )
            yield GaugeMetricFamily("longshore_disk_floor_bytes", "Must stay free.", room.floor_bytes)
        build = GaugeMetricFamily("longshore_build_info", "What runs.", labels=["version", "schema"])
        build.add_metric([__version__, service.ledger.read(ledger_identity.schema_version)], 1)
        yield build


def _labelled(name: str, text: str, key: str, values: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[key])
    for word, value in values.items():
        family.add_metric([word], value)
    return family


@routes.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text"}},
)
async def show_metrics(request: Request, caller: Scraper) -> Response:
    """Return all metrics in Prometheus' format."""
    body = await asyncio.to_thread(generate_latest, request.app.state.service.metrics.registry)
    return Response(body, headers={"Content-Type": CONTENT_TYPE_LATEST})
