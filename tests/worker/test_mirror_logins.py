"""A mirror's login is part of who asks: in the mirror's URL, or configured for its origin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from longshore.domain.identity.requests import download_request
from tests.support.origin import Origin, Thing, status
from tests.worker.conftest import MakeDepot
from tests.worker.test_logins import OF, per_login


@pytest.fixture
def mirror() -> Iterator[Origin]:
    with Origin("127.0.0.3") as server:
        yield server


@pytest.mark.parametrize("how", ["url", "configured"])
@pytest.mark.parametrize("refresh", [False, True])
def test_each_login_at_a_mirror_gets_its_own_bytes(
    make_depot: MakeDepot, origin: Origin, mirror: Origin, how: str, *, refresh: bool
) -> None:
    first, other = origin.add("/report", status(404)), mirror.add("/report", per_login)
    for who in ("alice", "bob", "nobody", "alice"):
        url, flags = other, {}
        if how == "url" and who != "nobody":
            url = other.replace("http://", f"http://{who}:secret@")
        elif who != "nobody":
            flags = {"credentials": {f"http://{mirror.netloc}": {"username": who, "password": "secret"}}}
        (got,) = make_depot(**flags).get(download_request(first, mirrors=[url]), refresh=refresh)
        assert got.path is not None
        assert got.path.read_bytes() == OF[who].body
    assert mirror.count("/report") <= 8


def test_mirrors_without_a_login_do_not_change_the_key(make_depot: MakeDepot, origin: Origin, mirror: Origin) -> None:
    url = origin.add("/report", Thing(b"bytes"))
    depot = make_depot()
    assert depot.add(url).new == 1
    again = depot.add(download_request(url, mirrors=[mirror.add("/report", Thing(b"bytes"))]))
    assert (again.new, again.known) == (0, 1)
