"""Jobs of one's own: results as artifacts, one job per content, and handlers that misbehave harm nobody."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from longshore.depot import Depot, sync_depot
from longshore.domain.kinds import Status
from longshore.domain.model import Artifact, Job
from longshore.domain.policy.disk_space import Lack
from longshore.errors import BadInput, DiskFull, Reasoned
from longshore.store import Part
from longshore.worker import runtime
from longshore.worker.kinds.custom import async_handler, handler, job_types, process_pool
from longshore.worker.kinds.custom.messages import BadMessage, Channel, results_from
from tests.support.disks import small_disk
from tests.worker import own_types
from tests.worker.conftest import MakeDepot
from tests.worker.test_loop import running, until

JOB = process_pool.JobFacts("default", "default", "j", None, None)


def put(depot: Depot, text: str) -> Artifact:
    got = depot.put(io.BytesIO(text.encode()), name="in.txt")
    assert got.artifact is not None
    return got.artifact


def results(depot: Depot, job_id: str) -> list[Artifact]:
    return depot.ledger.results(depot.scope, job_id)


def job(depot: Depot, job_id: str) -> Job:
    return depot.ledger.job(depot.scope, job_id)


def body(depot: Depot, artifact: Artifact) -> bytes:
    with depot.store.open(depot.scope, artifact.pointer) as file:
        return file.read()


def test_a_function_becomes_a_job_and_its_value_an_artifact(depot: Depot) -> None:
    source = put(depot, "hello")
    planned = depot.submit("t_upper", inputs=[source], params={"end": "!"}, run_id="r", request_id="q")
    asked = depot.ledger.job(depot.scope, planned.job_id).request
    assert (asked.run_id, asked.request_id, asked.inputs) == ("r", "q", (source.artifact_id,))
    assert depot.run().completed == 1
    (made,) = results(depot, planned.job_id)
    assert body(depot, made) == b"HELLO!"
    assert (made.artifact_type, made.name, made.content_type) == ("text", "upper.txt", "text/plain")
    assert made.metadata == {"n": 6}
    assert [one.artifact_id for one in depot.ledger.results(depot.scope, planned.job_id, role="input")] == [
        source.artifact_id
    ]


def test_the_same_work_is_the_same_job_and_other_work_is_not(depot: Depot) -> None:
    source = put(depot, "hello")
    first = depot.submit("t_upper", inputs=[source])
    assert depot.submit("t_upper", inputs=[source]).job_id == first.job_id
    assert depot.submit("t_upper", inputs=[source], params={"end": "?"}).job_id != first.job_id
    assert depot.run().completed == 2
    assert not depot.submit("t_upper", inputs=[source]).created


def test_replay_works_from_stored_inputs(depot: Depot) -> None:
    source = put(depot, "hello")
    first = depot.submit("t_upper", inputs=[source])
    with pytest.raises(BadInput):
        depot.replay(first.job_id)
    depot.run()
    again = depot.replay(first.job_id)
    assert again.job_id != first.job_id
    assert depot.run().completed == 1
    assert job(depot, again.job_id).retry_of == first.job_id
    assert results(depot, again.job_id)[0].sha256 == results(depot, first.job_id)[0].sha256


def test_an_async_handler_runs_in_the_loop_with_the_same_context(depot: Depot, tmp_path: Path) -> None:
    inputs = [put(depot, "a" * 5), put(depot, "b" * 7)]
    planned = depot.submit("t_async", inputs=inputs, params={"log": str(tmp_path / "log")})
    assert depot.run().completed == 1
    assert json.loads(body(depot, results(depot, planned.job_id)[0])) == {"total": 12, "id": 7}
    assert (tmp_path / "log").read_text() == "x"


def test_several_and_large_results_are_all_kept(depot: Depot) -> None:
    planned = depot.submit("t_many", params={"size": 700_000})
    assert depot.run().completed == 1
    made = results(depot, planned.job_id)
    assert [one.size_bytes for one in made] == [3, 3, 700_000]
    assert body(depot, made[2]) == b"z" * 700_000
    assert depot.verify().findings == []
    assert list(depot.store.parts()) == []


@pytest.mark.parametrize(
    ("how", "reason", "attempts"),
    [
        ("raise", "handler_error", 2),
        ("say", "handler_error", 1),
        ("die", "handler_crash", 2),
        ("hang", "handler_timeout", 2),
        ("garbage", "bad_result", 1),
    ],
)
def test_a_handler_that_misbehaves_ends_by_policy_and_harms_nobody(
    depot: Depot, how: str, reason: str, attempts: int
) -> None:
    bad = depot.submit("t_hang" if how == "hang" else "t_bad", params={"how": how})
    good = depot.submit("t_upper", inputs=[put(depot, "ok")])
    result = depot.run()
    assert (result.completed, result.failed) == (1, 1)
    assert job(depot, good.job_id).status is Status.COMPLETED
    ended = job(depot, bad.job_id)
    assert (ended.status, ended.reason, ended.attempts) == (Status.FAILED, reason, attempts)
    assert ended.message is not None
    assert "canary" not in ended.message
    assert "Traceback" not in ended.message
    if how == "raise":
        assert ended.debug_id
    if how == "say":
        assert ended.message == "the scan is empty"


def test_a_handler_that_wants_too_much_memory_fails_alone(depot: Depot) -> None:
    planned = depot.submit("t_memory")
    assert depot.run().failed == 1
    assert job(depot, planned.job_id).reason == "handler_error"


def test_a_confirmed_effect_is_not_repeated_after_a_crash(depot: Depot, tmp_path: Path) -> None:
    log = tmp_path / "log"
    planned = depot.submit("t_effect", params={"log": str(log), "order": "o-1"})
    assert depot.run().completed == 1
    assert log.read_text() == "x"
    assert json.loads(body(depot, results(depot, planned.job_id)[0])) == {"charged": 5}
    assert job(depot, planned.job_id).attempts == 2


@pytest.mark.parametrize("kind", ["t_unstorable", "t_unstorable_async"])
@pytest.mark.parametrize("how", ["nan", "big", "list", "object"])
@pytest.mark.parametrize(("effect_class", "reason"), [("opaque", "in_doubt"), ("keyed", "bad_result")])
def test_an_effect_whose_result_cannot_be_stored_ends_by_its_class(
    depot: Depot, tmp_path: Path, kind: str, how: str, effect_class: str, reason: str
) -> None:
    log = tmp_path / "log"
    planned = depot.submit(kind, params={"log": str(log), "how": how, "class": effect_class})
    assert depot.run(job_types=[kind]).failed == 1
    assert job(depot, planned.job_id).reason == reason
    assert log.read_text() == "x"


def test_a_damaged_input_ends_the_job(depot: Depot) -> None:
    source = put(depot, "right")
    path = depot.store.path(depot.scope, source.pointer)
    assert path is not None
    planned = depot.submit("t_upper", inputs=[source])
    path.chmod(0o600)
    path.write_text("wrong")
    assert depot.run().failed == 1
    assert job(depot, planned.job_id).reason == "input_missing"
    assert not path.exists()
    assert len(list(depot.store.quarantined())) == 1


def test_a_missing_input_ends_the_job(depot: Depot) -> None:
    source = put(depot, "gone soon")
    path = depot.store.path(depot.scope, source.pointer)
    assert path is not None
    planned = depot.submit("t_upper", inputs=[source])
    path.unlink()
    assert depot.run().failed == 1
    assert job(depot, planned.job_id).reason == "input_missing"


def test_a_running_handler_can_be_canceled(make_depot: MakeDepot, tmp_path: Path) -> None:
    depot = make_depot()
    here, go = tmp_path / "here", tmp_path / "go"
    planned = depot.submit("t_slow", params={"here": str(here), "go": str(go)})
    with running(depot) as run:
        until(here.exists)
        depot.ledger.cancel(depot.scope, [planned.job_id])
        assert run.join().canceled == 1
    assert job(depot, planned.job_id).status is Status.CANCELED


def test_the_same_work_under_another_key_is_skipped_with_all_its_results(depot: Depot) -> None:
    first = depot.submit("t_many", params={"size": 10})
    depot.run()
    again = depot.submit("t_many", params={"size": 10}, key="mine")
    other = depot.submit("t_many", params={"size": 11}, key="other")
    assert again.created
    result = depot.run()
    assert (result.reused, result.completed) == (1, 1)
    ended = job(depot, again.job_id)
    assert (ended.status, ended.reuse_of_job_id) == (Status.SKIPPED, first.job_id)
    assert [one.artifact_id for one in results(depot, again.job_id)] == [
        one.artifact_id for one in results(depot, first.job_id)
    ]
    assert job(depot, other.job_id).status is Status.COMPLETED


def test_a_completed_job_whose_result_is_lost_is_done_again(depot: Depot) -> None:
    source = put(depot, "hello")
    first = depot.submit("t_upper", inputs=[source])
    depot.run()
    path = depot.store.path(depot.scope, results(depot, first.job_id)[0].pointer)
    assert path is not None
    path.unlink()
    by_key = depot.submit("t_upper", inputs=[source], key="mine")
    again = depot.submit("t_upper", inputs=[source])
    assert again.created
    assert depot.run().completed == 2
    assert job(depot, again.job_id).retry_of == first.job_id
    assert job(depot, by_key.job_id).status is Status.COMPLETED, "lost results are no reason to skip"
    assert body(depot, results(depot, again.job_id)[0]) == b"HELLO"


def test_another_version_works_on_old_inputs_again(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    source = put(depot, "hello")
    first = depot.submit("t_upper", inputs=[source])
    newer = dataclasses.replace(job_types.known_types()["t_upper"], version="2")
    monkeypatch.setitem(job_types._types, "t_upper", newer)
    assert depot.submit("t_upper", inputs=[source]).job_id != first.job_id


def test_a_process_that_grew_is_not_used_again(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_pool, "GROWN_KIB", 1)  # whatever a process needs is too much
    pids = []
    for number in range(2):
        planned = depot.submit("t_leak", params={"bytes": 1, "n": number})
        assert depot.run(job_types=["t_leak"]).completed == 1
        pids.append(body(depot, results(depot, planned.job_id)[0]))
    assert pids[0] != pids[1]


@pytest.mark.torture
def test_a_handler_that_leaks_a_gigabyte_costs_the_worker_nothing(depot: Depot) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    leaky = [depot.submit("t_leak", params={"bytes": 1 << 30, "n": n}) for n in range(3)]
    good = depot.submit("t_upper", inputs=[put(depot, "ok")])
    assert depot.run().completed == 4
    assert len({body(depot, results(depot, one.job_id)[0]) for one in leaky}) == 3, "each in a process of its own"
    assert job(depot, good.job_id).status is Status.COMPLETED
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_a_type_that_nobody_declared_is_refused(depot: Depot) -> None:
    with pytest.raises(BadInput):
        depot.submit("t_nobody")


@pytest.mark.parametrize("how", ["python", "progress", "c", "thread"])
def test_a_job_never_gets_the_answer_of_another_one(
    depot: Depot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    monkeypatch.setattr(runtime, "HANDLER_PROCESSES", 1)
    go, child = str(tmp_path / "go"), str(tmp_path / "child")
    params = {"how": how, "go": go, "child": child}
    first = depot.submit("t_thread" if how == "thread" else "t_fork", params=params, priority=10)
    jobs = [depot.submit("t_echo", params={"n": 0, "go": go, "child": child}, priority=5)]
    jobs += [depot.submit("t_echo", params={"n": n}) for n in range(1, 4)]
    depot.run()  # one process works on all of them
    assert body(depot, results(depot, first.job_id)[0]) == b"the parent's"
    for n, planned in enumerate(jobs):
        ended = job(depot, planned.job_id)
        assert (ended.status, ended.message) == (Status.COMPLETED, None)
        assert body(depot, results(depot, planned.job_id)[0]) == f"echo {n}".encode()


def _stray(pipe: Connection, message: object) -> None:
    """Serve one task as a process would whose pipe somebody else writes into."""
    channel = Channel(pipe)
    token = channel.wait()["token"]
    if isinstance(message, Harmful):
        pipe.send(message)
        channel.send("the end of the line")
    else:
        channel.send((token, os.getpid(), "began", None) if message == "began" else message)
    if message == "began":
        channel.send((token, os.getppid(), "result", ([], 0)))
    channel.wait()


class Harmful:
    """An object whose pickle makes a directory when it is read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("message", ["began", ("x", 1, "result", ([], 0)), ("result", ([], 0)), 7])
