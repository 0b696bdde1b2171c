"""The resume ladder: from the stored part and the server's answer to what happens next. Pure decisions.

Before the request `plan` says what to ask for; after its head `decide` says what the body is. Every path ends with bytes
that are one version of one object (`domain.identity.object_versions` decides what that is), or with another request from zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from longshore.domain.identity.object_versions import Proof, Version, difference
from longshore.domain.model import Validators
from longshore.domain.transfer.declared_digests import declared_digests
from longshore.domain.transfer.response_head import Head, http_date

STRONG_DATE_AGE_S: Final = 60.0


class Stored(Protocol):
    """The metadata of a part, stored durably before its bytes are used."""

    @property
    def url(self) -> str | None:
        """What was asked for."""

    @property
    def final_url(self) -> str | None:
        """What answered, after redirects."""

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The fields of the answer that its verdict needs; None if they were not stored."""

    @property
    def validators(self) -> Validators:
        """What the server said identifies the object."""

    @property
    def total(self) -> int | None:
        """Length of the whole object, if it was declared."""

    @property
    def durable_bytes(self) -> int:
        """How many bytes are fsynced."""


@dataclass(frozen=True, slots=True)
class FromZero:
    """Ask for the whole object."""

    reason: str


@dataclass(frozen=True, slots=True)
class FromOffset:
    """Ask from `start`; `if_range` makes a changed object come whole. `start` below the durable offset is an overlap."""

    start: int
    if_range: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The part is the whole object: verify and publish it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Continue:
    """The body goes on at `offset` and ends before `end`."""

    offset: int
    end: int
    reason: str = "ok"


@dataclass(frozen=True, slots=True)
class ComparePrefix:
    """The body starts at `offset`, below our `upto`: compare what overlaps, then go on. A difference is a new object."""

    offset: int
    upto: int
    reason: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Drop the part. `again`: this answer is of no use either, ask once more from zero; else it is the whole object."""

    reason: str
    again: bool


Plan = FromZero | FromOffset | Finished
Decision = Continue | ComparePrefix | Finished | Restart


def strong_validator(validators: Validators, answered: str | None) -> str | None:
    """Return what If-Range may carry: a strong entity tag, or a date that is old enough to be strong (RFC 9110 8.8.2.2).

    `answered` is the Date of the answer that brought the validators. A date is never used where there is an entity tag.
    """
    if validators.etag is not None:
        return validators.strong_etag
    changed, then = http_date(validators.last_modified), http_date(answered)
    if changed is None or then is None or then - changed < STRONG_DATE_AGE_S:
        return None
    return validators.last_modified


def lasting_validators(head: Head) -> Validators:
    """Return the validators by which a later 304 may be believed: an entity tag, or a date that was old when it was sent.

    An object can be rewritten within the second of its date, so a young date does not identify one version.
    """
    found = head.validators
    return found if found.etag is not None or strong_validator(found, head.headers.get("date")) else Validators()


def plan(
    part: Stored | None,
    url: str,
    *,
    answered: str | None = None,
    overlap_bytes: int = 0,
    without_validators: bool = False,
) -> Plan:
    """Return what to ask for, given the part of an earlier attempt."""
    if part is None or part.durable_bytes <= 0:
        return FromZero("no_part")
    if part.url != url:
        return FromZero("other_url")
    if part.total is not None and part.durable_bytes > part.total:
        return FromZero("part_too_long")
    if part.total == part.durable_bytes:
        return _whole_part(part, url)
    if validator := strong_validator(part.validators, answered):
        return FromOffset(part.durable_bytes, validator, "ok")
    if without_validators and overlap_bytes > 0:
        return FromOffset(max(0, part.durable_bytes - overlap_bytes), None, "unvalidated")
    weak = part.validators.etag is not None or part.validators.last_modified is not None
    return FromZero("validators_weak" if weak else "validators_missing")


def _whole_part(part: Stored, url: str) -> Plan:
    """Take a part of which no byte is missing, if its length is all that makes it complete.

    An FTP server says after the data whether it was good. A part does not know that reply: had it been success, the part
    would have been published.
    """
    if url.startswith(("ftp:", "ftps:")):
        return FromZero("unconfirmed")
    return Finished("complete") if part.headers is not None else FromZero("head_unknown")


def decide(part: Stored, asked: FromOffset, head: Head, *, digest_known: bool = False) -> Decision:
    """Return what the answer to a range request is. `digest_known`: the final hash will be compared with an expected one."""
    if head.status == 206:
        return _partial(part, asked, head)
    if head.status == 416:
        return _unsatisfiable(part, asked, head, digest_known=digest_known)
    return _whole(part, asked, head)


def _partial(part: Stored, asked: FromOffset, head: Head) -> Decision:
    span = head.content_range
    fault = _range_fault(part, asked, head)
    if fault is not None or span is None or span.last is None:
        return Restart(fault or "bad_content_range", again=True)
    if asked.start < part.durable_bytes:
        return ComparePrefix(asked.start, part.durable_bytes, "unvalidated")
    return Continue(asked.start, span.last + 1)


def _range_fault(part: Stored, asked: FromOffset, head: Head) -> str | None:
    span = head.content_range
    if head.media_type == "multipart/byteranges":
        return "multipart"
    if head.encoding is not None:
        return "encoded"
    if span is None or span.first is None:
        return "bad_content_range"
    if span.first != asked.start:
        return "wrong_start"
    if span.total is None:
        return "total_unknown"
    if head.length is not None and head.length != span.length:
        return "length_mismatch"
    return _other_version(part, asked, head)


def _other_version(part: Stored, asked: FromOffset, head: Head) -> str | None:
    """Return why an answer is not of the part's version, whatever If-Range promised."""
    stored = Version(part.url, part.final_url, part.validators, part.total, declared_digests(part.headers or {}))
    answer = Version(part.url, head.url, head.validators, head.total, declared_digests(head.headers))
    if asked.if_range is None:
        return difference(stored, answer, Proof.OVERLAP)
    return difference(stored, answer, Proof.ETAG if asked.if_range == part.validators.etag else Proof.DATE)


