"""Each configured login gets its own bytes: credentials of `[credentials]` and netrc are part of who asks."""

from __future__ import annotations

import base64
import threading
from pathlib import Path
from typing import Any

import pytest

from longshore.depot import Depot
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from tests.support.origin import Origin, Request, Thing, Wire, cut, redirect, stamped
from tests.worker.conftest import MakeDepot

SIZE, CUT = 700_000, 400_000
OF = {who: Thing(stamped(version, SIZE)) for version, who in enumerate(("nobody", "alice", "bob"), 1)}  # one entity tag


def who_asks(request: Request) -> str:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme == "Basic":
        return base64.b64decode(value).decode().partition(":")[0]
    return value or request.headers.get("x-key", "nobody")


def per_login(request: Request, wire: Wire) -> None:
    """Answer each login with its own bytes, under one entity tag."""
    OF[who_asks(request)](request, wire)


class Config:
    """Makes depots in one place that are configured for one login each."""

    def __init__(self, make_depot: MakeDepot, origin: Origin, how: str, folder: Path) -> None:
        self._make, self._origin, self._how, self._folder = make_depot, origin, how, folder

    def depot(self, who: str, password: str = "p") -> Depot:
        if who == "nobody":
            return self._make()
        host = f"http://{self._origin.netloc}"
        tables: dict[str, dict[str, Any]] = {
            "user": {"username": who, "password": password},
            "token": {"token": who},
            "header": {"headers": {"X-Key": who}},
        }
        return self._make(credentials={host: tables[self._how]})


@pytest.fixture(params=["user", "token", "header"])
def config(make_depot: MakeDepot, origin: Origin, request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    return Config(make_depot, origin, request.param, tmp_path)


@pytest.mark.parametrize("refresh", [False, True])
def test_each_login_gets_its_own_bytes(config: Config, origin: Origin, refresh: bool) -> None:
    url = origin.add("/report", per_login)
    for who in ("alice", "bob", "nobody", "alice"):
        with config.depot(who) as depot:
            got = depot.get([url], refresh=refresh)[0]
            assert got.path is not None and got.path.read_bytes() == OF[who].body, who
    assert origin.count("/report") == (4 if refresh else 3)


@pytest.mark.parametrize("hops", [0, 1])
def test_a_part_of_one_login_is_not_continued_by_another(config: Config, origin: Origin, hops: int) -> None:
    """The job of one login, run by a worker that has another; also where only a redirect's target has a login."""
    bob = threading.Event()

    def behave(request: Request, wire: Wire) -> None:
        (per_login if bob.is_set() else cut(OF[who_asks(request)], CUT, "hang"))(request, wire)

    there = origin.add("/report", behave)
    with Origin("127.0.0.2") as front:
        url = front.add("/latest", redirect(there)) if hops else there
        with config.depot("alice") as depot:
            depot.get([url], max_wait_s=0.5)
        bob.set()
        with config.depot("bob") as depot:
            depot.run()
            got = depot.get([url])[0]
            assert got.status in (Status.COMPLETED, Status.SKIPPED) and got.path is not None
            assert got.path.read_bytes() == OF["bob"].body


def test_a_changed_password_is_the_same_caller(make_depot: MakeDepot, origin: Origin, tmp_path: Path) -> None:
    config = Config(make_depot, origin, "user", tmp_path)
    url = origin.add("/report", per_login)
    for password in ("old", "new"):
        with config.depot("alice", password) as depot:
            assert depot.get([url])[0].ok
    assert origin.count("/report") == 1


def test_secrets_are_not_in_the_ledger_or_the_parts(config: Config, origin: Origin, tmp_path: Path) -> None:
    url = origin.add("/report", OF["alice"])
    with config.depot("s3cret-value", "s3cret-word") as depot:
        assert depot.get([url])[0].ok
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"s3cret" not in path.read_bytes(), path


def test_a_job_without_a_login_keeps_its_key(make_depot: MakeDepot, origin: Origin) -> None:
    url = origin.add("/report", per_login)
    with make_depot(credentials={"http://elsewhere.example": {"username": "alice", "password": "p"}}) as depot:
        depot.get([url])
        (job,) = depot.jobs()
        assert job.request.key == download_request(url).key


def test_a_job_that_is_planned_again_keeps_its_key(config: Config, origin: Origin) -> None:
    url = origin.add("/report", per_login)
    with config.depot("alice") as depot:
        depot.get([url])
        (job,) = depot.jobs()
        assert job.request.key != download_request(url).key
        depot.get([job.request])
        assert {one.request.key for one in depot.jobs()} == {job.request.key}


def test_each_tenant_is_sent_with_its_own_login(make_depot: MakeDepot, origin: Origin) -> None:
    url, host = origin.add("/report", per_login), f"http://{origin.netloc}"
    tables = {f"one@{host}": {"username": "alice"}, f"two@{host}": {"token": "bob"}}
    for tenant, who in (("one", "alice"), ("two", "bob"), ("three", "nobody")):
        with make_depot(credentials=tables, tenant=tenant) as depot:
            got = depot.get([url])[0]
            assert got.path is not None and got.path.read_bytes() == OF[who].body, tenant
