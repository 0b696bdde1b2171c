"""What a run shows: the score that notes make, the plain line, the display."""

from __future__ import annotations

import io
import sys
import time

import pytest
from rich.console import Console

from longshore.cli.commands.run import follow_total
from longshore.cli.multiprocess.supervisor import arguments, note_of
from longshore.cli.options import Call
from longshore.cli.output.event_output import event_printer, next_steps
from longshore.cli.output.failure_lines import EACH, grouped, remedy
from longshore.cli.output.progress import ProgressCounts, plain_line, show_progress
from longshore.cli.output.terminal_display import Display, shortened
from longshore.cli.output.writer import Output, clean, duration, moment, size
from longshore.domain.run_events import RunEvent
from tests.support.program import eventually, invoke


def told(score: ProgressCounts, kind: str, job: str, **facts: object) -> None:
    score.take(RunEvent(kind, 0, job_id=job, url=f"https://a.example/{job}", facts=dict(facts)))  # type: ignore[arg-type]


def filled() -> ProgressCounts:
    score = ProgressCounts(total=10)
    for job in "abcdefgh":
        told(score, "started", job)
    told(score, "progress", "a", bytes_done=500, bytes_total=1000)
    told(score, "completed", "b", size_bytes=2048)
    told(score, "held", "x", size_bytes=99)
    told(score, "retry", "c", reason="http_503")
    told(score, "failed", "d", reason="http_404", message="no")
    return score


def test_counts_of_another_process_add_up() -> None:
    score = filled()
    for _ in range(2):
        score.take(RunEvent("counts", 0, facts={"completed": 3, "held": 1, "bytes": 30}))

    assert (score.completed, score.held, score.bytes) == (7, 3, 2048 + 60)


def test_the_score_counts_what_the_notes_tell() -> None:
    score = filled()

    assert (score.completed, score.held, score.failed, score.retries, score.ended) == (1, 1, 1, 1, 3)
    assert (score.bytes, score.bytes_now) == (2048, 2548)
    assert sorted(score.active) == ["a", "e", "f", "g", "h"]
    assert score.last_failure == "http_404 https://a.example/d"


def test_speed_and_eta_are_of_this_run() -> None:
    score = filled()
    start = score.started_at

    assert score.speed(start) == 0.0
    told(score, "completed", "e", size_bytes=10_000)
    assert score.speed(start + 2) == pytest.approx(5000)
    assert score.eta_s(start + 3) == pytest.approx(6)
    assert ProgressCounts().eta_s(start) is None


def test_the_plain_line_has_items_bytes_speed_and_failures() -> None:
    line = plain_line(filled(), time.monotonic())

    for words in ("3/10 done", "2.5 KiB", "1 held", "1 failed", "1 tried again", "5 active", "ETA"):
        assert words in line


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_the_display_fits_and_cannot_be_driven_by_urls(width: int) -> None:
    score = filled()
    told(score, "started", "evil\x1b[2J")
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)

    console.print(Display(score, console).render())
    output = console.file
    assert isinstance(output, io.StringIO)
    text = output.getvalue()

    assert "3/10 items" in text
    assert "50%" in text
    assert "… and 1 more" in text
    assert "failed 1" in text
    assert "\x1b" not in text
    assert all(len(line) <= width for line in text.splitlines())


