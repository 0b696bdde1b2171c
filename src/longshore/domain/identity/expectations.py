"""What a request expects of the bytes, and when the job of an earlier request is an answer to it.

Expectations (digests, size, media type) belong to the request. A job is planned once per key, so a request may find a job
that was planned with other expectations. Then

- the same expectations: it is the same request, whatever became of the job;
- a job that completed answers if every expectation was checked when it completed, or is met by the recorded result;
- otherwise the job may end differently from what this request asks for (it may complete with bytes that this request
  refuses, or fail by a digest that this request never named), so the request gets a job of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from longshore.domain.identity.keys import check_text, job_key
from longshore.domain.identity.object_versions import caller_of
from longshore.domain.model import Expect, Status

_SUCCEEDED = frozenset({Status.COMPLETED.value, Status.SKIPPED.value})


@dataclass(frozen=True, slots=True)
class Result:
    """What the registry says of a job's result."""

    sha256: str
    size_bytes: int
    media_type: str


def is_answer(wanted: Expect, given: Expect, status: str, result: Result | None) -> bool:
    """Return whether a job that was planned with expectations `given` answers a request that has `wanted`."""
    if wanted == given:
        return True
    return status in _SUCCEEDED and meets(wanted, given, result)


def meets(wanted: Expect, checked: Expect, result: Result | None) -> bool:
    """Return whether each expectation was checked before, or is met by the recorded result."""
    return (
        wanted.sha256 in (None, checked.sha256, result and result.sha256)
        and wanted.size_bytes in (None, checked.size_bytes, result and result.size_bytes)
        and wanted.media_type in (None, checked.media_type, result and result.media_type)
        and set(wanted.digests) <= set(checked.digests)
    )


def contradiction(one: Expect, other: Expect) -> str | None:
    """Return the name of an expectation in which two requests for one URL exclude each other, or None."""
    pairs = {
        "sha256": (one.sha256, other.sha256),
        "size_bytes": (one.size_bytes, other.size_bytes),
        "media_type": (one.media_type, other.media_type),
    }
    digests = dict(other.digests)
    pairs |= {name: (value, digests.get(name)) for name, value in one.digests}
    return next((name for name, (a, b) in pairs.items() if a is not None and b is not None and a != b), None)


def request_key(work_id: str, artifact_id: str, canonical_url: str, headers: tuple[tuple[str, str], ...]) -> str:
    """Key a download: the v1 key of the triple; with headers of its own, one that holds a hash of them as well."""
    key = job_key(work_id, artifact_id, canonical_url)
    return _derived(key, "caller", caller_of(headers)) if headers else key


def login_key(key: str, login: str) -> str:
    """Key a download that is sent with a configured login (`identity.logins`)."""
    return _derived(key, "login", login)


def own_key(key: str, expect: Expect) -> str:
    """Key a request whose expectations the job of `key` does not answer."""
    digests = ",".join(f"{name}={value}" for name, value in sorted(expect.digests))
    parts = (expect.sha256 or "", "" if expect.size_bytes is None else str(expect.size_bytes), expect.media_type or "")
    return _derived(key, "expect", "\n".join((*parts, digests)))


def _derived(key: str, kind: str, text: str) -> str:
    return job_key(check_text("key", key), kind, text or "-")
