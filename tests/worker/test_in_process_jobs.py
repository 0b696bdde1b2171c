"""Custom jobs in the worker's own process: the same results and the same ends of attempts as in a process of their own."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import longshore
from longshore.depot import Depot
from longshore.domain.kinds import Status
from longshore.errors import BadInput
from tests.support.program import eventually
from tests.worker.conftest import MakeDepot
from tests.worker.test_custom_jobs import body, job, put, results


def test_it_runs_in_the_worker_and_its_scratch_directory_is_gone_afterwards(depot: Depot) -> None:
    planned = depot.submit("t_inside", inputs=[put(depot, "x")])
    assert depot.run().completed == 1
    pid, scratch = results(depot, planned.job_id)
    assert body(depot, pid) == f"{os.getpid()} 7".encode()
    assert body(depot, scratch) == b"scratch"
    assert not list(Path(depot.settings.depot).glob("scratch/*/*"))
    (effect,) = [one for one in depot.ledger.timeline(depot.scope, planned.job_id).effects if one.kind == "CALL"]
    assert effect.state == "confirmed"


def test_without_a_use_for_it_no_scratch_directory_is_made(depot: Depot) -> None:
    planned = depot.submit("t_inside", params={"how": "nothing"})
    assert depot.run().completed == 1
    assert job(depot, planned.job_id).status is Status.COMPLETED
    assert not list(Path(depot.settings.depot).glob("scratch/*"))


@pytest.mark.parametrize(
    ("how", "reason", "attempts"),
    [
        ("raise", "handler_error", 2),
        ("exit", "handler_error", 2),
        ("say", "scan.empty", 1),
        ("garbage", "bad_result", 1),
    ],
)
def test_what_it_raises_ends_its_attempt_only(make_depot: MakeDepot, how: str, reason: str, attempts: int) -> None:
    depot = make_depot(retry={"base_s": 0.01})
    bad, good = depot.submit("t_inside", params={"how": how}), depot.submit("t_inside")
    depot.run()
    failed = job(depot, bad.job_id)
    assert (failed.status, failed.reason, failed.attempts) == (Status.FAILED, reason, attempts)
    assert "secret-canary" not in (failed.message or "")
    assert job(depot, good.job_id).status is Status.COMPLETED


def test_a_canceled_one_stops_at_its_next_check(depot: Depot, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    planned = depot.submit("t_inside", params={"how": "wait", "begun": str(begun)})
    running = threading.Thread(target=depot.run)
    running.start()
    eventually(begun.exists, "the handler began")
    depot.cancel([planned.job_id])
    running.join(60)
    assert not running.is_alive()
    assert job(depot, planned.job_id).status is Status.CANCELED


def test_many_run_at_once_and_end_in_few_transactions(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(200):
        depot.submit("t_inside", params={"how": "nothing", "n": number})
    calls: list[Any] = []
    submit = depot.ledger.backend.submit

    def counted(call: Any) -> Any:
        calls.append(call)
        return submit(call)

    monkeypatch.setattr(depot.ledger.backend, "submit", counted)
    assert depot.run().completed == 200
    assert len(calls) < 100


def test_an_isolation_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadInput, match="'process' or 'none'"):
        longshore.job_type("t_isolated", isolation="thread")  # type: ignore[arg-type]
