"""What is one version of one object: the single decision behind resume, pieces, mirrors, redirects and 304 answers.

Bytes that came in different answers may be joined, and stored bytes may be called current, only if all of them belong to
one version. A version is identified by

- the URL that was asked for, and the URL that finally answered: two servers behind one redirect are two objects, even if
  they send the same entity tag (nginx makes its tag of modification time and size);
- the validators, the length and the digests that the server declared;
- the caller: the request's own headers and its login (`caller_of`), because a server may answer each caller differently.

`difference` compares two of them and returns the first thing that differs. Whatever asks it does the same with the
answer: None means that the bytes may be joined, anything else means starting again from zero. It was rejected to trust a
strong entity tag across URLs, because servers make tags that are unique only within one of their own resources.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from longshore.domain.model import Validators

NO_CALLER: Final = ""  # a request without headers of its own


class Proof(Enum):
    """What has to show that an answer is of the stored version."""

    ETAG = "etag"  # the answer repeats the stored entity tag
    DATE = "date"  # the answer repeats the stored modification date
    UNCHANGED = "unchanged"  # a 304: validators may be left out, but not contradict
    OVERLAP = "overlap"  # the bytes themselves are compared: validators may be left out, but not contradict


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one object, as far as requests and answers tell."""

    asked: str | None
    final: str | None
    validators: Validators
    total: int | None = None
    digests: Mapping[str, str] = field(default_factory=dict)  # declared by the server: algorithm to hex
    caller: str = NO_CALLER


def difference(stored: Version, answer: Version, proof: Proof) -> str | None:
    """Return why the answer is not of the stored version, or None if everything agrees."""
    if stored.asked is None or stored.asked != answer.asked:
        return "other_url"
    if stored.caller != answer.caller:
        return "other_caller"
    if stored.final is None or stored.final != answer.final:
        return "other_final_url"
    if (changed := _validator_difference(stored.validators, answer.validators, proof)) is not None:
        return changed
    if stored.total is not None and answer.total is not None and stored.total != answer.total:
        return "total_mismatch"
    if any(answer.digests.get(name, value) != value for name, value in stored.digests.items()):
        return "digests_mismatch"
    return None


def _validator_difference(stored: Validators, answer: Validators, proof: Proof) -> str | None:
    """Compare what both name; what serves as the proof has to be there (RFC 9110 15.3.7.3).

    An entity tag that appears only in the answer differs, too: whatever sends it is not what sent the stored bytes.
    """
    if stored.etag is None and answer.etag is not None:
        return "validators_mismatch"
    pairs = ((stored.etag, answer.etag), (stored.last_modified, answer.last_modified))
    if any(have is not None and came is not None and have != came for have, came in pairs):
        return "validators_mismatch"
    needed = {Proof.ETAG: answer.etag, Proof.DATE: answer.last_modified}
    return "validators_missing" if proof in needed and needed[proof] is None else None


def caller_of(headers: Iterable[tuple[str, str]], logins: tuple[str, ...] = ()) -> str:
    """Hash the headers that a request adds by itself, and the logins (`identity.logins`) that it is sent with.

    The order of headers counts only among fields of one name.
    """
    fields = sorted(((name.lower(), value.strip()) for name, value in headers), key=lambda field: field[0])
    if not fields and not logins:
        return NO_CALLER
    known = ["longshore-caller", 2, fields, logins] if logins else ["longshore-caller", 1, fields]
    return hashlib.sha256(json.dumps(known, separators=(",", ":")).encode()).hexdigest()


def varies_always(vary: str | None) -> bool:
    """Return whether a Vary field says that no two requests can be known to get the same answer.

    The headers that a request adds are part of its version, so a Vary that names them needs no look.
    """
    return vary is not None and "*" in (name.strip() for name in vary.split(","))
