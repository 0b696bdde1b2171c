"""FTP and SFTP servers that fall silent: other hosts keep their speed, signals take effect, and the run ends."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from longshore.domain.run_events import RunEvent
from tests.support.liar_ftp import LiarFtp
from tests.support.origin import Origin, Thing, stamped
from tests.support.program import eventually, started
from tests.support.silent_sftp import SilentSftp
from tests.worker.conftest import MakeDepot

PATIENCE_S = 60.0
SOON_S = 4.0  # for all pages together; one silent server alone used to block for longer
SIGNAL_S = 5.0  # about 1 s, on a machine that others use
DATA = stamped(1, 50_000)
WHOLE = f"213 {len(DATA)}"


def test_servers_without_a_final_reply_are_given_up_and_delay_nobody(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(
        hosts={"breaker_failures": 5, "breaker_cooldown_s": 1.0, "give_up_s": 3.0},
        retry={"base_s": 0.05, "cap_s": 0.5, "max_attempts": 50},
        transfer={"stall_s": 3.0},
    )
    notes: list[tuple[float, RunEvent]] = []
    with ExitStack() as stack:
        silent = [stack.enter_context(LiarFtp(DATA, size=WHOLE, end="")) for _ in range(3)]
        depot.add([download_request(one.url(f"{n}.bin")) for n in range(4) for one in silent])
        depot.add([download_request(origin.add(f"/{n}", Thing(stamped(n, 500)))) for n in range(40)])
        began = time.monotonic()
        result = depot.run(max_wait_s=PATIENCE_S, on_note=lambda note: notes.append((time.monotonic(), note)))
        assert time.monotonic() - began < PATIENCE_S
    assert result.completed == 40
    pages = [at for at, note in notes if note.kind == "completed"]
    assert max(pages) - began < SOON_S
    ends = [note.facts["reason"] for _, note in notes if note.kind in ("retry", "failed")]
    assert set(ends) == {"too_slow"}, "the reason is the server's silence, not a wait of our own"
    jobs = [job for job in depot.jobs() if job.status is Status.FAILED]
    assert len(jobs) == 12 and {job.reason for job in jobs} == {"too_slow"}
    assert max(job.attempts for job in jobs) < 10, "the host was given up, long before 50 attempts"


@pytest.mark.parametrize("kind", ["ftp", "sftp-read", "sftp-close"])
def test_a_signal_ends_a_run_with_silent_servers(tmp_path: Path, kind: str) -> None:
    with ExitStack() as stack:
        depot = tmp_path / "depot"
        depot.mkdir()
        if kind == "ftp":
            servers = [stack.enter_context(LiarFtp(DATA, size=WHOLE, end="")) for _ in range(3)]
            urls = [one.url(f"{n}.bin") for one in servers for n in range(4)]
            reached = lambda: sum(one.count("RETR") for one in servers) >= 12  # noqa: E731
        else:
            server = stack.enter_context(SilentSftp(DATA * 6, kind.removeprefix("sftp-")))
            urls = [server.url(f"{n}.bin") for n in range(3)]
            reached = server.reached.is_set
        (depot / "longshore.toml").write_text(
            f'[network]\nallow = ["127.0.0.0/8"]\nhost_keys = "accept_new"\nknown_hosts = "{tmp_path}/known_hosts"\n'
            '[credentials."127.0.0.1"]\nusername = "u"\npassword = "p"\n'
        )
        run = stack.enter_context(started(tmp_path / "run", "get", "--json", "--depot", depot, *urls))
        eventually(reached, "the servers are silent")
        time.sleep(0.5)
        began = time.monotonic()
        run.signal(signal.SIGINT)
        ran = run.wait(30)
        assert time.monotonic() - began < SIGNAL_S
        assert ran.code == 130
        assert "Traceback" not in ran.stderr
