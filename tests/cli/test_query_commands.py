"""`status jobs show failures retry cancel`: what there is, why, and how it is steered."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing, status


@pytest.fixture
def mixed(box: Box, origin: Origin) -> Box:
    """One held, two failed for different reasons, one that waits."""
    urls = [origin.add("/good", Thing(b"good")), origin.add("/gone", status(404)), origin.add("/no", status(403))]
    box("get", *urls)
    box("add", "-", stdin=b"https://later.example/x\n").ok()
    return box


def ids(box: Box, *filters: str) -> list[str]:
    return [line["job_id"] for line in box("jobs", "--json", *filters).ok().lines]


def test_status_counts_each_of_the_six(mixed: Box) -> None:
    (line,) = mixed("status", "--json").ok().lines

    assert line["jobs"] == {"pending": 1, "processing": 0, "completed": 1, "failed": 2, "skipped": 0, "canceled": 0}
    assert "completed   1" in mixed("status").ok().stdout


def test_jobs_prints_everything_unless_told(mixed: Box) -> None:
    lines = mixed("jobs", "--json").ok().lines

    assert len(lines) == 4
    assert {line["reason"] for line in lines} == {None, "http_404", "http_403"}
    assert len(mixed("jobs").ok().stdout.splitlines()) == 4
    assert len(ids(mixed, "--limit", "2")) == 2
    assert len(ids(mixed, "--limit", "0")) == 0


def test_jobs_by_filter(mixed: Box, origin: Origin) -> None:
    assert len(ids(mixed, "--status", "failed")) == 2
    assert len(ids(mixed, "--status", "failed", "--status", "pending")) == 3
    assert len(ids(mixed, "--reason", "http_404")) == 1
    assert len(ids(mixed, "--host", "later.example")) == 1
    assert len(ids(mixed, "--url", "https://later.example/x")) == 1
    assert len(ids(mixed, "--stage", "INDEXED")) == 1
    assert len(ids(mixed, "--type", "torrent")) == 0
    assert len(ids(mixed, "--since", "1h")) == 4
    assert mixed("jobs", "--since", "soon").code == 2
    assert mixed("jobs", "--status", "wonderful").code == 2


def test_a_thousand_jobs_come_page_by_page(box: Box) -> None:
    box("add", "-", stdin="\n".join(f"https://a.example/{n}" for n in range(1100)).encode()).ok()

    assert len(set(ids(box))) == 1100
    assert len(ids(box, "--limit", "1050")) == 1050


def test_show_tells_a_job_with_results_and_history_but_no_pointer(mixed: Box) -> None:
    (job_id,) = ids(mixed, "--status", "completed")

    (line,) = mixed("show", job_id, "--json").ok().lines
    text = mixed("show", job_id).ok().stdout

    assert line["job"]["status"] == "completed"
    assert line["artifacts"][0]["size_bytes"] == 4
    assert len(line["claims"]) == 1
    assert line["events"]
    path = line["artifacts"][0].pop("path")  # for the owner of the depot; everything else is without its store
    assert path in text
    assert str(mixed.depot / "store") not in str(line) + text.replace(path, "")
    assert line["artifacts"][0]["sha256"] in text


def test_show_of_a_failed_job_says_what_to_do(mixed: Box) -> None:
    (job_id,) = ids(mixed, "--reason", "http_404")

    text = mixed("show", job_id).ok().stdout

    assert "http_404" in text
    assert "check the URL" in text


def test_show_of_nothing_is_told(mixed: Box) -> None:
    ran = mixed("show", "no-such-job")
    assert ran.code == 1
    assert "no-such-job" in ran.stderr


def test_failures_are_grouped_with_an_example_and_a_remedy(mixed: Box, origin: Origin) -> None:
    lines = mixed("failures", "--json").ok().lines
    text = mixed("failures").ok().stdout

    assert sorted(line["reason"] for line in lines) == ["http_403", "http_404"]
    assert all(line["count"] == 1 and line["host"] == origin.netloc and line["remedy"] for line in lines)
    assert "http_404" in text
    assert "→ check the URL" in text


def test_retry_by_id_by_filter_and_all(mixed: Box, origin: Origin) -> None:
    (gone,) = ids(mixed, "--reason", "http_404")

    dry = mixed("retry", "--reason", "http_404", "--dry-run", "--json").ok()
    one = mixed("retry", gone, "--json").ok()
    rest = mixed("retry", "--all", "--json").ok()

    assert [line["job_id"] for line in dry.of("retried")] == [gone]
    assert len(one.of("retried")) == 1
    assert one.of("retried")[0]["job_id"] != gone
    assert rest.of("summary")[0]["retried"] == 1
    assert mixed.counts() == {"completed": 1, "pending": 3, "failed": 2}
    (line,) = mixed("show", one.of("retried")[0]["job_id"], "--json").ok().lines
    assert line["job"]["retry_of"] == gone


def test_cancel_by_id_and_by_filter(mixed: Box) -> None:
    (waiting,) = ids(mixed, "--status", "pending")
    (done,) = ids(mixed, "--status", "completed")

    ran = mixed("cancel", waiting, done, "--json").ok()

    assert {(line["job_id"], line["outcome"]) for line in ran.of("cancel")} == {
        (waiting, "canceled"),
        (done, "unchanged"),
    }
    assert mixed.counts() == {"completed": 1, "failed": 2, "canceled": 1}
    assert mixed("cancel", "--all", "--json").ok().of("summary")[0]["canceled"] == 0
    missing = mixed("cancel", "no-such-job")
    assert missing.code == 1
    assert "no-such-job" in missing.stderr


@pytest.mark.parametrize("name", ["retry", "cancel"])
def test_bulk_needs_to_be_meant(mixed: Box, name: str) -> None:
    assert mixed(name).code == 2
    assert mixed(name, "some-id", "--all").code == 2


@pytest.mark.parametrize("arguments", [["jobs"], ["show", "x"], ["failures"], ["retry", "--all"], ["cancel", "--all"]])
def test_looking_makes_no_depot(box: Box, arguments: list[str]) -> None:
    assert box(*arguments).code == 10
    assert not box.depot.exists()


def test_tenants_do_not_see_each_other(box: Box, origin: Origin) -> None:
    url = origin.add("/x", Thing(b"x"))
    box("get", url, "--tenant", "one").ok()

    assert ids(box, "--tenant", "two") == []
    assert len(ids(box, "--tenant", "one")) == 1
    assert box("get", url, "--tenant", "two", "--offline").code == 4


def test_what_others_wrote_cannot_move_the_cursor(box: Box) -> None:
    box("add", "-", stdin=b'{"url": "https://a.example/x", "work_id": "evil\\u001b[2J"}\n').ok()

    assert "\x1b" not in box("jobs").ok().stdout
    (job_id,) = ids(box)
    assert "\x1b" not in box("show", job_id).ok().stdout


@pytest.mark.parametrize("name", ["jobs", "retry", "cancel"])
@pytest.mark.parametrize(
    ("option", "word", "near"),
    [("--reason", "http404", "http_404"), ("--reason", "digest_mismach", "digest_mismatch"),
     ("--stage", "indexed", "INDEXED"), ("--stage", "xyz", "PLANNED"), ("--status", "complete", "completed")],
)  # fmt: skip
def test_a_word_that_nothing_can_have_is_usage(mixed: Box, name: str, option: str, word: str, near: str) -> None:
    ran = mixed(name, option, word)

    assert (ran.code, ran.stdout) == (2, "")
    assert near in ran.stderr


def test_failures_that_were_tried_again_are_not_forgotten(mixed: Box) -> None:
    mixed("retry", "--all").ok()
    mixed("cancel", "--all").ok()

    ran = mixed("failures").ok()

    assert ran.stdout == ""
    assert "jobs --status failed" in ran.stderr


@pytest.mark.parametrize(
    "words",
    [
        *(f"purge --older-than {number}" for number in ("nan", "inf", "1e12", "1e300", "-1")),
        *(f"gc --grace {number}" for number in ("nan", "inf", "1e300")),
        "jobs --since 99999999999d",
        "token create --expires 999999999999d",
        "run --max-wait nan",
    ],
)
def test_an_impossible_time_span_is_a_usage_error(box: Box, words: str) -> None:
    box("add", "-", stdin=b"https://later.example/x\n").ok()
    ran = box(*words.split())
    assert ran.code == 2, ran.stderr
    assert "internal" not in ran.stderr.lower()
