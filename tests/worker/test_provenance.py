"""What the history and the manifest keep of every artifact: the third seed's list."""

from __future__ import annotations

import os
from typing import Any

import pytest

from longshore.depot import Depot
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from longshore.domain.model import Scope
from longshore.exports.summary import figures
from longshore.ledger.queries.manifest import entries
from tests.support.origin import Origin, Thing, cut, stamped
from tests.worker.conftest import MakeDepot

ALWAYS = {"resume_decision", "resume_reason", "stream_bytes", "elapsed_ms", "fsync_ms", "dedupe_action", "shard_prefix"}
QUOTA = {"quota_start_free", "quota_need", "quota_reserved", "quota_floor", "quota_decision"}
SMALL, LARGE = 20_000, 3_000_000


def facts_of(depot: Depot, job_id: str, kind: str = "completed") -> dict[str, Any]:
    """Give the facts of a job's event, which must be the manifest's as well."""
    history = depot.ledger.timeline(depot.scope, job_id).events
    (told,) = [event.facts for event in history if event.kind == kind]
    (entry,) = [entry for entry in depot.ledger.read(entries, depot.scope) if entry.job_id == job_id]
    assert entry.facts == told
    return dict(told)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_fresh_download_tells_everything(make_depot: MakeDepot, origin: Origin, size: int) -> None:
    depot = make_depot(quota={"free_bytes_min": 12_345, "margin_factor": 2.0, "tenant_bytes": 50_000_000})
    before = os.statvfs(depot.settings.depot)
    got = depot.get([origin.add("/a", Thing(stamped(1, size)))])[0]
    facts = facts_of(depot, got.job_id)
    assert facts.keys() >= ALWAYS | QUOTA | {"avg_write_mibps", "quota_tenant_left"}
    assert (facts["resume_decision"], facts["resume_reason"]) == ("fresh", "no_part")
    assert (facts["stream_bytes"], facts["dedupe_action"]) == (size, "download")
    assert got.artifact is not None
    assert facts["shard_prefix"] == got.artifact.sha256[:2]
    assert facts["quota_need"] == (size if size == SMALL else 2 * size)
    assert (facts["quota_floor"], facts["quota_decision"]) == (12_345, "ok")
    assert facts["quota_tenant_left"] == 50_000_000
    assert 0 < facts["quota_start_free"] <= before.f_blocks * before.f_frsize
    assert facts["quota_reserved"] >= 0


def test_shards_of_another_width(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(shard={"width": 3})
    got = depot.get([origin.add("/a", Thing(stamped(1, SMALL)))])[0]
    assert got.artifact is not None
    assert facts_of(depot, got.job_id)["shard_prefix"] == got.artifact.sha256[:3]


def test_a_resumed_download_counts_its_new_bytes(depot: Depot, origin: Origin) -> None:
    thing = Thing(stamped(1, LARGE))
    got = depot.get([origin.add("/a", cut(thing, LARGE // 2), thing)])[0]
    facts = facts_of(depot, got.job_id)
    assert (facts["resume_decision"], facts["resume_reason"]) == ("resume", "ok")
    assert facts["resumed_from_bytes"] + facts["stream_bytes"] == LARGE
    assert facts.keys() >= ALWAYS | QUOTA
    cut_short = facts_of_attempt(depot, got.job_id)
    assert (cut_short["reason"], cut_short["resume_reason"]) == ("truncated", "no_part")
    assert 0 < cut_short["stream_bytes"] < LARGE


def facts_of_attempt(depot: Depot, job_id: str) -> dict[str, Any]:
    history = depot.ledger.timeline(depot.scope, job_id).events
    return dict(next(event.facts for event in history if event.kind == "deferred"))


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        pytest.param(Thing(stamped(2, LARGE), etag='"v2"'), "validators_mismatch", id="changed"),
        pytest.param(Thing(stamped(1, LARGE + 1)), "total_mismatch", id="longer"),
    ],
)
def test_why_a_part_was_thrown_away(depot: Depot, origin: Origin, second: Thing, reason: str) -> None:
    got = depot.get([origin.add("/a", cut(Thing(stamped(1, LARGE)), LARGE // 2), second)])[0]
    facts = facts_of(depot, got.job_id)
    assert (facts["resume_decision"], facts["resume_reason"]) == ("discard_part", reason)
    assert facts["stream_bytes"] == len(second.body)


def test_a_server_without_ranges_is_named(depot: Depot, origin: Origin) -> None:
    thing = Thing(stamped(1, LARGE))
    got = depot.get([origin.add("/a", cut(thing, LARGE // 2), Thing(stamped(1, LARGE), ranges=False))])[0]
    facts = facts_of(depot, got.job_id)
    assert (facts["resume_decision"], facts["resume_reason"]) == ("resume", "no_accept_ranges")
    assert facts["stream_bytes"] == LARGE


def test_the_same_bytes_from_elsewhere_and_a_known_url(depot: Depot, origin: Origin) -> None:
    url, elsewhere = (origin.add(path, Thing(stamped(1, SMALL))) for path in ("/a", "/b"))
    depot.get([url])
    twin = depot.get([elsewhere])[0]
    fetched = facts_of(depot, twin.job_id)
    assert (fetched["dedupe_action"], fetched["deduplicated"]) == ("download", True)  # fetched, and stored once
    again = depot.get([download_request(url, work_id="other", artifact_id="other")])[0]
    assert again.status is Status.SKIPPED
    skipped = facts_of(depot, again.job_id, "skipped")
    assert (skipped["dedupe_action"], skipped["stream_bytes"]) == ("skipped", 0)


def test_the_share_of_resumed_downloads_that_succeeded_knows_the_ones_that_did_not(
    make_depot: MakeDepot, origin: Origin
) -> None:
    depot = make_depot(retry={"base_s": 0.01, "cap_s": 0.02, "max_attempts": 2})
    thing = Thing(stamped(1, LARGE))
    bad = origin.add(
        "/bad", cut(thing, LARGE // 4), cut(thing, 100)
    )  # what comes after the first attempt is no progress
    depot.get([origin.add("/good", cut(thing, LARGE // 2), thing), bad])
    told = figures(depot.ledger.read(entries, depot.scope)).as_dict(damaged=0)  # type: ignore[arg-type]
    assert (told["downloads"], told["completed"], told["resumed"], told["resumed_success"]) == (2, 1, 2, 0.5)


def test_two_projects_of_a_tenant_share_bytes_and_say_so(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot()
    url = origin.add("/a", Thing(stamped(1, LARGE)))
    twin = Scope(depot.scope.tenant_id, "twin")
    (one,) = depot.get([url])
    (two,) = depot.get([url], scope=twin)
    assert one.path is not None
    assert two.path is not None
    assert one.path != two.path
    assert (one.path.stat().st_ino, one.path.stat().st_nlink) == (two.path.stat().st_ino, 2)
    events = depot.show(two.job_id, scope=twin).events
    assert [event.facts["dedupe_action"] for event in events if event.kind == "completed"] == ["hardlink"]


def test_reuse_is_a_setting_of_its_own(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(dedupe={"reuse": False, "revalidate": "never"})
    url = origin.add("/a", Thing(stamped(1, SMALL)))
    depot.get([url])
    again = depot.get([download_request(url, work_id="other", artifact_id="other")])[0]
    assert (again.status, origin.count("/a")) == (Status.COMPLETED, 2)
    assert facts_of(depot, again.job_id)["dedupe_action"] == "download"