def test_a_message_of_another_process_or_task_is_never_an_answer(
    message: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(process_pool, "serve", partial(_stray, message=message))
    pool = process_pool.ProcessPool()
    task = process_pool.Task(("os", "getpid"), (), {}, JOB, 1, tmp_path, None)
    with pytest.raises(Reasoned, match="not of this job") as raised:
        pool.work(task, 20, lambda *_: None, threading.Event())
    assert raised.value.reason == "handler_crash"
    pool.close()


def _pickled(pipe: Connection, path: str) -> None:
    _stray(pipe, Harmful(path))


def test_a_message_of_a_process_runs_no_code_in_the_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_pool, "serve", partial(_pickled, path=str(tmp_path / "run")))
    pool = process_pool.ProcessPool()
    task = process_pool.Task(("os", "getpid"), (), {}, JOB, 1, tmp_path, None)
    with pytest.raises(Reasoned, match="not of this job"):
        pool.work(task, 20, lambda *_: None, threading.Event())
    assert not (tmp_path / "run").exists()
    pool.close()


def _half(pipe: Connection) -> None:
    channel = Channel(pipe)
    token = channel.wait()["token"]
    channel.send((token, os.getpid(), "began", None))
    os.write(pipe.fileno(), b"[")
    channel.wait()


def test_half_a_message_does_not_outlast_the_time_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_pool, "serve", _half)
    pool = process_pool.ProcessPool()
    task = process_pool.Task(("os", "getpid"), (), {}, JOB, 1, tmp_path, None)
    with pytest.raises(Reasoned) as raised:
        pool.work(task, 0.5, lambda *_: None, threading.Event())
    assert raised.value.reason == "handler_timeout"
    pool.close()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("result", [[{"body": 7}], 0]),
        ("result", [[{"body": "x", "metadata": 7}], 0]),
        ("result", [7, 0]),
        ("result", None),
        ("error", ["x"]),
        ("progress", ["x", None]),
        ("effect_begin", ["x", "keyed", []]),
        ("unknown", None),
    ],
)
def test_a_message_without_the_shape_of_its_kind_ends_the_process(
    depot: Depot, kind: str, value: object, tmp_path: Path
) -> None:
    planned = depot.submit("t_forged", params={"kind": kind, "value": value})
    assert depot.run().failed == 1
    assert job(depot, planned.job_id).reason == "handler_crash"


