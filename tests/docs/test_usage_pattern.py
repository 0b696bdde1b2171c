"""The usage pattern of the documentation runs as written, on a real ledger, store and server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from longshore import compat
from longshore.domain.identity.keys import op_key
from longshore.domain.kinds import Status
from tests.support.origin import Origin, Thing, status

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "usage-pattern.md"
BODY = b"%PDF-1.7\n" + b"1 0 obj\n" * 50
SHA256 = hashlib.sha256(BODY).hexdigest()
PAPER = "/pdf/2024.00001v1"


@pytest.fixture
def origin() -> Iterator[Origin]:
    made = Origin()
    made.add(PAPER, Thing(BODY, content_type="application/pdf"))
    made.add("/gone", status(404))
    with made:
        yield made


@pytest.fixture
def pattern(origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Run the page's one block in an empty directory and give its names."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with ExitStack() as opened:
        exec(compile(block.replace("https://files.example", origin.url("").rstrip("/")), str(PAGE), "exec"), names)
        opened.callback(names["store"].close)
        opened.callback(names["ledger"].close)
        yield names


def effects(names: dict[str, Any], job_id: str) -> list[tuple[str, str, int]]:
    timeline = names["ledger"].timeline(names["HOME"], job_id)
    return sorted((one.kind, one.state, one.epoch) for one in timeline.effects)


def test_it_ends_indexed_with_its_effects_recorded(pattern: dict[str, Any], origin: Origin) -> None:
    ledger, scope, job_id = pattern["ledger"], pattern["HOME"], pattern["job_id"]
    assert compat.get_current_state(ledger, scope, job_id) == "INDEXED"
    assert effects(pattern, job_id) == [
        ("FINALIZE", "confirmed", 1),
        ("HEAD", "confirmed", 1),
        ("STREAM", "confirmed", 1),
    ]
    result = compat.get_effect_result(ledger, scope, op_key("FINALIZE", job_id, sha256=SHA256))
    assert result is not None
    assert result["size"] == len(BODY)
    (artifact,) = ledger.results(scope, job_id)
    assert artifact.content_type == "application/pdf"
    with pattern["store"].open(scope, artifact.pointer) as file:
        assert file.read() == BODY
    asked = origin.count(PAPER)
    url = origin.url(PAPER)
    again = compat.plan_job_if_absent(
        ledger, scope, work_id="work-123", artifact_id="arxiv-2024-001", canonical_url=url
    )
    pattern["work"](ledger, pattern["store"], "worker-2")
    assert (again, origin.count(PAPER)) == (job_id, asked)


def test_after_a_crash_the_confirmed_finalize_is_replayed(pattern: dict[str, Any], origin: Origin) -> None:
    ledger, store, scope = pattern["ledger"], pattern["store"], pattern["HOME"]
    origin.add("/second", Thing(BODY + b"second"))
    url = origin.url("/second")
    job_id = compat.plan_job_if_absent(ledger, scope, work_id="w", artifact_id="a", canonical_url=url)
    first = compat.lease_next_job(ledger, "worker-1")
    assert first is not None
    pattern["process_one"](ledger, store, first)
    assert compat.get_current_state(ledger, scope, job_id) == "FINALIZED"
    ledger.release_dead([first.owner])  # it died before it could settle

    pattern["work"](ledger, store, "worker-2")
    assert compat.get_current_state(ledger, scope, job_id) == "INDEXED"
    assert [one for one in effects(pattern, job_id) if one[0] == "FINALIZE"] == [("FINALIZE", "confirmed", 1)]
    assert len(ledger.results(scope, job_id)) == 1


def test_a_second_call_under_one_lease_runs_nothing(pattern: dict[str, Any], origin: Origin) -> None:
    ledger, scope = pattern["ledger"], pattern["HOME"]
    compat.plan_job_if_absent(ledger, scope, work_id="w", artifact_id="a", canonical_url=origin.url("/second"))
    lease = compat.lease_next_job(ledger, "worker-1")
    assert lease is not None
    ran: list[str] = []

    def head() -> dict[str, Any]:
        ran.append("head")
        return {"code": "OK"}

    key = op_key("HEAD", lease.job_id, url="u", epoch=lease.epoch)
    answers = [compat.run_effect(ledger, lease, "HEAD", key, head) for _ in range(2)]
    assert (answers[0], len(ran)) == (answers[1], 1)


def test_a_failure_is_settled_with_its_reason(pattern: dict[str, Any], origin: Origin) -> None:
    ledger, scope = pattern["ledger"], pattern["HOME"]
    job_id = compat.plan_job_if_absent(ledger, scope, work_id="w", artifact_id="a", canonical_url=origin.url("/gone"))
    pattern["work"](ledger, pattern["store"], "worker-1")
    job = ledger.job(scope, job_id)
    assert (job.status, job.stage, job.reason) == (Status.FAILED, "FAILED", "http_404")
    assert ("HEAD", "failed", 1) in effects(pattern, job_id)
