"""Voyages over several hosts: mirrors that are walked, and a dead host that is given up."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import ClassVar

import longshore
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from tests.support.origin import Thing, check_stamps, stamped, status
from tests.torture.voyages import NET, Voyage


class Mirroring(Voyage):
    """The first URL is gone: what it answered is in the ledger before the mirror is asked."""

    points = ("walk.moved",)

    def prepare(self) -> None:
        self.url = self.origin.add("/gone", status(404))
        mirror = self.origin.add("/mirror", Thing(stamped(1, 5_000)))
        with longshore.open(self.depot) as depot:
            depot.add([download_request(self.url, mirrors=(mirror,))])

    def command(self) -> list[str]:
        return self.cli("run", *NET)

    def recovered(self) -> None:
        super().recovered()
        assert self.origin.count("/gone") == 1
        assert self.origin.count("/mirror") <= 1
        with longshore.open(self.depot, offline=True) as depot:
            (got,) = depot.get([self.url])
            assert got.path is not None
            assert check_stamps(got.path.read_bytes()) == 1


class Abandoning(Voyage):
    """Nobody listens there: the jobs fail together, each once."""

    points = ("abandon.before", "abandon.after")
    settings: ClassVar[Mapping[str, str]] = {
        "LONGSHORE_HOSTS__BREAKER_FAILURES": "3",
        "LONGSHORE_HOSTS__BREAKER_COOLDOWN_S": "0.3",
        "LONGSHORE_HOSTS__GIVE_UP_S": "0.6",
        "LONGSHORE_RETRY__MAX_ATTEMPTS": "50",
    }

    def prepare(self) -> None:
        self.taken = socket.socket()
        self.taken.bind(("127.0.0.9", 0))
        host = f"127.0.0.9:{self.taken.getsockname()[1]}"
        with longshore.open(self.depot) as depot:
            depot.add([download_request(f"http://{host}/{n}") for n in range(40)])

    def command(self) -> list[str]:
        return self.cli("run", *NET)

    def recovered(self) -> None:
        done = self.run()
        assert done.returncode in (0, 3), done.stderr  # 0: all of them had failed before the kill
        with longshore.open(self.depot, offline=True) as depot:
            assert {job.status for job in depot.jobs()} == {Status.FAILED}
        self.taken.close()


HOSTS: tuple[type[Voyage], ...] = (Mirroring, Abandoning)
