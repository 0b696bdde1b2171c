"""Input items: URLs, records, requests. Each becomes a `JobRequest` or a refusal that names the item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from longshore.depot.records import Refused
from longshore.domain.identity.requests import download_request
from longshore.domain.model import JobRequest
from longshore.errors import BadInput

BATCH: Final = 2_000  # requests per planning transaction
Item = str | Mapping[str, Any] | tuple[str, str, str] | JobRequest
_FIELDS: Final = frozenset(
    {
        "url", "work_id", "artifact_id", "mirrors", "sha256", "size_bytes", "media_type", "digests", "name", "headers",
        "priority", "params", "run_id", "request_id",
    }
)  # fmt: skip


def as_request(item: Item) -> JobRequest:
    """Parse one item; raise `BadInput` with the error."""
    match item:
        case JobRequest():
            return item
        case str():
            return download_request(item)
        case Mapping():
            if unknown := item.keys() - _FIELDS:
                raise BadInput(f"unknown field {min(unknown)!r}")
            if "url" not in item:
                raise BadInput("a record needs a url")
            return download_request(**item)
        case (work_id, artifact_id, url):
            return download_request(url, work_id=work_id, artifact_id=artifact_id)
        case _:
            raise BadInput(f"not a URL, a record or a request: {type(item).__name__}")


def each_of(items: object) -> Iterable[Any]:
    """Return the items of a list; a single URL, record or request is a list of one."""
    if isinstance(items, str | Mapping | JobRequest):
        return [items]
    if isinstance(items, bytes | bytearray) or not isinstance(items, Iterable):
        raise BadInput(f"expected URLs, records or requests, not {type(items).__name__}")
    return items


def in_batches(items: object) -> Iterator[tuple[list[JobRequest], list[Refused]]]:
    """Parse items as they arrive, in batches, so that memory stays bounded."""
    iterator = iter(each_of(items))
    while chunk := list(islice(iterator, BATCH)):
        yield _read(chunk)


def _read(chunk: list[Any]) -> tuple[list[JobRequest], list[Refused]]:
    requests, refused = [], []
    for item in chunk:
        if (line := getattr(item, "line", None)) is not None and hasattr(item, "message"):
            refused.append(Refused(f"line {line}", item.message, line))  # an invalid line of a list, with its message
            continue
        try:
            requests.append(as_request(item))
        except BadInput as error:
            refused.append(Refused(_short(item), str(error)))
    return requests, refused


def _short(item: object) -> str:
    from longshore.domain.policy.redaction import safe_url

    return safe_url(item, 200) if isinstance(item, str) else type(item).__name__
