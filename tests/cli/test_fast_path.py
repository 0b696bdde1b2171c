"""`get` of what is held: a few looks and no engine; whatever is not quite so goes the long way, and says the same."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from longshore.cli.get import fast_path
from tests.cli.conftest import LOOPBACK, Box
from tests.support.origin import Origin, Thing, status
from tests.support.postgres import Cluster, postgres_cluster
from tests.support.program import Ran, environment

__all__ = ["postgres_cluster"]

MANY = 1_000


@pytest.fixture
def urls(box: Box, origin: Origin) -> list[str]:
    """Three that are held, one of them with what looks like a signature."""
    urls = [origin.add(path, Thing(path.encode())) for path in ("/a", "/b.bin", "/c")]
    urls[2] += "?X-Amz-Signature=s3cret&x=1"
    box("get", *urls).ok()
    return urls


def the_long_way(box: Box, *arguments: object) -> Ran:
    with mock.patch.object(fast_path, "all_stored", return_value=None):
        return box(*arguments)


def timeless(text: str) -> str:
    return re.sub(r'"ts": "[^"]+"', '"ts": ""', text)


@pytest.mark.parametrize("how", [[], ["--json"], ["-q"], ["-qq"], ["-v"], ["--json", "-q"], ["--offline", "--json"]])
def test_it_says_what_the_long_way_says(box: Box, urls: list[str], how: list[str]) -> None:
    listing = box.write("list", "# mine\n" + "".join(f"{url}\n" for url in urls))
    given = ["get", urls[1], "-i", listing, urls[0], urls[1], *how]

    with mock.patch("longshore.depot.Depot", side_effect=AssertionError("a depot was opened")):
        short = box(*given)
    long = the_long_way(box, *given)

    assert short.code == long.code == 0
    assert timeless(short.stdout) == timeless(long.stdout)
    assert short.stderr == long.stderr
    assert "s3cret" not in short.stdout


def test_a_held_run_loads_no_engine(box: Box, urls: list[str]) -> None:
    listing = box.write("list", "".join(f"{url}\n" for url in urls))
    program = (
        "import sys, threading; from longshore.cli.run_command import run\n"
        "assert run(sys.argv[1:]) == 0\n"
        "assert threading.active_count() == 1\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "get", "-i", str(listing), "-q"],
        capture_output=True,
        text=True,
        env=environment(box.env),
        check=True,
    )
    loaded = set(done.stdout.split())

    assert "longshore.ledger.queries.fast_lookup" in loaded
    heavy = {"asyncio", "pycurl", "concurrent.futures", "logging", "rich", "ada_url", "tomllib", "pathlib"}
    ours = {"longshore.depot", "longshore.worker", "longshore.transfer", "longshore.domain.model"}
    assert loaded.isdisjoint(heavy | ours)


@pytest.fixture(params=["sqlite", "postgres"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Box]:
    """A depot with its ledger in a file, and one with its ledger on a server."""
    env = LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot")}
    if request.param == "sqlite":
        yield Box(tmp_path, env)
        return
    cluster: Cluster = request.getfixturevalue("postgres_cluster")
    with cluster.database() as dsn:
        box = Box(tmp_path, env | {"LONGSHORE_LEDGER": dsn})
        box("migrate").ok()
        yield box


@pytest.mark.slow
def test_one_lost_and_one_cut_among_a_thousand_are_noticed_and_fetched_again(either: Box, origin: Origin) -> None:
    names = [f"/{n}" for n in range(MANY)]
    listing = either.write("list", "".join(f"{origin.add(name, Thing(name.encode() * 9))}\n" for name in names))
    either("get", "-i", listing, "-q", "--set", "hosts.concurrency=32").ok()
    places = [Path(line["path"]) for line in either("get", "-i", listing, "--json").ok().of("held")]
    assert len(places) == MANY
    lost, cut = 3, MANY - 700  # in different questions to the ledger
    places[lost].unlink()
    places[cut].chmod(0o600)
    places[cut].write_bytes(b"/")

    ran = either("get", "-i", listing, "--json").ok()

    assert sorted(line["url"] for line in ran.of("completed")) == sorted(origin.url(names[n]) for n in (lost, cut))
    assert len(ran.of("held")) == MANY - 2
    assert [origin.count(name, "GET") for name in names] == [2 if n in (lost, cut) else 1 for n in range(MANY)]
    assert places[lost].read_bytes() == names[lost].encode() * 9
    assert len(either("get", "-i", listing, "--json").ok().of("held")) == MANY


@pytest.mark.parametrize("place", [0, -1])
def test_one_that_is_new_is_fetched_and_the_rest_is_held(box: Box, origin: Origin, urls: list[str], place: int) -> None:
    urls.insert(place % (len(urls) + 1), origin.add("/new", Thing(b"new")))

    ran = box("get", *urls, "--json").ok()

    assert len(ran.of("held")) == 3
    assert [line["url"] for line in ran.of("completed")] == [origin.url("/new")]


def test_what_failed_is_tried_again(box: Box, origin: Origin, urls: list[str]) -> None:
    bad = origin.add("/bad", status(404))
    assert box("get", bad).code == 3
    origin.add("/bad", Thing(b"there after all"))

    ran = box("get", *urls, bad, "--json").ok()

    assert [line["url"] for line in ran.of("completed")] == [bad]


def test_who_asks_for_more_gets_more(box: Box, origin: Origin, urls: list[str]) -> None:
    assert box("get", urls[0], "--refresh", "--json").ok().of("summary")[0]["items"] == 1
    assert origin.count("/a") > 1, "--refresh asks the server"
    assert box("get", urls[0], "--sha256", "0" * 64).code == 3
    box("get", urls[1], "-d", box.home / "out").ok()
    assert (box.home / "out" / "b.bin").read_bytes() == b"/b.bin"
    assert [line["plan"] for line in box("get", urls[1], "--dry-run", "--json").ok().of("preview")] == ["held"]


def test_another_tenant_s_is_not_held(box: Box, origin: Origin, urls: list[str]) -> None:
    before = origin.count("/a")

    box("get", urls[0], "--tenant", "other").ok()

    assert origin.count("/a") > before


@pytest.mark.parametrize(
    "how",
    [
        ["--set", "dedupe.revalidate=sometimes"],
        ["--set", "shard.width=3"],
        ["--set", "no.such=1"],
        ["--allow-net", "everything"],
        ["--tenant", "Not A Name"],
        ["-i", "absent"],
        ["--store", "/dev/null"],
    ],
)
def test_what_is_refused_is_refused_in_the_same_words(box: Box, urls: list[str], how: list[str]) -> None:
    short, long = box("get", *urls, *how), the_long_way(box, "get", *urls, *how)

    assert (short.code, short.stdout, short.stderr) == (long.code, long.stdout, long.stderr)
    assert short.code != 0


def test_a_bad_line_of_a_list_is_refused_although_the_rest_is_held(box: Box, urls: list[str]) -> None:
    listing = box.write("list", f"{urls[0]}\nnot a url\n")

    ran = box("get", "-i", listing)

    assert ran.code == 3
    assert ran.stderr.startswith(f"{listing}:2: not a URL: 'not a url'")