def _whole(part: Stored, asked: FromOffset, head: Head) -> Decision:
    """Take a 200: the whole object, unchanged (the server ignores ranges) or new."""
    if head.encoding is not None:
        return Restart("encoded", again=True)
    changed = _other_version(part, asked, head)
    if asked.if_range is None:
        return Restart("no_accept_ranges", again=_may_be_the_rest(part, asked, head, changed))
    if changed is not None:
        return Restart(changed, again=_may_be_the_rest(part, asked, head, changed))
    return ComparePrefix(0, part.durable_bytes, "no_accept_ranges")


def _may_be_the_rest(part: Stored, asked: FromOffset, head: Head, changed: str | None) -> bool:
    """Return whether a 200 may hold only the bytes that were asked for, sent under the wrong status.

    It may if it is as long as the rest, or if nothing in it shows a new version: then only its length, or the lack of one,
    speaks against the part. An answer to a request without Range leaves no doubt.
    """
    if part.total is not None and head.length == part.total - asked.start:
        return True
    if changed is None:
        return head.length is None or head.length != part.total
    return changed in ("total_mismatch", "validators_missing")


def _unsatisfiable(part: Stored, asked: FromOffset, head: Head, *, digest_known: bool) -> Decision:
    total = head.content_range.total if head.content_range else None
    if total is None:
        return Restart("unsatisfiable", again=True)
    declared = part.total is None or total == part.total  # a server that told another length before is not believed
    if total != part.durable_bytes or asked.start != part.durable_bytes or not declared:
        return Restart("total_mismatch", again=True)
    agrees = asked.if_range is not None and _other_version(part, asked, head) is None
    if agrees or digest_known:
        return Finished("range_complete")
    return Restart("unproven", again=True)