def test_a_path_with_a_nul_is_not_a_result() -> None:
    with pytest.raises(BadMessage):
        results_from([{"body": "x\0y"}])


def test_a_handler_sees_allowed_and_declared_variables_only(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LONGSHORE_S3_SECRET_KEY", "T_DECLARED", "T_OTHER"):
        monkeypatch.setenv(name, "canary")
    planned = depot.submit("t_environment")
    assert depot.run().completed == 1
    seen = json.loads(body(depot, results(depot, planned.job_id)[0]))
    assert "T_DECLARED" in seen
    assert "PATH" in seen
    assert not {"LONGSHORE_S3_SECRET_KEY", "T_OTHER"} & set(seen)


def test_limits_of_one_type_do_not_stay_for_the_next(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "HANDLER_PROCESSES", 1)
    monkeypatch.setattr(process_pool, "GROWN_KIB", 1 << 40)  # a child inherits the peak memory of its parent
    small = depot.submit("t_limits_small", priority=10)
    large = depot.submit("t_limits")
    assert depot.run().completed == 2
    first, second = (json.loads(body(depot, results(depot, one.job_id)[0])) for one in (small, large))
    assert first["pid"] == second["pid"]
    assert (first["memory"], second["memory"]) == (2 << 30, 8 << 30)
    assert (first["files"], first["core"]) == (1024, 0)
    assert 0 < first["cpu_s"] < 3600 * (os.cpu_count() or 1)


@pytest.mark.parametrize("kind", ["t_odd", "t_odd_async"])
@pytest.mark.parametrize(
    "how",
    [
        "missing",
        "fifo",
        "link",
        "folder",
        "linked folder",
        "outside",
        "dots",
        "infinite",
        "nul",
        "header",
        "long",
        "body",
        "surrogate",
    ],
)
def test_what_is_not_a_result_fails_once_and_is_not_read(depot: Depot, tmp_path: Path, kind: str, how: str) -> None:
    away = tmp_path / "away"
    away.write_bytes(b"secret")
    planned = depot.submit(kind, params={"how": how, "away": str(away)})
    depot.run()
    ended = job(depot, planned.job_id)
    assert (ended.status, ended.reason, ended.attempts) == (Status.FAILED, "bad_result", 1)
    assert results(depot, planned.job_id) == []


def test_a_file_in_a_folder_of_the_scratch_directory_is_a_result(depot: Depot) -> None:
    planned = depot.submit("t_below")
    depot.run()
    (made,) = results(depot, planned.job_id)
    assert (made.name, body(depot, made)) == ("made.txt", b"made")


@pytest.mark.parametrize("how", ["cancel", "self", "exit", "timeout", "base", "own", "close"])
def test_an_async_handler_that_raises_what_ends_tasks_fails_by_policy(depot: Depot, how: str) -> None:
    planned = depot.submit("t_raise_async", params={"how": how})
    assert depot.run().failed == 1
    ended = job(depot, planned.job_id)
    assert (ended.reason, ended.attempts) == ("handler_error", 2)


@pytest.mark.timeout(60)
def test_a_task_that_dies_of_a_base_exception_leaves_no_job_in_processing(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> None:
        raise own_types.Unusual

    monkeypatch.setattr(handler.CustomJobs, "handle", die)
    planned = depot.submit("t_raise_async", params={"how": "own"})
    assert depot.run().failed == 1
    ended = job(depot, planned.job_id)
    assert (ended.status, ended.reason) == (Status.FAILED, "internal_error")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_task_ends_the_run_and_its_job_is_not_left_in_processing(
    depot: Depot, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    async def interrupt(*_: object) -> None:
        raise error

    monkeypatch.setattr(handler.CustomJobs, "handle", interrupt)
    planned = depot.submit("t_raise_async", params={"how": "own"})
    with pytest.raises(error):
        depot.run()
    assert job(depot, planned.job_id).status is not Status.PROCESSING


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["itself", "child"])
def test_an_async_handler_that_ignores_its_cancellation_is_abandoned_at_its_time_limit(
    depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    monkeypatch.setattr(async_handler, "GRACE_S", 0.2)
    monkeypatch.setattr(sync_depot, "GRACE_S", 0.2)
    planned = depot.submit("t_swallow_async", params={"here": str(tmp_path / "here"), "how": how})
    good = depot.submit("t_async", params={"log": str(tmp_path / "log")})
    assert depot.run().failed == 1
    ended = job(depot, planned.job_id)
    assert (ended.status, ended.reason) == (Status.FAILED, "handler_timeout")
    assert job(depot, good.job_id).status is Status.COMPLETED
    assert "ignored its cancellation" in caplog.text


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["itself", "child"])
def test_a_signal_ends_a_process_whose_async_handler_ignores_its_cancellation(tmp_path: Path, how: str) -> None:
    here = tmp_path / "here"
    script = f"""
import longshore
from longshore.depot import sync_depot
from longshore.worker.kinds.custom import async_handler
from tests.support.disks import small_disk
from tests.worker import own_types
async_handler.GRACE_S = sync_depot.GRACE_S = 0.2
with longshore.open({str(tmp_path / "depot")!r}, transfer={{"drain_s": 0.1}}) as depot:
    depot.submit("t_swallow_long", params={{"here": {str(here)!r}, "how": {how!r}}})
    print(depot.run(handle_signals=True).stopped_by)
    print(depot.jobs()[0].status.value)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        try:
            until(here.exists)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, out.split()) == (0, ["SIGTERM", "pending"])


def test_what_handlers_print_goes_to_stderr(depot: Depot, capfd: pytest.CaptureFixture[str]) -> None:
    for kind in ("t_chatty", "t_chatty_async"):
        depot.submit(kind)
    print("before")
    assert depot.run().completed == 2
    print("after")
    out, err = capfd.readouterr()
    assert out == "before\nafter\n"
    for line in ("printed by a process", "written by a process", "printed in the loop", "printed by a thread"):
        assert line in err


@pytest.mark.parametrize(("size", "sparse"), [(3 << 40, True), (12_000_000, False)])
def test_a_result_larger_than_the_disk_is_refused_before_it_is_written(
    make_depot: MakeDepot, size: int, sparse: bool
) -> None:
    with small_disk("8m") as disk:
        depot = make_depot(store=str(disk / "store"), quota={"free_bytes_min": 1 << 20})
        planned = depot.submit("t_sized", params={"size": size, "sparse": int(sparse)})
        assert depot.run(max_wait_s=30).failed == 1
        assert (job(depot, planned.job_id).reason, job(depot, planned.job_id).attempts) == ("too_large", 1)
        assert list(depot.store.parts()) == []
        depot.close()


def test_a_result_that_does_not_fit_now_counts_and_others_go_on(make_depot: MakeDepot) -> None:
    with small_disk("8m") as disk:
        depot = make_depot(
            store=str(disk / "store"), quota={"free_bytes_min": 1 << 20}, retry={"base_s": 0.01, "max_attempts": 2}
        )
        (disk / "filler").write_bytes(bytes(4 << 20))
        large = depot.submit("t_sized", params={"size": 5_000_000})
        small = depot.submit("t_upper", inputs=[put(depot, "hello")])
        result = depot.run(max_wait_s=30)
        assert (result.completed, result.failed, result.left) == (1, 1, False)
        assert job(depot, large.job_id).reason == "disk_full"
        assert job(depot, small.job_id).status is Status.COMPLETED
        assert list(depot.store.parts()) == []
        assert disk_free(disk) >= 1 << 20
        depot.close()


def test_a_copy_of_a_result_that_fails_leaves_no_part(make_depot: MakeDepot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up while the result is copied: its half must not keep it full."""
    depot = make_depot(retry={"base_s": 0.01, "max_attempts": 1})

    def full(part: Part, source: int) -> None:
        part.write(os.pread(source, 1000, 0))
        raise DiskFull("others were faster", lack=Lack.NOT_NOW)

    monkeypatch.setattr(Part, "take_from", full)
    depot.submit("t_sized", params={"size": 2_000_000})
    assert depot.run(max_wait_s=30).failed == 1
    assert list(depot.store.parts()) == []


def disk_free(disk: Path) -> int:
    stat = os.statvfs(disk)
    return stat.f_bavail * stat.f_frsize


SCRIPT = """
import longshore

@longshore.job_type("t_script", max_attempts=1)
def count(inputs, params, ctx):
    return {"n": 1}

with longshore.open(DEPOT) as depot:
    planned = depot.submit("t_script")
    depot.run()
    job = depot.ledger.job(depot.scope, planned.job_id)
    print(job.status.value, job.reason, job.message)
"""


def test_a_script_without_a_guard_is_told_what_it_lacks(tmp_path: Path) -> None:
    """The handler's process imports the script, which ran the depot once more and waited for itself for ever."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("DEPOT", repr(str(tmp_path / "depot"))))
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("failed handler_crash the handler's process ended (exit 1) before it began")
    assert "if __name__ == '__main__':" in ran.stdout
    assert "runs jobs while it is imported" in ran.stderr
