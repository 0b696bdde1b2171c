"""A long list with everything that goes wrong: it ends in time, keeps only right files, asks no more than it must, and
explains every wait."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bench.peers import aria2c
from longshore.domain.settings import HostsSettings, RetrySettings
from longshore.domain.transfer.mirrors import MAX_ROUNDS
from tests.support.big_list import DEFINITE, NO_SUCH_HOST, STORED, BigList, big_list, host_of, wrong_files
from tests.support.program import command, environment, execute
from tests.support.terminal import on_terminal, unexplained

FULL, SMALL = 16_301, 600
NET = ("--allow-net", "127.0.0.0/8")
QUICK = (
    "--set", "hosts.give_up_s=4", "--set", "hosts.breaker_cooldown_s=2", "--set", "hosts.breaker_failures=4",
    "--set", "transfer.connect_s=2", "--set", "retry.base_s=0.2",
)  # fmt: skip
SILENCE_S = 8.0  # longest time without an event or a wait that is told: 5 s to notice it, and a machine under load
REASONS = {"gone": "http_404", "removed": "http_410", "login": "blocked_challenge", "no_name": "dns"}


def write_list(listed: BigList, where: Path) -> Path:
    path = where / "urls.txt"
    path.write_text("".join(f"{url}\n" for url in listed.lines))
    return path


def manifest(depot: Path) -> dict[str, dict[str, Any]]:
    """The jobs of the depot by URL."""
    ran = execute("export", "jsonl", "--depot", depot).ok()
    return {line["url"]: line for line in map(json.loads, ran.stdout.splitlines())}


def check_results(listed: BigList, depot: Path, out: Path) -> None:
    """Every URL came to its right end, and every kept file is one that a server has."""
    jobs = manifest(depot)
    assert jobs.keys() == listed.kinds.keys()
    ends = Counter((listed.kinds[url], job["status"]) for url, job in jobs.items())
    assert {kind for kind, status in ends if status == "completed"} <= STORED, ends
    assert not [ends for kind, status in ends if kind in STORED and status != "completed"], ends
    assert {url: jobs[url]["sha256"] for url in listed.sha256} == listed.sha256
    for kind, reason in REASONS.items():
        assert {jobs[url]["reason"] for url in listed.of(kind)} == {reason}, kind
    assert wrong_files(out, listed.known) == []
    assert len(list(out.iterdir())) >= len(listed.known)


def check_requests(listed: BigList) -> None:
    """No URL was asked more often than its attempts, and a definite answer was believed at once."""
    asked = listed.requests()
    definite = listed.of(*DEFINITE)
    assert {asked[url] for url in definite} == {1}
    assert {asked[url] for url in listed.of("plain", "slow", "login")} == {1}
    # A redirect is asked again when the host it led to had no room or rested: so often per attempt, then the attempt counts.
    assert max(asked[url] for url in listed.of("moved")) <= 2 * (MAX_ROUNDS + 1)
    assert {asked[url] for url in listed.of("busy", "broken")} == {2}
    assert max(asked[url] for url in listed.kinds if listed.kinds[url] != "moved") <= RetrySettings().max_attempts


def silences(lines: list[dict[str, Any]], began: float) -> list[tuple[float, float]]:
    """Return the times (from, to) in which nothing happened and no wait was told, in seconds since the start."""
    found, last, told_until = [], began, began
    for line in lines:
        at = datetime.fromisoformat(line["ts"]).timestamp()
        if at - max(last, min(told_until, at)) > SILENCE_S:
            found.append((last - began, at - began))
        last = max(last, at)
        if line["type"] == "waiting":
            end = datetime.fromisoformat(line["until"]).timestamp() if line["until"] else at + 30
            told_until = max(told_until, end)
    return found


def test_a_person_sees_why_it_waits_and_what_failed(tmp_path: Path) -> None:
    depot, out = tmp_path / "depot", tmp_path / "out"
    with big_list(SMALL) as listed:
        began = time.monotonic()
        with on_terminal(
            "get", "-i", write_list(listed, tmp_path), "-d", out, "--depot", depot, *NET, *QUICK
        ) as terminal:
            assert terminal.wait(120) == 3
        assert time.monotonic() - began < 60  # about 12 s on a quiet machine
        check_requests(listed)
    check_results(listed, depot, out)
    assert unexplained(terminal.frames) == []
    text = terminal.text
    assert f"{len(listed.of('gone'))}  http_404  " in text  # grouped, with the hosts
    assert f"{len(listed.of('login'))}  blocked_challenge  " in text
    assert f"/{len(listed.kinds)} items" in text  # a line twice is one item


def test_a_script_hears_of_every_wait(tmp_path: Path) -> None:
    depot, out = tmp_path / "depot", tmp_path / "out"
    with big_list(SMALL, seed=2) as listed:
        began = time.time()
        asked = ("get", "-i", write_list(listed, tmp_path), "-d", out, "--depot", depot, "--json", *NET, *QUICK)
        rests = ("--set", "hosts.breaker_cooldown_s=12", "--set", "hosts.give_up_s=13")  # long enough to be told
        ran = execute(*asked, *rests)
        check_requests(listed)
    assert ran.code == 3, ran.stderr
    check_results(listed, depot, out)
    assert silences(ran.lines, began) == []
    waited = {line["host"] for line in ran.of("waiting")}
    assert {host_of(url) for url in listed.of("refused")} <= waited
    assert NO_SUCH_HOST not in waited
    (summary,) = ran.of("summary")
    assert (summary["items"], sum(summary["jobs"].values())) == (SMALL, len(listed.kinds))
    assert summary["completed"] == len(listed.sha256)


@pytest.mark.torture
@pytest.mark.timeout(1200)
def test_the_full_list_beside_aria2c(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """With default settings: at most three times as long as aria2c, and what servers and dead hosts make it wait."""
    with big_list(FULL) as listed:
        lines = tmp_path / "events"
        wall, began = time.monotonic(), time.time()
        asked = ("get", "-i", write_list(listed, tmp_path), "-d", tmp_path / "out", "--depot", tmp_path / "depot", *NET)
        with lines.open("wb") as stdout:
            code = subprocess.run(command(*asked, "--json"), env=environment(), stdout=stdout, timeout=900).returncode
        ours = time.monotonic() - wall
        check_requests(listed)
    events = [json.loads(line) for line in lines.read_text().splitlines()]
    ends = [line for line in events if line["type"] in ("completed", "failed")]
    dead = {host_of(url) for url in listed.of("refused", "silent")}
    alive = (
        max(datetime.fromisoformat(one["ts"]).timestamp() for one in ends if host_of(one["url"]) not in dead) - began
    )
    figures = f"longshore {ours:.1f} s ({alive:.1f} s without the dead hosts), Retry-After {listed.retry_after_s} s"
    record_property("figures", figures)
    print(figures)
    assert code == 3
    check_results(listed, tmp_path / "depot", tmp_path / "out")
    assert silences(events, began) == []
    if shutil.which("aria2c") is None:
        pytest.skip(f"aria2c is not installed, so that no time can be compared; {figures}")
    theirs, wrong = run_aria2c(tmp_path / "aria2c")
    print(f"aria2c {theirs:.1f} s, {wrong} wrong files kept")
    # A host that gives nothing is known as dead after `give_up_s`, counted from its first rest; its last probe may hang
    # for as long as a connection may take.
    give_up_s = HostsSettings().give_up_s + 2 * HostsSettings().breaker_cooldown_s + 30
    assert ours <= 3 * theirs + listed.retry_after_s + give_up_s, (ours, theirs)
    assert alive <= 3 * theirs + listed.retry_after_s, (alive, theirs)


def run_aria2c(where: Path) -> tuple[float, int]:
    """Return how long aria2c takes for the same list, and how many wrong files it keeps."""
    where.mkdir()
    with big_list(FULL) as listed:
        asked = aria2c(where, listed.lines)
        began = time.monotonic()
        subprocess.run(asked, shell=True, cwd=where, timeout=900, capture_output=True)
        return time.monotonic() - began, len(wrong_files(where / "out", listed.known))
