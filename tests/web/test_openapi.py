"""The committed description is the program's, and the program does what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

from scripts.openapi import TARGET, document
from tests.support.site import Site

CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
CASES = 10  # for each operation; derandomized, so that a run is a run


def test_the_committed_document_is_up_to_date() -> None:
    assert TARGET.read_text(encoding="utf-8") == document(), "run `python -m scripts.openapi` and commit the result"


def test_every_operation_has_words_and_problems() -> None:
    described = json.loads(TARGET.read_text(encoding="utf-8"))
    assert described["openapi"].startswith("3.1")
    for path, item in described["paths"].items():
        for method, operation in item.items():
            assert operation.get("description"), f"{method} {path}"
            if path.startswith("/api/"):
                assert {"401", "403"} <= operation["responses"].keys(), f"{method} {path}"
                assert operation["security"], f"{method} {path}"


def operations() -> list[tuple[str, str]]:
    described = json.loads(Path(TARGET).read_text(encoding="utf-8"))
    # The event stream never ends, an empty feed waits, and NDJSON has no generator: they have tests of their own.
    own = ("/api/v1/events", "/api/v1/feed/{consumer}", "/api/v1/jobs:batch")
    return [(m, p) for p, item in described["paths"].items() for m in item if p not in own]


@pytest.mark.parametrize(("method", "path"), operations())
def test_whatever_is_sent_the_answer_is_as_described(site: Site, method: str, path: str) -> None:
    schema = schemathesis.openapi.from_dict(json.loads(TARGET.read_text(encoding="utf-8")))
    secret = site.token("admin", "metrics", tenant="fuzzed")

    strategy = schema[path][method.upper()].as_strategy()

    @settings(
        max_examples=CASES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=strategy)
    def sent(case: Any) -> None:
        answer = case.call(base_url=site.url, headers={"Authorization": f"Bearer {secret}"})
        case.validate_response(answer, checks=CHECKS)

    sent()


def test_operation_ids_make_good_method_names() -> None:
    """A generated client has `create_job()`, not `create_job_api_v1_jobs_post()`."""
    paths = json.loads(TARGET.read_text())["paths"]
    names = [one["operationId"] for path in paths.values() for one in path.values() if "operationId" in one]
    assert len(names) == len(set(names)) > 20
    assert [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+){0,2}", name) or "api_v1" in name] == []
