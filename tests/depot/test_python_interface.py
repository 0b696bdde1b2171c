"""The Python interface takes what people pass to it, or says what it expects."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import longshore
from longshore.errors import BadInput, LongshoreError, Unavailable
from tests.support.origin import Origin, Thing

BODY = b"a body"


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        yield server


@pytest.fixture
def depot(tmp_path: Path) -> Iterator[longshore.Depot]:
    with longshore.open(tmp_path / "depot", network={"allow": ["127.0.0.0/8"]}) as opened:
        yield opened


def test_one_url_is_a_list_of_one(depot: longshore.Depot, origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY))
    added = depot.add(url)
    assert (added.new, added.refused_count) == (1, 0)
    (got,) = depot.get(url)
    assert got.ok
    (got,) = depot.get({"url": url})
    assert got.held_before
    (got,) = depot.get(longshore.download_request(url))
    assert got.held_before


@pytest.mark.parametrize("items", [b"http://x.example/", 7, None])
def test_what_is_not_a_list_is_refused(depot: longshore.Depot, items: Any) -> None:
    with pytest.raises(BadInput, match="expected URLs, records or requests, not"):
        depot.get(items)
    with pytest.raises(BadInput, match="expected URLs, records or requests, not"):
        depot.add(items)


@pytest.mark.parametrize("source", [BODY, bytearray(BODY), memoryview(BODY), io.BytesIO(BODY)])
def test_bytes_are_stored(depot: longshore.Depot, source: Any) -> None:
    got = depot.put(source, name="a.bin")
    assert got.artifact is not None
    assert got.artifact.sha256 == hashlib.sha256(BODY).hexdigest()


def test_text_streams_and_other_things_are_refused(depot: longshore.Depot) -> None:
    with pytest.raises(BadInput, match="gives str, not bytes") as text:
        depot.put(io.StringIO("text"))  # type: ignore[arg-type]
    assert text.value.hint == "open it in binary mode"
    with pytest.raises(BadInput, match="put takes a path, bytes or a file open for reading, not int"):
        depot.put(3)  # type: ignore[arg-type]


def test_a_place_may_be_a_string(depot: longshore.Depot, tmp_path: Path) -> None:
    artifact = depot.put(BODY).artifact
    assert artifact is not None
    depot.place(artifact, str(tmp_path / "x.bin"))
    assert (tmp_path / "x.bin").read_bytes() == BODY


@pytest.mark.parametrize("verb", ["jobs", "artifacts", "retry", "cancel"])
def test_a_dict_is_not_a_filter(depot: longshore.Depot, verb: str) -> None:
    with pytest.raises(BadInput, match=r"a filter is a (Job|Artifact)Filter, not dict"):
        getattr(depot, verb)({"status": "failed"})


def test_params_that_are_not_a_mapping_are_refused_at_once(depot: longshore.Depot) -> None:
    @longshore.job_type("interface_test")
    def handler(inputs: Any, params: Any, ctx: longshore.Context) -> str:
        return "never run"

    with pytest.raises(BadInput, match="params is a mapping of names to values, not str"):
        depot.submit("interface_test", params="str")  # type: ignore[arg-type]
    assert depot.status()["pending"] == 0


def in_child(act: Callable[[], None]) -> int:
    """Run in a forked child; return its exit code, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that hangs is a failure, not a wait
        code = 1
        try:
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_depot_is_not_used_after_a_fork(depot: longshore.Depot, origin: Origin, tmp_path: Path) -> None:
    url = origin.add("/a", Thing(BODY))
    depot.get(url)

    def child() -> None:
        for verb in (lambda: depot.get(url), depot.status, depot.jobs, depot.run):
            with pytest.raises(Unavailable, match=f"opened by process {os.getppid()}"):
                verb()
        depot.close()  # must release nothing of the parent's
        with longshore.open(tmp_path / "depot", network={"allow": ["127.0.0.0/8"]}) as own:
            assert own.get(url)[0].held_before

    assert in_child(child) == 0
    assert depot.get(origin.add("/b", Thing(b"more")))[0].ok
    assert [path.name for path in (tmp_path / "depot" / "alive").iterdir()], "the parent still holds its lock"


def test_a_closed_depot_says_so(tmp_path: Path) -> None:
    depot = longshore.open(tmp_path / "depot")
    depot.close()
    depot.close()
    calls: dict[str, tuple[Any, ...]] = {
        "add": (["http://x.example/"],), "get": (["http://x.example/"],), "run": (), "submit": ("x",), "replay": ("x",),
        "status": (), "jobs": (), "artifacts": (), "show": ("x",), "failures": (), "cancel": (["x"],),
        "retry": (["x"],), "verify": (), "reconcile": (), "place": (None, "x"), "prove": (None,), "put": (b"x",),
        "adopt": (tmp_path,),
    }  # fmt: skip
    for name, arguments in calls.items():
        with pytest.raises(Unavailable, match="this depot is closed"):
            getattr(depot, name)(*arguments)


def test_an_error_has_no_context_of_ours(depot: longshore.Depot) -> None:
    with pytest.raises(LongshoreError) as error:
        depot.get("not a url")
    assert "During handling" not in "".join(traceback.format_exception(error.value))


def test_completion_shows_the_public_names() -> None:
    assert set(dir(longshore)) == {*longshore.__all__, "__version__"}
    for name in longshore.__all__:
        assert getattr(longshore, name).__doc__, name


def test_a_filter_takes_the_word_of_a_status(depot: longshore.Depot, origin: Origin) -> None:
    depot.get([origin.add("/a", Thing(BODY)), origin.url("/gone")])
    for wanted in (
        longshore.JobFilter(status="failed"),
        longshore.JobFilter(statuses=["failed", longshore.Status.CANCELED]),
    ):
        (job,) = depot.jobs(wanted)
        assert job.url == origin.url("/gone")
        assert job.status is longshore.Status.FAILED
    for wrong in ({"status": "broken"}, {"statuses": ["failed", "broken"]}):
        with pytest.raises(BadInput, match="not a status: 'broken'"):
            longshore.JobFilter(**wrong)


def test_a_place_that_has_the_bytes_is_left_as_it_is(depot: longshore.Depot, origin: Origin, tmp_path: Path) -> None:
    (got,) = depot.get(origin.add("/a", Thing(BODY)))
    assert got.artifact
    target = tmp_path / "a.pdf"
    assert depot.place(got.artifact, target) == target
    before = target.stat().st_mtime_ns, target.stat().st_ino
    assert depot.place(got.artifact, str(target)) == target
    assert (target.stat().st_mtime_ns, target.stat().st_ino) == before
    target.write_bytes(b"other!")
    with pytest.raises(LongshoreError, match="exists already"):
        depot.place(got.artifact, target)
    assert target.read_bytes() == b"other!"
