"""Short job ids: the beginning or the end of an id, if it is unique."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from longshore.errors import BadInput, NotFound

if TYPE_CHECKING:
    from longshore.domain.model import Scope
    from longshore.ledger import Ledger

SHORTEST: Final = 6
SHOWN: Final = 10  # ids in an error
_SHORT: Final = re.compile(r"[0-9a-f-]{1,35}\Z", re.IGNORECASE | re.ASCII)


def full_id(ledger: Ledger, scope: Scope, given: str) -> str:
    """Return the id that a short one means; return other text unchanged. Raise `BadInput` if it is ambiguous."""
    if not _SHORT.match(given):
        return given
    if len(given) < SHORTEST:
        raise NotFound(
            f"no job {given}", hint=f"a short id has at least {SHORTEST} characters: the last ones of the id"
        )
    found = ledger.ids_like(scope, given.lower(), SHOWN + 1)
    if len(found) < 2:
        return found[0] if found else given
    more = " and more" if len(found) > SHOWN else ""
    raise BadInput(
        f"{given} could be {', '.join(found[:SHOWN])}{more}", hint="the last characters of an id tell jobs apart"
    )


def full_ids(ledger: Ledger, scope: Scope, given: Iterable[str]) -> list[str]:
    """Return the ids that these mean, before anything is done to one of them."""
    return [full_id(ledger, scope, one) for one in given]
