"""`longshore submit`, filters by parameters, and codes of one's own, as people type them."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cli.conftest import Box
from tests.support.program import SOURCES, Ran, execute

MODULE = """
import longshore

@longshore.job_type("typed", max_attempts=1)
def typed(inputs, params, ctx):
    if "code" in params:
        raise longshore.JobFailed("not now", code=params["code"])
    return longshore.Result(repr(params), metadata={"report_id": params.get("id", "none")})
"""
ENTRY = "[longshore.job_types]\ntyped = typed_jobs\n"
NAMED = "Metadata-Version: 2.1\nName: typed-jobs\nVersion: 1\n"


def installed(place: Path) -> dict[str, str]:
    """Install a package that declares a type, for one test."""
    (place / "typed_jobs.py").write_text(MODULE)
    info = place / "typed_jobs-1.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(ENTRY)
    (info / "METADATA").write_text(NAMED)
    return {"PYTHONPATH": os.pathsep.join([str(SOURCES), str(place)])}


def run(box: Box, *arguments: object, env: dict[str, str]) -> Ran:
    """Run a command as a process that sees the package."""
    return execute(*arguments, env=box.env | env)


def test_a_job_is_submitted_and_found_by_its_parameters(box: Box, tmp_path: Path) -> None:
    env = installed(tmp_path)
    given = ["submit", "typed", "--param", "id=r-1", "--param", "temperature=0.25", "--json"]
    (first,) = run(box, *given, env=env).ok().of("submitted")
    (again,) = run(box, *given, env=env).ok().of("submitted")
    assert (first["created"], again["created"], first["job_id"]) == (True, False, again["job_id"])
    (other,) = run(box, *given, "--no-key", env=env).ok().of("submitted")
    assert other["created"]
    (failing,) = (
        run(box, "submit", "typed", "--params", '{"code": "model.busy"}', "--json", env=env).ok().of("submitted")
    )
    assert run(box, "run", "-q", env=env).code == 3
    found = {line["job_id"] for line in box("jobs", "--param", "id=r-1", "--json").ok().of("job")}
    assert found == {first["job_id"], other["job_id"]}
    found = {line["job_id"] for line in box("jobs", "--metadata", "report_id=r-1", "--json").ok().of("job")}
    assert found == {first["job_id"], other["job_id"]}
    (failed,) = box("jobs", "--reason", "model.busy", "--json").ok().of("job")
    assert (failed["job_id"], bool(failed["debug_id"])) == (failing["job_id"], True)
    assert failed["debug_id"] in box("show", failing["job_id"]).ok().stdout
    assert "model.busy" in box("failures").ok().stdout


def test_what_cannot_be_submitted_is_refused_with_its_place(box: Box, tmp_path: Path) -> None:
    env = installed(tmp_path)
    assert "params.a.b[1] is nan" in run(box, "submit", "typed", "--params", '{"a": {"b": [1, NaN]}}', env=env).stderr
    assert run(box, "submit", "typed", "--params", "[1]", env=env).code == 2
    assert run(box, "submit", "typed", "--key", "a", "--no-key", env=env).code == 2
    assert "no handler" in run(box, "submit", "unknown", env=env).stderr
    assert box("jobs", "--param", "id").code == 2
    wrong = box("jobs", "--reason", "http_4o4")
    assert wrong.code == 2
    assert "unknown reason" in wrong.stderr


def test_a_run_names_the_types_that_it_has_no_handler_for(box: Box, tmp_path: Path) -> None:
    env = installed(tmp_path)
    run(box, "submit", "typed", env=env).ok()
    ran = box("run")
    assert ran.code == 4
    assert "1 job of type typed: no handler for it is installed here" in ran.stderr
    assert run(box, "run", "-q", env=env).code == 0
    assert box("run").code == 0
