"""`longshore delete`, as people type it."""

from __future__ import annotations

from tests.cli.conftest import Box


def put(box: Box, name: str, *more: str) -> str:
    (taken,) = box("put", box.write(name, name), "--json", *more).ok().of("taken")
    return str(taken["artifact_id"])


def test_a_named_artifact_is_deleted_and_a_filter_is_counted(box: Box) -> None:
    first, second, third = (put(box, name) for name in ("a", "b", "c"))
    (dry,) = box("delete", first, "--dry-run", "--json").ok().of("deleted")
    assert (dry["artifact_ids"], dry["dry_run"]) == ([first], True)
    (done,) = box("delete", first, "--why", "asked to", "--json").ok().of("deleted")
    assert (done["artifact_ids"], done["bytes"]) == ([first], 1)
    unsure = box("delete", "--type", "raw_upload")
    assert unsure.code == 2
    assert "--expect 2" in unsure.stderr
    assert "2 artifacts found, not 3" in box("delete", "--type", "raw_upload", "--expect", "3").stderr
    assert "2 artifacts deleted" in box("delete", "--type", "raw_upload", "--expect", "2").ok().stderr
    assert box("delete", second).code != 0
    assert third in box("delete", third).stderr
    assert "0 artifacts" in box("delete", "--older-than", "3", "--dry-run").ok().stderr
    box("verify", "--full").ok()


def test_what_is_to_be_deleted_must_be_said(box: Box) -> None:
    one = put(box, "a")
    assert box("delete").code == 2
    assert box("delete", one, "--type", "raw_upload").code == 2
    assert box("delete", "--job", "nojob1").code != 0
    (job,) = box("jobs", "--json").ok().of("job")
    assert box("delete", "--job", job["job_id"]).code == 2, "a job may have many results: they are counted"
    box("delete", "--job", job["job_id"], "--expect", "1").ok()