def test_lines_above_the_display_stay_whole() -> None:
    """A path that is broken between words or by a border cannot be copied."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=40, color_system=None)
    line = "completed  " + "/a rather long/path with words/" * 5 + "[bold]name[/bold] :smile:"

    with Display(filled(), console):
        print(line, file=sys.stderr)
        print("half", end="", file=sys.stderr)
        print(" and half", file=sys.stderr)

    assert line in file.getvalue()
    assert "half and half" in file.getvalue()


def test_a_row_keeps_the_end_of_a_url() -> None:
    assert shortened("https://example.org/a/b.pdf", 80) == "example.org/a/b.pdf"
    short = shortened("https://example.org/" + "x" * 100 + "/b.pdf", 30)
    assert len(short) == 30
    assert short.startswith("example.or")
    assert short.endswith("/b.pdf")


def test_what_to_do_next_is_said() -> None:
    lines = next_steps(filled(), 7, again="`longshore run`")

    assert "longshore failures" in lines[0]
    assert "7 left: `longshore run`" in lines[1]
    assert next_steps(ProgressCounts(completed=1), 0, again="") == []


def test_a_pipe_gets_no_display() -> None:
    call = Call(Output(json=False))
    seen: list[RunEvent] = []

    with show_progress(call, seen.append) as (score, listen):
        listen(RunEvent("completed", 0, job_id="a", facts={"size_bytes": 1}))

    assert (len(seen), score.completed) == (1, 1)


def test_a_plain_line_comes_by_itself(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("longshore.cli.output.progress.PLAIN_EVERY_S", 0.01)
    lines: list[str] = []

    with show_progress(Call(Output(json=False)), lambda _: None) as (score, _):
        score.total = 7
        eventually(lambda: lines.append(capsys.readouterr().err) or "0/7 done" in "".join(lines), "a line")  # type: ignore[func-returns-value]


def test_a_worker_of_a_fleet_is_told_what_we_were_told() -> None:
    flags = {
        "depot": "/d",
        "tenant": "t",
        "network": {"allow": ["10.0.0.0/8"]},
        "retry": {"base_s": "0.1"},
        "offline": True,
    }
    how = {"offline": True, "forever": True, "all_tenants": True, "max_wait": 2.5, "types": ("download",)}

    words = arguments(Call(Output(json=True), flags=flags), how)

    assert words == [
        "run",
        "--json",
        "--while-stdin",
        "--depot",
        "/d",
        "--tenant",
        "t",
        "--allow-net",
        "10.0.0.0/8",
        "--set",
        "retry.base_s=0.1",
        "--offline",
        "--forever",
        "--all-tenants",
        "--max-wait",
        "2.5",
        "--type",
        "download",
    ]
    assert invoke(*words, "--help").code == 0


def test_a_note_survives_its_line() -> None:
    line = {
        "type": "failed",
        "schema": 1,
        "ts": moment(1_700_000_000_123_456),
        "job_id": "j",
        "url": "u",
        "reason": "dns",
    }

    note = note_of(line)

    assert (note.kind, note.ts, note.job_id, note.url) == ("failed", 1_700_000_000_123_456, "j", "u")
    assert note.facts == {"reason": "dns"}


def test_words_for_people() -> None:
    assert [size(n) for n in (0, 1023, 1024, 1536, 10 << 20, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "10.0 MiB",
        "5.0 TiB",
    ]
    assert [duration(s) for s in (5, 65, 3700)] == ["5 s", "1:05 min", "1:01 h"]
    assert clean("a\x1b[31mb\u202ec\td\n") == "a�[31mb�c\td\n"
    assert remedy("http_404") == "check the URL"
    assert "longshore retry" in remedy("http_503")
    assert "longshore show" in remedy("nobody_knows")


def test_what_waits_for_a_person_is_told_once_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    tell = event_printer(Call(Output(json=False)))
    for reason in ("disk_full", "disk_full", "http_503", "host_busy"):
        tell(
            RunEvent("retry", 0, job_id="a", url="https://a.example/a", facts={"reason": reason, "message": "no room"})
        )

    said = capsys.readouterr().err
    assert said.splitlines() == [
        "waits     disk_full  https://a.example/a: no room",
        "  → make room; waiting jobs go on by themselves, failed ones after `longshore retry`",
    ]


def fail(tell: object, count: int, reason: str = "http_404", host: str = "a.example") -> ProgressCounts:
    score = ProgressCounts(total=count)
    for number in range(count):
        note = RunEvent("failed", 0, job_id=f"{number}", url=f"https://{host}/{number}", facts={"reason": reason})
        score.take(note)
        tell(note)  # type: ignore[operator]
    return score


def test_many_failures_of_one_reason_are_a_few_lines_with_one_hint(capsys: pytest.CaptureFixture[str]) -> None:
    tell = event_printer(Call(Output(json=False)))
    score = fail(tell, 1000)

    said = capsys.readouterr().err.splitlines()
    assert len(said) == EACH + 2
    assert sum("→ check the URL" in line for line in said) == 1
    assert grouped(score.failures) == ["   1000  http_404  a.example (1000)", "         → check the URL"]


def test_few_failures_have_their_line_each_and_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    score = fail(event_printer(Call(Output(json=False))), EACH)
    assert len(capsys.readouterr().err.splitlines()) == EACH + 1
    assert grouped(score.failures) == []


def test_with_v_every_failure_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    fail(event_printer(Call(Output(json=False), verbosity=1)), 10)
    assert len(capsys.readouterr().err.splitlines()) == 11


def test_groups_have_the_largest_reason_first_and_name_a_few_hosts() -> None:
    found = {("dns", f"{letter}.example"): 1 for letter in "abcdef"} | {("http_404", "a.example"): 9}
    lines = grouped(found)
    assert lines[0] == "      9  http_404  a.example (9)"
    assert lines[2].startswith("      6  dns  a.example (1), ")
    assert lines[2].endswith("and 2 more hosts")


def test_one_large_file_has_a_bar_a_rate_and_an_end() -> None:
    score = ProgressCounts(total=1)
    told(score, "started", "a")
    told(score, "progress", "a", bytes_done=0, bytes_total=1 << 20)
    start = score.started_at
    score.speed(start)
    told(score, "progress", "a", bytes_done=1 << 19, bytes_total=1 << 20)
    assert score.eta_s(start + 4) == pytest.approx(4)
    assert "ETA 4 s" in plain_line(score, start + 4)

    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    console.print(Display(score, console).render())
    assert isinstance(console.file, io.StringIO)
    assert "╸" in console.file.getvalue() or "━" in console.file.getvalue()
    assert score.bytes_left() == 1 << 19


def test_a_resting_host_stays_on_the_display_until_it_is_asked_again() -> None:
    score = ProgressCounts(total=2)
    facts = {"host": "a.example", "reason": "http_503", "until": "2999-01-01T00:00:00+00:00", "jobs": 41}
    score.take(RunEvent("waiting", 0, facts=facts))
    told(score, "started", "b")  # a.example as well
    assert score.waiting(time.monotonic()) == []

    score.take(RunEvent("waiting", 0, facts=facts))
    (line,) = score.waiting(time.monotonic())
    assert "41 jobs for a.example: http_503 (the server answered 503), until 2999" in line
    assert line in plain_line(score, time.monotonic())
    score.take(RunEvent("waiting", 0, facts=facts | {"until": "2020-01-01T00:00:00+00:00"}))
    assert score.waiting(time.monotonic()) == []


def test_the_total_follows_other_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longshore.cli.commands.run.FOLLOW_S", 0.01)
    score, left = ProgressCounts(), {"pending": 10, "processing": 0}
    with follow_total(Call(Output(json=False)), score, dict(left), lambda: left):
        assert score.total == 10
        told(score, "completed", "a", size_bytes=1)
        left["pending"] = 4  # one was ours, another worker did five
        eventually(lambda: score.total == 5, "the new total")
    assert score.ended == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "verbosity", "short"), [(Terminal(), 0, True), (Terminal(), 1, False), (io.StringIO(), 0, False)]
)
def test_a_person_gets_a_short_line_and_a_script_the_path(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, verbosity: int, short: bool
) -> None:
    monkeypatch.setattr(sys, "stdout", stream)
    facts = {"size_bytes": 5, "sha256": "ab" * 32, "path": "/a/long/path/" + "ab" * 32}
    event_printer(Call(Output(json=False), verbosity))(
        RunEvent("completed", 0, job_id="a", url="https://a.example/a", facts=facts)
    )

    assert ("sha256:abababababab" in stream.getvalue()) is short
    assert (str(facts["path"]) in stream.getvalue()) is not short


def test_no_end_is_estimated_for_jobs_that_no_host_answers() -> None:
    score = ProgressCounts(total=8, started_at=0.0)
    for number in range(2):
        score.take(RunEvent("completed", 0, job_id=str(number), url="http://a.example/", facts={"size_bytes": 1}))
    for number in range(2, 8):
        score.take(RunEvent("started", 0, job_id=str(number), url="http://dead.example/"))
    assert score.eta_s(10.0) is not None
    facts = {"host": "dead.example", "reason": "connecting", "until": "2999-01-01T00:00:00+00:00", "jobs": 6}
    score.take(RunEvent("waiting", 0, facts=facts))
    assert score.eta_s(10.0) is None
    assert "ETA" not in plain_line(score, 10.0)
