"""Secrets of one tenant and connections: what carried them carries no other tenant's request, and the other way round."""

from __future__ import annotations

import pytest

from longshore.transfer import FetchRequest, Memory, Transfer
from tests.support.origin import Origin, Thing, stamped
from tests.support.settings import login, tuned
from tests.transfer.wire import within

THING = Thing(stamped(1, 500))
SECRET = (("Authorization", "Bearer canary"),)
HARMLESS = (("Accept", "application/pdf"),)


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (("a", ()), ("b", ()), True),
        (("a", HARMLESS), ("b", ()), True),
        (("a", SECRET), ("a", ()), True),
        (("a", SECRET), ("b", ()), False),
        (("a", ()), ("b", SECRET), False),
        (("a", SECRET), ("b", SECRET), False),
    ],
)
def test_connections_are_not_shared_between_tenants_with_secrets(
    origin: Origin,
    first: tuple[str, tuple[tuple[str, str], ...]],
    second: tuple[str, tuple[tuple[str, str], ...]],
    shared: bool,
) -> None:
    url = origin.add("/x", THING)

    async def both(transfer: Transfer) -> list[int]:
        found = []
        for tenant, headers in (first, second):
            sink = Memory()
            answer = await transfer.fetch(FetchRequest(url, headers=headers, tenant=tenant), sink)
            assert sink.body == THING.body
            found.append(answer.new_connections)
        return found

    assert within(both) == [1, 0 if shared else 1]
    assert origin.count("/x") == 2, "the other connection is chosen before anything is sent"


def test_a_credential_of_one_tenant_is_not_sent_for_another(origin: Origin) -> None:
    url, place = origin.add("/x", THING), f"http://{origin.netloc}"
    table = {
        place: login(token="everybody"),
        f"acme@{place}": login(token="acme"),
        f"bolt@{place}": login(username="b"),
    }
    own = {f"acme@{place}": login(token="acme")}

    async def asked(transfer: Transfer) -> None:
        for tenant in ("acme", "bolt", "third", ""):
            await transfer.fetch(FetchRequest(url, tenant=tenant), Memory())

    within(asked, settings=tuned(credentials=table))
    sent = [request.headers.get("authorization") for request in origin.requests]
    assert sent == ["Bearer acme", "Basic Yjo=", "Bearer everybody", "Bearer everybody"]
    origin.requests.clear()
    within(asked, settings=tuned(credentials=own))
    assert [request.headers.get("authorization") for request in origin.requests] == ["Bearer acme", None, None, None]
